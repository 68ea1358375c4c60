"""The examples run, from an empty folder, and are short enough to be read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    if example.stem == "own_architecture":
        pytest.importorskip("transformers")
    env = {**os.environ, "HEADWAY_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-P", str(example)], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_there_is_an_example_of_each_kind() -> None:
    own = {"own_dataset", "own_module", "own_task", "own_architecture"}
    assert {path.stem for path in EXAMPLES} == {"train_in_python", "inspection_in_a_notebook", *own}
