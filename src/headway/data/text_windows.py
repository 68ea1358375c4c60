"""A question with a long context as windows that a model reads one by one, and the characters of each token.

The context goes on from window to window with `stride` tokens in common, as in `transformers`; the question is whole in
each, and cut itself only where it leaves no room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway.data.text_pair import PairFrame, text_ids
from headway.data.tokenizer import Tokenizer, unreadable
from headway.errors import UserError

MIN_ROOM = 2  # tokens of a context in a window


class ContextWindow(NamedTuple):
    """Ids of a question and a part of its context, whose tokens begin at `start` and are `spans` of characters."""

    ids: list[int]
    second: int
    start: int
    spans: list[tuple[int, int]]

    @property
    def places(self) -> range:
        """Where the tokens of the context are."""
        return range(self.start, self.start + len(self.spans))

    def tokens_of(self, begin: int, end: int) -> tuple[int, int] | None:
        """The first and the last token of some characters; None where the window does not hold them all."""
        inside = [at for at, (first, last) in zip(self.places, self.spans, strict=True) if first < end and last > begin]
        if not inside:
            return None
        first, last = self.spans[inside[0] - self.start][0], self.spans[inside[-1] - self.start][1]
        cut = (first > begin and inside[0] == self.start) or (last < end and inside[-1] == self.places[-1])
        return None if cut else (inside[0], inside[-1])

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """The characters of tokens."""
        return self.spans[first - self.start][0], self.spans[last - self.start][1]


@dataclass(frozen=True)
class WindowReader:
    """How questions and contexts are read: at most `max_length` ids, `stride` of a context's again in the next."""

    tokenizer: Tokenizer
    max_length: int
    stride: int

    def windows(self, pairs: Sequence[tuple[str, str]]) -> Iterator[list[ContextWindow]]:
        """The windows of each question with its context, one at least."""
        if not pairs:
            return
        frame = PairFrame.of(self.tokenizer)
        questions = text_ids(self.tokenizer, [question for question, _ in pairs])
        for question, (ids, spans) in zip(questions, spelled(self.tokenizer, [c for _, c in pairs]), strict=True):
            asked = question[: max(0, self.max_length - frame.size - MIN_ROOM)]
            room = max(1, self.max_length - frame.size - len(asked))
            yield [self.window(frame, asked, ids[part], spans[part]) for part in parts(len(ids), room, self.stride)]

    def window(
        self, frame: PairFrame, question: list[int], ids: list[int], spans: list[tuple[int, int]]
    ) -> ContextWindow:
        row = frame.row(question, ids)
        return ContextWindow(row.ids, row.second, row.start, spans)


def parts(count: int, room: int, stride: int) -> list[slice]:
    """Runs of at most `room` of so many tokens, `stride` of each again in the next: the last reaches the end."""
    step = room - (stride if stride < room else room // 2)
    starts = range(0, max(1, count - room + step), step) if count > room else range(1)
    return [slice(at, at + room) for at in starts]


def spelled(tokenizer: Tokenizer, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Ids of texts without a frame, and the characters that each is."""
    if tokenizer.normalizer is not None:
        said = "the tokenizer does not say which characters its tokens are"
        raise UserError(said, do="take a model whose tokenizer.json has a normalizer of its own")
    backend = tokenizer.literal_backend if tokenizer.literal else tokenizer.backend
    try:
        found = backend.encode_batch(list(texts), add_special_tokens=False)
    except BaseException as error:
        raise unreadable(texts, error) from error
    return [(ids, one.offsets) for ids, one in zip(tokenizer.known_ids(found), found, strict=True)]
