"""Whisper's words: in OpenAI's files as in Hugging Face's, and the tokens that are none."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from headway.data.decode_stream import byte_letters
from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_readers import load_tokenizer
from headway.data.whisper_tokenizer import (
    LANGUAGES,
    TIMES,
    marks_of,
    read_tiktoken,
    unspoken,
    usual_settings,
)
from headway.errors import UserError

TEXT = "Well, don't — it's  2,500 km:\n\tÜber 日本語 naïve 😀 (sighs) ♪ <|en|> <|0.00|>"


@pytest.fixture(scope="module")
def gpt2(shared: Path) -> Tokenizer:
    return load_tokenizer(shared / "weights" / "gpt2_tokenizer")


def lines(pieces: list[str]) -> str:
    letters = byte_letters()
    return "".join(
        f"{base64.b64encode(bytes(letters[letter] for letter in piece)).decode()} {rank}\n"
        for rank, piece in enumerate(pieces)
    )


@pytest.fixture(scope="module")
def english(gpt2: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """The text of GPT-2 as OpenAI's package holds it."""
    file = tmp_path_factory.mktemp("words") / "gpt2.tiktoken"
    file.write_text(lines([gpt2.token(id) for id in range(50_256)]))
    return read_tiktoken(file, 51_864)


@pytest.mark.slow
def test_text_is_read_as_by_the_list_of_merges(english: Tokenizer, gpt2: Tokenizer) -> None:
    assert english.plain(TEXT) == gpt2.plain(TEXT)
    assert english.decode(english.plain(TEXT)) == TEXT


@pytest.mark.slow
def test_tokens_have_their_published_ids(english: Tokenizer) -> None:
    marks = marks_of(english)
    assert (marks.end, marks.begin, marks.silence, marks.untimed) == (50_256, 50_257, 50_361, 50_362)
    assert marks.tasks == {"translate": 50_357, "transcribe": 50_358}
    assert marks.languages == {}
    assert marks_of(english, multilingual=True).languages["en"] == 50_258
    assert (english.id("<|0.00|>"), english.id("<|30.00|>"), english.vocab) == (50_363, 51_863, 51_864)
    assert marks.text([marks.begin, 11, 50_363, 12, marks.end]) == [11, 12]


@pytest.mark.slow
def test_what_nobody_says_is_what_transformers_lists(english: Tokenizer) -> None:
    from transformers.models.whisper.configuration_whisper import NON_SPEECH_TOKENS

    assert unspoken(english) == [id for id in NON_SPEECH_TOKENS if id < 50_256]
    settings = usual_settings(english, marks_of(english))
    assert set(NON_SPEECH_TOKENS) <= set(settings["suppress_tokens"])
    assert settings["begin_suppress_tokens"] == [220, 50_256]
    assert settings["is_multilingual"] is False
    assert "lang_to_id" not in settings


def test_languages_are_those_of_transformers_in_their_order() -> None:
    from transformers.models.whisper.tokenization_whisper import LANGUAGES as THEIRS

    assert list(THEIRS) == list(LANGUAGES)
    assert TIMES == 1501


# ---- small vocabularies

BYTES = sorted(byte_letters())
PIECES = [*BYTES, "th", "the", "Ġthe", "Ġt"]


@pytest.mark.parametrize(("languages", "last"), [(99, "su"), (100, "yue")])
def test_as_many_languages_as_the_model_has_room_for(tmp_path: Path, languages: int, last: str) -> None:
    file = tmp_path / "multilingual.tiktoken"
    file.write_text(f"{lines(PIECES)}= {len(PIECES)}\n")  # the published file ends with a piece of no bytes
    found = read_tiktoken(file, len(PIECES) + 1 + 2 + languages + 6 + TIMES)
    marks = marks_of(found)
    assert list(marks.languages) == list(LANGUAGES[:languages])
    assert marks.prompt(last, "translate", timed=False) == [
        marks.begin,
        marks.languages[last],
        marks.tasks["translate"],
        marks.untimed,
    ]
    assert found.id("<|0.02|>") == marks.first_time + 1
    assert found.plain("the the") == [PIECES.index("the"), PIECES.index("Ġthe")]
    settings = usual_settings(found, marks)
    assert settings["lang_to_id"][f"<|{last}|>"] == marks.languages[last]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the vocabulary is empty"),
        ("YQ== 0\n*** 1\n", r"line 2: '\*\*\* 1' is no piece in base 64"),
        ("YQ== 0\nYg== one\n", r"line 2: 'Yg== one' is no piece"),
        ("YQ== 0\nYg== 0\n", "have the same id 0"),
        ("YQ== 0\nYg== 2\n", "2 pieces are not numbered from 0 to 1"),
        ("YQ== 0\n", "has 1 tokens of text, which do not belong to a Whisper of 51864"),
    ],
)
def test_files_that_are_not_words_are_told(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "gpt2.tiktoken"
    file.write_text(text)
    with pytest.raises(UserError, match=said):
        read_tiktoken(file, 51_864)


@pytest.mark.slow
def test_other_words_are_told(gpt2: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"these are not Whisper's words: there is no token <\|startoftranscript\|>"):
        marks_of(gpt2)


def test_hugging_faces_folders_hold_the_same(tmp_path: Path) -> None:
    """As transformers writes them now, and as the first published ones were: vocab.json, merges.txt, added tokens."""
    from transformers import WhisperTokenizer

    special = ["<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>"]
    special += ["<|startofprev|>", "<|nocaptions|>", "<|notimestamps|>"]
    vocab = {piece: id for id, piece in enumerate([*PIECES, "<|endoftext|>"])}
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the")]
    theirs = WhisperTokenizer(vocab=vocab, merges=merges, additional_special_tokens=special)
    theirs.save_pretrained(tmp_path / "new")
    old = tmp_path / "old"
    old.mkdir()
    (old / "vocab.json").write_text(json.dumps(vocab))
    (old / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    (old / "added_tokens.json").write_text(json.dumps({token: len(vocab) + at for at, token in enumerate(special)}))
    for folder in (tmp_path / "new", old):
        found = load_tokenizer(folder)
        marks = marks_of(found)
        assert (marks.end, marks.begin, marks.untimed) == (260, 261, 269)
        assert marks.silence == 268
        assert marks.languages == {"en": 262, "de": 263}
        assert found.plain("the the") == theirs("the the", add_special_tokens=False).input_ids
        assert found.decode(marks.text([marks.begin, *found.plain("the the"), 300])) == "the the"
