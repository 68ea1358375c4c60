"""Models of every purpose in folders."""

from __future__ import annotations

from tests.cli.conftest import folders, measured, models

__all__ = ["folders", "measured", "models"]
