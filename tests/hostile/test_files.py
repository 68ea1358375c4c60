"""Tokenizers that panic or never end, files that are none, bombs, links, and garbage in the folder of a run."""

from __future__ import annotations

import base64
import errno
import gzip
import json
import os
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headway.conversion
from headway.cli.main import main
from headway.data.tokenizer_readers import load_pipeline
from headway.errors import UserError
from headway.training.metrics_log import MetricsLog
from tests.cli.command import TINY
from tests.hostile.conftest import built
from tests.hostile.trial import Case, Outcome, check, try_all

pytestmark = pytest.mark.long

REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
FLAGS: dict[str, Any] = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
BPE: dict[str, Any] = {"type": "BPE", "vocab": {"t": 0, "h": 1, "e": 2, "th": 3}, "merges": ["t h"]}
UNIGRAM: dict[str, Any] = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["t", -1.0]]}
PIECES: dict[str, Any] = {
    **{"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1, "##a": 2}, "unk_token": "[UNK]"},
    **{"continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
START = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}


def template(*single: object) -> dict[str, Any]:
    return {"type": "TemplateProcessing", "single": list(single), "pair": [], "special_tokens": {}}


def charsmap(data: bytes) -> dict[str, Any]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def nested(depth: int) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": [nested(depth - 1)] if depth else []}


INNER = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "decoder": "decoders",
    "post_processor": "processors",
}


def inside(slot: str, depth: int) -> dict[str, Any]:
    return {"type": "Sequence", INNER[slot]: [inside(slot, depth - 1)] if depth else []}


# parts of a tokenizer.json that replace good ones
PIPELINES: dict[str, dict[str, Any]] = {
    "charsmap too short": {"normalizer": charsmap(b"abc")},
    "charsmap empty": {"normalizer": charsmap(b"")},
    "charsmap that leads nowhere": {"normalizer": charsmap(struct.pack("<I", 8) + b"\xff" * 8 + b"x")},
    "charsmap of 4 GB": {"normalizer": charsmap(struct.pack("<I", 2**32 - 1) + b"\xff" * 8 + b"x")},
    "charsmap that is no base64": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "é"}},
    "letters doubled 40 times": {"normalizer": {"type": "Sequence", "normalizers": [REPLACE] * 40}},
    "letters doubled while decoding": {"decoder": {"type": "Sequence", "decoders": [REPLACE] * 40}},
    "a letter that becomes a million": {"normalizer": {**REPLACE, "content": "a" * 10**6}},
    "a pattern that becomes a million": {"normalizer": {**REPLACE, "pattern": {"Regex": "."}, "content": "a" * 10**6}},
    "a million before each text": {"normalizer": {"type": "Prepend", "prepend": "x" * 10**6}},
    "a thousand steps": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 1000}},
    "pieces of no length": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "a template without its token": {"post_processor": template(START, {"Sequence": {"id": "A", "type_id": 0}})},
    "a template of a second text": {"post_processor": template({"Sequence": {"id": "B", "type_id": 0}})},
    "nested steps": {"normalizer": nested(150)},
    "words of 10^9 letters": {"model": {**PIECES, "max_input_chars_per_word": 10**9}},
    "words of -1 letters": {"model": {**PIECES, "max_input_chars_per_word": -1}},
    "words of many letters": {"model": {**PIECES, "max_input_chars_per_word": "many"}},
    "a merge shorter than its prefix": {"model": {**BPE, "continuing_subword_prefix": "##"}},
    "a merge of half a letter": {"model": {**BPE, "continuing_subword_prefix": "é"}},
    "a merge of unknown tokens": {"model": {**BPE, "merges": ["t zz"]}},
    "a merge of one token": {"model": {**BPE, "merges": ["t"]}},
    "dropout of 7": {"model": {**BPE, "dropout": 7.0}},
    "an unknown token beyond the vocabulary": {"model": {**UNIGRAM, "unk_id": 99}},
    "an empty vocabulary": {"model": {**UNIGRAM, "vocab": []}},
    "scores that are words": {"model": {**UNIGRAM, "vocab": [["<unk>", "x"]]}},
    "ids that are words": {"model": {**BPE, "vocab": {"t": "0"}}},
    "ids below 0": {"model": {**BPE, "vocab": {"t": -1}}},
    "ids of 10^18": {"model": {**BPE, "vocab": {"t": 10**18}}},
    "ids that occur twice": {"model": {**BPE, "vocab": {"t": 0, "h": 0}}},
    "a model without a type": {"model": {"type": "Nothing", "vocab": {"t": 0}}},
    "a model that is a list": {"model": []},
    "a step without a type": {"normalizer": {"type": "Nothing"}},
    "a step that is a number": {"pre_tokenizer": 5},
    "a pattern that is broken": {
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}
    },
    "a pattern without end": {
        "pre_tokenizer": {
            **{"type": "Split", "behavior": "Isolated", "invert": False},
            "pattern": {"Regex": r"((\w+)+)+\d\d\d\d\d\d"},
        }
    },
    "a piece of a million letters": {"model": {**UNIGRAM, "vocab": [["<unk>", 0.0], ["a" * 10**6, -1.0]]}},
    "a token of a million letters": {"model": {**BPE, "vocab": {"a" * 10**6: 0}, "merges": []}},
    "an added token of a million letters": {"added_tokens": [{"id": 9, "content": "x" * 10**6, **FLAGS}]},
    "bytes of bytes": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 20}},
    "bytes of bytes, split": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTE_LEVEL] * 50}},
    "a text a thousand times": {"post_processor": template(*[{"Sequence": {"id": "A", "type_id": 0}}] * 1000)},
    "a token that is a million": {
        "post_processor": {**template(START), "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [0] * 10**6}}}
    },
    **{f"deep {slot}": {slot: inside(slot, 90)} for slot in INNER},
    **{
        f"{kind} {pattern}": {slot: {"type": kind, "pattern": {"Regex": pattern}, **rest}}
        for pattern in (
            r"(a+)+b",
            r"(a|aa)+$",
            r"((a{1,100}){1,100}){1,100}b",
            r"(\s*\S+)*\d{9}",
            r"\p{L}+" * 200,
            "(" * 5000,
        )
        for kind, slot, rest in (
            ("Split", "pre_tokenizer", {"behavior": "Isolated", "invert": False}),
            ("Replace", "normalizer", {"content": "b"}),
        )
    },
    "added tokens of numbers": {"added_tokens": [5]},
    "added tokens without ids": {"added_tokens": [{"content": "zz", **FLAGS}]},
    "padding to a word": {"padding": {"strategy": "forever"}},
}
BESIDE: dict[str, tuple[str, object]] = {
    "known_tokens below 0": ("tokenizer_config.json", {"known_tokens": -5}),
    "known_tokens as a word": ("tokenizer_config.json", {"known_tokens": "all"}),
    "known_tokens of 10^12": ("tokenizer_config.json", {"known_tokens": 10**12}),
    "many flags": (
        "tokenizer_config.json",
        {"added_tokens_decoder": {n: {"content": "a"} for n in range(10**5 + 1)}},
    ),
    "a long token with flags": ("tokenizer_config.json", {"added_tokens_decoder": {"0": {"content": "a" * 10**6}}}),
    "many special tokens": ("tokenizer_config.json", {"additional_special_tokens": ["a"] * (10**5 + 1)}),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    built("gpt2").save_hf(folder)
    good = {**PIECES, "vocab": {"[UNK]": 0, "the": 1, "a": 2, "##a": 3}}
    empty: dict[str, Any] = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    values = {"version": "1.0", **empty, "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": good}
    (folder / "tokenizer.json").write_text(json.dumps(values))
    return folder


def tried(cases: list[Case], folder: Path) -> dict[str, Outcome]:
    found = try_all(cases, folder)
    for name, outcome in found.items():
        check(outcome, name)
    return found


def test_the_model_that_the_others_spoil_runs(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(model), "a " + "a" * 20_000, "--max-new-tokens", "1"]) == 0, capsys.readouterr().err


