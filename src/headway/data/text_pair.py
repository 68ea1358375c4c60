"""Two texts as the ids that a model reads together: [CLS] a [SEP] b [SEP], by the pair template of a tokenizer.

The frame is read off the tokenizer's own pipeline once.  What is too long loses tokens at its end, the longer text
first, as in `transformers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from headway.data.tokenizer import Tokenizer
from headway.errors import UserError

PROBES = ("a", "1", "the")  # texts of which one has a token in most vocabularies
MAX_PROBES = 1000  # tokens of a vocabulary that are tried beside these


class PairRow(NamedTuple):
    """Ids of two texts; `second` is where the segment of the second begins, and `start` its first token."""

    ids: list[int]
    second: int
    start: int
    cut: bool = False


@dataclass(frozen=True)
class PairFrame:
    """What stands before, between and after two texts; `first_segment` of the tokens between belong to the first."""

    before: list[int]
    between: list[int]
    after: list[int]
    first_segment: int | None  # None: both texts are of one segment

    @staticmethod
    def of(tokenizer: Tokenizer) -> PairFrame:
        backend = tokenizer.literal_backend
        for probe in (*PROBES, *islice(backend.get_vocab(with_added_tokens=False), MAX_PROBES)):
            found = backend.encode(probe, probe)
            texts = found.sequence_ids
            if 0 in texts and 1 in texts:
                break
        else:
            raise UserError("the tokenizer has no tokens for a text", do="give another one")
        first, second = ([at for at, text in enumerate(texts) if text == which] for which in (0, 1))
        if first[0] > second[0]:
            raise UserError(
                "the tokenizer writes the second text before the first", do="give one with another template"
            )
        between = slice(first[-1] + 1, second[0])
        types = found.type_ids
        told = types[:-1] if tokenizer.ends_apart else types
        if sorted(told) != told or not set(told) <= {0, 1}:
            raise UserError(f"the segments of the tokenizer's pairs are {types}", allowed="0 and behind them 1")
        own = types[between].count(0) if 1 in types else None
        return PairFrame(found.ids[: first[0]], found.ids[between], found.ids[second[-1] + 1 :], own)

    @property
    def size(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)

    def row(self, first: Sequence[int], second: Sequence[int], cut: bool = False) -> PairRow:
        ids = [*self.before, *first, *self.between, *second, *self.after]
        start = len(self.before) + len(first)
        segment = len(ids) if self.first_segment is None else start + self.first_segment
        return PairRow(ids, segment, start + len(self.between), cut)

    def cut_row(self, first: Sequence[int], second: Sequence[int], max_length: int) -> PairRow:
        """At most `max_length` ids."""
        sizes = longest_first(len(first), len(second), max(0, max_length - self.size))
        return self.row(first[: sizes[0]], second[: sizes[1]], sizes != (len(first), len(second)))


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each of two texts are read where there is room for so many in all."""
    if first + second <= room:
        return first, second
    less, more = sorted((first, second))
    more = less if less > room else max(less, room - less)
    if less + more > room:
        less, more = room // 2, room - room // 2
    return (less, more) if first <= second else (more, less)


def text_ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Ids of texts without a frame, with special tokens that are spelled in them where the tokenizer reads these."""
    return tokenizer.plain_batch(texts) if tokenizer.literal else tokenizer.special_ids(texts, framed=False)


def pair_rows(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], max_length: int) -> list[PairRow]:
    """Pairs of texts, each within `max_length` ids."""
    if not pairs:
        return []
    frame = PairFrame.of(tokenizer)
    sides = (text_ids(tokenizer, side) for side in zip(*pairs, strict=True))
    return [frame.cut_row(first, second, max_length) for first, second in zip(*sides, strict=True)]
