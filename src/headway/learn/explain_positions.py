"""The topics `positions` and `equivariance`: what attention knows of order, and what it does not.

Axes:  T positions or tokens   C width   D head width
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headway.errors import UserError
from headway.figures import HeatMap, Plot
from headway.learn.explanation import ExplanationStep, Formula, Matrix, Quantity, Question, ValueTable
from headway.learn.topic_inputs import TopicInputs
from headway.nn.attention import UNBIASED, SelfAttention
from headway.nn.embed import SinusoidalPosition
from headway.ops.attend import Bilinear, Dot
from headway.ops.pattern import Causal
from headway.ops.rotary import PAIRS, Rotary, sinusoid, sinusoid_2d

SHIFT = 3  # positions
GRID = 4  # patches of a side


def position_steps(inputs: TopicInputs) -> Iterator[ExplanationStep]:
    count, dim = inputs.count("n", 64, 8, 4096), inputs.count("dim", 16, 4, 4096)
    if dim % 4:
        raise UserError(f"dim={dim}", allowed="a multiple of 4: sine and cosine, of rows and of columns")
    waves = sinusoid(torch.arange(count), dim).double()  # T C
    yield sinusoids(waves)
    yield from distances(waves)
    yield relative(waves)
    yield grid_positions(dim)
    yield rotary(inputs.count("seed", 0, 0))
    yield four_terms(inputs.count("seed", 0, 0))


def sinusoids(waves: Tensor) -> ExplanationStep:
    shown = waves[:5, :8]
    return ExplanationStep(
        "Sinusoids: each pair of dimensions is a clock hand that turns at a speed of its own.",
        [
            "Dimension 2i is the sine and 2i + 1 the cosine of the position times a frequency, from 1 radian a "
            "position down towards 1/10000. Positions are counted from 0 here; some texts count from 1.",
        ],
        [
            Matrix(
                "positions 0 to 4, first dimensions",
                shown.tolist(),
                [f"p = {at}" for at in range(len(shown))],
                [f"dim {at}" for at in range(shown.shape[1])],
                digits=4,
            )
        ],
        Formula(
            "P(p, 2i) = sin(p / 10000^(2i/C)),  P(p, 2i+1) = cos(p / 10000^(2i/C))",
            r"P_{p,2i} = \sin\!\left(p / 10000^{2i/C}\right),\quad P_{p,2i+1} = \cos\!\left(p / 10000^{2i/C}\right)",
        ),
        figure=Plot(
            "sinusoidal positions",
            [
                HeatMap(
                    "",
                    waves[:32].T.tolist(),
                    [str(at) for at in range(waves.shape[1])],
                    [str(at) for at in range(min(32, len(waves)))],
                    "dimension",
                    "position",
                    signed=True,
                )
            ],
        ),
        question=Question("What is the first number of position 0, sin(0)?", float(waves[0, 0])),
    )


def distances(waves: Tensor) -> Iterator[ExplanationStep]:
    apart = torch.cdist(waves, waves, compute_mode="donot_use_mm_for_euclid_dist")  # T T
    others = apart + torch.diag(torch.full((len(apart),), float("inf"), dtype=apart.dtype))
    yield ExplanationStep(
        "Distinct: no two positions have the same vector.",
        [f"Among the pairs of {len(waves)} positions in {waves.shape[1]} dimensions:"],
        [Quantity("smallest distance of two positions", float(others.min()))],
        Formula("P(i) ≠ P(j) for i ≠ j", r"P_i \neq P_j \quad\text{for } i \neq j"),
    )
    mean = [float(apart.diagonal(offset).mean()) for offset in range(len(waves))]
    spread = max(float(apart.diagonal(offset).std(correction=0)) for offset in range(len(waves)))
    growing = next((k for k in range(1, len(mean)) if mean[k] <= mean[k - 1]), len(mean)) - 1
    wide = sinusoid(torch.arange(512), 512).double()
    far = torch.linalg.vector_norm(wide - wide[0], dim=1).tolist()
    wide_growing = next(k for k in range(1, len(far)) if far[k] <= far[k - 1]) - 1
    yield ExplanationStep(
        "Nearer positions have nearer vectors, up to a distance.",
        [
            "The distance depends on |i − j| alone: its largest standard deviation over the pairs of one offset is "
            f"{spread:.1g}. It grows up to |i − j| = {growing} here, and up to {wide_growing} for C = 512; beyond, "
            "fast pairs have come round, and it goes up and down.",
        ],
        [
            ValueTable(
                "distance by offset", ["|i − j|", "distance"], [[k, mean[k]] for k in sorted({*range(7), 8, growing})]
            )
        ],
        Formula(
            "‖P(i) − P(j)‖² = Σ_i 2 − 2 cos(ω_i |i − j|)",
            r"\|P_i - P_j\|^2 = \sum_m 2 - 2\cos(\omega_m |i - j|)",
        ),
    )


def relative(waves: Tensor) -> ExplanationStep:
    """P(p + k) = R(k) P(p) with one matrix for all p: blocks of the sines and cosines of P(k)."""
    sines, cosines = waves[SHIFT, 0::2], waves[SHIFT, 1::2]
    turn = torch.block_diag(
        *(torch.stack((torch.stack((c, s)), torch.stack((-s, c)))) for s, c in zip(sines, cosines, strict=True))
    )
    error = (waves[:-SHIFT] @ turn.T - waves[SHIFT:]).abs().max()
    return ExplanationStep(
        f"Relative: to go {SHIFT} positions on is one rotation, the same wherever it starts.",
        [
            "Each pair is turned by the frequency times the shift; the matrix does not depend on p. So a linear layer "
            "can learn to look a fixed distance back.",
        ],
        [
            Matrix(f"R({SHIFT}), the first two pairs", turn[:4, :4].tolist()),
            Quantity("largest error of R P(p) over all p", float(error), form=".1e"),
        ],
        Formula(
            "P(p + k) = R(k) P(p),  R = blocks [cos ωk, sin ωk; −sin ωk, cos ωk]",
            r"P_{p+k} = R_k P_p,\quad R_k = \operatorname{blocks}\begin{pmatrix}\cos\omega k & \sin\omega k\\"
            r"-\sin\omega k & \cos\omega k\end{pmatrix}",
        ),
        question=Question("Does the rotation from position p to p + 3 depend on p?", "no", ("yes", "no")),
    )


def grid_positions(dim: int) -> ExplanationStep:
    cells = sinusoid_2d(GRID, GRID, dim).double()
    apart = torch.cdist(cells, cells)[0].unflatten(0, (GRID, GRID))
    names = [str(at) for at in range(GRID)]
    return ExplanationStep(
        "2-D: a patch has a row and a column, each with half of the dimensions.",
        [f"Distance of the vectors of a {GRID}×{GRID} grid from that of the patch in row 0, column 0:"],
        [
            Matrix(
                "distance from the first patch",
                apart.tolist(),
                [f"row {n}" for n in names],
                [f"col {n}" for n in names],
                4,
            )
        ],
        Formula("P(y, x) = [P(y) ; P(x)]", r"P_{y,x} = [P_y\,;\,P_x]"),
    )


def rotary(seed: int) -> ExplanationStep:
    """Scores of one query and one key vector at several positions."""
    random = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(1, 1, 1, 8, generator=random, dtype=torch.float64) for _ in range(2))
    turn, positions = Rotary(8, layout=PAIRS), torch.arange(5)
    turned_q, turned_k = (turn(one.expand(1, 1, len(positions), 8), positions[None]) for one in (q, k))
    scores = Dot()(turned_q, turned_k)[0, 0]
    names = [str(at) for at in positions.tolist()]
    spread = max(float(scores.diagonal(at).std(correction=0)) for at in range(4))
    return ExplanationStep(
        "Rotary: queries and keys are turned by their positions, so that scores know the distance alone.",
        [
            "One query vector and one key vector (drawn once) at positions m and n. Diagonals are constant: the score "
            f"depends on m − n, up to {spread:.0e}.",
        ],
        [
            Matrix(
                "score of a query at m and a key at n",
                scores.tolist(),
                [f"m = {n}" for n in names],
                [f"n = {n}" for n in names],
            )
        ],
        Formula(
            "(R(m) q) · (R(n) k) = q · R(n − m) k",
            r"(R_m q)^\top (R_n k) = q^\top R_{n-m}\, k",
        ),
    )


def four_terms(seed: int) -> ExplanationStep:
    """(x + p) W (x + p)ᵀ and its parts, for a few tokens."""
    random = torch.Generator().manual_seed(seed)
    dim, words = 8, 3
    x = torch.randn(1, 1, words, dim, generator=random, dtype=torch.float64)
    p = sinusoid(torch.arange(words), dim).double()[None, None]
    weight = torch.randn(dim, dim, generator=random, dtype=torch.float64) / dim
    score = Bilinear(weight)
    terms = {
        "content · content": score(x, x),
        "content · position": score(x, p),
        "position · content": score(p, x),
        "position · position": score(p, p),
    }
    whole = score(x + p, x + p)
    rows = [
        [f"{i} to {j}", *(float(term[0, 0, i, j]) for term in terms.values()), float(whole[0, 0, i, j])]
        for i in range(words)
        for j in range(words)
    ]
    error = (sum(terms.values(), torch.zeros_like(whole)) - whole).abs().max()
    short = ["x W x", "x W p", "p W x", "p W p", "whole"]
    return ExplanationStep(
        "Four terms: the score of (x + p) is a sum of contents and positions.",
        [
            "W stands for W_Q W_Kᵀ. The first term is attention without positions; the last one knows positions alone, "
            "whatever the words are; the two in the middle let a word look at a place, and a place at a word.",
        ],
        [
            ValueTable("score and its four terms", ["query to key", *short], rows, ".4f"),
            Quantity("largest difference of the sum and the whole", float(error), form=".1e"),
        ],
        Formula(
            "(x_i + p_i) W (x_j + p_j)ᵀ\n  = x_i W x_jᵀ + x_i W p_jᵀ + p_i W x_jᵀ + p_i W p_jᵀ",
            r"(x_i + p_i) W (x_j + p_j)^\top = x_i W x_j^\top + x_i W p_j^\top + p_i W x_j^\top + p_i W p_j^\top",
        ),
        question=Question(
            "Which term does not change when two words trade places?",
            "p W p",
            short[:4],
        ),
    )


# ---- equivariance


def equivariance_steps(inputs: TopicInputs) -> Iterator[ExplanationStep]:
    given, seed = inputs.matrix("x"), inputs.count("seed", 0, 0)
    random = torch.Generator().manual_seed(seed)
    tokens, dim = inputs.count("n", 4, 2, 16), inputs.count("dim", 4, 2, 64)
    if given is not None and (inputs.n is not None or inputs.dim is not None):
        raise UserError("x= says how many vectors there are and how wide they are", do="leave out n= and dim=")
    x = (
        torch.randn(tokens, dim, generator=random, dtype=torch.float64)
        if given is None
        else torch.tensor(given).double()
    )
    if len(x) < 2 or x.shape[1] % 2:
        raise UserError(f"x= is {len(x)}×{x.shape[1]}", allowed="two rows or more, and an even number of columns")
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(seed)
        layer = SelfAttention(x.shape[1], inputs.count("heads", 1), bias=UNBIASED).double()
        order = torch.roll(torch.arange(len(x)), 1)
        yield from permuted(layer, x, order)


def permuted(layer: SelfAttention, x: Tensor, order: Tensor) -> Iterator[ExplanationStep]:
    names = [f"x{at + 1}" for at in range(len(x))]
    moved = [names[at] for at in order.tolist()]
    output, of_moved = layer(x[None])[0], layer(x[order][None])[0]
    yield ExplanationStep(
        "X, and F(X): a layer of self-attention with random weights.",
        values=[Matrix("input X", x.tolist(), names, digits=4), Matrix("F(X)", output.tolist(), names, digits=4)],
    )
    yield ExplanationStep(
        "σX, and F(σX): the same vectors in another order.",
        ["The last row comes first, all others move down by one."],
        [Matrix("F(σX)", of_moved.tolist(), moved, digits=4)],
        question=Question(
            "How will F(σX) differ from F(X)?",
            "its rows are in the new order",
            ("not at all", "its rows are in the new order", "all numbers are new"),
        ),
    )
    plain = float((of_moved - output[order]).abs().max())
    place = SinusoidalPosition(x.shape[1])
    placed = place(x[None].float()).double()
    placed_moved = place(x[order][None].float()).double()
    with_positions = float((layer(placed_moved) - layer(placed)[:, order]).abs().max())
    layer.pattern = Causal()
    masked = float((layer(x[order][None]) - layer(x[None])[:, order]).abs().max())
    yield ExplanationStep(
        "Equivariant: F(σX) = σF(X), so attention does not know the order of its inputs.",
        ["Each output depends on its own query and on the set of all keys and values; a sum has no order."],
        [Quantity("largest difference of F(σX) and σF(X)", plain, form=".1e")],
        Formula("F(σX) = σF(X)", r"F(\sigma X) = \sigma F(X)"),
    )
    yield ExplanationStep(
        "With positions the equation is lost, and order counts.",
        ["Sinusoids are added to X before the layer; or a causal mask hides later rows."],
        [
            ValueTable(
                "largest difference by variant",
                ["layer", "largest difference"],
                [["self-attention", plain], ["with positions", with_positions], ["with a causal mask", masked]],
                ".2e",
            )
        ],
    )