def test_a_decoder_that_panics_at_a_later_text_is_refused_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    """It was loaded, and the package wrote to standard error when a text had the token."""
    vocab = {"[UNK]": 0, "the": 1, "zzz": 2, "z": 3}
    strip = {"type": "Strip", "content": "z", "start": 2, "stop": 2}
    values = {"version": "1.0", "added_tokens": [], "decoder": strip, "model": {**PIECES, "vocab": vocab}}
    with pytest.raises(UserError, match=r"x\.json: not a tokenizer: "):
        load_pipeline(json.dumps(values), Path("x.json"))
    assert capfd.readouterr() == ("", "")
    strip["stop"] = 0
    assert load_pipeline(json.dumps(values), Path("x.json")).decode([2]) == "z"


def test_a_pipeline_that_panics_or_never_ends_is_one_sentence(model: Path, tmp_path: Path) -> None:
    def edit(part: dict[str, Any], work: Path) -> None:
        file = work / "m" / "tokenizer.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **part}))

    cases = [Case(name, ("run", "m", "the a"), partial(edit, part), model) for name, part in PIPELINES.items()]
    for name, outcome in tried(cases, tmp_path).items():
        assert "tokenizer.json" in outcome.err or "m: " in outcome.err, (name, outcome.err)


def test_more_tokens_than_any_vocabulary_has_are_refused(model: Path, tmp_path: Path) -> None:
    """2 million tokens took 11 to 13 s of processor time, a million added ones more than 20."""
    flags = json.dumps(FLAGS)[1:]
    added = ",".join(f'{{"id": {at}, "content": "<{at}>", {flags}' for at in range(100_001))
    vocab = ",".join(f'"{at}": {at}' for at in range(2**20 + 1))
    parts = {
        "vocabulary": f'"model": {{"type": "BPE", "merges": [], "vocab": {{{vocab}}}}}',
        "list of added tokens": f'"model": {json.dumps(BPE)}, "added_tokens": [{added}]',
    }

    def write(part: str, work: Path) -> None:
        (work / "m" / "tokenizer.json").write_text(f'{{"version": "1.0", {part}}}')

    cases = [Case(name, ("run", "m", "the a"), partial(write, part), model) for name, part in parts.items()]
    for name, outcome in tried(cases, tmp_path).items():
        assert f"the {name} has" in outcome.err, (name, outcome.err)


