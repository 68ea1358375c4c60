"""Where simulated disks lie."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: what is simulated does not need a disk."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)
