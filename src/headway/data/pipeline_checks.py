"""A foreign tokenizer.json, checked before it is used: the pipeline of the `tokenizers` package believes what it reads.

Some values end its process or never end (a table of normal forms that tells a length of 4 GB, 40 replacements of a
letter by two, words of 10⁹ letters), so they are bounded here.  Others panic at the first text: a short text is tried.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer as Backend

from headway.data.sentencepiece_model import whole_charsmap
from headway.errors import UserError

SLOTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
MAX_STEPS = 100  # of a slot; published pipelines have up to eight
MAX_GROWTH = 256  # times that a slot may lengthen a text
MAX_AFFIX = 1000  # characters that are put before a text
MAX_TEMPLATE = 100  # tokens that are put around a text
MAX_WORD = 1000  # characters of a word for WordPiece, whose time grows with their square
MAX_TOKENS, MAX_ADDED = 2**20, 100_000  # published vocabularies have up to 2^18, of which some thousand are added
MAX_TOKEN = 10_000  # characters of a token: a trie of a million is taken down by so many calls within each other
PROBE = "The cats aren't 3.14\tkilometres away…\n“Ünïcode”, e\u0301, 東京, नमस्ते 🙂 [MASK] </s> " + "a" * 40 + "1"


def check_pipeline(values: Mapping[str, Any], file: Path) -> None:
    """Refuses what the package would not survive."""
    for slot in SLOTS:
        parts, growth = list(steps(values.get(slot))), 1.0
        if len(parts) > MAX_STEPS:
            raise UserError(f"{file}: the {slot} has {len(parts):,} steps", allowed=f"{MAX_STEPS} or fewer")
        for part in parts:
            growth *= lengthened(part)
            check_step(part, file)
        if growth > MAX_GROWTH:
            raise UserError(
                f"{file}: the {slot} makes a text {growth:.3g} times as long", allowed=f"{MAX_GROWTH} times"
            )
    model: Any = values.get("model")
    check_tokens("vocabulary", model.get("vocab") if isinstance(model, Mapping) else None, MAX_TOKENS, file)
    check_tokens("list of added tokens", values.get("added_tokens"), MAX_ADDED, file)
    longest = model.get("max_input_chars_per_word") if isinstance(model, Mapping) else None
    if longest is not None and not (isinstance(longest, int) and 0 <= longest <= MAX_WORD):
        raise UserError(f"{file}: max_input_chars_per_word is {longest!r:.60}", allowed=f"0 to {MAX_WORD}")


def check_tokens(what: str, tokens: object, most: int, file: Path) -> None:
    """Refuses more tokens, or longer ones, than the package reads in time: it goes down a letter at a time and back."""
    found: list[Any] = list(tokens) if isinstance(tokens, Mapping | list) else []
    if len(found) > most:
        raise UserError(f"{file}: the {what} has {len(found):,} tokens", allowed=f"{most:,} or fewer")
    spelled = (
        one.get("content") if isinstance(one, Mapping) else one[0] if isinstance(one, list) else one
        for one in found
        if one
    )
    longest = max((len(one) for one in spelled if isinstance(one, str)), default=0)
    if longest > MAX_TOKEN:
        raise UserError(f"{file}: the {what} has a token of {longest:,} characters", allowed=f"{MAX_TOKEN:,} or fewer")


def steps(part: object) -> Iterator[Mapping[str, Any]]:
    """The steps of a slot, those of sequences within it one by one."""
    waiting = [part]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            step = cast(Mapping[str, Any], one)
            yield step
            for name in ("normalizers", "pretokenizers", "processors", "decoders"):
                inner = step.get(name)
                waiting += cast(list[object], inner) if isinstance(inner, list) else []


def lengthened(step: Mapping[str, Any]) -> float:
    """How many times as long a step makes a text at most: a letter that is not ASCII is two of its bytes or more."""
    if step.get("type") == "ByteLevel":
        return 2.0
    pattern, content = step.get("pattern"), step.get("content")
    if step.get("type") != "Replace" or not isinstance(content, str):
        return 1.0
    spelled: Any = cast(Mapping[str, Any], pattern).get("String") if isinstance(pattern, Mapping) else None
    return max(1.0, len(content) / (len(spelled) or 1 if isinstance(spelled, str) else 1))


def check_step(step: Mapping[str, Any], file: Path) -> None:
    match step:
        case {"type": "Precompiled", "precompiled_charsmap": table}:
            if isinstance(table, str) and not whole_charsmap(base64.b64decode(table)):
                raise UserError(f"{file}: its table of normal forms is broken")
        case {"type": "Prepend", "prepend": str(text)} if len(text) > MAX_AFFIX:
            raise UserError(f"{file}: Prepend has {len(text):,} characters", allowed=f"{MAX_AFFIX} or fewer")
        case {"type": "TemplateProcessing"}:
            special: Any = step.get("special_tokens")
            inside = special.values() if isinstance(special, Mapping) else ()
            lists = [
                step.get("single"),
                step.get("pair"),
                *(one.get("ids") for one in inside if isinstance(one, Mapping)),
            ]
            longest = max(len(one) for one in lists if isinstance(one, list)) if any(lists) else 0
            if longest > MAX_TEMPLATE:
                said = f"{file}: TemplateProcessing has a list of {longest:,} tokens"
                raise UserError(said, allowed=f"{MAX_TEMPLATE} or fewer")
        case _:
            pass


def load_pipeline(text: str, file: Path) -> Backend:
    """The pipeline of a text that was checked; one that panics at a short text is refused."""
    with silent():
        try:
            backend = Backend.from_str(text)
        except BaseException as error:
            raise refused(error, file) from error
        backend.no_padding()
        backend.no_truncation()
        try:
            backend.decode(backend.encode(PROBE).ids)
            for ids in stripped_tokens(backend) if '"Strip"' in text else ():
                backend.decode(ids)
        except Exception:
            pass
        except BaseException as error:
            raise refused(error, file) from error
    return backend


def stripped_tokens(backend: Backend) -> Iterator[list[int]]:
    """Tokens of one repeated character, alone and twice: a decoder that strips it at both ends panics where they meet.

    A panic at a later text would write to standard error by itself, and muting that mutes other threads too.
    """
    repeated = (number for token, number in backend.get_vocab().items() if len(set(token)) == 1)
    yield from ([number] * count for number in repeated for count in (1, 2))


def refused(error: BaseException, file: Path) -> UserError:
    if not is_failure(error):
        raise error
    return UserError(f"{file}: not a tokenizer: {error!s:.200}")


def is_failure(error: BaseException) -> bool:
    """Whether the package failed: it raises nothing narrower than Exception, and panics are none."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


@contextmanager
def silent() -> Generator[None]:
    """Without what a panic writes to the process's standard error by itself."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
