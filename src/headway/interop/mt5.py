"""mT5 in Hugging Face's layout: T5 1.1 under another name, with its own defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import written_as
from headway.interop.t5 import keymap, read, write
from headway.zoo.t5 import Config

__all__ = ["keymap", "read_config", "write_config"]

# what the other library takes where an option is absent
ABSENT = {
    "vocab_size": 250_112,
    "d_ff": 1024,
    "num_layers": 8,
    "num_heads": 6,
    "feed_forward_proj": "gated-gelu",
}


def read_config(values: Mapping[str, Any]) -> Config:
    """Its output is never the scaled table of words, whatever a file says of ties."""
    return read({**values, "tie_word_embeddings": False}, "mt5", "MT5", absent=ABSENT)


def write_config(c: Config) -> dict[str, Any]:
    if c.tied and c.decoder_layers != 0:
        raise UserError(
            "there, an mT5 has an output of its own, and this model the table of words", do=written_as("t5")
        )
    return write(c, "mt5", "MT5")
