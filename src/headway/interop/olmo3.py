"""OLMo 3 in Hugging Face's layout: an OLMo 2 of which some layers have a window, and turn unscaled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options
from headway.interop.decoders import read_top, settle, write_top
from headway.interop.llama import WHOLE, WINDOWED, layer_types, local_layers
from headway.interop.olmo2 import ABSENT as OLMO2
from headway.interop.olmo2 import keymap, read_fields, write_fields
from headway.interop.rotary import read_two_frequencies
from headway.ops.rotary import UNSCALED
from headway.zoo.olmo2 import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent
ABSENT = {**OLMO2, "sliding_window": 4096}
BASE = 500_000.0


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({"rope_theta": BASE, **{k: x for k, x in ABSENT.items() if k != "rope_theta"}, **values}, "olmo3")
    fields = read_fields(o)
    base = o.number("rope_theta")
    both = read_two_frequencies(o, fields["context"], base=base, local_base=base)
    usual = [WINDOWED if (i + 1) % 4 else WHOLE for i in range(fields["layers"])]
    windows = local_layers(o, usual, o.take("sliding_window", None))
    top = read_top(o, "Olmo3", "Olmo3ForCausalLM", tied=fields["tied"])
    return o.done(Config(**fields, **top, **windows, **both._asdict()))


def write_config(c: Config) -> dict[str, Any]:
    unscaled = replace(c.rotary, scaling=UNSCALED)
    if (c.rotary if c.local_rotary is None else c.local_rotary) != unscaled:
        said = "there, layers with a window turn as the others do without their scaling, and here they do not"
        raise UserError(said, do="keep it in headway's own layout")
    windows = {"sliding_window": c.window, "layer_types": layer_types(c)}
    return {**write_top(c, "olmo3", "Olmo3", "Olmo3ForCausalLM"), **write_fields(c), **windows}
