"""Folders and runs of version 0.1: they load, answer as they did, and go on where they were interrupted.

`fixtures/before` was written by that version: three models, what it answered, and a run that was interrupted at step 6
of 12, beside the weights and metrics of the same run without an interruption.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from headway.cli import main as cli
from headway.loading import load

BEFORE = Path(__file__).parent / "fixtures" / "before"
ANSWERS: dict[str, list[dict[str, Any]]] = json.loads((BEFORE / "answers.json").read_text(encoding="utf-8"))
TASKS = {"translator": "seq2seq", "classifier": "text-classification", "forecaster": "forecasting"}
DATA = {
    "translator": "the cat sees the dog\tsees god tac\n" * 3,
    "classifier": "text,label\n" + "the cat sees the dog,up\n" * 3,
    "forecaster": "ramp,wave\n" + "0.1,1.5\n0.2,2.5\n0.3,3.5\n" * 3,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
def test_a_model_answers_as_it_did(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = load(BEFORE / name)
    assert model.task.name == TASKS[name]
    for expected in ANSWERS[name]:
        check(model.run(expected["input"]), expected)
        assert cli.main(["run", str(BEFORE / name), expected["input"], "--json"]) == 0
        check(json.loads(capsys.readouterr().out), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
def test_a_model_can_be_saved_evaluated_and_looked_into(name: str, tmp_path: Path) -> None:
    model = load(BEFORE / name)
    model.save(tmp_path / "again")
    again, asked = load(tmp_path / "again"), ANSWERS[name][0]["input"]
    assert again.run(asked) == model.run(asked)
    assert again.attend(asked).sites
    file = tmp_path / ("data.tsv" if name == "translator" else "data.csv")
    file.write_text(DATA[name], encoding="utf-8")
    assert again.evaluate(file, task=again.task.kind).to_dict()


@pytest.mark.slow
def test_a_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with the weights of the run that nobody interrupted (up to rounding, on another processor)."""
    shutil.copytree(BEFORE / "interrupted", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    assert cli.main(["train", "--out", "run", "--resume"]) == 0
    found, whole = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run", BEFORE / "whole"))
    assert found.keys() == whole.keys()
    for name, tensor in whole.items():
        # softmax does not see what is added to all keys: a key bias has no gradient but rounding, which Adam enlarges
        if not name.endswith(".k.bias"):
            assert_close(found[name], tensor, atol=1e-5, rtol=1e-4)
    lines, expected = (
        [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        for folder in (tmp_path / "run", BEFORE / "whole")
    )
    assert len(lines) == len(expected)
    for one, other in zip(lines, expected, strict=True):
        check(one, other)
    assert load(tmp_path / "run").task.name == "seq2seq"


NEW = {"count", "things", "intervals"}  # what evaluations are of, which earlier versions did not write


def check(found: Any, expected: Any) -> None:
    """Equal, numbers up to rounding."""
    if isinstance(expected, dict):
        assert [key for key in found if key not in NEW] == list(expected)
        for key in expected.keys() - {"chrf"}:  # earlier versions cut each answer by the length of its reference
            check(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-4)
    else:
        assert found == expected
