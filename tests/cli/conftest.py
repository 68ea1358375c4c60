"""Models of every purpose in folders, and `headway eval` as a program calls it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.cli import main as cli
from headway.model import Model
from tests.cli.folders import FOLDERS

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def models() -> dict[str, Model]:
    return {name: make() for name, make in FOLDERS.items()}


@pytest.fixture(scope="session")
def folders(models: dict[str, Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    for name, loaded in models.items():
        loaded.save(place / name)
    return place


@pytest.fixture
def measured(folders: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """What `headway eval --json` says of a model, by its name or folder."""

    def run(model: str | Path, *words: str | Path) -> dict[str, Any]:
        code = cli.main(["eval", str(folders / model), *map(str, words), "--json"])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return json.loads(out)

    return run
