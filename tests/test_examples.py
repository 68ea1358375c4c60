"""The examples run, from an empty folder, and are short enough to be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import empty_place
from tests.conftest import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.long
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    if example.stem == "own_architecture":
        pytest.importorskip("transformers")
    done = empty_place(tmp_path).script(example)
    assert done.code == 0, done.err
    assert done.out


def test_there_is_an_example_of_each_kind() -> None:
    own = {"own_dataset", "own_module", "own_task", "own_architecture"}
    more = {"train_in_python", "inspection_in_a_notebook", "several_prefixes", "little_grammar"}
    assert {path.stem for path in EXAMPLES} == {*more, *own}
