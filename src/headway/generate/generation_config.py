"""Hugging Face's generation_config.json as our settings.

Only what belongs to the model is read: start and stop tokens, forced and suppressed tokens, lengths.  How tokens are
chosen (beams, temperature and the like) is up to the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.generate.rules import Rules

LENGTHS = ("max_length", "max_new_tokens", "min_length", "min_new_tokens")
MASKS = (
    *("suppress_tokens", "begin_suppress_tokens", "no_repeat_ngram_size"),
    *("lang_to_id", "task_to_id", "is_multilingual", "max_initial_timestamp_index", "alignment_heads"),  # Whisper's
)


def is_setting(name: str) -> bool:
    """Whether this entry of a generation_config.json is taken."""
    return name in (*LENGTHS, *MASKS) or name.endswith("_token_id")


def rules_of(settings: Mapping[str, Any], vocab: int | None, *, begins: bool) -> Rules:
    """The rules in a model's settings; those of the first token hold where the model `begins` a text itself."""

    def known(name: str) -> tuple[int, ...]:
        return tuple(
            token for token in token_setting(settings, name) if token >= 0 and (vocab is None or token < vocab)
        )

    return Rules(
        first=known("forced_bos_token_id") if begins else (),
        last=known("forced_eos_token_id"),
        never=known("suppress_tokens"),
        not_first=known("begin_suppress_tokens"),
        no_repeat=count_setting(settings, "no_repeat_ngram_size") or 0,
    )


def begin_of(settings: Mapping[str, Any], bos: int | None) -> int:
    """The token that a text is written after: as the settings say, or else `bos`, the first one of its words."""
    told = (*token_setting(settings, "decoder_start_token_id"), *token_setting(settings, "bos_token_id"))
    begin = next(iter(told), bos)
    if begin is None:
        raise UserError(
            "the model does not say with which token it begins to write",
            do="set decoder_start_token_id in its config.json, or take a tokenizer with a first token, such as <s>",
        )
    return begin


def token_setting(settings: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """A setting that is no token, one or several."""
    value = settings.get(name)
    found = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token, int) for token in found):
        raise UserError(f"the model's settings have {name}={value!r}", allowed="a token's number, or a list of them")
    return tuple(found)


def count_setting(settings: Mapping[str, Any], name: str) -> int | None:
    value = settings.get(name)
    if value is not None and not (isinstance(value, int) and value >= 0):
        raise UserError(f"the model's settings have {name}={value!r}", allowed="a whole number, 0 or more")
    return value


def max_new_tokens(settings: Mapping[str, Any], prompt: int, otherwise: int) -> int:
    """The maximum number of new tokens after a prompt, where the caller gives none."""
    new, whole = count_setting(settings, "max_new_tokens"), count_setting(settings, "max_length")
    return max(new or (otherwise if whole is None else whole - prompt), 1)


def min_new_tokens(settings: Mapping[str, Any], prompt: int, most: int) -> int:
    """The minimum number of new tokens, at most `most`."""
    new, whole = count_setting(settings, "min_new_tokens"), count_setting(settings, "min_length")
    return min(max(new or 0, (whole or 0) - prompt), most)
