"""Configs of other libraries: what is not known is refused by name, what changes nothing is let be."""

from __future__ import annotations

import pytest

from headway.errors import UserError
from headway.interop.config_reader import Options
from headway.interop.registry import FAMILIES, family


def test_an_option_is_taken_or_its_default() -> None:
    o = Options({"n_layer": 3, "n_head": None}, "gpt2")
    assert (o.take("n_layer", 12), o.take("n_head", 12), o.take("n_embd", 768)) == (3, 12, 768)
    o.done()


def test_what_is_not_supported_is_refused_by_name() -> None:
    with pytest.raises(UserError) as caught:
        Options({"scale_attn_weights": False}, "gpt2").require("scale_attn_weights", True, default=True)
    assert str(caught.value) == "scale_attn_weights=False is not supported for gpt2 models; allowed: True"


def test_what_is_not_known_is_refused_by_name() -> None:
    o = Options({"flux": 3, "off": False, "none": None, "transformers_version": "9"}, "gpt2")
    with pytest.raises(UserError) as caught:
        o.done()
    assert "sets what is not known here: flux=3; if it does not change" in str(caught.value)


def test_what_has_no_default_is_needed() -> None:
    with pytest.raises(UserError, match=r"config\.json of a gpt2 model has no 'vocab_size'"):
        Options({}, "gpt2").need("vocab_size")


def test_an_unknown_type_is_told() -> None:
    with pytest.raises(UserError) as caught:
        family("gtp2")
    assert str(caught.value).startswith("models of type 'gtp2' are not known; allowed: albert, bart, bert, camembert,")
    assert str(caught.value).endswith("did you mean 'gpt2'?")
    assert "gpt2" in FAMILIES
