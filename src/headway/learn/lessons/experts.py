"""Mixture of experts: parameters × E, compute × A.

A mixture replaces one feed-forward layer by E of them and a router that sends each token to A. Parameters grow with E,
the work of a token with A only. We count both, time them, and train a mixture on data of several kinds to see whether
its experts divide the work.

Axes:  N tokens   C width   E experts   A active
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from headway.figures import CurveChart, HeatMap, Plot
from headway.learn.experiment import count, curve, fit, loss_chart, mean
from headway.learn.explanation import ExplanationStep, Formula, Question, ValueTable
from headway.nn.ffn import FFN
from headway.nn.moe import MoE
from headway.nn.trace import record

FAST = {"experts": (1, 2), "dim": 8, "training_steps": 3, "tokens": 16}
KINDS, ACTIVE = 4, 2


def mixture(dim: int, hidden: int, experts: int, active: int) -> MoE:
    return MoE(lambda: FFN(dim, hidden), dim, experts, top=active)


def flops(layer: nn.Module, x: Tensor) -> int:
    """Of a forward pass, counted by torch, for each token."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(x)
    return counter.get_total_flops() // x.shape[1]


class KindsOfData:
    """Each token has one of several kinds, told by its first numbers, and another random matrix to be learned for "
    "each."""

    def __init__(self, dim: int):
        self.maps = torch.randn(KINDS, dim, dim) / dim**0.5
        self.marks = 2.0 * torch.randn(KINDS, dim)

    def sample(self, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
        kind = torch.randint(KINDS, (tokens,))
        x = torch.randn(tokens, self.maps.shape[1])
        return x + self.marks[kind], torch.einsum("nc,ncd->nd", x, self.maps[kind]), kind


def trained(layer: nn.Module, data: KindsOfData, training_steps: int) -> list[float]:
    def loss() -> Tensor:
        x, wanted, _ = data.sample(256)
        with record(layer, "balance") if isinstance(layer, MoE) else torch.enable_grad() as trace:
            error = (layer(x[None])[0] - wanted).square().mean()
        balance = trace["balance"] if trace is not None else torch.zeros(())
        assert isinstance(balance, Tensor)
        return error + 0.01 * balance

    return fit(layer, loss, training_steps, lr=5e-3)


def steps(
    experts: tuple[int, ...] = (1, 2, 4, 8, 16), dim: int = 32, training_steps: int = 500, tokens: int = 256
) -> Iterator[ExplanationStep]:
    x = torch.randn(1, tokens, dim)
    one = FFN(dim)
    layers = {e: mixture(dim, 4 * dim, e, min(ACTIVE, e)) for e in experts}
    rows = [[e, min(ACTIVE, e), count(layer), flops(layer, x)] for e, layer in layers.items()]
    more = rows[-1][2] / count(one)
    yield ExplanationStep(
        "Parameters × E, compute × A.",
        [
            f"One layer has {count(one)} parameters and {flops(one, x)} FLOPs a token, counted by torch. The router "
            "adds E · D to both.",
        ],
        [ValueTable("mixtures", ["experts", "active", "parameters", "FLOPs a token"], rows)],
        Formula(
            "y = Σ_(e ∈ top A) g_e · expert_e(x)",
            r"y = \sum_{e \in \operatorname{top} A} g_e \cdot \operatorname{expert}_e(x)",
        ),
        figure=Plot(
            "a mixture beside one layer",
            [
                CurveChart(
                    "times one layer",
                    [
                        curve("parameters", experts, [row[2] / count(one) for row in rows]),
                        curve("FLOPs a token", experts, [row[3] / flops(one, x) for row in rows]),
                    ],
                    "experts",
                )
            ],
        ),
        question=Question(
            f"How many times the parameters of one layer have {experts[-1]} experts?", more, tolerance=0.2
        ),
    )
    active = [[a, flops(mixture(dim, 4 * dim, experts[-1], a), x)] for a in range(1, min(5, experts[-1] + 1))]
    yield ExplanationStep(
        "Compute follows the active ones.",
        [f"{experts[-1]} experts, of which a token takes 1 to {len(active)}: the parameters stay."],
        [ValueTable("active experts", ["active", "FLOPs a token"], active)],
        question=Question(
            f"By which factor do FLOPs grow from 1 active expert to {active[-1][0]}?",
            active[-1][1] / active[0][1],
            tolerance=0.2,
        ),
    )
    data, hidden = KindsOfData(dim), 2 * dim
    plain, mixed = FFN(dim, ACTIVE * hidden), mixture(dim, hidden, KINDS * ACTIVE, ACTIVE)
    losses = {"one layer": trained(plain, data, training_steps), "mixture": trained(mixed, data, training_steps)}
    sampled, wanted, kind = data.sample(2048)
    with torch.no_grad(), record(mixed, "probs") as trace:
        errors = {
            "one layer": float((plain(sampled[None])[0] - wanted).square().mean()),
            "mixture": float((mixed(sampled[None])[0] - wanted).square().mean()),
        }
    probs = trace["probs"]
    assert isinstance(probs, Tensor)
    routed = torch.stack([probs[kind == at].mean(0) for at in range(KINDS)])
    tail = max(1, training_steps // 10)
    yield ExplanationStep(
        "Do experts divide the work?",
        [
            f"Tokens of {KINDS} kinds, each with a linear map of its own. One layer of hidden width {ACTIVE * hidden}, "
            f"or {KINDS * ACTIVE} experts of {hidden} with {ACTIVE} active: as much work a token. Rows of the map are "
            "kinds of tokens, columns experts: different rows mean that experts have specialised.",
        ],
        [
            ValueTable(
                "error on new tokens",
                ["model", "parameters", "squared error", f"training loss, mean of the last {tail}"],
                [
                    [name, count(layer), errors[name], mean(losses[name][-tail:])]
                    for name, layer in (("one layer", plain), ("mixture", mixed))
                ],
                ".4f",
            )
        ],
        figure=Plot(
            "training, and where tokens go",
            [
                loss_chart("loss with balance, mean of 20 steps", losses),
                HeatMap(
                    "mean probability of the router",
                    routed.tolist(),
                    [f"kind {at + 1}" for at in range(KINDS)],
                    [str(at + 1) for at in range(KINDS * ACTIVE)],
                    xlabel="expert",
                ),
            ],
        ),
        question=Question(
            "Which has the smaller error at equal work?", min(errors, key=lambda name: errors[name]), tuple(errors)
        ),
        conclusion=f"Squared error: one layer {errors['one layer']:.4f}, mixture {errors['mixture']:.4f}.",
    )
