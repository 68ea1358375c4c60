"""`headway.inspect` from Python: functions that return results, whichever modules were imported before."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.errors import UserError
from headway.inspect import LATE, Result
from headway.model import Model
from tests.cli.folders import LABELS, named_lines, saved, sentences

TEXT = "the cat sat on the mat"


def test_no_module_hides_a_function() -> None:
    for name, module in LATE.items():
        import_module(f"headway.inspect.{module}")
        assert callable(getattr(headway.inspect, name))
    assert not set(LATE) & set(LATE.values())


@pytest.mark.slow
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


@pytest.mark.slow
def test_records_give_what_their_file_gives(models: dict[str, Model], tmp_path: Path) -> None:
    lines = named_lines(LABELS, 40)
    file, records = saved(tmp_path / "data.tsv", lines), [tuple(line.split("\t")) for line in lines]
    model = models["labels"]

    def numbers(result: Result) -> dict[str, object]:
        return {name: value for name, value in result.to_dict().items() if name != "data"}

    inspect = headway.inspect
    ablated = inspect.importance(model, records, most=12)
    assert numbers(ablated) == numbers(inspect.importance(model, file, task="classification", most=12))
    assert ablated.description == "40 records"
    assert numbers(inspect.probe(model, iter(records))) == numbers(inspect.probe(model, file))
    small: dict[str, Any] = {"atoms": 8, "top": 2, "steps": 5, "vectors": 100}
    assert numbers(inspect.sae(model, records, "0.out", **small)) == numbers(inspect.sae(model, file, "0.out", **small))


def test_inputs_give_what_their_file_gives(models: dict[str, Model], tmp_path: Path) -> None:
    texts, others = sentences(12), sentences(9, 1)
    file, other = saved(tmp_path / "a.txt", texts), saved(tmp_path / "b.txt", others)
    model, inspect = models["vectors"], headway.inspect
    assert inspect.cka(model, None, texts, most=8).to_dict() == inspect.cka(model, None, file, most=8).to_dict()
    ours, theirs = inspect.direction(model, iter(texts), others), inspect.direction(model, file, other)
    assert ours.to_dict()["layers"] == theirs.to_dict()["layers"]
    near = inspect.neighbours(model, [TEXT], among=texts)
    assert near.to_dict() == inspect.neighbours(model, [TEXT], among=file).to_dict()
    assert inspect.sae(model, [(text,) for text in texts], "0.out", atoms=8, top=2, steps=5).losses is None


def test_what_is_no_data_is_refused(models: dict[str, Model]) -> None:
    with pytest.raises(UserError, match="no data was given"):
        headway.inspect.sae(models["labels"], [], "0.out")
    with pytest.raises(UserError, match="9 records: a probe needs classes"):
        headway.inspect.probe(models["labels"], [(text,) for text in sentences(9)])
