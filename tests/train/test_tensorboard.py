"""The curves of TensorBoard are those of the metrics, also after a crash."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from headway.metrics.scores import Scores
from headway.tasks.results import EvalResult
from headway.training.metrics_log import MetricsLog, TensorBoardProgress, progress_to

pytest.importorskip("tensorboard", reason="needs tensorboard")


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    tags: Any = found.Tags()["scalars"]
    return {tag: [(one.step, round(one.value, 4)) for one in found.Scalars(tag)] for tag in tags}


def learned(journal: MetricsLog, board: TensorBoardProgress, step: int, loss: float | None) -> None:
    line = {"step": step, "loss": loss, "rate": 0.5, "norm": 1.0}
    journal.append(**line)
    board.on_log(line)


def scored(journal: MetricsLog, board: TensorBoardProgress, step: int, bleu: float) -> None:
    journal.append(step=step, valid={"bleu": bleu}, score=bleu)
    board.on_evaluate(step, EvalResult(Scores({"bleu": bleu}, 5)), best=True)


@pytest.mark.slow
def test_steps_and_scores_are_drawn(tmp_path: Path) -> None:
    journal = MetricsLog(tmp_path)
    with progress_to(sys.stdout, 9, journal) as board:
        assert isinstance(board, TensorBoardProgress)
        learned(journal, board, 1, 3.0)
        learned(journal, board, 2, None)  # a step that was skipped
        scored(journal, board, 2, 40.0)
    found = curves(tmp_path / "tensorboard")
    assert found["train/loss"] == [(1, 3.0)]
    assert found["train/rate"] == [(1, 0.5), (2, 0.5)]
    assert found["valid/bleu"] == [(2, 40.0)]


def test_what_a_crash_took_back_is_not_drawn_twice(tmp_path: Path) -> None:
    journal = MetricsLog(tmp_path)
    with progress_to(sys.stdout, 9, journal) as board:
        assert isinstance(board, TensorBoardProgress)
        learned(journal, board, 1, 3.0)
        kept = journal.length()
        learned(journal, board, 2, 2.5)
    journal.truncate(kept)
    with progress_to(sys.stdout, 9, journal) as board:
        assert isinstance(board, TensorBoardProgress)
        learned(journal, board, 2, 2.0)
    assert curves(tmp_path / "tensorboard")["train/loss"] == [(1, 3.0), (2, 2.0)]


def test_nothing_is_drawn_of_a_run_that_did_nothing(tmp_path: Path) -> None:
    with progress_to(sys.stdout, 9, MetricsLog(tmp_path)):
        pass
    assert not (tmp_path / "tensorboard").exists()
