"""Encoder–decoder wiring: every decoder layer reads the last encoder layer.

Drawings with arrows from layer to layer suggest that decoder layer i reads encoder layer i. It does not:
cross-attention of all decoder layers reads one memory, the output of the whole encoder. We prove it by intervention:
change one place, hold another, and see what changes.

Axes:  B batch   S source   T target   C width
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from headway.figures import HeatMap, Plot
from headway.learn.explanation import Diagram, ExplanationStep, Question, ValueTable
from headway.nn.block import Stack
from headway.nn.trace import record
from headway.nn.trunk import EncoderDecoder
from headway.zoo.transformer import Config, build

FAST = {"layers": 2, "dim": 8}
VOCAB, SOURCE, TARGET = 20, 6, 5


@contextmanager
def replaced(part: nn.Module, change: Callable[[Tensor], Tensor]) -> Generator[None]:
    """The output of a part, changed for the length of a block."""

    def changed(module: nn.Module, given: object, output: Tensor) -> Tensor:
        return change(output)

    handle = part.register_forward_hook(changed)
    try:
        yield
    finally:
        handle.remove()


def stack_of(model: EncoderDecoder) -> Stack:
    assert isinstance(model.encoder.stack, Stack)
    return model.encoder.stack


def steps(layers: int = 4, dim: int = 32) -> Iterator[ExplanationStep]:
    model = build(Config(vocab=VOCAB, dim=dim, layers=layers, heads=2, dropout=0.0)).eval()
    source, target = torch.randint(VOCAB, (1, SOURCE)), torch.randint(VOCAB, (1, TARGET))
    encoder, noise = stack_of(model), torch.randn(1, SOURCE, dim)

    def output(*changes: tuple[nn.Module, Callable[[Tensor], Tensor]]) -> Tensor:
        with ExitStack() as opened, torch.no_grad():
            for part, change in changes:
                opened.enter_context(replaced(part, change))
            return model(source, target)

    before = output()
    with torch.no_grad():
        memory = model.encoder(source)
    free = [float((output((one, lambda y: y + noise)) - before).abs().max()) for one in encoder.blocks]
    held = [
        float((output((one, lambda y: y + noise), (encoder, lambda _: memory)) - before).abs().max())
        for one in encoder.blocks
    ]
    yield ExplanationStep(
        "Disturb an encoder layer, with the last output free or held.",
        [
            f"Noise is added to the output of one of {layers} encoder layers. Free: the disturbance runs on to the "
            "last output. Held: the last output is put back as it was. If any decoder layer read an earlier encoder "
            "layer, it would notice.",
        ],
        [
            ValueTable(
                "change of the decoder's output",
                ["disturbed layer", "last output free", "last output held"],
                [[at + 1, free[at], held[at]] for at in range(layers)],
                ".2e",
            )
        ],
        question=Question("With the last output held, what is the largest change?", max(held)),
    )
    cross = [f"decoder.{at}.cross.heads" for at in range(layers)]

    def seen(change: Callable[[Tensor], Tensor]) -> list[Tensor]:
        with record(model, *cross) as trace, torch.no_grad(), replaced(encoder, change):
            model(source, target)
        return [value for site in cross if isinstance(value := trace[site], Tensor)]

    plain, moved = seen(lambda y: y), seen(lambda y: y + noise)
    changes = [float((a - b).abs().max()) for a, b in zip(plain, moved, strict=True)]
    reading = sum(change > 0 for change in changes)
    yield ExplanationStep(
        "Disturb the last output: which decoder layers notice?",
        [
            "Noise is added to the output of the whole encoder; the table has the change of each cross-attention's "
            "heads."
        ],
        [
            ValueTable(
                "change of cross-attention",
                ["decoder layer", "change"],
                [[at + 1, c] for at, c in enumerate(changes)],
                ".3f",
            )
        ],
        question=Question(f"How many of {layers} decoder layers read the last encoder output?", reading),
    )
    reads = list[list[float]]()
    for one in [*encoder.blocks, encoder]:
        row = list[float]()
        for at in range(layers):
            parts: list[tuple[nn.Module, Callable[[Tensor], Tensor]]] = [(one, lambda y: y + noise)]
            if one is not encoder:
                parts.append((encoder, lambda _: memory))
            with record(model, cross[at]) as trace, torch.no_grad(), ExitStack() as opened:
                for part, change in parts:
                    opened.enter_context(replaced(part, change))
                model(source, target)
            value = trace[cross[at]]
            assert isinstance(value, Tensor)
            row.append(float((value - plain[at]).abs().max() > 0))
        reads.append(row)
    arrows = int(sum(map(sum, reads)))
    names = [*(f"encoder layer {at + 1}" for at in range(layers)), "encoder output"]
    yield ExplanationStep(
        "The wiring, found by intervention.",
        ["1 where a disturbance of the row, with everything behind it held, reaches the decoder layer of the column."],
        [
            ValueTable(
                "who reads what",
                ["disturbed", *(f"decoder {at + 1}" for at in range(layers))],
                [[name, *(int(x) for x in row)] for name, row in zip(names, reads, strict=True)],
            ),
            Diagram(
                "wiring",
                [
                    "source → " + " → ".join(f"enc {at + 1}" for at in range(layers)) + " → norm → memory",
                    "memory → " + ", ".join(f"dec {at + 1}" for at in range(layers)) + "   (each of them)",
                ],
            ),
        ],
        figure=Plot(
            "what each decoder layer reads",
            [
                HeatMap(
                    "", reads, names, [str(at + 1) for at in range(layers)], xlabel="decoder layer", limits=(0.0, 1.0)
                )
            ],
        ),
        question=Question("How many connections from encoder to decoder were found?", arrows),
        conclusion=f"{arrows} connections, all of them from the encoder's output."
        if arrows == sum(reads[-1])
        else f"{arrows} connections were found.",
    )
