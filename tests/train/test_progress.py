"""A progress bar on a terminal, plain lines elsewhere, and a clean terminal whatever ends a run."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headway.console import phase, progress_on
from headway.data.recognise import recognise
from headway.data.records import records
from headway.metrics.scores import Scores
from headway.tasks.results import EvalResult, Sample
from headway.training import metrics_log as progress
from headway.training.learner import StepResult
from headway.training.metrics_log import MetricsLog, RunProgress, progress_to

HIDE, SHOW, CLEAR = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(progress, "find_spec", lambda name: None)  # no TensorBoard


def steps(shown: RunProgress, first: int, last: int) -> None:
    for step in range(first, last):
        shown.on_step(StepResult(step, 231.4, 100, 8412, 1.0, 3e-4, False), 1.0)
        shown.on_log({"step": step, "loss": 2.314})


def test_a_terminal_has_a_bar_with_the_numbers_of_the_step(tmp_path: Path) -> None:
    out = Terminal()
    with progress_to(out, 5000, MetricsLog(tmp_path)) as shown:
        steps(shown, 1200, 1202)
    drawn = out.getvalue().split(CLEAR)[2]
    line = drawn.splitlines()[0]
    assert line.startswith("step 1201/5000 ━")
    assert line.endswith(" loss 2.3140  lr 3.0e-04  8,412 tokens/s  63 min left")
    assert len(line) <= 80


def test_messages_stand_above_the_bar_as_they_are(tmp_path: Path) -> None:
    out = Terminal()
    with progress_to(out, 9, MetricsLog(tmp_path)) as shown:
        steps(shown, 1, 2)
        found = EvalResult(Scores({"bleu": 40.0}, 7), [Sample("[b]a[/b] :smile:", "x " * 60, "y")])
        shown.on_evaluate(1, found, best=True)
    assert f"{CLEAR}step 1: validation bleu 40.00 (7 pairs)  (best so far)\n" in out.getvalue()
    assert f"{CLEAR}  [b]a[/b] :smile: → {'x ' * 60}   should be: y\n" in out.getvalue()


def test_the_terminal_is_left_clean_after_an_error(tmp_path: Path) -> None:
    out = Terminal()

    def fail() -> None:
        with progress_to(out, 9, MetricsLog(tmp_path)) as shown:
            steps(shown, 1, 3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    text = out.getvalue()
    assert text.rindex(HIDE) < text.rindex(SHOW)
    assert text.endswith(CLEAR)  # nothing of the bar is left


def test_colour_is_left_out_where_it_is_not_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[bool, str] = {}
    for plain in (True, False):
        out = Terminal()
        if not plain:
            monkeypatch.delenv("NO_COLOR")
        with progress_to(out, 9, MetricsLog(tmp_path)) as shown:
            steps(shown, 1, 3)
        drawn[plain] = out.getvalue()
    assert {plain: bool(re.search(r"\x1b\[[\d;]+m", text)) for plain, text in drawn.items()} == {
        True: False,
        False: True,
    }


@pytest.mark.parametrize("dumb", [False, True])
def test_a_pipe_and_a_dumb_terminal_have_plain_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dumb: bool
) -> None:
    monkeypatch.setenv("TERM", "dumb" if dumb else "xterm")
    out = Terminal() if dumb else io.StringIO()
    with progress_to(out, 50_000, MetricsLog(tmp_path)) as shown:
        steps(shown, 12_000, 12_001)
        found = EvalResult(Scores({"bleu": 21.4}, 7), loss=2.0)
        shown.on_evaluate(12_000, found, best=False)
        shown.on_message("a message")
    assert out.getvalue().splitlines() == [
        "step 12000/50000  loss 2.3140  lr 3.0e-04  8,412 tokens/s  10.6 h left",
        "step 12000: validation loss 2  bleu 21.40 (7 pairs)",
        "a message",
    ]


def test_narrow_lines_leave_out_the_score_and_then_the_learning_rate(tmp_path: Path) -> None:
    shown = RunProgress(io.StringIO(), 50_000, MetricsLog(tmp_path))
    steps(shown, 12_000, 12_001)
    shown.score = "bleu 21.4"
    assert shown.parts(12_000, 99)[2:4] == ["bleu 21.4", "lr 3.0e-04"]
    assert shown.parts(12_000, 80)[2] == "lr 3.0e-04"
    assert shown.parts(12_000, 60) == ["step 12000/50000", "loss 2.3140", "8,412 tokens/s", "10.6 h left"]


@pytest.mark.slow
def test_rich_is_imported_only_for_a_terminal(tmp_path: Path) -> None:
    code = (
        "import io, sys; from pathlib import Path; from headway.training.metrics_log import progress_to\n"
        "from headway.training.metrics_log import MetricsLog\n"
        f"with progress_to(io.StringIO(), 9, MetricsLog(Path({str(tmp_path)!r}))): pass\n"
        "print('rich.progress' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_what_is_read_within_a_phase_is_counted(tmp_path: Path) -> None:
    """Reading and preparing 50 MB of text took a minute without a sign; a phase with a count of its own keeps it."""
    (tmp_path / "a.tsv").write_text("a b\tc d\n" * 30)
    given = recognise([tmp_path / "a.tsv"])
    with progress_on(io.StringIO()), phase("reading") as reading:
        assert len(list(records(given))) == 30
        assert reading.numbers == "30 records"
    with progress_on(io.StringIO()), phase("encoding", "rows") as encoding:
        assert len(list(encoding.counted(records(given)))) == 30
        assert encoding.numbers == "30 rows"
    assert len(list(records(given))) == 30  # nobody counts
