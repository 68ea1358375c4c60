"""A page's contents read as the page reads them."""

from __future__ import annotations

import gzip
from base64 import b64decode
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headway.look.bundle import Bundle
from headway.look.page_data import EXACT_PARTS, PARTS
from headway.look.tiles import TILE
from headway.look.weight_codes import CLASSES, ROUNDED, EncodedRows


def raw(found: Bundle, id: str) -> bytes:
    return gzip.decompress(b64decode(found.blobs[id], validate=True))


@dataclass(frozen=True)
class DecodedRows:
    """Weights as the page decodes them, T S: NaN where hidden; limits above 0 bound what is not rounded."""

    weights: NDArray[np.float64]
    limits: NDArray[np.float64]
    decimals: NDArray[np.uint8]  # T

    @property
    def rounded(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.weights) & ~(self.limits > 0)

    def balanced(self) -> NDArray[np.float64]:
        """Rows that sum to 1, as codes.js makes them; 0 where hidden."""
        found = np.nan_to_num(self.weights)
        for row, (weights, limits, decimals) in enumerate(zip(found, self.limits, self.decimals, strict=True)):
            between, tiny = limits > 0, limits < 0
            rounded = ~between & ~tiny & (weights > 0)
            rest, middle, count = 1 - weights[rounded].sum(), weights[between].sum(), tiny.sum()
            half = 0.5 * 0.999 * 10.0 ** -float(decimals)
            each = np.clip((rest - middle) / count, 0, half) if count else 0.0
            factor = np.clip((rest - count * each) / middle, 0.5, 2) if middle else 1.0
            lost = np.clip((rest - count * each - factor * middle) / rounded.sum(), -half, half) if rounded.any() else 0
            likely = np.minimum(limits, weights * factor)
            found[row] = np.select([between, tiny, rounded], [likely, np.full_like(weights, each), weights + lost], 0.0)
        return found


def decode_rows(rows: EncodedRows) -> DecodedRows:
    """One head of a tile."""
    codes = rows.codes[0].astype(int)
    unit, floor = 10.0 ** -rows.decimals[0].astype(float)[:, None], rows.floors[0].astype(float)[:, None]
    ratio = (2 * floor + 1) ** (1 / CLASSES)
    tops = unit / 2 * ratio ** np.clip(codes - 1, 0, CLASSES)
    weights = np.where(codes >= ROUNDED, (floor + codes - ROUNDED) * unit, tops / np.sqrt(ratio))
    weights = np.where(codes == 0, np.nan, np.where(codes == 1, 0.0, weights))
    limits = np.select([codes == 1, (codes > 1) & (codes < ROUNDED)], [np.full_like(weights, -1.0), tops], 0.0)
    return DecodedRows(weights, limits, rows.decimals[0])


def tile_of(data: bytes, heads: int, head: int, rows: int, columns: int) -> EncodedRows:
    """One head of a tile's bytes."""
    lines = heads * rows
    planes = np.frombuffer(data, np.uint8)
    decimals = planes[:lines].reshape(heads, rows)
    words = planes[lines : 5 * lines].reshape(2, 2, lines).astype(np.uint16)
    floors, counts = words[:, 0] + 256 * words[:, 1]
    packed = -(-columns // 3)
    triples = planes[5 * lines : (5 + packed) * lines].reshape(lines, packed, 1)
    codes = (triples // np.array([1, 6, 36]) % 6).reshape(lines, -1)[:, :columns].astype(np.uint16)
    assert ((codes == ROUNDED).sum(-1) == counts).all()
    values = planes[(5 + packed) * lines :].reshape(2, -1).astype(np.uint16)
    codes[codes == ROUNDED] += values[0] + 256 * values[1]
    return EncodedRows(codes.reshape(heads, rows, columns), decimals, floors.reshape(heads, rows)).head(head)


def level_of(found: Bundle, told: dict[str, Any], number: int, head: int) -> DecodedRows | None:
    """A head at one level, put together as the page does; None where a tile of it is not there."""
    level = told["levels"][number]
    rows, columns = level["shape"]
    codes, decimals, floors = (np.zeros(s, np.uint16) for s in ((1, rows, columns), (1, rows), (1, rows)))
    for i in range(-(-rows // TILE)):
        for j in range(-(-columns // TILE)):
            place = np.s_[:, i * TILE : (i + 1) * TILE, j * TILE : (j + 1) * TILE]
            size, ids = codes[place].shape[1:], level["blobs"]
            if f"*/{i}/{j}" in ids:
                tile = tile_of(raw(found, ids[f"*/{i}/{j}"]), told["heads"], head, *size)
            elif f"{head}/{i}/{j}" in ids:
                tile = tile_of(raw(found, ids[f"{head}/{i}/{j}"]), 1, 0, *size)
            else:
                return None
            codes[place], decimals[place[:2]], floors[place[:2]] = tile
    return decode_rows(EncodedRows(codes, decimals.astype(np.uint8), floors))


def entropies_of(found: Bundle, told: dict[str, Any]) -> NDArray[np.float64]:
    """The entropy of each row, H′ T."""
    planes = np.frombuffer(raw(found, told["entropy"]), np.uint8).reshape(2, -1)
    return planes.T.copy().view(np.float16).reshape(-1, told["shape"][0]).astype(np.float64)


def strongest_of(found: Bundle, told: dict[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The strongest key of each row and its weight, H T."""
    planes = np.frombuffer(raw(found, told["strongest"]), np.uint8).reshape(7, told["heads"], told["shape"][0])
    keys = sum(planes[plane].astype(np.int64) << (8 * plane) for plane in range(4))
    return keys, (planes[5] + 256.0 * planes[6]) / 10.0 ** planes[4]


def sites_of(found: Bundle, run: int = 0) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in found.data["runs"][run]["sites"]}


def parts_of(found: Bundle, detail: dict[str, Any]) -> dict[str, torch.Tensor | None]:
    data, parts = raw(found, detail["blob"]), dict[str, torch.Tensor | None]()
    for name in PARTS:
        shape, kind = detail["layout"][name], np.float32 if name in EXACT_PARTS else np.float16
        size = 0 if shape is None else int(np.prod(shape)) * np.dtype(kind).itemsize
        numbers = torch.from_numpy(np.frombuffer(data[:size], kind).astype(np.float32))
        parts[name], data = None if shape is None else numbers.reshape(shape), data[size:]
    assert len(data) == 0
    return parts
