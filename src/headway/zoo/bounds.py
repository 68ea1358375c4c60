"""The range of every number in a config, by the name of its field: a name means the same in every architecture.

Values come from files, so they are checked before anything is computed with them, and long before a layer is made: a
model of 10⁹ layers has no end even without memory.  The ranges are wide: what is published lies far inside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

from headway.errors import UserError

Range = tuple[float, float]

LAYERS, HEADS, WIDTH, TOKENS, CELLS = 1024, 2**12, 2**20, 2**24, 2**12
MAX_BLOCKS = 2**13  # layers, times the experts in each
MAX_ITEMS = 2**12  # of a list
IMAGE: Range = (1, 2**12)  # pixels of a side
MELS: Range = (1, 2**10)
RATE: Range = (0, 1)  # of dropout


def each(names: str, low: float, high: float) -> dict[str, Range]:
    return dict.fromkeys(names.split(), (low, high))


BOUNDS: Mapping[str, Range] = {
    **each("layers image_layers groups inner experts top", 1, LAYERS),
    **each("decoder_layers", 0, LAYERS),  # T5's encoder alone has none
    **each("heads decoder_heads image_heads kv_heads", 1, HEADS),
    **each("dim decoder_dim image_dim width widths head_dim align readout channels features steps", 1, WIDTH),
    **each("hidden decoder_hidden image_hidden", 1, WIDTH),
    **each("vocab source_vocab target_vocab", 0, TOKENS),  # a Transformer of vectors has no vocabulary
    **each("context source_context window longest original_context", 1, TOKENS),
    **each("first end start", 0, TOKENS),
    **each("classes", 0, WIDTH),
    **each("segments", 0, WIDTH),
    **each("buckets", 2, WIDTH),
    **each("image", *IMAGE),
    **each("mels", *MELS),
    **each("patch stride strides kernel kernels size share windows", 1, CELLS),
    **each("pretrained attention", 0, CELLS),  # 0: as in training, and the number of a stage
    **each("directions", 1, 2),
    **each("factor", 1, 1e6),
    **each("eps", 0, 1),
    **each("ratio temperature", 1e-6, 1e3),
    **each("base", 1e-3, 1e12),
    **each("part", 0, 1),
    **each("low high beta_fast beta_slow short long mscale mscale_all", 0, 1e6),
}


def range_of(name: str) -> Range | None:
    return RATE if name.endswith("dropout") else BOUNDS.get(name)


def check_range(name: str, value: object, given: str | None = None) -> None:
    """Refuses a number, or a list that has one, outside the range of its field; `given` is what its file calls it."""
    found = range_of(name)
    if found is None or value is None:
        return
    numbers = cast(Iterable[object], value) if isinstance(value, list | tuple) else (value,)
    for at, number in enumerate(numbers):
        right = isinstance(number, int | float) and not isinstance(number, bool) and found[0] <= number <= found[1]
        if not right or at >= MAX_ITEMS:
            raise UserError(f"{given or name}={value!r:.60} in a config", allowed=spelled(name))


def spelled(name: str) -> str:
    low, high = range_of(name) or (-math.inf, math.inf)
    return f"numbers from {low:,.10g} to {high:,.10g}"


def check_blocks(config: object) -> None:
    """Refuses more layers than are ever built, each of which takes time even without memory."""

    def total(name: str) -> int:
        value: Any = getattr(config, name, None)
        numbers = cast(Iterable[Any], value) if isinstance(value, tuple) else (value,)
        return sum(number for number in numbers if isinstance(number, int)) or 1

    if total("layers") * total("experts") * total("inner") > MAX_BLOCKS:
        counts = " and ".join(
            f"{name}={getattr(config, name)}" for name in ("layers", "experts") if hasattr(config, name)
        )
        raise UserError(f"a model with {counts:.60}", allowed=f"{MAX_BLOCKS:,} layers and experts in all")
