"""The letters of published CTC models: vocab.json without merges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.data.read_tokenizer import load_tokenizer
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from tests.data.test_tokenizer import streamed

TOKENS = ["<pad>", "<s>", "</s>", "<unk>", "|", "E", "T", "A", "H", "'"]
TOLD = {"tokenizer_class": "Wav2Vec2CTCTokenizer", "word_delimiter_token": "|", "do_lower_case": False}
HEARD = [[4, 6, 8, 8, 5, 4, 4, 5, 6, 4], [4, 4], [], [1, 6, 3, 5, 2], [7, 9, 4, 7]]


def folder(place: Path, tokens: list[str] = TOKENS, **told: Any) -> Path:
    (place / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}))
    (place / "tokenizer_config.json").write_text(json.dumps(told))
    return place


@pytest.mark.parametrize("told", [TOLD, {}], ids=["the class is told", "as the vocabulary shows"])
def test_letters_are_joined_and_the_mark_is_a_space(told: dict[str, Any], tmp_path: Path) -> None:
    words = load_tokenizer(folder(tmp_path, **told))
    assert words.decode(HEARD[0]) == streamed(words, HEARD[0]) == "THHE  ET"
    assert words.encode("THE HAT Z") == [6, 8, 5, 4, 8, 7, 6, 4, 3]
    assert (words.vocab, words.pad, words.bos, words.eos, words.unk) == (10, 0, 1, 2, 3)


def test_as_transformers_reads_it(tmp_path: Path) -> None:
    from transformers import Wav2Vec2CTCTokenizer

    words = load_tokenizer(folder(tmp_path, **TOLD))
    theirs: Any = Wav2Vec2CTCTokenizer(str(tmp_path / "vocab.json"))
    for ids in HEARD:
        assert words.decode(ids) == theirs.decode(ids, group_tokens=False, skip_special_tokens=True)
    for text in ("THE HAT", "E'TA  Z", ""):
        assert words.encode(text) == theirs(text).input_ids


def test_a_mark_that_is_listed_as_special_is_a_space_all_the_same(tmp_path: Path) -> None:
    """transformers 5 writes it so."""
    again = {"4": {"content": "|", "special": True}, "10": {"content": "<x>", "special": True}}
    words = load_tokenizer(folder(tmp_path, **TOLD, added_tokens_decoder=again))
    assert words.decode([6, 4, 10, 5]) == "T E"
    assert words.vocab == 11


def test_what_is_saved_is_read(tmp_path: Path) -> None:
    words = load_tokenizer(folder(tmp_path, **TOLD))
    words.save(tmp_path / "ours")
    again: Tokenizer = load_tokenizer(tmp_path / "ours")
    assert [again.decode(ids) for ids in HEARD] == [words.decode(ids) for ids in HEARD]
    assert (again.vocab, again.pad, again.encode("HE T")) == (10, 0, words.encode("HE T"))


def test_other_spellings(tmp_path: Path) -> None:
    tokens = ["[PAD]", "_", "a", "ch", "[UNK]"]
    told = {"pad_token": "[PAD]", "unk_token": "[UNK]", "word_delimiter_token": "_"}
    words = load_tokenizer(folder(tmp_path, tokens, tokenizer_class="Wav2Vec2CTCTokenizer", **told))
    assert words.encode("cha a?") == [3, 2, 1, 2, 4]
    assert words.decode([0, 3, 2, 1, 2]) == "cha a"


def test_what_is_no_vocabulary_of_letters_misses_its_merges(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"merges\.txt: there is no such file"):
        load_tokenizer(folder(tmp_path, [*TOKENS, "Ġthe"]))


def test_another_case_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="do_lower_case=True is not known for letters that a model hears"):
        load_tokenizer(folder(tmp_path, **{**TOLD, "do_lower_case": True}))
