"""Files that are no tokenizers: one sentence that names the file, nothing executed, no memory on a file's word."""

from __future__ import annotations

import json
import resource
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.sentencepiece_model import whole_charsmap
from headway.data.tokenizer_readers import load_tokenizer
from headway.data.tokenizer_training import train_characters, train_unigram
from headway.errors import UserError
from tests.data.test_tokenizer_readers import learn_pieces
from tests.data.texts import CORPUS

BPE = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}, "added_tokens": []}
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]


def changed(**model: Any) -> str:
    return json.dumps({**BPE, "model": {**BPE["model"], **model}})


BAD = {
    "empty": ({"tokenizer.json": ""}, "is not JSON"),
    "no JSON": ({"tokenizer.json": "hello"}, "is not JSON"),
    "cut JSON": ({"tokenizer.json": json.dumps(BPE)[:60]}, "is not JSON"),
    "deep JSON": ({"tokenizer.json": "[" * 100_000}, "is not JSON"),
    "a list": ({"tokenizer.json": "[]"}, "holds list; allowed: a JSON object"),
    "no model": ({"tokenizer.json": '{"model": null}'}, "no model with a vocabulary"),
    "unknown model": ({"tokenizer.json": changed(type="Spell")}, "not a tokenizer"),
    "same ids": ({"tokenizer.json": changed(vocab={"a": 0, "b": 0, "ab": 1})}, "'a' and 'b' have the same id 0"),
    "ids that are no numbers": ({"tokenizer.json": changed(vocab={"a": "x"})}, "the id of 'a' is 'x'"),
    "an id beyond": ({"tokenizer.json": changed(vocab={"a": 2**31})}, "the id of 'a' is 2147483648"),
    "a name twice": ({"tokenizer.json": '{"model": {"vocab": {"a": 0, "a": 1}}}'}, "'a' stands there twice"),
    "unknown merge": ({"tokenizer.json": changed(merges=[["a", "z"]])}, "not a tokenizer"),
    "no merges": ({"vocab.json": '{"a": 0}'}, "no such file"),
    "merges of unknown": ({"vocab.json": '{"a": 0}', "merges.txt": "a z\n"}, "merges 'z', which vocab.json lacks"),
    "merges of three": ({"vocab.json": '{"a": 0}', "merges.txt": "a a a\n"}, "line 1: 'a a a' is no pair"),
    "same ids in vocab.json": ({"vocab.json": '{"a": 0, "b": 0}', "merges.txt": ""}, "have the same id 0"),
    "not text": ({"vocab.txt": b"\xff\xfe\x00"}, "not a text in UTF-8"),
    "not BERT": ({"vocab.txt": "a\nb\n"}, "not BERT's vocabulary"),
    "a line twice": ({"vocab.txt": "\n".join([*TOKENS, "a"])}, "'a' occurs twice, as number 4 and 5"),
    "text as model": ({"spiece.model": "hello there"}, "not a SentencePiece model"),
    "empty model": ({"spiece.model": b""}, "it has no pieces"),
    "length of 2^31": ({"spiece.model": b"\x0a\x80\x80\x80\x80\x08"}, "has 2147483648 bytes where 0 are left"),
    "endless number": ({"spiece.model": b"\xff" * 40}, "a number that does not end"),
    "wire type": ({"spiece.model": b"\x0b\x00"}, "wire type 3"),
    "a varint for a piece": ({"spiece.model": b"\x08\x05"}, "not a SentencePiece model"),
    "short bin": ({"tok.bin": b"\x01"}, "ends after 1 bytes"),
    "cut bin": ({"tok.bin": struct.pack("<ifi", 7, 0.0, 5) + b"<un"}, "a token of 5 bytes"),
    "long bin": ({"tok.bin": struct.pack("<ifi", 2**31 - 1, 0.0, 2**31 - 1) + b"x"}, "a token of 2147483647 bytes"),
    "negative bin": ({"tok.bin": struct.pack("<ifi", 7, 0.0, -5) + b"x"}, "a token of -5 bytes"),
    "bin without bytes": ({"tok.bin": struct.pack("<ifi", 7, 0.0, 1) + b"x"}, "256 byte tokens"),
    "dictionary alone": ({"dict.en.txt": "a 1\n"}, "no bpe.code"),
    "dictionary without counts": ({"dict.en.txt": "a\n", "bpe.code": "#version: 0.2\n"}, "line 1: 'a' is no token"),
    "old codes": ({"dict.en.txt": "a 1\n", "bpe.code": "a b\n"}, "allowed: '#version: 0.2'"),
    "settings cut off": ({"tokenizer.json": json.dumps(BPE), "tokenizer_config.json": "{"}, "is not JSON"),
    "nothing there": ({}, "no tokenizer in this folder"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_told_by_name(case: str, tmp_path: Path) -> None:
    files, told = BAD[case]
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError) as caught:
        load_tokenizer(tmp_path)
    assert told in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load_tokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(UserError, match="not the name of a tokenizer's file"):
        load_tokenizer(tmp_path / "weights.safetensors")


def test_one_token_in_several_roles_plays_the_first(tmp_path: Path) -> None:
    """GPT-2's and others' settings are published so, and are read; distinct they are all the same."""
    train_characters(["ab"], 400).save(tmp_path)
    settings = {"eos_token": "</s>", "bos_token": "</s>", "pad_token": {"content": "</s>"}, "unk_token": "<nowhere>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.roles.named() == {"eos": "</s>"}


@pytest.mark.slow
@given(data=st.data())
def test_spoilt_models_are_refused_or_read(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any bytes of a model changed or cut off: an error that names the file, or a tokenizer that works."""
    folder = tmp_path_factory.getbasetemp() / "spoilt"
    good = folder / "good.model"
    if not good.exists():
        folder.mkdir()
        learn_pieces(folder / "good", model_type="bpe")
    content = bytearray(good.read_bytes()[: data.draw(st.integers(0, 1500))])
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 255)), max_size=4)):
        if at < len(content):
            content[at] = byte
    spoilt = folder / "tried" / "spoilt.model"
    spoilt.parent.mkdir(exist_ok=True)
    spoilt.write_bytes(content)
    assert complaint(spoilt) is None or str(spoilt) in str(complaint(spoilt))


@pytest.mark.slow
@given(data=st.data())
def test_spoilt_json_is_refused_or_read(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "json"
    folder.mkdir(exist_ok=True)
    good = folder / "good" / "tokenizer.json"
    if not good.exists():
        train_unigram(CORPUS, 380).save(good.parent)
    text = good.read_text()
    start, end = sorted((data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))))
    spoilt = folder / "tokenizer.json"
    spoilt.write_text(text[:start] + data.draw(st.sampled_from(["", "0", '"', "null", "[", "-1"])) + text[end:])
    assert complaint(spoilt) is None or str(spoilt) in str(complaint(spoilt))


def complaint(file: Path) -> str | None:
    try:
        tokenizer = load_tokenizer(file)
    except UserError as error:
        return str(error)
    tokenizer.decode(tokenizer.encode("the cat"))
    return None


@pytest.mark.slow
@given(
    units=st.lists(st.integers(0, 2**32 - 1), max_size=600),
    texts=st.sampled_from([b"", b"a", b"a\0", b"\xff\0", "é\0".encode()]),
)
def test_spoilt_tables_of_normal_forms_lead_nowhere_beyond(units: list[int], texts: bytes) -> None:
    table = struct.pack(f"<{len(units) + 1}I", 4 * len(units), *units) + texts
    if whole_charsmap(table):
        from tokenizers import normalizers

        normalizers.Precompiled(table).normalize_str("the cat ﬁ é ☃")


def test_a_lying_table_of_normal_forms_is_refused() -> None:
    good = struct.pack("<257I", 1024, *[0] * 256) + b"\0"
    assert whole_charsmap(good)
    assert not whole_charsmap(good[:-1])
    assert not whole_charsmap(struct.pack("<I", 2**32 - 4) + good[4:])
    assert not whole_charsmap(good[:4] + struct.pack("<I", 1 << 30) + good[8:])
    assert not whole_charsmap(good[:4] + struct.pack("<I", 1 << 31 | 1 << 30) + good[8:])  # a root that is a leaf
