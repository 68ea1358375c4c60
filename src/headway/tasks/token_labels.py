"""Tokens as a person reads them: how each is written, and which of them stand for no part of a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING

from headway.data.tokenizer_stream import BROKEN, specials
from headway.tasks.axes import TokenAxis

if TYPE_CHECKING:
    from headway.data.tokenizer import Tokenizer

SPACE = "▁"  # SentencePiece's


def tokens(name: str, ids: Sequence[int], words: Tokenizer) -> TokenAxis:
    """The pieces that ids are."""
    apart = special(words)
    marked = (at for at, id in enumerate(ids) if id in apart)
    return TokenAxis(name, tuple(map(reader(words), ids)), tuple(marked))


def reader(words: Tokenizer) -> Callable[[int], str]:
    """`piece`, with a memory: of a long text the same few words are likely again and again."""
    return cache(partial(piece, words))


def piece(words: Tokenizer, id: int) -> str:
    """How a token reads; one that is special or only part of a letter, as the vocabulary has it; a number beyond it."""
    if id >= words.vocab:
        return f"#{id}"  # models have rows to spare
    # not `words.decode`, which mends letters over several ids at a millisecond a call
    read, spelled = words.backend.decode([id], skip_special_tokens=True), words.token(id)
    if not read or BROKEN in read:
        return spelled
    # a word's space belongs to it, and is lost where its first piece is read alone
    return f" {read}" if spelled.startswith(SPACE) and not read.startswith(" ") else read


def special(words: Tokenizer) -> frozenset[int]:
    """The tokens that are put around texts.  A mask, and what is unknown, stand for something in the text."""
    return specials(words.backend) - {words.mask, words.unk}


def readable(words: Tokenizer, ids: Iterable[int]) -> str:
    """A text with its special tokens: masks and sentinels stand among the words."""
    runs = [(apart, list(run)) for apart, run in groupby(ids, specials(words.backend).__contains__)]
    return " ".join(" ".join(map(words.token, run)) if apart else words.decode(run) for apart, run in runs).strip()
