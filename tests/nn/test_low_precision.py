"""Models with int8 weights: near to float32, whatever the architecture, and each row by itself."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.attention import SelfAttention
from headway.nn.context import Context
from headway.nn.head import LMHead
from headway.nn.low_precision import Int8Linear, Int8LMHead, Int8Weights, pack, quantise
from headway.nn.moe import MoE
from tests.laws.images import CHANNELS, MODELS
from tests.laws.subjects import SUBJECTS, Subject, zoo_gpt2, zoo_mixtral

# made of recurrent cells or convolutions alone
WITHOUT_LINEAR = {"gru", "both ways", "convolution", "convolution of both sides", "convolution of positions"}


def quantised(model: nn.Module) -> nn.Module:
    low = deepcopy(model)
    quantise(low)
    pack(low)
    return low


def cosine(a: Tensor, b: Tensor) -> float:
    return float(F.cosine_similarity(a.flatten().double(), b.flatten().double(), 0))


@pytest.mark.parametrize("subject", [one for one in SUBJECTS if one.name not in WITHOUT_LINEAR], ids=str)
@torch.inference_mode()
def test_sequences_are_near_to_float32_and_rows_by_themselves(subject: Subject) -> None:
    model, inputs, ctx = subject.build(), subject.sample(3, 9), subject.with_memory(3)
    low = quantised(model)
    found = low(inputs, ctx)
    assert not torch.equal(found, model(inputs, ctx))
    assert cosine(found, model(inputs, ctx)) > 0.998
    alone = low(inputs[1:2], replace(ctx, **{name: one[1:2] for name, one in memory(ctx).items()}))
    # what is not int8 may round otherwise in another batch; one scale for a batch would show in two digits
    assert_close(alone, found[1:2], rtol=1e-3, atol=1e-3 * float(found.abs().max()))


def memory(ctx: Context) -> dict[str, Tensor]:
    named = {"memory": ctx.memory, "memory_keep": ctx.memory_keep}
    return {name: one for name, one in named.items() if one is not None}


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_images_are_near_to_float32_and_by_themselves(name: str) -> None:
    model, images = MODELS[name](), torch.randn(3, CHANNELS, 16, 16, generator=torch.Generator().manual_seed(1))
    low = quantised(model)
    found = low(images)
    assert cosine(found, model(images)) > 0.998
    assert_close(low(images[1:2]), found[1:2], rtol=1e-3, atol=1e-3 * float(found.abs().max()))


def test_what_is_int8_and_what_is_not() -> None:
    model = zoo_mixtral()
    quantise(model)
    kinds = {type(part) for part in model.modules() if isinstance(part, Int8Weights)}
    assert kinds == {Int8Linear, Int8LMHead}
    assert all(type(part.router) is nn.Linear for part in model.modules() if isinstance(part, MoE))
    assert not any(parameter.requires_grad for parameter in model.parameters())
    tied = zoo_gpt2()
    quantise(tied)
    tables = [part.weight.dtype for part in tied.modules() if isinstance(part, nn.Embedding)]
    assert set(tables) == {torch.float32}
    heads = [part.weight.dtype for part in tied.modules() if isinstance(part, LMHead)]
    assert heads == [torch.int8]


def test_a_head_of_words_has_the_losses_of_its_logits() -> None:
    head = LMHead(8, 30, bias=True, scale=0.5).requires_grad_(False)
    quantise(head)
    x, targets = torch.randn(70, 8), torch.arange(70) % 30  # more than meet the vocabulary at a time
    expected = F.cross_entropy(head(x), targets, reduction="none")
    assert_close(head.losses(x, targets), expected)
    assert_close(head.loss(x, targets, 0.1), F.cross_entropy(head(x), targets, reduction="sum", label_smoothing=0.1))


def test_what_cannot_be_done_is_said() -> None:
    with pytest.raises(UserError, match="no linear layers"):
        quantise(nn.Conv2d(2, 2, 3))
    part = SelfAttention(8, 2)
    quantise(part)
    with pytest.raises(UserError, match=r"int8 weights have no gradient; use the model in fp32"):
        part(torch.randn(1, 3, 8, requires_grad=True))
