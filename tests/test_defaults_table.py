"""recipes/defaults.py: its data sets keep their test apart, and its table says what was measured."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import headway

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def defaults() -> ModuleType:
    spec = importlib.util.spec_from_file_location("defaults", ROOT / "recipes" / "defaults.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["defaults"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_data_sets_are_made_and_keep_their_test_apart(defaults: ModuleType, shared: Path, tmp_path: Path) -> None:
    assert len(defaults.DATA) >= 12
    os.chdir(ROOT)  # the data is beside the project
    for data in defaults.DATA:
        folder = tmp_path / data.name
        folder.mkdir()
        train, test = map(Path, data.make(folder, 1))
        if train.is_file() and train.suffix in (".tsv", ".jsonl"):
            learned, asked = ({*path.read_text(encoding="utf-8").splitlines()[1:]} for path in (train, test))
            assert learned, data.name
            assert asked, data.name
            assert not learned & asked, data.name
        else:
            assert train.exists()
            assert test.exists()


def test_the_table_has_the_mean_the_search_and_the_baseline(defaults: ModuleType) -> None:
    def trial(seed: int, score: float, setting: str = "", factor: float = 1.0, usual: float = 1e-3) -> object:
        chosen = {"train.lr": factor * usual, "train.batch": 512}
        simple = {"majority class": 0.5, "naive Bayes": 0.7}
        known = ("reviews-2000", 1.0, seed, setting, factor, score, 1067, "bert-tiny", chosen, simple)
        return defaults.Trial(*known, 0.9 + seed / 100, "abcdef0" if seed > 1 else "de3bfd4")

    found = defaults.table(
        [trial(1, 0.6), trial(2, 0.8), trial(1, 0.65, "train.lr", 3.0), trial(1, 0.1, "train.lr", 1 / 3)], "abcdef0"
    )
    *_, line, _, behind = found.splitlines()
    note = "below the baseline"
    assert "0.7 (0.6 to 0.8, 2 seeds, n = 1,067)" in line
    assert "0.65 (train.lr × 3, best of 2; defaults 0.6)" in line
    assert line.endswith("| 0.7 (naive Bayes) | 91% | abcdef0, de3bfd4 (older, 3 of 4) |")
    assert note not in found
    assert behind.startswith("The search was better by more than 2 points")
    assert behind.endswith("on reviews-2000 (1 min).")
    near = defaults.table([trial(1, 0.6), trial(1, 0.615, "train.lr", 3.0)], "abcdef0")
    assert "The search was better" not in near
    worse = defaults.table([trial(1, 0.6)], "de3bfd4").splitlines()[-1]
    assert worse.startswith("The mean of the defaults is below the baseline, by more than the standard error")
    assert worse.endswith(" on reviews-2000 (1 min).")
    close = defaults.table([trial(1, 0.68), trial(2, 0.71)], "abcdef0")  # 0.005 ± 0.015 below
    assert note not in close
    changed = [trial(1, 0.65, "train.lr", 3.0), trial(2, 0.81, "train.lr", 3.0), trial(1, 0.9, "train.lr")]
    several = [trial(1, 0.6), trial(2, 0.8), *changed]
    assert "0.73 (train.lr × 3, best of 3, mean of 2 seeds; defaults 0.7)" in defaults.table(several, "abcdef0")
    earlier = [trial(1, 0.6), trial(1, 0.9, "train.lr", 3.0, usual=5e-4)]  # of another default
    assert "train.lr × 3" not in defaults.table(earlier, "abcdef0")


def test_trials_of_earlier_sessions_are_read_and_the_last_of_equal_ones_counts(
    defaults: ModuleType, tmp_path: Path
) -> None:
    """A line without a commit is one of de3bfd4, where none was kept; there the n of a loss counted texts."""
    old = {"data": "verses-3000", "minutes": 1.0, "seed": 1, "setting": "", "factor": 1.0, "score": 1.9, "count": 1}
    old |= {"preset": "gpt-nano", "chosen": {"train.lr": 3e-3, "train.batch": 1052}, "baselines": {}, "processor": 0.7}
    new = {**old, "count": 47_115, "commit": "abcdef0"}
    path = tmp_path / "trials.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (old, new, {**old, "seed": 2})), encoding="utf-8")
    found = list(defaults.trials(path))
    assert [(one.seed, one.commit) for one in found] == [(1, "abcdef0"), (2, "de3bfd4")]
    counts = [defaults.table([one], "abcdef0").splitlines()[-1] for one in found]
    assert "n = 47,115 tokens)" in counts[0]
    assert "n = 1 text)" in counts[1]


def test_the_committed_trials_can_be_read(defaults: ModuleType) -> None:
    known = {data.name for data in defaults.DATA}
    assert all(trial.data in known for trial in defaults.trials(ROOT / defaults.TRIALS))
    assert subprocess.run(["git", "check-ignore", "-q", str(defaults.TRIALS)], cwd=ROOT).returncode == 1


@pytest.mark.slow
def test_baselines_stand_on_the_test_records(defaults: ModuleType, tmp_path: Path) -> None:
    """Naive Bayes learns from the whole training file and answers what the model is evaluated on."""
    rows = [
        (f"{word} film number {at}", label) for at in range(30) for word, label in (("good", "yes"), ("dull", "no"))
    ]
    asked = [("good film", "yes"), ("dull film", "yes"), ("good story", "no"), ("good one", "yes")]
    for name, some in (("train", rows), ("test", asked)):
        text = "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *some])
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
    train, test = str(tmp_path / "train.tsv"), str(tmp_path / "test.tsv")
    sizes: dict[str, Any] = {"dim": 8, "layers": 1, "heads": 1, "out": tmp_path / "model", "threads": 1, "quiet": True}
    model = headway.train(train, steps=1, model="bert-tiny", **sizes)
    given = {"data.path": (train,), "data.validation": (test,)}
    found = {one.name: one.scores for one in defaults.baselines(tmp_path / "model", given, model.evaluate(test))}
    assert {name: (one.numbers["accuracy"], one.count) for name, one in found.items()} == {
        "majority class": (0.25, 4),
        "naive Bayes": (0.5, 4),
    }
