"""Llama, Mistral and Mixtral: published sizes, and what their numbers mean."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from headway.errors import UserError
from headway.ops.rotary import Llama3
from headway.zoo import gpt2, llama, mixtral
from headway.zoo.build import from_plain, to_plain

LLAMA_3 = llama.Frequencies(500_000.0, Llama3(8.0, 1.0, 4.0, 8192))
MISTRAL = llama.Config(kv_heads=8, hidden=14_336, context=32_768, window=4096, eps=1e-5)
SIZES: list[tuple[Any, Any, int]] = [
    (llama, llama.Config(), 6_738_415_616),
    (llama, llama.Config(dim=8192, layers=80, heads=64, kv_heads=8, hidden=28_672), 68_976_648_192),
    (llama, llama.Config(vocab=128_256, kv_heads=8, hidden=14_336, rotary=LLAMA_3), 8_030_261_248),
    (llama, MISTRAL, 7_241_732_096),
    (mixtral, mixtral.Config(), 46_702_792_704),
    (gpt2, gpt2.Config(), 124_439_808),
]
TINY = llama.Config(vocab=11, context=8, dim=16, layers=1, heads=2, hidden=24)


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "config", "parameters"), SIZES)
def test_published_sizes(architecture: Any, config: Any, parameters: int) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in architecture.build(config).parameters()) == parameters


@pytest.mark.parametrize(("dim", "hidden"), [(4096, 11_008), (5120, 13_824), (6656, 17_920), (8192, 22_016)])
def test_the_first_llamas_gated_widths(dim: int, hidden: int) -> None:
    assert llama.gated_hidden(dim) == hidden


@pytest.mark.parametrize("config", [llama.Config(rotary=LLAMA_3), MISTRAL, mixtral.Config()])
def test_a_config_is_plain_data(config: Any) -> None:
    assert from_plain(type(config), json.loads(json.dumps(to_plain(config)))) == config


def test_tied_and_biased_models_have_what_they_say() -> None:
    def names(**changes: Any) -> set[str]:
        return {name for name, _ in llama.build(replace(TINY, **changes)).named_parameters()}

    assert names() - names(tied=True) == {"head.weight"}
    attention = {f"stack.blocks.0.attn.body.{part}.bias" for part in ("q", "k", "v", "out")}
    assert names(biases="attention") - names() == attention
    assert names(biases="qkv") - names() == attention - {"stack.blocks.0.attn.body.out.bias"}
    assert names(biases="ffn") - names() == {f"stack.blocks.0.ffn.body.{part}.bias" for part in ("gate", "up", "down")}


def test_a_window_forgets_what_lies_before_it() -> None:
    """One layer sees `window` tokens: the first does not reach the fourth, and does reach the third."""
    model = llama.build(replace(TINY, window=3)).eval()
    seen, other = torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([[9, 2, 3, 4, 5]])
    difference = (model(seen) - model(other)).abs().amax(-1)[0]
    assert (difference > 0).tolist() == [True, True, True, False, False]


def test_one_expert_for_all_is_no_mixture() -> None:
    """A mixture of one expert is a Llama with that expert's weights."""
    c = mixtral.Config(vocab=11, dim=16, layers=1, heads=2, kv_heads=2, hidden=24, experts=1, top=1)
    mixed, plain = mixtral.build(c), llama.build(replace(TINY, rotary=c.rotary, eps=c.eps))
    plain.load_state_dict(
        {key.replace("experts.0.", ""): x for key, x in mixed.state_dict().items() if "router" not in key}
    )
    ids = torch.arange(7)[None]
    assert_close(mixed(ids), plain(ids))


def test_sizes_that_do_not_fit_are_told() -> None:
    with pytest.raises(UserError, match="heads=3 does not divide dim=16"):
        llama.build(replace(TINY, heads=3))
    with pytest.raises(UserError, match="kv_heads=3 does not divide heads=4"):
        llama.build(replace(TINY, heads=4, kv_heads=3))
    with pytest.raises(UserError, match="no activation 'silo'"):
        llama.build(replace(TINY, act="silo"))
    with pytest.raises(UserError, match=r"MoE\(top=9\) with 8 experts"):
        mixtral.build(replace(mixtral.Config(vocab=9, dim=16, heads=2, kv_heads=1, hidden=8, layers=1), top=9))
