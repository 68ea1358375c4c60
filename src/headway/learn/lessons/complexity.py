"""Complexity, measured: time, memory, sequential steps and path length of four layers.

In theory, for n tokens of width d: self-attention takes n²d operations, a recurrent layer nd², a convolution of k
tokens knd², attention restricted to r tokens rnd. Steps that must follow one another: 1, n, 1, 1. Longest path between
two tokens: 1, n, n/k (log n with dilation), n/r. We time the operators, fit exponents to the times, count the bytes
that are kept for the gradient, and find the paths by gradients.

Axes:  n tokens   d width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from headway.figures import CurveChart, Plot, exponent
from headway.learn.experiment import curve, longest_chain, saved_bytes, seconds
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.nn.convnet import CausalConv
from headway.nn.recurrent import RecurrentEncoder, RNNCell
from headway.ops.attend import attend
from headway.ops.attention_map import AttentionMap
from headway.ops.pattern import Causal, Positions

FAST = {"lengths": (8, 16), "widths": (4, 8), "dim": 4, "length": 8, "rounds": 1, "path": 9}
KERNEL, REACH = 3, 32
THEORY = {"attention": (2, 1), "restricted": (1, 1), "recurrent": (1, 2), "convolution": (1, 2)}  # exponents of n and d
Operator = Callable[[Tensor], Tensor]


def operators(dim: int) -> dict[str, Operator]:
    """1 n d → 1 n d each, without attention's projections, which the table of theory leaves out too."""
    recurrent, convolution = RecurrentEncoder(dim, dim, cell=RNNCell), CausalConv(dim, KERNEL)

    def restricted(x: Tensor) -> Tensor:
        places = Positions.run(0, x.shape[1])
        return AttentionMap(x[None], x[None], places, places, Causal(window=REACH)).times(x[None])[0]

    return {
        "attention": lambda x: attend(x[None], x[None], x[None])[0],
        "restricted": restricted,
        "recurrent": recurrent,
        "convolution": convolution,
    }


