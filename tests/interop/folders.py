"""Folders of a transformers model, and of what headway reads of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.testing import assert_close

from headway.loading import load
from headway.model import Model
from headway.zoo.build import from_plain, to_plain
from tests.interop.parity import Case, shaken


def both_ways(case: Case, place: Path, unread: str = "") -> tuple[Any, Model, Model]:
    """A model as transformers reads our folder, as we read theirs, and as we read our own layout: all the same.

    Tensors whose names have `unread` in them are read by nobody.
    """
    theirs = shaken(case.make()).eval()
    theirs.save_pretrained(place / "theirs")
    loaded = load(place / "theirs")
    loaded.save_hf(place / "ours")
    loaded.save(place / "own")
    again, own = type(theirs).from_pretrained(place / "ours"), load(place / "own")
    for key, tensor in theirs.state_dict().items():
        if not unread or unread not in key:
            assert_close(again.state_dict()[key], tensor, rtol=0, atol=0)
    assert own.config == loaded.config == from_plain(type(loaded.config), to_plain(loaded.config))
    return again, loaded, own
