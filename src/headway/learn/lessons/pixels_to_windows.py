"""Pixels, patches, windows: what attention over an image stores.

Attention over all pixels stores (H·W)² weights a head: the fourth power of the side. Patches of 16 divide that by
65,536. Windows of 7 × 7 cells on a grid of 4 × 4 patches grow with the area only. We count, fit exponents, and check
the count against the bytes that a real layer keeps.

Axes:  N tokens   M side of a window
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headway.console import binary
from headway.figures import CurveChart, Plot, exponent
from headway.learn.experiment import curve, saved_bytes
from headway.learn.explain_memory import AttentionWeights
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.ops.attend import attend

FAST = {"sides": (56, 112), "checked": (4, 8)}
WINDOW = 7


def stored(side: int) -> dict[str, AttentionWeights]:
    """One head of one layer, 32 bits."""
    return {
        "pixels": AttentionWeights(side**2),
        "patches of 16": AttentionWeights((side // 16) ** 2),
        "patches of 4": AttentionWeights((side // 4) ** 2),
        "windows of 7 × 7": AttentionWeights((side // 4) ** 2, window=WINDOW),
    }


def steps(
    sides: tuple[int, ...] = (56, 112, 224, 448, 896), checked: tuple[int, ...] = (8, 16, 32)
) -> Iterator[ExplanationStep]:
    sizes = {side: {name: weights.bytes for name, weights in stored(side).items()} for side in sides}
    names = list(sizes[sides[0]])
    powers = {name: exponent(sides, [sizes[side][name] for side in sides]) for name in names}
    yield ExplanationStep(
        "Bytes of the weights by the side of the image.",
        ["One head of one layer in 32 bits. Exponents by least squares: 4 is the fourth power of the side."],
        [
            ValueTable(
                "weights of one head",
                ["side", *names],
                [[side, *(binary(sizes[side][name]) for name in names)] for side in sides],
            ),
            ValueTable("exponents of the side", ["tokens", "exponent"], list(powers.items()), ".2f"),
        ],
        figure=Plot(
            "bytes of the weights of one head",
            [
                CurveChart(
                    "",
                    [curve(name, sides, [sizes[side][name] for side in sides]) for name in names],
                    "side of the image",
                    xscale="log",
                    yscale="log",
                    height=2.4,
                )
            ],
        ),
        question=Question("With which power of the side do windows grow?", powers["windows of 7 × 7"], tolerance=0.1),
    )
    grid, whole = AttentionWeights(56**2, window=WINDOW), AttentionWeights(56**2)
    pixels = AttentionWeights(128**2, heads=16, layers=48)
    yield ExplanationStep(
        "Three known cases.",
        ["A transformer on pixels, a ViT, and the first stage of a Swin with and without windows."],
        [
            ValueTable(
                "known cases",
                ["case", "entries of a matrix", "bytes"],
                [
                    ["pixels 128×128, 48 layers, 16 heads", pixels.entries, binary(pixels.bytes)],
                    ["ViT 14×14, one matrix", AttentionWeights(196).entries, binary(AttentionWeights(196).bytes)],
                    ["56×56 cells, one matrix", whole.entries, binary(whole.bytes)],
                    ["56×56 cells in windows of 7×7", grid.entries, binary(grid.bytes)],
                ],
            )
        ],
        question=Question(
            "How many times fewer entries has a 56×56 grid in windows of 7×7?", whole.entries / grid.entries
        ),
    )
    rows = list[list[int]]()
    for side in checked:
        x = torch.randn(1, 1, side**2, 8, requires_grad=True)
        kept = saved_bytes(lambda x=x: attend(x, x, x, edit=lambda weights: weights))
        rows.append([side, AttentionWeights(side**2).bytes, kept])
    shares = [row[1] / row[2] for row in rows]
    yield ExplanationStep(
        "The count, beside the bytes that a layer keeps.",
        [
            "Attention over all pixels of a small image with its matrix written out, vectors of width 8: what is kept "
            "for the gradient is that matrix and little else.",
        ],
        [ValueTable("count and measure", ["side", "weights, counted", "kept, measured"], rows)],
        question=Question(
            f"Which share of what is kept are the weights, for a side of {checked[-1]}?", shares[-1], tolerance=0.05
        ),
        conclusion=f"At side {checked[-1]} the counted weights are {shares[-1]:.3f} of the bytes kept.",
    )