@torch.no_grad()
def times(lengths: tuple[int, ...], widths: tuple[int, ...], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each operator, for pairs of a length and a width."""
    found: dict[str, list[float]] = {name: [] for name in THEORY}
    for n, d in zip(lengths, widths, strict=True):
        x = torch.randn(1, n, d)
        for name, run in operators(d).items():
            found[name].append(1000 * seconds(lambda run=run, x=x: run(x), rounds))
    return found


def stored(x: Tensor) -> Tensor:
    """Attention whose matrix of weights is written out."""
    return attend(x[None], x[None], x[None], edit=lambda weights: weights)[0]


def layers_between(layer: Operator, n: int, dim: int) -> int:
    """How many layers until the last output depends on the first input, by its gradient."""
    x = torch.randn(1, n, dim, dtype=torch.float64, requires_grad=True)
    y = x
    for layers in range(1, n + 1):
        y = layer(y)
        (gradient,) = torch.autograd.grad(y[0, -1].sum(), x, retain_graph=True)
        if bool(gradient[0, 0].any()):
            return layers
    return n


def steps(
    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096),
    widths: tuple[int, ...] = (64, 128, 256, 512, 1024),
    dim: int = 64,
    length: int = 256,
    rounds: int = 5,
    path: int = 65,
) -> Iterator[ExplanationStep]:
    by_length = times(lengths, (dim,) * len(lengths), rounds)
    by_width = times((length,) * len(widths), widths, rounds)
    fitted = {name: (exponent(lengths, by_length[name]), exponent(widths, by_width[name])) for name in THEORY}
    growth = {name: values[-1] / values[0] for name, values in by_length.items()}
    yield ExplanationStep(
        "Time against length and width, with fitted exponents.",
        [
            f"Milliseconds, the fastest of {rounds} runs on this machine; d = {dim} while n grows, n = {length} while "
            "d grows. Exponents by least squares of logarithms. Small sizes cost mostly overhead, so that exponents "
            "stay below theory: read which is larger, not the second digit.",
        ],
        [
            ValueTable(
                "milliseconds by length",
                ["n", *THEORY],
                [[n, *(by_length[m][at] for m in THEORY)] for at, n in enumerate(lengths)],
                ".3f",
            ),
            ValueTable(
                "milliseconds by width",
                ["d", *THEORY],
                [[d, *(by_width[m][at] for m in THEORY)] for at, d in enumerate(widths)],
                ".3f",
            ),
            ValueTable(
                "exponents",
                ["operator", "of n", "theory", "of d", "theory "],
                [[name, fitted[name][0], THEORY[name][0], fitted[name][1], THEORY[name][1]] for name in THEORY],
                ".2f",
            ),
        ],
        figure=Plot(
            "time of an operator",
            [
                CurveChart(
                    f"milliseconds, {other}",
                    [curve(name, xs, found[name]) for name in THEORY],
                    letter,
                    xscale="log",
                    yscale="log",
                    height=2.4,
                )
                for letter, other, xs, found in (
                    ("n", f"d = {dim}", lengths, by_length),
                    ("d", f"n = {length}", widths, by_width),
                )
            ],
        ),
        question=Question(
            f"Whose time grows most from n = {lengths[0]} to n = {lengths[-1]}?",
            max(growth, key=lambda name: growth[name]),
            tuple(THEORY),
        ),
    )
    kept = {
        "written out": [saved_bytes(lambda n=n: stored(torch.randn(1, n, dim, requires_grad=True))) for n in lengths],
        "fused": [
            saved_bytes(lambda n=n: operators(dim)["attention"](torch.randn(1, n, dim, requires_grad=True)))
            for n in lengths
        ],
    }
    powers = {name: exponent(lengths, values) for name, values in kept.items()}
    yield ExplanationStep(
        "Memory: n² where the matrix is written out, n with the fused kernel.",
        [
            "Bytes that attention keeps for the gradient, counted tensor by tensor. The fused kernel computes the "
            "weights again, block by block: that is how attention is both very hungry for memory and linear.",
        ],
        [
            ValueTable(
                "bytes kept",
                ["n", *kept],
                [[n, *(values[at] for values in kept.values())] for at, n in enumerate(lengths)],
            ),
            ValueTable("exponents of memory", ["evaluation", "of n"], list(powers.items()), ".2f"),
        ],
        figure=Plot(
            "bytes kept for the gradient",
            [CurveChart("", [curve(k, lengths, v) for k, v in kept.items()], "n", xscale="log", yscale="log")],
        ),
        question=Question(
            "With which exponent of n do the bytes grow where the matrix is written out?",
            powers["written out"],
            tolerance=0.25,
        ),
    )
    x = torch.randn(1, path, 4, dtype=torch.float64, requires_grad=True)
    small = {name: run.double() if isinstance(run, nn.Module) else run for name, run in operators(4).items()}
    chains = {name: longest_chain(run(x)) for name, run in small.items()}
    dilated = [CausalConv(4, KERNEL, 2**at).double() for at in range(path.bit_length())]
    queue = iter(dilated)
    between = {name: layers_between(run, path, 4) for name, run in small.items()}
    between["convolution, dilated 1, 2, 4 …"] = layers_between(lambda y: next(queue)(y), path, 4)
    yield ExplanationStep(
        "Sequential steps, and layers between the first token and the last.",
        [
            f"For {path} tokens. The chain is the longest row of operations that wait for one another in one layer: it "
            "is the recurrent layer whose path between two tokens has n steps, although it is one layer. Layers are "
            "added until the gradient of the last output by the first input is not 0.",
        ],
        [
            ValueTable(
                "sequential steps and paths",
                ["operator", "longest chain", "layers"],
                [[name, chains.get(name), layers] for name, layers in between.items()],
            )
        ],
        question=Question(
            f"How many convolutions of {KERNEL} tokens, not dilated, join the ends of {path} tokens?",
            between["convolution"],
        ),
    )
    counts = [(n, 2 * n * n * dim, 2 * n * dim * dim) for n in (dim // 4, dim // 2, dim, 2 * dim, 4 * dim)]
    slower = [n for n, a, b in zip(lengths, by_length["attention"], by_length["recurrent"], strict=True) if a > b]
    yield ExplanationStep(
        "The crossover: attention is cheaper while n < d.",
        [
            f"Multiplications for d = {dim}: two products of n × n × d for attention, two of d × d for each step of "
            "the recurrent layer.",
        ],
        [ValueTable("multiplications", ["n", "attention", "recurrent"], [list(row) for row in counts])],
        conclusion=f"By count both are equal at n = {next(n for n, a, b in counts if a == b)}; by time attention "
        "became "
        + (
            f"slower at n = {slower[0]} here."
            if slower
            else f"not slower up to n = {lengths[-1]} here: it runs in parallel."
        ),
    )
