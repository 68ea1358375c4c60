"""`headway.inspect` from Python: functions that return results, whichever modules were imported before."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import headway
from headway.errors import UserError
from headway.inspect import LATE, Result
from headway.model import Model
from tests.cli.folders import saved, sentences

TEXT = "the cat sat on the mat"


def test_no_module_hides_a_function() -> None:
    for name, module in LATE.items():
        import_module(f"headway.inspect.{module}")
        assert callable(getattr(headway.inspect, name))
    assert not set(LATE) & set(LATE.values())


def test_results_are_data_text_and_figure(models: dict[str, Model], tmp_path: Path) -> None:
    lines = saved(tmp_path / "lines.txt", sentences(6))
    results: list[Result] = [
        headway.inspect.heads(models["labels"], TEXT),
        headway.inspect.rollout(models["labels"], TEXT, gradient="good"),
        headway.inspect.neighbours(models["masked"], ["cat"], count=2),
        headway.inspect.cka(models["labels"], None, lines),
    ]
    for result in results:
        assert isinstance(result.to_dict(), dict)
        assert result.to_text()
        assert len(result.to_figure().axes) > 0


def test_a_model_is_loaded_after_all_else_is_checked(tmp_path: Path) -> None:
    def load() -> Model:
        raise AssertionError("loaded too early")

    with pytest.raises(UserError, match="does not exist"):
        headway.inspect.cka(load, None, tmp_path / "nothing.txt")
    with pytest.raises(UserError, match="no number"):
        headway.inspect.heads(load, TEXT, by="size")
    with pytest.raises(UserError, match="does not exist"):
        headway.inspect.sae(load, tmp_path / "nothing.txt", "0.out")
