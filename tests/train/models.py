"""Small models of each kind, for what works on parameters alone, and results of evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headway.metrics.scores import Scores
from headway.zoo import albert, gpt2, mixtral, rnn, t5, transformer


def tiny_gpt() -> nn.Module:
    return gpt2.build(gpt2.Config(vocab=30, context=16, dim=8, layers=3, heads=2, dropout=0.0))


def tiny_transformer() -> nn.Module:
    c = transformer.Config(vocab=30, dim=8, layers=2, decoder_layers=3, heads=2, hidden=16, tied="all", dropout=0.0)
    return transformer.build(c)


def tiny_t5() -> nn.Module:
    return t5.build(t5.Config(vocab=30, dim=8, layers=2, heads=2, head_dim=4, hidden=16, dropout=0.0))


def tiny_albert() -> nn.Module:
    return albert.build(albert.Config(vocab=30, context=16, width=4, dim=8, layers=4, heads=2, hidden=16))


def tiny_rnn() -> nn.Module:
    return rnn.build(rnn.Config(vocab=30, dim=8, hidden=8, layers=2, align=8, readout=8))


def tiny_mixtral() -> nn.Module:
    c = mixtral.Config(vocab=30, dim=8, layers=2, heads=2, kv_heads=1, hidden=16, experts=4, top=1)
    return mixtral.build(c)


def random_gradients(model: nn.Module, key: int) -> None:
    """Gradients that depend on the key alone, for every parameter that is trained."""
    source = torch.Generator().manual_seed(key)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn(parameter.shape, generator=source, dtype=parameter.dtype)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two sets of tensors agree in every name and bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class Evaluation(NamedTuple):
    """What an evaluator returns, as far as the training loop looks at it."""

    values: Mapping[str, float]
    score: float
    samples: Sequence[Any] = ()
    scores: Scores = Scores({}, 0)
    loss: float | None = None


class Answered(NamedTuple):
    """A sample of an evaluation."""

    source: str
    answer: str
    wanted: str