def test_files_beside_a_tokenizer_are_checked(model: Path, tmp_path: Path) -> None:
    def write(file: str, values: object, work: Path) -> None:
        (work / "m" / file).write_text(json.dumps(values))

    tried([Case(name, ("run", "m", "the"), partial(write, *told), model) for name, told in BESIDE.items()], tmp_path)


JSON_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
TEXTS = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[1]",
    "a number": b"7",
    "deep lists": b"[" * 10**5,
    "deep objects": b'{"a":' * 10**5,
    "no UTF-8": b'{"\xff": 1}',
    "a key twice": b'{"model_type": "gpt2", "model_type": "bert"}',
    "a number of 10^5 digits": b'{"vocab_size": ' + b"9" * 10**5 + b"}",
}


WRONG_COUNTS: tuple[object, ...] = ("many", 2.5, 20.0, -3, [4], True)
GENERATION = {
    **{f"{name} {x!r}": {name: x} for name in ("max_new_tokens", "max_length", "min_length") for x in WRONG_COUNTS},
    "max_new_tokens 0": {"max_new_tokens": 0},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": "few"},
    "eos_token_id": {"eos_token_id": "</s>"},
    "eos_token_id of a list": {"eos_token_id": [1, "2"]},
    "suppress_tokens": {"suppress_tokens": {"1": 2}},
}


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_lengths_and_tokens_that_are_none_are_refused_with_their_file(model: Path, tmp_path: Path, file: str) -> None:
    def edit(values: dict[str, Any], work: Path) -> None:
        place = work / "m" / file
        old = json.loads(place.read_text()) if place.exists() else {}
        place.write_text(json.dumps({**old, **values}))

    words = ("run", "m", "the a", "--max-new-tokens", "1")  # so that none of them would be heeded
    cases = [Case(name, words, partial(edit, values), model) for name, values in GENERATION.items()]
    for name, outcome in tried(cases, tmp_path).items():
        assert f"m/{file}: {name.split()[0]} is " in outcome.err, (name, outcome.err)


def test_json_that_is_none_is_one_sentence(model: Path, tmp_path: Path) -> None:
    def write(file: str, data: bytes, work: Path) -> None:
        (work / "m" / file).write_bytes(data)

    cases = [
        Case(f"{file}: {name}", ("run", "m", "the"), partial(write, file, data), model)
        for file in JSON_FILES
        for name, data in TEXTS.items()
        # what is an object and tells nothing is fine beside a tokenizer
        if file in JSON_FILES[:2] or name not in ("a key twice", "a number of 10^5 digits")
    ]
    tried(cases, tmp_path)


def pipe(file: Path) -> None:
    file.unlink(missing_ok=True)
    os.mkfifo(file)


