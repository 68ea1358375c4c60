"""Three ways to process a sequence: recurrent, convolutional, attention.

A recurrent layer reads one step after another and keeps what it saw in one state. A convolution sees its neighbours at
once, and needs many layers to see far. Self-attention sees everything in one layer, at the price of a weight for each
pair of tokens. Three stacks of two layers learn the same task: say again what stood so many tokens before.

Axes:  B batch   T tokens   C width   V words
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import CurveChart, HeatMap, Plot
from headway.learn.experiment import best, count, curve, fit, longest_chain
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.learn.lesson_models import block, language_model
from headway.nn.attention import SelfAttention
from headway.nn.bias import T5Bias
from headway.nn.convnet import CausalConv
from headway.nn.recurrent import RecurrentEncoder
from headway.nn.trunk import Trunk
from headway.ops.pattern import Causal
from headway.ops.relative import t5_bucket_backward

FAST = {"length": 8, "delays": (1, 6), "training_steps": 3, "dim": 8}
VOCAB, LAYERS, KERNEL = 16, 2, 3
MIXERS: dict[str, Callable[[int], nn.Module]] = {
    "recurrent": lambda dim: RecurrentEncoder(dim, dim),
    "convolution": lambda dim: CausalConv(dim, KERNEL),
    "attention": lambda dim: SelfAttention(dim, 2, pattern=Causal(), logit_bias=T5Bias(2, bucket=t5_bucket_backward)),
}


def model_of(name: str, dim: int) -> Trunk:
    torch.manual_seed(2)
    return language_model(VOCAB, dim, [block(MIXERS[name](dim), dim) for _ in range(LAYERS)])


def influence(model: Trunk, tokens: Tensor) -> Tensor:
    """How much each input counts for the last output: the norm of its gradient, T."""
    x = model.embed(tokens).detach().requires_grad_()
    y = model.stack(x)[0, -1]
    (gradient,) = torch.autograd.grad(y @ torch.randn(len(y)), x)
    return gradient[0].norm(dim=-1)


def accuracy(model: Trunk, delay: int, length: int, training_steps: int) -> float:
    """Trains a model to say the token of `delay` tokens ago; how often it is right on new rows."""

    def rows(batch: int) -> tuple[Tensor, Tensor]:
        tokens = torch.randint(VOCAB, (batch, length))
        return model(tokens)[:, delay:], tokens[:, :-delay]

    def loss() -> Tensor:
        logits, wanted = rows(32)
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    fit(model, loss, training_steps, lr=5e-3)
    with torch.no_grad():
        logits, wanted = rows(64)
    return float((logits.argmax(-1) == wanted).float().mean())


def steps(
    length: int = 32, delays: tuple[int, ...] = (1, 3, 8, 16), training_steps: int = 300, dim: int = 32
) -> Iterator[ExplanationStep]:
    models = {name: model_of(name, dim) for name in MIXERS}
    chains = {
        name: [longest_chain(model(torch.randint(VOCAB, (1, n)))) for n in (length, 2 * length)]
        for name, model in models.items()
    }
    yield ExplanationStep(
        "How many operations must follow one another.",
        [
            "The longest chain of operations that need each other's results, in the graph of a forward pass of "
            f"{LAYERS} layers, for {length} and for {2 * length} tokens. What does not follow can run in parallel.",
        ],
        [
            ValueTable(
                "longest chain",
                ["layers", f"{length} tokens", f"{2 * length} tokens", "parameters"],
                [[name, *chains[name], count(model)] for name, model in models.items()],
            )
        ],
        question=Question(
            "Which of the three has a chain that grows with the length?",
            max(chains, key=lambda name: chains[name][1] - chains[name][0]),
            tuple(MIXERS),
        ),
    )
    tokens = torch.randint(VOCAB, (1, length))
    seen = {name: influence(model, tokens) for name, model in models.items()}
    reached = {name: int((found > 0).sum()) for name, found in seen.items()}
    yield ExplanationStep(
        "Which inputs the last output depends on, before training.",
        [
            f"Norm of the gradient of the last output by each of {length} inputs. {LAYERS} convolutions of {KERNEL} "
            f"tokens see {LAYERS * (KERNEL - 1) + 1}; look also how the influence fades in the recurrent stack.",
        ],
        [ValueTable("inputs that count", ["layers", "inputs with a gradient"], list(reached.items()))],
        figure=Plot(
            "influence of each input on the last output",
            [
                HeatMap(
                    "log10 of the norm of the gradient",
                    [seen[name].clamp(min=1e-30).log10().clamp(min=-8).tolist() for name in MIXERS],
                    list(MIXERS),
                    [str(at + 1) for at in range(length)],
                    xlabel="input",
                )
            ],
        ),
        question=Question(f"How many inputs can the last output of {LAYERS} convolutions see?", reached["convolution"]),
    )
    right = {
        name: [accuracy(model_of(name, dim), delay, length, training_steps) for delay in delays] for name in MIXERS
    }
    last = {name: values[-1] for name, values in right.items()}
    yield ExplanationStep(
        "The same task: repeat what stood so many tokens before.",
        [
            f"{VOCAB} words at random, {training_steps} steps of training for each cell, accuracy on 64 new rows; a "
            f"guess is right in {1 / VOCAB:.3f}. One run each, seed 0.",
        ],
        [
            ValueTable(
                "accuracy by distance",
                ["layers", *(f"{delay} before" for delay in delays)],
                [[name, *values] for name, values in right.items()],
                ".3f",
            )
        ],
        figure=Plot(
            "accuracy by distance",
            [CurveChart("", [curve(name, delays, values) for name, values in right.items()], "tokens before")],
        ),
        question=Question(f"Which is best at a distance of {delays[-1]} tokens?", best(last), tuple(MIXERS)),
        conclusion=f"At {delays[-1]} tokens: " + ", ".join(f"{name} {value:.3f}" for name, value in last.items()) + ".",
    )
