"""GPT-2's config: every rate is read, used and written as it was."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import UserError
from headway.interop.gpt2 import read_config, write_config
from headway.zoo.gpt2 import Config, build

RATES = {"resid_pdrop": 0.2, "embd_pdrop": 0.3, "attn_pdrop": 0.0}


def test_rates_come_back_and_are_used_where_they_are_told() -> None:
    config = read_config({"vocab_size": 9, "n_embd": 8, "n_head": 2, "n_layer": 1, **RATES})
    written = write_config(config)
    assert {rate: written[rate] for rate in RATES} == RATES
    assert read_config(written) == config
    made: Any = build(config)
    block = made.stack.blocks[0]
    assert (block.attn.drop.p, block.ffn.drop.p, made.embed.drop.p, block.attn.body.dropout) == (0.2, 0.2, 0.3, 0.0)


def test_what_is_absent_is_as_published() -> None:
    assert read_config({}) == Config()


def test_what_is_not_computed_is_refused() -> None:
    with pytest.raises(UserError, match="scale_attn_by_inverse_layer_idx=True is not supported for gpt2"):
        read_config({"scale_attn_by_inverse_layer_idx": True})