def device(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, device], ids=["pipe", "device"])
def test_only_regular_files_are_opened(model: Path, tmp_path: Path, make: Callable[[Path], None]) -> None:
    names = ("config.json", "tokenizer.json", "model.safetensors")  # those beside them are passed over
    cases = [Case(name, ("run", "m", "the"), lambda work, name=name: make(work / "m" / name), model) for name in names]
    cases += [
        Case("training data", ("check", "a.tsv"), lambda work: make(work / "a.tsv")),
        Case("recipe", ("train", "a.tsv", "--config", "r.yaml"), lambda work: make(work / "r.yaml")),
        Case("image", ("train", "folder"), lambda work: (pictures(work), make(work / "folder" / "cat" / "3.png"))),
        Case(
            "sound", ("train", "folder"), lambda work: (pictures(work, "wav"), make(work / "folder" / "cat" / "3.wav"))
        ),
    ]
    tried(cases, tmp_path)


def pictures(work: Path, suffix: str = "png") -> None:
    for name in ("cat", "dog"):
        (work / "folder" / name).mkdir(parents=True)
        for number in range(4):
            (work / "folder" / name / f"{number}.{suffix}").write_bytes(b"none")


def packed(data: bytes, times: int) -> bytes:
    """A gzip file that holds some bytes so many times, made of members that are repeated."""
    return gzip.compress(data * 2**10, 9) * (times // 2**10)


BOMBS = {
    "one line": ("a.txt.gz", packed(b"a" * 2**10, 2**21)),
    "empty lines": ("a.txt.gz", packed(b"\n" * 2**10, 2**21)),
    "an open quote": ("a.csv.gz", gzip.compress(b'text,label\n"open,x\n') + packed(b"a" * 1023 + b"\n", 2**21)),
    "one cell": ("a.tsv.gz", gzip.compress(b"a\tb\n") + packed(b"a" * 2**10, 2**21)),
    "one object": ("a.jsonl.gz", gzip.compress(b'{"text": "') + packed(b"a" * 2**10, 2**21)),
}


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    def write(name: str, data: bytes, work: Path) -> None:
        (work / name).write_bytes(data)

    cases = [
        Case(f"{name}, {command}", (command, file), partial(write, file, data))
        for name, (file, data) in BOMBS.items()
        for command in ("check", "train")
    ]
    tried(cases, tmp_path)


def test_a_pattern_without_end_is_refused(tmp_path: Path) -> None:
    def write(work: Path) -> None:
        for name in ("cat", "dog"):
            for number in range(3):
                file = work / "folder" / f"{name}{'a' * 40}_{number}!.png"
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(b"none")

    options = ("--data.label-from", "--data.validation-from", "--data.test-from")
    pattern = r"([a-z]+)+$"
    cases = [Case(one, ("train", "folder", one, pattern), write) for one in options]
    found = try_all(cases, tmp_path)
    check(found[options[0]], options[0])
    assert "takes too long" in found[options[0]].err
    for name, outcome in found.items():
        check(outcome, name)


def test_many_empty_tensors_are_refused(model: Path, tmp_path: Path) -> None:
    def write(count: int, work: Path) -> None:
        entry = ',"dtype":"F32","shape":[0],"data_offsets":[0,0]}'.replace(",", "", 1)
        header = ("{" + ",".join(f'"t.{n}":{{{entry}' for n in range(count)) + "}").encode()
        (work / "m" / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)

    cases = [Case(f"{n} tensors", ("run", "m", "the"), partial(write, n), model) for n in (10**6, 20_000)]
    tried(cases, tmp_path)


SAFE = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "a header of 2^63": (2**63).to_bytes(8, "little") + b"{}",
    "a header of lists": (2).to_bytes(8, "little") + b"[]",
    "offsets outside": (64).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}         ',
    "a shape of 10^30": (82).to_bytes(8, "little")
    + b'{"a":{"dtype":"F32","shape":[1000000000000000,1000000000000000],"data_offsets":[0,0]}}'.ljust(82)[:82],
}


def test_weights_that_are_none_are_one_sentence(model: Path, tmp_path: Path) -> None:
    def write(data: bytes, work: Path) -> None:
        (work / "m" / "model.safetensors").write_bytes(data)

    tried([Case(name, ("run", "m", "the"), partial(write, data), model) for name, data in SAFE.items()], tmp_path)


ARCHITECTURES = ("GPT2LMHeadModel", [], None, [5], {"a": 1}, ["NoSuchModel"])


