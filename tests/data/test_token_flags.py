"""Flags of special tokens that stand beside tokenizer.json: heeded as transformers heeds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from headway.data.tokenizer_readers import load_tokenizer

VOCAB = {**{f"w{n}": n for n in range(50)}, "[UNK]": 50}
TEXT = "w37 w3 w30 xw3 w3w3 w4 w5  w3 "
WHOLE = [37, 50, 3, 50, 30, 50, 50, 50, 50, 50, 4, 50, 5, 50, 50, 3, 50]  # w3 is found as a word alone


def flags(**told: bool) -> dict[str, Any]:
    return {"content": "w3", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, **told}


def role(**told: bool) -> dict[str, Any]:
    return {"__type": "AddedToken", **flags(**told)}


def listed(special: bool = True, **told: bool) -> dict[str, Any]:
    return {"3": {**flags(**told), "special": special}}


# what is in tokenizer.json (None: no added token), tokenizer_config.json and special_tokens_map.json
CASES: dict[str, tuple[dict[str, bool] | None, dict[str, Any], dict[str, Any]]] = {
    "a role": (None, {"eos_token": "w3"}, {}),
    "a role of a word": (None, {"eos_token": role(single_word=True)}, {}),
    "a role without the space before it": (None, {"eos_token": role(lstrip=True)}, {}),
    "the map has the flags": (None, {"eos_token": "w3"}, {"eos_token": flags(single_word=True)}),
    "the map alone": (None, {}, {"eos_token": flags(single_word=True)}),
    "the list has the flags": (None, {"eos_token": "w3", "added_tokens_decoder": listed(rstrip=True)}, {}),
    "the list wins over the role": (
        None,
        {"eos_token": role(), "added_tokens_decoder": listed(single_word=True)},
        {},
    ),
    "the list wins over the pipeline": ({}, {"eos_token": "w3", "added_tokens_decoder": listed(single_word=True)}, {}),
    "the list takes a flag away": ({"single_word": True}, {"eos_token": "w3", "added_tokens_decoder": listed()}, {}),
    "the pipeline wins over the role": ({}, {"eos_token": role(single_word=True)}, {}),
    "the pipeline has a word": ({"single_word": True}, {"eos_token": role()}, {}),
    "listed, not special": (None, {"added_tokens_decoder": listed(special=False)}, {}),
    "listed without a role": (None, {"added_tokens_decoder": listed()}, {}),
    "a further special token": (None, {"additional_special_tokens": ["w3"]}, {}),
    "nothing": (None, {}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_flags_are_heeded_as_in_transformers(tmp_path: Path, case: str) -> None:
    added, settings, beside = CASES[case]
    backend = Backend(models.WordLevel(VOCAB, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    if added is not None:
        backend.add_special_tokens([AddedToken("w3", special=True, normalized=False, **added)])
    backend.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **settings}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    if beside:
        (tmp_path / "special_tokens_map.json").write_text(json.dumps(beside))
    found = load_tokenizer(tmp_path)
    ids = found.encode(TEXT)
    if case != "listed, not special":  # which is part of any text
        assert found.plain(TEXT) == WHOLE
    transformers = pytest.importorskip("transformers")
    assert ids == transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)(TEXT)["input_ids"]
    found.save(tmp_path / "again")
    assert load_tokenizer(tmp_path / "again").encode(TEXT) == ids
