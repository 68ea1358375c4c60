"""Longformer in Hugging Face's layout, with the global attention that its classes have where none is given.

That is of the first token for classes of texts, and of none for masked words and for classes of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options
from headway.interop.encoders import FIELDS, WORDS, architecture, classes, plain_encoder, top, write_common
from headway.interop.keymap import KeyMap, linears
from headway.interop.roberta import named_map, settle
from headway.zoo.choices import check_range
from headway.zoo.longformer import Config, windows_of

__all__ = ["keymap", "read_config", "settle", "write_config"]

ARCHITECTURES = {
    "LongformerModel": "pooler",
    "LongformerForMaskedLM": "words",
    "LongformerForSequenceClassification": "rows",
    "LongformerForTokenClassification": "tokens",
}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "longformer")
    plain_encoder(o)
    o.ignore("attention_mode", "ignore_attention_mask", "onnx_export")
    stands, fields, first = top(o, ARCHITECTURES), FIELDS.read(o), o.take("pad_token_id", 1) + 1
    if stands in WORDS:
        o.expect(hidden_act="gelu")  # the head's own activation, whatever the layers have
    context = o.take("max_position_embeddings", 512) - first
    window = read_window(o, fields["layers"])
    return o.done(Config(**fields, context=context, first=first, window=window, top=stands, classes=classes(o)))


def read_window(o: Options, layers: int) -> int | tuple[int, ...]:
    """How far each layer sees to each side; the option counts both sides."""
    given = o.values.get("attention_window")
    windows = o.sizes("attention_window") if isinstance(given, list | tuple) else (o.take("attention_window", 512),)
    if len(windows) not in (1, layers) or any(window < 2 or window % 2 for window in windows):
        allowed = f"an even number of 2 or more, or {layers} of them"
        raise UserError(f"attention_window={given!r:.60} in config.json", allowed=allowed)
    found = tuple(window // 2 for window in windows)
    check_range("window", found, "attention_window")
    return found[0] if len(set(found)) == 1 else found


def write_config(c: Config) -> dict[str, Any]:
    if c.first < 1:
        raise UserError("Longformer's positions begin behind the padding's there, and here at 0", do="use to=headway")
    return {
        **architecture(c.top, ARCHITECTURES, "longformer"),
        **write_common(c),
        "max_position_embeddings": c.first + c.context,
        **write_window(c.window, c.layers),
        **{"pad_token_id": c.first - 1, "bos_token_id": 0, "eos_token_id": 2, "sep_token_id": 2},
    }


def write_window(window: int | tuple[int, ...], layers: int) -> dict[str, list[int]]:
    windows = windows_of(window, layers)
    if min(windows) < MIN_WINDOW:
        said = f"there, a Longformer's tokens see {MIN_WINDOW} tokens or more on each side, and here {min(windows)}"
        raise UserError(said, do="use to=headway")
    return {"attention_window": [2 * each for each in windows]}


MIN_WINDOW = 2  # with fewer, the other library's own code fails
GLOBALS = {"query_global": "global_q", "key_global": "global_k", "value_global": "global_v"}


def keymap(c: Config) -> KeyMap:
    found = named_map("longformer.", c)
    return replace(
        found, rules=(*found.rules, *linears("encoder.layer.*.attention.self", "stack.blocks.*.attn.body", GLOBALS))
    )
