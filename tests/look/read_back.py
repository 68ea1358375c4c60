"""A page's contents read as the page reads them."""

from __future__ import annotations

import gzip
from base64 import b64decode
from typing import Any

import numpy as np
import torch

from headway.look.bundle import Bundle
from headway.look.page_data import PARTS
from headway.look.tiles import TILE


def raw(found: Bundle, id: str) -> bytes:
    return gzip.decompress(b64decode(found.blobs[id], validate=True))


def level_of(found: Bundle, told: dict[str, Any], number: int, head: int) -> np.ndarray | None:
    """A head at one level, put together as the page does; None where a tile of it is not there."""
    level = told["levels"][number]
    rows, columns = level["shape"]
    whole = np.zeros((rows, columns), np.uint8)
    for i in range(-(-rows // TILE)):
        for j in range(-(-columns // TILE)):
            place = np.s_[i * TILE : (i + 1) * TILE, j * TILE : (j + 1) * TILE]
            ids = level["blobs"]
            if f"*/{i}/{j}" in ids:
                tiles = np.frombuffer(raw(found, ids[f"*/{i}/{j}"]), np.uint8).reshape(
                    told["heads"], *whole[place].shape
                )
                whole[place] = tiles[head]
            elif f"{head}/{i}/{j}" in ids:
                tile = np.frombuffer(raw(found, ids[f"{head}/{i}/{j}"]), np.uint8)
                whole[place] = tile.reshape(whole[place].shape)
            else:
                return None
    return whole


def sites_of(found: Bundle, run: int = 0) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in found.data["runs"][run]["sites"]}


def parts_of(found: Bundle, detail: dict[str, Any]) -> dict[str, torch.Tensor | None]:
    numbers = torch.from_numpy(np.frombuffer(raw(found, detail["blob"]), np.float16).astype(np.float32))
    parts = dict[str, torch.Tensor | None]()
    for name in PARTS:
        shape = detail["layout"][name]
        parts[name] = None if shape is None else numbers[: int(np.prod(shape))].reshape(shape)
        numbers = numbers[0 if shape is None else int(np.prod(shape)) :]
    assert len(numbers) == 0
    return parts
