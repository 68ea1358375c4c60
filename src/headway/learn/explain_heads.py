"""The topic `heads`: what several heads cost, and what one head cannot keep apart.

Axes:  C width   H heads   D head width   S keys
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headway.learn.explain_attention import attended
from headway.learn.explain_layers import parameters
from headway.learn.explanation import ExplanationStep, Formula, Matrix, Question, ValueTable
from headway.learn.topic_inputs import TopicInputs
from headway.nn.attention import UNBIASED, SelfAttention, share
from headway.ops.attend import DOT

SHARP = 40.0  # of keys, so that a head that looks at one key gives it all its weight


def steps(inputs: TopicInputs) -> Iterator[ExplanationStep]:
    dim, heads = inputs.count("dim", 512, 1, 1 << 16), inputs.count("heads", 8)
    width = share(dim, heads)
    yield ExplanationStep(
        f"Narrow heads: {heads} heads share the width, {dim} / {heads} = {width} each.",
        ["Queries, keys, values and the outputs of all heads side by side are C wide, whatever H is: cost stays."],
        [ValueTable("weights of narrow heads", HEADER, [row(dim, n, None) for n in counts(heads) if dim % n == 0])],
        Formula(
            "Y = [head_1 … head_H] W_O,  D = C / H", r"Y = [\text{head}_1 \cdots \text{head}_H] W_O,\quad D = C / H"
        ),
        question=Question(f"How wide is each of {heads} narrow heads at C = {dim}?", width),
    )
    yield ExplanationStep(
        f"Full-width heads: each head has the whole width, and W_O takes H · {dim} numbers back to {dim}.",
        ["Weights and compute grow with the number of heads."],
        [ValueTable("weights of full-width heads", HEADER, [row(dim, n, dim) for n in counts(heads)])],
        Formula("D = C,  W_O: H·C → C", r"D = C,\quad W_O \in \mathbb{R}^{HC \times C}"),
        question=Question(
            f"How many weights have {heads} full-width heads, as a multiple of narrow ones?",
            float(heads),
            tolerance=1e-9,
        ),
    )
    yield from blurred()


HEADER = ("heads", "head width", "W_Q", "W_O", "all weights")


def counts(heads: int) -> list[int]:
    return sorted({n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n < heads} | {heads})


def row(dim: int, heads: int, head_dim: int | None) -> list[int]:
    with torch.device("meta"):
        layer = SelfAttention(dim, heads, head_dim=head_dim, bias=UNBIASED)
    return [heads, layer.head_dim, layer.q.weight.numel(), layer.out.weight.numel(), parameters(layer)]


def blurred() -> Iterator[ExplanationStep]:
    """A query that needs two things: what a noun is, and what colour it has."""
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64) * SHARP
    words = ["subject", "object", "other"]
    first = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)
    second = first[[1, 0, 2]]  # subject and object trade their values
    one = torch.tensor([[1.0, 1.0]], dtype=torch.float64)  # looks at both
    yield ExplanationStep(
        "One head blurs: it must look at two things with one set of weights.",
        [
            "The query needs the subject and the object. One head gives each half of its weight and returns the mean, "
            "so two scenes whose subject and object have traded places look the same.",
        ],
        [
            Matrix("weights of one head", weights(one, keys, 1), ["query"], words),
            Matrix("values of scene 1", first.tolist(), words, digits=1),
            Matrix("values of scene 2", second.tolist(), words, digits=1),
            Matrix("output of one head", [*output(one, keys, first, 1), *output(one, keys, second, 1)], SCENES),
        ],
    )
    # the first head asks by the first dimension of keys, the second by the other
    yield ExplanationStep(
        "Two heads keep them apart: each has weights of its own.",
        [
            "The first head looks at the subject and the second at the object. Each returns one vector, and side by "
            "side they say who is who: the two scenes differ.",
        ],
        [
            Matrix("weights of two heads", weights(one, keys, 2), ["head 1", "head 2"], words),
            Matrix(
                "output of two heads",
                [
                    *output(one, keys, torch.cat((first, first), 1), 2),
                    *output(one, keys, torch.cat((second, second), 1), 2),
                ],
                SCENES,
            ),
        ],
        question=Question(
            "Can two heads tell the two scenes apart?",
            "yes, each returns one value",
            ("no, they blur too", "yes, each returns one value"),
        ),
    )


SCENES = ("scene 1", "scene 2")


def weights(q: Tensor, k: Tensor, heads: int) -> list[list[float]]:
    return attended(q, k, k, DOT, heads).weights[:, 0].tolist()


def output(q: Tensor, k: Tensor, v: Tensor, heads: int) -> list[list[float]]:
    return attended(q, k, v, DOT, heads).output.tolist()
