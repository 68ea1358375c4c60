"""Folders without a config.json, whose model is known by the names and shapes of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from headway.interop import fairseq, torch_transformer
from headway.interop.keymap import KeyMap
from headway.zoo.transformer import Config


@dataclass(frozen=True)
class Bare:
    """A model without a config: all but the number of its heads is read off the tensors, or taken as usual."""

    name: str
    read_config: Callable[[int], Config]  # from the number of heads
    keymap: Callable[[Config], KeyMap]
    assumed: str  # what the tensors do not show
    tokens: Mapping[str, int] = field(default_factory=dict[str, int])


def recognised(tensors: Mapping[str, Tensor]) -> Bare | None:
    if fairseq.SOURCE in tensors and fairseq.FIRST in tensors:
        read = partial(fairseq.read_config, tensors)
        return Bare("a fairseq Transformer", read, fairseq.keymap, "ReLU", fairseq.TOKENS)
    prefix = torch_transformer.prefix_of(tensors)
    if prefix is None:
        return None
    read = partial(torch_transformer.read_config, tensors, prefix=prefix)
    keymap = partial(torch_transformer.keymap, prefix=prefix)
    return Bare("an nn.Transformer", read, keymap, "norms after each sublayer (norm_first=False) and ReLU")
