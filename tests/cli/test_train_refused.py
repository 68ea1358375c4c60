"""`headway train` given nonsense, or a disk that is full: one sentence, a tip, and nothing lost."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.recipe import ALIASES
from tests.cli.command import SIX, Done, Place, full_after, left, made_place, names

SHORT = ["--train.steps", "3", "--train.threads", "1"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """With one run in it, `done`, that is finished."""
    place = made_place(tmp_path_factory.mktemp("place"))
    assert place(*SIX, "--out", "done").code == 0
    return place


# Bad input.


def lines(*parts: tuple[str, int]) -> bytes:
    return "".join(f"{line}\n" * count for line, count in parts).encode()


GOOD = ("the cat sees\tdie Katze sieht es", 30)
BAD: dict[str, tuple[dict[str, bytes], list[str], str]] = {
    "no file": ({}, ["no.tsv"], "no.tsv does not exist"),
    "columns": ({"b.tsv": lines(GOOD, ("alone", 1))}, ["b.tsv"], "b.tsv:31: 1 column where the file has 2"),
    "encoding": ({"b.tsv": lines(GOOD) + b"caf\xe9 x\tja ja\n"}, ["b.tsv"], "b.tsv:31: byte 4 of the line is 0xE9"),
    "unequal": (
        {"b.en": lines(("one two", 3)), "b.de": lines(("eins zwei", 2))},
        ["--source", "b.en", "--target", "b.de"],
        "b.en:3: 1 line more than b.de has (2)",
    ),
    "empty": ({"b.tsv": b""}, ["b.tsv"], "b.tsv is empty"),
    "one class": (
        {"b.csv": b"text,label\n" + lines(*((f"text {n},good", 1) for n in range(30)))},
        ["b.csv"],
        "every label in b.csv is 'good'",
    ),
    "unknown label": (
        {"b.csv": b"text,label\nsome text,up\nother text,sideways\n"},
        ["labels.csv", "--validation", "b.csv"],
        "b.csv:3: the class 'sideways' is not one of the 2 that",
    ),
    "other columns": ({"b.csv": b"x,y\n1,2\n"}, ["labels.csv", "--validation", "b.csv"], "b.csv has no column 'text'"),
    "too short": ({"b.txt": b"hello"}, ["b.txt"], "b.txt has 6 tokens to learn from"),
    "unsuited": ({}, ["pairs.tsv", "--preset", "gpt2"], "gpt2 cannot learn this task (translation)"),
    "no dropout": ({}, ["text.txt", "--preset", "llama2-7b", "--train.dropout", "0.1"], "llama has none; leave it out"),
    "one record": (
        {"b.csv": b"hello,bonjour\n"},
        ["b.csv"],
        "no records are left to learn from, beside those that are",
    ),
    "two rows": ({"b.csv": b"1,2,3\n4,5,6\n"}, ["b.csv"], "which are no row of 8 + 1; give more vectors\n"),
    "augmented texts": ({}, ["pairs.tsv", "--data.augment", "flipp"], "changes images and sounds, and this task (seq"),
    "no tokenizer": (
        {},
        ["pairs.tsv", "--data.tokenizer", "wordz"],
        "did you mean 'words'?\n  tip: headway train pairs",
    ),
    "no setting": (
        {"b.yaml": b"name: no\n"},
        ["pairs.tsv", "--config", "b.yaml"],
        "b.yaml line 1: a recipe has no 'name'; allowed: seed, out, device, data, model, train",
    ),
    "no data": ({}, [], "headway train needs data"),
    "resume what": ({}, ["--resume"], "--resume needs the folder of the run; give --out DIR"),
    "resume where": ({}, ["--resume", "--out", "nowhere"], "headway train needs data"),
    "freeze what": ({}, ["pairs.tsv", "--freeze", "encoder", "--out", "x"], "--freeze without --from would freeze"),
    "from where": ({}, ["pairs.tsv", "--from", "nowhere", "--out", "x"], "nowhere does not exist"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_in_a_sentence_and_nothing_is_left_behind(place: Place, name: str) -> None:
    files, words, told = BAD[name]
    for file, data in files.items():
        (place.folder / file).write_bytes(data)
    before = names(place.folder)
    done = place("train", *words, *SHORT)
    assert told in done.said
    assert done.code == 2
    assert names(place.folder) == before


@pytest.mark.slow
def test_where_it_came_from_is_shown_to_whom_asks(place: Place) -> None:
    done = place("train", "no.tsv", "--debug")
    assert done.code == 2
    assert "Traceback (most recent call last)" in done.err
    assert "\nerror: no.tsv does not exist" in done.err


@pytest.mark.slow
def test_a_learning_rate_that_breaks_the_model_is_told(place: Place) -> None:
    done = place(*SIX, "--train.rate", "1e30", "--out", "broken")
    assert done.code == 2
    assert "not finite in 3 steps in a row" in done.said
    assert "--train.lr" in done.said
    line = json.loads((place.folder / "broken" / "metrics.jsonl").read_text().splitlines()[-1])
    assert (line["skipped"], line["loss"], line["norm"]) == (1, None, None)


OTHERS = [errno.EIO, errno.EROFS, errno.EDQUOT]


def limit(size: int) -> Callable[[], None]:
    """No file may grow beyond so many bytes."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOSPC, *(pytest.param(n, marks=pytest.mark.proof) for n in OTHERS)])
