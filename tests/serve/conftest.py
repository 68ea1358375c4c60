from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from headway.serve.security import AccessRules
from tests.cli.folders import FOLDERS
from tests.serve.server import RunningServer, save_models, serving


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_models(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that writes for as long as it may."""
    folder = tmp_path_factory.mktemp("models") / "spans"
    FOLDERS["spans"]().save(folder)
    return folder


@pytest.fixture(scope="module")
def server(folders: dict[str, Path]) -> Generator[RunningServer]:
    """Without a key."""
    with serving(folders) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(folders: dict[str, Path]) -> Generator[RunningServer]:
    """With a key."""
    with serving(folders, AccessRules("secret-key-1")) as running:
        yield running
