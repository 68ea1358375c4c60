"""recipes/: each can be resolved, and what proves them writes each line into its own table."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from headway.training.recipe_sources import read_layers, resolve
from headway.zoo.presets import PRESETS

ROOT = Path(__file__).parent.parent
TABLES = """# Results

| proof | result |
| --- | --- |
| one | 1 |
| two | 2 |

Words.

| architecture | parameters |
| --- | ---: |
| one | 11 |
"""


@pytest.fixture
def prove(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("prove", ROOT / "recipes" / "prove.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "prove", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "RESULTS.md")
    (tmp_path / "RESULTS.md").write_text(TABLES, encoding="utf-8")
    return module


@pytest.mark.parametrize("file", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda file: file.stem)
def test_recipes_can_be_resolved(file: Path) -> None:
    recipe = resolve(read_layers({}, file, environ={}))
    assert recipe.seed == 0
    assert recipe.data.path or recipe.data.source


def test_tests_are_measured_on_what_recipes_leave_for_them(prove: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def scores(folder: Path, *words: str) -> dict[str, object]:
        asked.append(words)
        return {"scores": {"accuracy": 0.5, "word_error_rate": 0.25}, "count": 7}

    monkeypatch.setattr(prove, "scores", scores)
    assert prove.digits(Path("x")) == "accuracy 50.0 % of 7"
    assert prove.transcribed(Path("x")) == "word error rate 25.0 % on 7 recordings"
    for name, words in zip(("spoken-digits", "yesno"), asked, strict=True):
        data = resolve(read_layers({}, ROOT / "recipes" / f"{name}.yaml", environ={})).data
        assert words[0] == data.path[0]
        assert words[words.index("--test-from") + 1] == data.test_from
        assert words[words.index("--label-from") + 1] == data.label_from
        assert data.validation_from is not None or data.validation_split != 0


LINES = {
    "a new proof": (("proof", "three", ["3"]), "| two | 2 |", "| two | 2 |\n| three | 3 |"),
    "a proof again": (("proof", "one", ["5"]), "| one | 1 |", "| one | 5 |"),
    "a new architecture": (("architecture", "two", ["22"]), "| one | 11 |", "| one | 11 |\n| two | 22 |"),
    "an architecture again": (("architecture", "one", ["12"]), "| one | 11 |", "| one | 12 |"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_line_stands_in_its_own_table_once(prove: ModuleType, case: str) -> None:
    written, old, new = LINES[case]
    prove.write_line(*written)
    assert prove.RESULTS.read_text(encoding="utf-8") == TABLES.replace(old, new)


def test_the_results_have_both_tables() -> None:
    lines = (ROOT / "docs" / "RESULTS.md").read_text(encoding="utf-8").splitlines()
    for first in ("proof", "architecture"):
        assert sum(line.startswith(f"| {first} |") for line in lines) == 1


def test_epochs_and_their_time_are_counted_from_the_run(prove: ModuleType, tmp_path: Path) -> None:
    card = "- data size: 1,200 images\n- model: swin-nano (swin), 210,001 parameters\n"
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    times = [{"step": 10, "seconds": 30.0, "tokens": 1500}, {"step": 20, "seconds": 90.0, "tokens": 1500}]
    (tmp_path / "times.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in times), encoding="utf-8")
    assert prove.trained(tmp_path) == ("210,001", "0.80", "2.5")


def test_the_architectures_are_presets(prove: ModuleType) -> None:
    assert set(prove.ARCHITECTURES) <= set(PRESETS)


def test_a_bar_in_a_cell_ends_no_cell(prove: ModuleType) -> None:
    prove.write_line("proof", "two", ("BLEU 37 (nrefs:1|case:mixed)",))
    assert "| two | BLEU 37 (nrefs:1\\|case:mixed) |" in prove.RESULTS.read_text(encoding="utf-8").splitlines()
