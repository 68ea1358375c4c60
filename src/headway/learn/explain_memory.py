"""The topic `memory`: what the weights of attention take if they are stored, in bytes of two kinds of unit.

Axes:  N tokens   H heads   L layers   M side of a window
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headway.console import spaced
from headway.errors import UserError, counted
from headway.learn.explanation import ExplanationStep, Formula, Question, ValueTable
from headway.learn.topic_inputs import TopicInputs
from headway.ops.attention_map import BLOCK

BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


class AttentionWeights(NamedTuple):
    """The matrices of attention of a model: N × N for each head of each layer, or N × M² with windows on a grid."""

    tokens: int
    heads: int = 1
    layers: int = 1
    bits: int = 32
    window: int | None = None

    @property
    def entries(self) -> int:
        """Of one matrix."""
        return self.tokens * (self.tokens if self.window is None else self.window**2)

    @property
    def bytes(self) -> int:
        return self.entries * self.heads * self.layers * self.bits // 8


# what lectures count, with the unit that they mean
CASES = {
    "text": (AttentionWeights(100_000, heads=64, bits=16), "GiB"),
    "pixels, 128×128": (AttentionWeights(128**2, heads=16, layers=48), "GiB"),
    "ViT, 14×14, a matrix": (AttentionWeights(14**2), "KiB"),
    "ViT, 14×14": (AttentionWeights(14**2, heads=16, layers=48), "MiB"),
    "ViT, 16×16, a matrix": (AttentionWeights(16**2), "KiB"),
    "ViT, 16×16": (AttentionWeights(16**2, heads=16, layers=48), "MiB"),
}
SIZES = ("n", "heads", "layers", "bits", "window")


def steps(inputs: TopicInputs) -> Iterator[ExplanationStep]:
    own = any(inputs[name] is not None for name in SIZES)
    case = own_case(inputs) if own else CASES["text"][0]
    yield worked(case)
    if not own:
        yield known_cases()
        yield windows()
        yield real_models()
    yield by_blocks(case)


def own_case(inputs: TopicInputs) -> AttentionWeights:
    bits = inputs.count("bits", 32)
    if bits not in (8, 16, 32, 64):
        raise UserError(f"bits={bits}", allowed="8, 16, 32 or 64")
    window = None if inputs.window is None else inputs.count("window", 1)
    case = AttentionWeights(inputs.count("n", 1024), inputs.count("heads", 1), inputs.count("layers", 1), bits, window)
    if window is not None and window**2 > case.tokens:
        raise UserError(f"window={window} for {case.tokens} tokens", allowed="a window of at most as many tokens")
    return case


def worked(case: AttentionWeights) -> ExplanationStep:
    n, h, layers, bits, window = case
    keys = f"{spaced(n)}" if window is None else f"{window}²"
    size = f"{spaced(n)} · {keys} · {h} · {layers} · {bits}/8 = {spaced(case.bytes)} bytes"
    return ExplanationStep(
        "One weight for each pair of a query and a key, in each head of each layer.",
        [f"{spaced(n)} tokens, {counted(h, 'head')}, {counted(layers, 'layer')}, {bits} bits: {size}."],
        [
            ValueTable(
                "in all units",
                ["binary", "× 1024 each", "decimal", "× 1000 each"],
                [
                    [BINARY[at], case.bytes / 1024**at, DECIMAL[at], case.bytes / 1000**at]
                    for at in range(units_of(case.bytes) + 1)
                ],
                ".2f",
            )
        ],
        Formula(
            "bytes = N · N · H · L · bits / 8" if window is None else "bytes = N · M² · H · L · bits / 8",
            r"\text{bytes} = N \cdot N \cdot H \cdot L \cdot \text{bits} / 8"
            if window is None
            else r"\text{bytes} = N \cdot M^2 \cdot H \cdot L \cdot \text{bits} / 8",
        ),
        question=Question(
            "With twice as many tokens, how many times the bytes?",
            case._replace(tokens=2 * n).bytes / case.bytes,
            tolerance=1e-9,
        ),
    )


def units_of(size: int) -> int:
    """The largest binary unit of which there is one whole."""
    return min(len(BINARY) - 1, max(0, (size.bit_length() - 1) // 10))


def known_cases() -> ExplanationStep:
    rows = [
        [name, case.tokens, case.heads * case.layers, case.bits, case.bytes, f"{in_unit(case.bytes, unit):.2f} {unit}"]
        for name, (case, unit) in CASES.items()
    ]
    first = CASES["text"][0]
    return ExplanationStep(
        "What lectures count.",
        [
            "These are often printed as 1.192 TB, 768 GB, 150 KB, 112 MB, 256 KB and 192 MB. The numbers are those of "
            f"binary units: GiB, KiB and MiB. In decimal units the first one is {first.bytes / 1000**4:.2f} TB.",
        ],
        [ValueTable("known cases", ["case", "tokens", "H · L", "bits", "bytes", "size"], rows)],
    )


def in_unit(size: int, unit: str) -> float:
    return size / 1024 ** BINARY.index(unit)


def windows() -> ExplanationStep:
    whole, windowed = AttentionWeights(56**2), AttentionWeights(56**2, window=7)
    return ExplanationStep(
        "Windows: a token of a 56×56 grid looks at 7×7 tokens, and memory grows with N alone.",
        values=[
            ValueTable(
                "entries of one matrix on a 56×56 grid",
                ["attention", "keys of a query", "entries"],
                [
                    ["to all tokens", whole.tokens, whole.entries],
                    ["in windows of 7×7", 7**2, windowed.entries],
                ],
            )
        ],
        formula=Formula("N · M² in place of N²", r"N \cdot M^2 \text{ in place of } N^2"),
        question=Question(
            "How many times fewer entries have windows of 7×7 on a 56×56 grid?", whole.entries / windowed.entries
        ),
    )


def real_models() -> ExplanationStep:
    """The same sizes, counted in forward passes of real models on the meta device."""
    from headway.zoo.build import config_of
    from headway.zoo.cost import cost

    def attention(preset: str, length: int | None = None, bits: int = 32, **sizes: object) -> int:
        return cost(config_of(preset, **sizes), length=length, bits=bits).bytes_by_kind()["attention"]

    pixels, vit = attention("pixels-128", layers=1), attention("vit-l16", layers=1, pool="mean")
    text = attention("llama-65b", length=100_000, bits=16, layers=1)
    stage = cost("swin-t")
    swin = stage.bytes(stage.layers["0"].attention)
    rows = [
        ["llama-65b, one layer of 64 heads", text, f"{in_unit(text, 'GiB'):.2f} GiB"],
        ["pixels-128, one layer × 48", 48 * pixels, f"{in_unit(48 * pixels, 'GiB'):.2f} GiB"],
        ["vit-l16 without class token, one layer × 48", 48 * vit, f"{in_unit(48 * vit, 'MiB'):.2f} MiB"],
        ["swin-t, first stage (2 layers of 3 heads)", swin, f"{in_unit(swin, 'MiB'):.2f} MiB"],
    ]
    return ExplanationStep(
        "The same from models: a forward pass on the meta device counts the entries of every map.",
        ["headway cost PRESET prints these for each layer of a model."],
        [ValueTable("attention of models", ["model", "bytes", "size"], rows)],
    )


def by_blocks(case: AttentionWeights) -> ExplanationStep:
    keys = case.entries // case.tokens
    rows = [
        [
            n,
            n * (keys if case.window else n) * case.bits // 8,
            min(BLOCK, n) * (keys if case.window else n) * case.bits // 8,
        ]
        for n in (case.tokens, 2 * case.tokens, 4 * case.tokens)
    ]
    return ExplanationStep(
        "Nobody needs to store them: flash attention is exact and takes memory that grows with N.",
        [
            "Softmax can be computed for one block of queries and keys after the other, so attention is quadratic "
            f"in time and linear in memory. headway reads recorded maps in bands of {BLOCK} queries. So both are "
            "true: stored weights are enormous, and attention need not store them.",
        ],
        [ValueTable("bytes of one matrix, and of one band of it", ["tokens", "matrix", f"band of {BLOCK} rows"], rows)],
    )
