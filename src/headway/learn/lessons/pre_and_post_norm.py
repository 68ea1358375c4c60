"""Pre-norm against post-norm, in a deep stack.

Post-norm, as published, normalises after each addition: no path leads from the input to the output untouched, and a
stack of it cannot be the identity. Pre-norm normalises inside the branch: the residual path is an identity, gradients
reach the first layer, and deep stacks train without care. We measure all three.

Axes:  B batch   T tokens   C width   L layers
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import CurveChart, Plot
from headway.learn.experiment import curve, fit, loss_chart, mean
from headway.learn.explanation import ExplanationStep, Formula, Question, ValueTable
from headway.learn.lesson_models import language_model
from headway.nn.attention import SelfAttention
from headway.nn.bias import T5Bias
from headway.nn.block import Block, Residual, Stack
from headway.nn.ffn import FFN
from headway.nn.trunk import Trunk
from headway.ops.pattern import Causal
from headway.ops.relative import t5_bucket_backward

FAST = {"layers": 2, "training_steps": 2, "dim": 8}
SYMBOLS, TOKENS = 12, 16
SLOTS = {"pre": "before", "post": "after"}  # of the norm, in Residual
KINDS = tuple(SLOTS)


def model_of(kind: str, layers: int, dim: int) -> Trunk:
    torch.manual_seed(8)
    slot = SLOTS[kind]

    def sublayer(body: nn.Module) -> Residual:
        return Residual(body, **{slot: nn.LayerNorm(dim)})

    def attention() -> SelfAttention:
        return SelfAttention(dim, 2, pattern=Causal(), logit_bias=T5Bias(2, bucket=t5_bucket_backward))

    blocks = [Block(attn=sublayer(attention()), ffn=sublayer(FFN(dim))) for _ in range(layers)]
    model = language_model(SYMBOLS, dim, blocks)
    for name, parameter in model.stack.named_parameters():
        if parameter.dim() == 2 and not name.endswith("table"):
            nn.init.xavier_uniform_(parameter)
    return model


def loss_of(model: Trunk) -> Tensor:
    """Copy the symbol of three tokens before."""
    tokens = torch.randint(SYMBOLS, (32, TOKENS))
    return F.cross_entropy(model(tokens)[:, 3:].flatten(0, 1), tokens[:, :-3].flatten())


def steps(
    layers: int = 12, training_steps: int = 120, dim: int = 32, rates: tuple[float, ...] = (1e-3, 5e-3)
) -> Iterator[ExplanationStep]:
    x = torch.randn(1, TOKENS, dim)
    away = dict[str, float]()
    for kind in KINDS:
        stack = model_of(kind, layers, dim).stack
        assert isinstance(stack, Stack)
        for name, parameter in stack.named_parameters():
            if name.endswith((".out.weight", ".out.bias", ".down.weight", ".down.bias")):
                nn.init.zeros_(parameter)  # every branch adds nothing
        with torch.no_grad():
            y = x
            for one in stack.blocks:
                y = one(y)
            away[kind] = float((y - x).abs().max())
    yield ExplanationStep(
        "Can the stack be the identity?",
        [
            f"{layers} layers whose branches are set to add nothing: the largest difference of output and input, "
            "before the last norm.",
        ],
        [ValueTable("distance from the identity", ["norm", "largest difference"], list(away.items()), ".4f")],
        Formula(
            "pre: x + f(norm(x))     post: norm(x + f(x))",
            r"\text{pre: } x + f(\mathrm{norm}(x)) \qquad \text{post: } \mathrm{norm}(x + f(x))",
        ),
        question=Question("Which arrangement can be the identity?", min(away, key=lambda kind: away[kind]), KINDS),
    )
    norms = dict[str, list[float]]()
    for kind in KINDS:
        model = model_of(kind, layers, dim)
        loss_of(model).backward()
        assert isinstance(model.stack, Stack)
        grads = [
            [p.grad.norm() for n, p in one.named_parameters() if n.endswith("down.weight") and p.grad is not None]
            for one in model.stack.blocks
        ]
        norms[kind] = [float(torch.stack(values).norm()) for values in grads]
    ratio = {kind: values[0] / values[-1] for kind, values in norms.items()}
    yield ExplanationStep(
        "Gradients at the first step, layer by layer.",
        ["Norm of the gradient of each layer's second feed-forward matrix, and the first layer's over the last one's."],
        [
            ValueTable(
                "norm of the gradient",
                ["norm", "first layer", "last layer", "first / last"],
                [[kind, values[0], values[-1], ratio[kind]] for kind, values in norms.items()],
                ".3g",
            )
        ],
        figure=Plot(
            "gradients by layer, before training",
            [
                CurveChart(
                    "", [curve(f"{k}-norm", range(1, layers + 1), v) for k, v in norms.items()], "layer", yscale="log"
                )
            ],
        ),
        question=Question(
            "Whose first layer has the smaller gradient, relative to the last layer?",
            min(ratio, key=lambda kind: ratio[kind]),
            KINDS,
        ),
    )
    losses = {
        (kind, rate): fit(
            model := model_of(kind, layers, dim), lambda model=model: loss_of(model), training_steps, rate
        )
        for rate in rates
        for kind in KINDS
    }
    tail = max(1, training_steps // 10)
    final = {key: mean(values[-tail:]) for key, values in losses.items()}
    high = {kind: final[kind, rates[-1]] for kind in KINDS}
    yield ExplanationStep(
        "What trains.",
        [
            f"The same task (say the symbol of three tokens before), {layers} layers, {training_steps} steps, a "
            f"warm-up of 20 steps, two learning rates; log {SYMBOLS} = {torch.tensor(float(SYMBOLS)).log():.3f} is "
            "chance. One run each.",
        ],
        [
            ValueTable(
                "loss at the end",
                ["learning rate", *(f"{kind}-norm" for kind in KINDS)],
                [[f"{rate:g}", *(final[kind, rate] for kind in KINDS)] for rate in rates],
                ".4f",
            )
        ],
        figure=Plot(
            f"loss of {layers} layers, mean of 20 steps",
            [
                loss_chart(f"learning rate {rate:g}", {f"{kind}-norm": losses[kind, rate] for kind in KINDS})
                for rate in rates
            ],
        ),
        question=Question(
            f"Which arrangement has the smaller loss at a learning rate of {rates[-1]:g}?",
            min(high, key=lambda kind: high[kind]),
            KINDS,
        ),
        conclusion=f"At {rates[-1]:g}: pre-norm {high['pre']:.3f}, post-norm {high['post']:.3f}.",
    )
