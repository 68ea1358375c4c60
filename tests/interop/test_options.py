"""Configs of other libraries: what is not known is noted or refused by name."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.errors import UserError
from headway.interop.config_reader import (
    LIST,
    Arguments,
    ConfigMap,
    Field,
    Options,
    collect_notes,
    without_aliases,
)
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


def test_what_is_not_known_is_noted_or_refused_by_name() -> None:
    given = {"flux": 3, "off": False, "none": None, "transformers_version": "9"}
    with collect_notes() as notes:
        assert Options(given, "gpt2").done(5) == 5
    assert notes == ["config.json sets what gpt2 models do not know in transformers either: flux=3"]
    for options, name in (
        (Options({**given, "num_key_value_heads": 2}, "gpt2"), "num_key_value_heads=2"),
        (Arguments(given, "timm's ViT"), "flux=3"),
    ):
        with pytest.raises(UserError) as caught:
            options.done(None)
        assert f"sets what is not known here: {name}; if it does not change" in str(caught.value)


def test_an_option_with_two_names_is_read_under_either() -> None:
    aliases = {"hidden_size": "n_embd"}
    for given in ({"hidden_size": 8}, {"n_embd": 8}, {"hidden_size": 8, "n_embd": 8}):
        assert without_aliases(given, aliases, "gpt2") == {"n_embd": 8}
    with pytest.raises(UserError, match="says n_embd=16 and hidden_size=8, which are one option of a gpt2 model"):
        without_aliases({"hidden_size": 8, "n_embd": 16}, aliases, "gpt2")


def words_of(source: str) -> set[str]:
    """The options that the text of a model of transformers' reads."""
    by_name = re.findall(r'getattr\((?:self\.)?config, "(\w+)"', source)
    return {*re.findall(r"config\.([a-z_]\w*)\b(?!\()", source), *by_name}


TROCR = {"model_type": "trocr", "d_model": 768}


@pytest.mark.parametrize("model_type", [name for name in FAMILIES if not name.startswith(("timm", "mvit"))])
def test_nothing_that_transformers_computes_with_is_ignored(model_type: str) -> None:
    """Its config's own options, their second names, and what its models read, but for dropout, are known or refused."""
    from transformers import CONFIG_MAPPING

    theirs: Any = CONFIG_MAPPING[model_type]
    parts = {"encoder": CONFIG_MAPPING["vit"]().to_dict(), "decoder": TROCR} if "encoder-decoder" in model_type else {}
    values = theirs(**parts).to_dict()
    source = find_spec(theirs.__module__.replace("configuration_", "modeling_"))
    assert source is not None
    assert source.origin is not None
    known = {*signature(theirs.__init__).parameters, *theirs.attribute_map, *words_of(Path(source.origin).read_text())}
    assert len(known) > 8
    for name in sorted(known - set(values) - {"self"}):
        with collect_notes() as notes, suppress(UserError):
            family(model_type).read_config({**values, name: 3})
        assert notes == [] or "dropout" in name


def test_what_has_no_default_is_needed() -> None:
    with pytest.raises(UserError, match=r"config\.json of a gpt2 model has no 'vocab_size'"):
        Options({}, "gpt2").need("vocab_size")


def test_an_unknown_type_is_told() -> None:
    with pytest.raises(UserError) as caught:
        family("gtp2")
    said = "models of type 'gtp2' are not known; did you mean 'gpt2'? allowed: albert, audio-spectrogram-"
    assert str(caught.value).startswith(said)
    assert "gpt2" in FAMILIES


def test_naflex_is_refused_by_name() -> None:
    with pytest.raises(UserError) as caught:
        family("siglip2")
    assert str(caught.value) == (
        "models of type 'siglip2' are SigLIP 2's NaFlex, of images of any shape, which is not computed here; "
        "take a SigLIP 2 of a fixed size, whose type is 'siglip'"
    )
