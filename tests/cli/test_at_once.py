"""Mistakes are told before torch is imported, and what takes long is shown: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from headway import console
from headway.cli import main as cli
from headway.console import Phase, fitted, phase, progress_on
from headway.errors import UserError, argument, going_on, path_argument
from headway.interop.weights import write_weights
from headway.tasks.base import task_class
from headway.tasks.generation import DECODING, check_useful
from headway.tasks.registry import TASKS

CLASSIFIER = Path(__file__).parents[1] / "fixtures" / "before" / "classifier"
NO_TORCH = """
import contextlib, io, json, sys
sys.modules["torch"] = None  # importing it is an error
from headway.cli.main import main
found = []
for line in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(line)
        except ImportError:
            code = "torch"
    found.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(found))
"""
NO_MODEL = "nowhere does not exist; allowed: a folder with config.json and model.safetensors, or a .gguf file"
REFUSED = {
    "train none.zzz": "none.zzz does not exist",
    "train pair.tsv": "pair.tsv does not exist; did you mean 'pairs.tsv'?\n  tip: headway train pairs.tsv",
    "train --source pairs.tsv --target missing": "missing does not exist",
    "train pairs.tsv --validation none.zzz": "none.zzz does not exist",
    "train pairs.tsv --validation pair.tsv": "pair.tsv does not exist; did you mean 'pairs.tsv'?\n"
    "  tip: headway train pairs.tsv --validation pairs.tsv",
    "train pairs.tsv --from nowhere": NO_MODEL,
    "train pairs.tsv --freeze 2": "--freeze without --from would freeze weights that were never trained; "
    "give --from too, or leave --freeze out",
    "train pairs.tsv --lr 0": "--train.lr 0.0 is out of bounds; allowed: 1e-12 or more",
    "train pairs.tsv --data.longest 1": "--data.longest 1 is out of bounds; allowed: 2 or more",
    "train pairs.tsv --out full": "full is there already and not empty; name another --out",
    "train --resume": "--resume needs the folder of the run; give --out DIR",
    "train": "headway train needs data; headway train FILE, or headway train dates, the built-in data set",
    "check none.zzz": "none.zzz does not exist",
    "check latin.tsv": "latin.tsv:1: byte 1 of the line is 0xE9, which is not UTF-8; save the file as UTF-8",
    "check mac.csv": "mac.csv ends its lines with carriage returns alone, as old Macs did; "
    "save it with Unix line ends (LF)",
    "check array.jsonl": "array.jsonl:1: [1, 2] is no JSON object; write one object on each line, "
    'as in {"text": "…", "label": "…"}',
    "check dangling.csv": "dangling.csv is a link to gone.csv, which is not there; give the file itself",
    "check pairs.tsv words.txt": "pairs.tsv, words.txt: tables and texts cannot be read together; "
    "give the tables, or the texts",
    "check pairs.tsv --header noo": "--header 'noo' is not a choice; allowed: yes, no; did you mean 'no'?\n"
    "  tip: headway check pairs.tsv --header no",
    "check words.txt --data.header no": "words.txt: there is no .csv or .tsv table that could have a header; "
    "leave out --header",
    "run nowhere text --beam x": "--beam 'x' is not a whole number",
    "run nowhere text --temperature x": "--temperature 'x' is not a number",
    "run nowhere -1,2": "'-1,2' begins with a dash, as options do; put -- before it, as in headway run … -- -1,2",
    "run nowhere --lines words.txt": "--lines reads standard input, and 'words.txt' is given too; "
    "give it so, as in headway run nowhere --lines < words.txt",
    "look full text --json": "headway look has no option '--json'; see headway look --help; "
    "allowed: --out, --open, --against, --compare, --tokens, --effects, --site, --samples and 7 more",
    "bottleneck none.zzz": "none.zzz does not exist",
    "run nowhere text": NO_MODEL,
    "run nowhere text --beam 0": "--beam is 0; allowed: 1 beam or more",
    "run nowhere text --beam 2 --best 0": "--best 0 of a beam of 2; allowed: the best 1 to 2; "
    "widen the beam to see more",
    "run nowhere text --beam 2 --top-k 3": "--beam searches and does not draw; "
    "give --beam, or --temperature and its like",
    "generate nowhere text": NO_MODEL,
    "generate nowhere text --temperature=-1": "--temperature -1; allowed: 0 or more; 0 takes the likeliest token",
    "eval nowhere pairs.tsv": NO_MODEL,
    "eval full none.zzz": "none.zzz does not exist",
    "eval full pairs.tsv --beam 0": "--beam is 0; allowed: 1 beam or more",
    "look nowhere text": NO_MODEL,
    "look full text --compare nowhere": NO_MODEL,
    "inspect heads nowhere text": NO_MODEL,
    "inspect importance full none.zzz": "none.zzz does not exist",
    "convert nowhere there": NO_MODEL,
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int | str, str, str]]:
    """What each command says where torch cannot be imported."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "pairs.tsv").write_text("a cat\teine Katze\na dog\tein Hund\n")
    (folder / "full").mkdir()
    (folder / "full" / "file").touch()
    (folder / "words.txt").write_text("a cat\na dog\n")
    (folder / "latin.tsv").write_bytes("é\ta\né\tb\n".encode("latin-1"))
    (folder / "mac.csv").write_bytes(b"text,label\ra cat,x\ra dog,y\r")
    (folder / "array.jsonl").write_text("[1, 2]\n")
    (folder / "dangling.csv").symlink_to("gone.csv")
    lines = [*REFUSED, "train pairs.tsv"]
    before = sorted(folder.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH],
        input=json.dumps([line.split() for line in lines]),
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=os.environ | {"HEADWAY_CACHE": str(folder / "cache")},
    )
    assert sorted(folder.rglob("*")) == before
    return dict(zip(lines, json.loads(done.stdout), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("line", REFUSED)
def test_a_mistake_needs_no_torch(told: dict[str, tuple[int | str, str, str]], line: str) -> None:
    assert told[line] == [2, "", f"error: {REFUSED[line]}\n"]


@pytest.mark.slow
def test_what_the_data_is_is_told_before_torch_is_imported(told: dict[str, tuple[int | str, str, str]]) -> None:
    code, out, err = told["train pairs.tsv"]
    assert (code, err) == ("torch", "")
    assert out == (
        "reading pairs.tsv …\n"
        "pairs.tsv: 2 lines of two text columns, so translation (change with --task)\n"
        "loading PyTorch …\n"
    )


# Progress.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_a_phase_is_a_line_and_another_every_two_seconds() -> None:
    out, clock = io.StringIO(), iter([0.0, 0.8, 2.2, 4.0, 4.4])
    shown = Phase("encoding", out, "rows", lambda: next(clock))
    assert list(shown.counted("abcd")) == list("abcd")
    assert out.getvalue() == "encoding …\nencoding … 2 rows\nencoding … 4 rows\n"


def test_on_a_terminal_a_phase_is_a_bar_that_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(console, "REFRESH_SECONDS", -1.0)
    out = Terminal()
    with progress_on(out), phase("encoding the training data", "rows") as shown, phase("a part of it"):
        assert list(shown.counted(range(12)))[-1] == 11
    *_, last, cleared = out.getvalue().split("\x1b[2K")
    line = last.splitlines()[0]
    assert line.startswith("encoding the training data … ")
    assert line.endswith(" 12 rows")
    assert len(line) <= 80
    assert cleared.strip() in ("", "\x1b[?25h")
    assert "a part of it" not in out.getvalue()


def test_on_a_terminal_a_phase_that_counts_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bar was drawn once, and stood still while torch was imported or steps were timed."""
    monkeypatch.setenv("TERM", "xterm")
    drawn = threading.Semaphore(0)

    class Drawn(Terminal):
        def write(self, text: str) -> int:
            drawn.release()
            return super().write(text)

    with progress_on(Drawn()), phase("loading PyTorch", moving=True):
        for _ in range(12):  # writes; beginning takes fewer
            assert drawn.acquire(timeout=60)


def test_on_a_terminal_sentences_are_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal itself breaks lines within words; a command to copy stays in one piece."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    command = "headway train --config run/recipe.yaml --out NEW --train.steps 8000"
    text = f"has not learned: the loss is 0.70 after 2 steps; try {command}, or a smaller batch\n  {command} {command}"
    first, *lines, last = fitted(text, Terminal()).split("\n")
    assert first == "has not learned: the loss is 0.70 after"
    assert lines == ["  2 steps; try", f"  {command},", "  or a smaller batch"]
    assert last == f"  {command} {command}"
    assert fitted(text, io.StringIO()) == text


def test_without_a_stream_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with phase("encoding", "rows") as shown:
        assert list(shown.counted("ab")) == ["a", "b"]
    assert capsys.readouterr() == ("", "")


# Options that have no effect.


@pytest.mark.parametrize("name", TASKS)
def test_a_task_names_the_options_that_change_its_answers(name: str) -> None:
    task = task_class(name)
    assert {*task.decoding} <= {*DECODING}
    usual = dict.fromkeys(("temperature", "top_k", "beam", "draft"), None)
    check_useful({**usual, "repetition_penalty": 1.0, "seed": 0, "stop": (), "lookup": False}, task.decoding, task.does)
    for option in {*DECODING} - {*task.decoding}:
        with pytest.raises(UserError, match=f"the model {task.does} and has no use for {option}=; leave it out"):
            check_useful({option: "given"}, task.decoding, task.does)


@pytest.mark.parametrize("option", ["--temperature=0.5", "--beam=2", "--max-new-tokens=3", "--lookup"])
def test_a_classifier_refuses_to_decode(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert cli.main(["run", str(CLASSIFIER), "the cat", option]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"has no use for {option.partition('=')[0]}; leave it out" in err


# Files and words.


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_weights_have_the_permissions_of_other_new_files(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_weights(tmp_path, {"x": torch.zeros(2)})
        (tmp_path / "beside").touch()
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {0o666 & ~mask}


def test_what_begins_with_a_dash_is_advised_as_it_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert (argument("-1,2"), argument("1")) == ("-- -1,2", "1")
    assert (path_argument("-run"), path_argument("a run")) == ("./-run", "'a run'")
    assert going_on("-run") == "headway train --out ./-run --resume"
    assert cli.main(["generate", str(CLASSIFIER), "--", "-1 x"]) == 2
    advice = capsys.readouterr().err.partition("; try headway ")[2].strip()
    assert advice == f"run {CLASSIFIER} -- '-1 x'"
    assert cli.main(["run", str(CLASSIFIER), "--", "-1 x"]) == 0
    capsys.readouterr()
    assert cli.main(["run", str(CLASSIFIER), "-x the"]) == 2
    assert "put -- before it, as in headway run … -- '-x the'" in capsys.readouterr().err
