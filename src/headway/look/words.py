"""Tokens as a person reads them: how each is written, and which of them stand for no part of a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_stream import BROKEN, specials
from headway.look.axis import Tokens

SPACE = "▁"  # SentencePiece's


def tokens(name: str, ids: Sequence[int], words: Tokenizer) -> Tokens:
    """The pieces that ids are."""
    apart = special(words)
    marked = (at for at, id in enumerate(ids) if id in apart)
    return Tokens(name, tuple(map(reader(words), ids)), tuple(marked))


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
