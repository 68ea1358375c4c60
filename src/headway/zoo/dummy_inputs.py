"""What a model is called with, by shapes alone: tokens, images, sound, or one of these and the tokens it writes.

Axes:  B batch   T tokens, frames or samples   Ch channels   N patches   V visible ones   M mels
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.towers import TwoTowers
from headway.nn.trunk import EncoderDecoder

VISIBLE = 0.25  # of the patches, which MAE's encoder sees
FRAMES, SAMPLES = 1000, 160_000  # ten seconds, where no length is given


class Reads(NamedTuple):
    """A batch without numbers, on the meta device, and what it is counted in."""

    unit: str  # token, image, frame or sample
    length: int  # units of each row
    tensors: tuple[Tensor, ...]


def reads(config: object, model: nn.Module, batch: int, length: int | None) -> Reads:
    """A batch for the model of a config; rows are as long as its context, if it has one, unless a length is given."""
    writes = isinstance(model, EncoderDecoder | TwoTowers)
    sources = images(config, batch) or sounds(config, batch, None if writes else length)
    if sources and not writes:
        unit, own = {4: ("image", 1), 3: ("frame", sources[0].shape[1])}[sources[0].dim()]
        if unit == "image" and length is not None:
            raise UserError(f"a length of {length} for a model that reads images", do="leave length= out")
        return Reads("sample" if sources[0].shape[-1] == 1 else unit, own, sources)
    length = default_length(config) if length is None else length
    if batch < 1 or length < 1:
        raise UserError(f"a batch of {batch} rows of {length} tokens", allowed="1 or more of each")
    return Reads("token", length, (*sources, empty(batch, length, kind=torch.long)))


def images(config: object, batch: int) -> tuple[Tensor, ...]:
    """B Ch H W; for masked image models besides it which patches are seen, B V, or hidden, B N."""
    from headway.zoo import mae, simmim

    c = cast(Any, config.encoder if isinstance(config, simmim.Config) else config)
    if not hasattr(c, "image"):
        return ()
    made = empty(batch, getattr(c, "channels", 3), c.image, c.image)
    match config:
        case mae.Config():
            return made, empty(batch, int((c.image // c.patch) ** 2 * VISIBLE), kind=torch.long)
        case simmim.Config():
            return made, empty(batch, (c.image // c.patch) ** 2, kind=torch.bool)
        case _:
            return (made,)


def sounds(config: object, batch: int, length: int | None) -> tuple[Tensor, ...]:
    """B T M; Whisper's window is fixed, two frames of it a token; the waveform has one number at a time."""
    c = cast(Any, config)
    if hasattr(c, "mels"):
        return (empty(batch, 2 * c.source_context, c.mels),)
    if hasattr(c, "features"):
        return (empty(batch, FRAMES if length is None else length, c.features),)
    if hasattr(c, "strides"):
        return (empty(batch, SAMPLES if length is None else length, 1),)
    return ()


def default_length(config: object) -> int:
    """The context of a model that has one; 512 tokens for one that takes any length."""
    context: object = getattr(config, "context", None)
    return context if isinstance(context, int) else 512


def empty(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
    if min(shape) < 1:
        raise UserError(f"a batch of {'×'.join(str(n) for n in shape)}", allowed="1 or more of each")
    return torch.zeros(*shape, dtype=kind, device="meta")