def test_convert_writes_all_or_nothing(bases: Path, tmp_path: Path) -> None:
    def edit(value: object, work: Path) -> None:
        file = work / "m" / "config.json"
        values = json.loads(file.read_text())
        file.write_text(json.dumps({**values, "architectures": value}))
        # the other library takes seconds to import, and is not what is tried
        headway.conversion.their_model, headway.conversion.find_spec = refusing, str

    def refusing(folder: Path, name: str) -> None:
        raise RuntimeError(f"no {name}")

    cases = [
        Case(f"{to} {value!r}", ("convert", "m", "out", "--to", to), partial(edit, value), bases / "hf-gpt2")
        for value in ARCHITECTURES
        for to in ("headway", "hf")
    ]
    for name, outcome in try_all(cases, tmp_path).items():
        if outcome.code != 0:  # where nothing is told, the first head is meant
            check(outcome, name)
            assert not outcome.made, (name, outcome.made)
        assert not outcome.written, (name, outcome.written)


def test_convert_to_a_full_disk_leaves_nothing(bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("headway.model.write_json", full)
    with pytest.raises(OSError, match="No space left"):
        headway.conversion.convert(bases / "hf-gpt2", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_no_utf8(bases: Path, tmp_path: Path) -> None:
    def rename(work: Path) -> None:
        shutil.copytree(work / "m", work / odd)

    odd = os.fsdecode(b"m\xff")
    words = {"run": ("run", odd, "the"), "convert": ("convert", odd, "out")}
    tried([Case(name, told, rename, bases / "hf-gpt2") for name, told in words.items()], tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps with a checkpoint, as if it had been ended before its model was written."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "a.tsv").write_text("".join(f"a {n}\tb {n}\n" for n in range(60)))
    steps = ["--train.steps", "4", "--train.checkpoint-every", "2", "--train.log-every", "1"]
    assert main(["train", str(folder / "a.tsv"), *TINY, *steps, "--out", str(folder / "run")]) == 0
    (folder / "run" / "model.safetensors").unlink()
    lines = (folder / "run" / "times.jsonl").read_text().splitlines(keepends=True)
    (folder / "run" / "times.jsonl").write_text("".join(line for line in lines if "done" not in line))
    return folder


GARBAGE = (
    b"\xff\xfe\n",
    b"7\n",
    b"[]\n",
    b"{\n",
    b'{"step": "x"}\n',
    b'{"step": 1, "valid": 5}\n',
    b"[" * 10**5 + b"\n",
)


@pytest.mark.parametrize("file", ["metrics.jsonl", "times.jsonl"])
def test_garbage_in_metrics_does_not_end_a_run(finished: Path, tmp_path: Path, file: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished / "run", run)
    place = run / file
    place.write_bytes(b"".join(GARBAGE) + place.read_bytes())
    assert main(["train", "--out", str(run), "--resume"]) == 0
    assert (run / "model.safetensors").is_file()


def test_lines_that_no_run_has_written_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(GARBAGE) + b'{"step": 3, "loss": 1.5}\n')
    assert MetricsLog(tmp_path).lines() == [{"step": 3, "loss": 1.5}]


def test_a_run_whose_files_are_spoiled_is_refused(finished: Path, tmp_path: Path) -> None:
    def write(name: str, data: bytes, work: Path) -> None:
        file = next((work / "m").glob(name))
        file.unlink()
        file.write_bytes(data)

    texts = (b"", b"[]", b"{}", b'{"files": [], "records": 1, "words": 2}', b"\xff")
    words = ("train", "--out", "m", "--resume")
    cases = [Case(f"{data!r}", words, partial(write, "data.json", data), finished / "run") for data in texts]
    tried(cases, tmp_path)


LINKED = ("metrics.jsonl", "times.jsonl", "checkpoints", "tensorboard", "model.safetensors")


def test_a_run_never_writes_through_a_link(finished: Path, tmp_path: Path) -> None:
    def link(name: str, work: Path) -> None:
        other = work / "elsewhere"
        if name in ("checkpoints", "tensorboard"):
            shutil.rmtree(work / "m" / name, ignore_errors=True)
            other.mkdir()
        else:
            (work / "m" / name).unlink(missing_ok=True)
            other.write_text("precious")
        (work / "m" / name).symlink_to(other)

    words = ("train", "--out", "m", "--resume")
    found = tried([Case(name, words, partial(link, name), finished / "run") for name in LINKED], tmp_path)
    assert all("is a link to" in outcome.err for outcome in found.values())