def test_a_disk_that_refuses_is_told_and_what_was_saved_stays(place: Place, number: int) -> None:
    name = f"refused-{number}"
    done = place(*SIX, "--train.checkpoint-every", "2", "--out", name, before=full_after(2, number))
    check_refused(done, os.strerror(number), name)
    assert names(place.folder / name / "checkpoints") == {".lock", "step-0000002", "step-0000004"}
    assert "step-0000006" not in done.out
    assert place("train", "--out", name, "--resume").code == 0
    assert left(place, name) == left(place, "done")


@pytest.mark.slow
def test_a_run_of_an_earlier_version_is_resumed(place: Place) -> None:
    """Its recipe.yaml has the old names of settings, and so may the options."""
    words = ["--train.checkpoint-every", "2", "--out", "earlier"]
    assert place(*SIX, *words, before=full_after(2)).code == 1
    file = place.folder / "earlier" / "recipe.yaml"
    lines = file.read_text(encoding="utf-8").splitlines()
    for old, new in ALIASES.items():
        at = next(at for at, line in enumerate(lines) if line.startswith(f"  {new.partition('.')[2]}: "))
        lines[at] = f"  {old.partition('.')[2]}: {lines[at].partition(': ')[2]}"
    file.write_text("\n".join(lines), encoding="utf-8")
    refused = place("train", "--out", "earlier", "--resume", "--train.clip", "0.5").said
    assert "--train.max-grad-norm 0.5, but the run in earlier has train.max_grad_norm = 1.0" in refused
    assert place("train", "--out", "earlier", "--resume", "--train.clip", "1").code == 0
    assert left(place, "earlier") == left(place, "done")


@pytest.mark.slow
def test_so_is_a_disk_that_is_really_full(place: Place) -> None:
    done = place(*SIX, "--train.checkpoint-every", "2", "--out", "limited", before=limit(40_000))
    check_refused(done, os.strerror(errno.EFBIG), "limited")
    assert place("train", "--out", "limited", "--resume").code == 0
    assert left(place, "limited") == left(place, "done")


@pytest.mark.slow
def test_so_is_one_that_fills_up_when_the_model_is_written(place: Place) -> None:
    def plant() -> None:
        from headway.model import Model

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        Model.save = refuse

    check_refused(place(*SIX, "--out", "last", before=plant), os.strerror(errno.ENOSPC), "last", named="")
    assert place("train", "--out", "last", "--resume").code == 0
    assert left(place, "last") == left(place, "done")
    assert (place.folder / "last" / "report.html").is_file()


def check_refused(done: Done, why: str, name: str, named: str = ": ") -> None:
    assert done.code == 1
    assert f"error: {why}{named}" in done.said
    assert f"tip: nothing is lost: when that is mended, go on with headway train --out {name} --resume" in done.said


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_place_without_rights_is_told_before_the_data_is_read(place: Place, tmp_path: Path) -> None:
    """What is read-only for everybody is no obstacle to root, so the command is run by nobody."""
    (tmp_path / "closed").mkdir(mode=0o555)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and str(folder).startswith(str(Path(os.environ.get("TMPDIR", "/tmp")))):
            folder.chmod(folder.stat().st_mode | 0o055)
    done = place("train", "no.tsv", "--out", str(tmp_path / "closed" / "x"), before=lambda: os.setuid(65534))
    assert done.code == 1
    assert f"no right to write there: {tmp_path / 'closed'}" in done.said


def read_only(folder: Path) -> None:
    """Mounts a folder over itself, read-only, for this process alone; root may not write there either."""
    private, bind, remount, read = 1 << 14 | 1 << 18, 1 << 12, 1 << 5, 1
    place, system = os.fsencode(folder), ctypes.CDLL(None, use_errno=True)
    if system.unshare(1 << 17) or system.mount(b"none", b"/", None, private, None):
        os._exit(NO_MOUNT)
    if system.mount(place, place, None, bind, None) or system.mount(None, place, None, bind | remount | read, None):
        os._exit(NO_MOUNT)


NO_MOUNT = 77
WRITING = {
    "train": ("train", "pairs.tsv", *SHORT, "--out", "closed/new"),
    "convert": ("convert", "done", "closed/new"),
    "convert to hf": ("convert", "done", "closed/new", "--to", "hf"),
    "look": ("look", "done", "the cat", "--out", "closed/new"),
    "explain": ("explain", "attention", "--html", "closed/new"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITING)
def test_a_disk_that_is_read_only_is_one_sentence(place: Place, name: str) -> None:
    closed = place.folder / "closed"
    closed.mkdir(exist_ok=True)
    done = place(*WRITING[name], before=lambda: read_only(closed))
    if done.code == NO_MOUNT:
        pytest.skip("this system lets nobody mount a folder")
    told = [line for line in done.said.splitlines() if line.startswith("error: ")]
    assert (done.code, len(told)) == (1, 1), done.said
    assert "closed" in told[0], told
    assert told[0].endswith("; check space, rights and path"), told
    assert ".part" not in done.said
    assert "Traceback" not in done.said
    assert list(closed.iterdir()) == []
