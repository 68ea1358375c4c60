"""Training on what is piped in: a file in the cache, named after its hash, so that a run finds it again."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.cli.standard_input import spooled
from headway.errors import UserError
from headway.training.recipe_sources import from_yaml

ROWS = "".join(f"the text {at}\t{'ab'[at % 2]}\n" for at in range(40))
SMALL = [
    "--preset",
    "bert-tiny",
    "--model.dim",
    "16",
    "--model.heads",
    "2",
    "--model.layers",
    "1",
    "--train.threads",
    "1",
]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pipe(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))


LAYOUTS = {
    "text": ("\n\nA text, with commas.\n", ".txt"),
    "tabs": (ROWS, ".tsv"),
    "objects": ('\ufeff{"text": "a\\tb"}\n', ".jsonl"),
    "objects after a blank": ('\n {"text": "a"}\n', ".jsonl"),
    "blank for long": (" " * 2**21 + "a\tb\n", ".tsv"),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_it_is_kept_as_it_is(case: str, place: Path) -> None:
    text, suffix = LAYOUTS[case]
    file = spooled(io.BytesIO(text.encode()))
    assert file.parent == place / "cache" / "standard-input"
    assert file.suffix == suffix
    assert file.read_bytes() == text.encode()
    assert spooled(io.BytesIO(text.encode())) == file
    assert spooled(io.BytesIO(f"{text}!".encode())) != file


def test_nothing_is_left_of_an_input_that_breaks_off(place: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise KeyboardInterrupt

    for stream, error in ((Broken(), KeyboardInterrupt), (io.BytesIO(b" \n"), UserError)):
        with pytest.raises(error):
            spooled(stream)
    assert list((place / "cache" / "standard-input").iterdir()) == []


@pytest.mark.slow
def test_a_run_on_it_is_resumed_and_extended(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe(monkeypatch, ROWS)
    assert main(["train", "-", *SMALL, "--train.steps", "2", "--out", "run"]) == 0
    [path] = from_yaml(place / "run" / "recipe.yaml").data.path
    assert Path(path).read_text() == ROWS
    assert "40 lines of text and label" in capsys.readouterr().out
    assert main(["train", "--resume", "--out", "run", "--train.steps", "+1"]) == 0  # without it
    pipe(monkeypatch, ROWS)
    assert main(["train", "-", "--resume", "--out", "run", "--train.steps", "+1"]) == 0  # or with the same
    capsys.readouterr()
    pipe(monkeypatch, ROWS.replace("text 3", "text three"))
    assert main(["train", "-", "--resume", "--out", "run", "--train.steps", "+1"]) == 2
    assert "has changed since this run began" in capsys.readouterr().err
    Path(path).unlink()
    assert main(["train", "--resume", "--out", "run", "--train.steps", "+1"]) == 2
    assert "does not exist; resume from the folder where the run began, or name the data" in capsys.readouterr().err


REFUSED = {
    "empty": (["-"], "", "standard input is empty; pipe texts in, or name a file"),
    "twice": (["-", "-"], ROWS, "standard input is named twice; give one -"),
    "several processes": (["-", "--processes", "2"], ROWS, "standard input is read by one process alone"),
    "supervised": (["-", "--supervise", "--out", "run"], ROWS, "standard input is read by one process alone"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused(
    case: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, text, said = REFUSED[case]
    pipe(monkeypatch, text)
    assert main(["train", *words]) == 2
    assert said in capsys.readouterr().err
    assert not (place / "run").exists()


def test_a_terminal_is_no_data(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    assert main(["train", "-"]) == 2
    assert "nothing is piped in; headway train FILE, or cat FILE | headway train -" in capsys.readouterr().err
