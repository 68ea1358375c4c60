"""Every architecture takes what the data asks for into fields that its config has."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, cast

import pytest

from headway.errors import UserError
from headway.zoo.build import (
    ARCHITECTURES,
    DataRequirements,
    architecture,
    check_obeyed,
    config_for,
    known_sizes,
    overruled,
    vocabulary_of,
)

JOINT = DataRequirements(longest=40, source_vocab=50)
APART = DataRequirements(longest=40, source_vocab=50, target_vocab=60)


def config(name: str, required: DataRequirements, dropout: float | None = None, **sizes: object) -> Any:
    return cast(Any, config_for(name, sizes, required, dropout))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_says_how_it_takes_vocabularies(name: str) -> None:
    vocabulary = vocabulary_of(name)
    given = vocabulary.sizes(JOINT, {})
    assert {*given} <= {field.name for field in fields(architecture(name).Config)}
    made = config(name, JOINT)
    assert "vocab" not in given or made.vocab == 50
    if not vocabulary.joint_only:
        config(name, APART)


def test_vocabularies_literally() -> None:
    assert config("t5", JOINT).vocab == 50
    with pytest.raises(UserError, match="this architecture reads and writes the same words"):
        config("t5", APART)
    gpt = config("gpt2", JOINT)
    assert (gpt.vocab, gpt.context) == (50, 40)
    same, other = config("transformer", JOINT, tied="all"), config("transformer", APART, tied="all")
    assert (same.vocab, same.source_vocab, same.tied) == (50, None, "all")
    assert (other.vocab, other.source_vocab, other.tied) == (60, 50, "target")
    assert config("seq2seq", JOINT).target_vocab is None
    assert (config("rnn", APART).vocab, config("rnn", APART).target_vocab) == (50, 60)
    joint = [name for name in ARCHITECTURES if vocabulary_of(name).joint_only]
    assert joint == ["bart", "led", "marian", "mbart", "t5", "t5gemma", "xlnet"]


def test_a_head_is_chosen_where_there_are_several() -> None:
    rows = DataRequirements(longest=40, source_vocab=50, classes=3, head="rows")
    assert (config("bert", rows).top, config("bert", rows).classes) == ("rows", 3)
    assert config("bert", JOINT, top="pooler").top == "pooler"
    assert config("mixtral", DataRequirements(40, 50, head="words")).top == 2  # experts
    frames = DataRequirements(longest=40, classes=3, head="rows", fields={"features": 20})
    assert (config("conformer", frames).features, config("conformer", frames).top) == (20, "rows")


def test_dropout_is_that_of_layers_and_embedding() -> None:
    gpt = config("gpt2", JOINT, 0.3)
    assert (gpt.dropout, gpt.embed_dropout, gpt.attention_dropout) == (0.3, 0.3, 0.0)
    assert config("gpt2", JOINT, 0.3, embed_dropout=0.2).embed_dropout == 0.2
    assert config("gpt2", JOINT, attention_dropout=0.1).attention_dropout == 0.1
    with pytest.raises(UserError, match=r"dropout 0.1: llama has none"):
        config("llama", JOINT, 0.1)
    assert config("llama", JOINT, 0.0).dim


def test_sizes_of_an_inner_encoder_go_into_it() -> None:
    inner = {"kind": "Swin", "dim": 24}
    assert {"encoder", "windows", "classes"} <= {*known_sizes("simmim", {"encoder": inner})}
    assert known_sizes("simmim", {}) == ["encoder"]
    made = config("simmim", DataRequirements(40, fields={"image": 32, "channels": 1}), encoder=inner)
    assert (made.encoder.image, made.encoder.channels, made.encoder.dim) == (32, 1, 24)


def other(value: Any) -> Any:
    """Another value of a field, as an option would give it."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * 2 or 1
    if isinstance(value, tuple):
        return [part * 2 if isinstance(part, int) else part for part in value]
    return "nowhere" if isinstance(value, str) else 3


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_size_is_in_the_config_or_refused(name: str) -> None:
    """One by one: what is given is built, or the config refuses it, or the data does."""
    inner = {"encoder": {"kind": "Swin", "dim": 24}} if name == "simmim" else {}
    asked = {"classes": 3, "context": 40, "image": 32, "features": 20}
    names = {*known_sizes(name, inner)}
    required = DataRequirements(40, 50, classes=3 if "classes" in names else 0, head="rows")
    required = replace(required, fields={key: value for key, value in asked.items() if key in names})
    usual = config(name, required, **inner)
    for size in names - {"vocab", "dropout", "encoder", "decoder"}:
        given = {size: other(getattr(usual if hasattr(usual, size) else usual.encoder, size))}
        try:
            made = config(name, required, **inner, **given)
            check_obeyed(given, made)
        except UserError:
            continue
        built = getattr(made if hasattr(made, size) else made.encoder, size)
        assert (list(built) if isinstance(built, tuple) else built) == given[size], size


@pytest.mark.parametrize("name", ["albert", "bert", "gpt2", "llama", "mixtral", "workbench", "clip"])
def test_the_context_is_that_of_the_data(name: str) -> None:
    required = replace(JOINT, fields={"context": 40})
    given = {"context": 16}
    made = config(name, required, **given)
    assert overruled(given, made) == {"context": 40}
    with pytest.raises(
        UserError, match=r"model.context 16 with data that asks for 40; give data.max_length 16 instead"
    ):
        check_obeyed(given, made)
    check_obeyed({"context": 40, "dim": made.dim}, made)


def test_impossible_sizes_are_told() -> None:
    with pytest.raises(UserError, match="layers 0; allowed: whole numbers of 1 or more"):
        config("gpt2", JOINT, layers=0)
    assert config("bert", JOINT, first=0).first == 0
