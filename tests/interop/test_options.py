"""Configs of other libraries: what is not known is refused by name, what changes nothing is let be."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headway.errors import UserError
from headway.interop.config_reader import LIST, ConfigMap, Field, Options
from headway.interop.registry import FAMILIES, family


def test_an_option_is_taken_or_its_default() -> None:
    o = Options({"n_layer": 3, "n_head": None}, "gpt2")
    taken = (o.take("n_layer", 12), o.take("n_head", 12), o.take("n_embd", 768))
    assert o.done(taken) == (3, 12, 768)


def test_what_is_not_supported_is_refused_by_name() -> None:
    with pytest.raises(UserError) as caught:
        Options({"scale_attn_weights": False}, "gpt2").expect(scale_attn_weights=True)
    assert str(caught.value) == "scale_attn_weights=False is not supported for gpt2 models; allowed: True"


def test_a_config_map_reads_and_writes_the_same_options() -> None:
    fields = ConfigMap(Field("n_embd", "dim"), Field("n_layer", "layers", 12), Field("depths", "stages", (2, 2), LIST))
    found = fields.with_defaults(layers=6).read(Options({"n_embd": 64, "depths": [1, 3]}, "gpt2"))
    assert found == {"dim": 64, "layers": 6, "stages": (1, 3)}
    assert fields.write(SimpleNamespace(**found)) == {"n_embd": 64, "n_layer": 6, "depths": [1, 3]}
    with pytest.raises(UserError, match=r"config\.json of a gpt2 model has no 'n_embd'"):
        fields.read(Options({"n_embd": None}, "gpt2"))


def test_what_is_not_known_is_refused_by_name() -> None:
    o = Options({"flux": 3, "off": False, "none": None, "transformers_version": "9"}, "gpt2")
    with pytest.raises(UserError) as caught:
        o.done(None)
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
