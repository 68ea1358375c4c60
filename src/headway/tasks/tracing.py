"""One traced run of a model on one input: the call, the axes of every attention site, and how to read the outcome.

A task traces an input; what records, edits or shows the run does not know which task it was.  An `Axis` names the rows
or the columns of a map: tokens of a text, cells of an image, stretches of a sound, or items; a page draws it by its
kind.  A `ForcedText` is what one model wrote, token by token, so that another model can read the same.

An `Outcome` is what came out, as data.  A model that chooses (a word, a class, a tag, a symbol) is scored by what it
chose before any edit: the sum of these choices' log-probabilities, which an edit changes.  A model that gives a vector
is scored by how far that has turned, and one that predicts a row by how far that has moved.

Axes:  N steps   C width   K choices: words, classes, symbols
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.nn.attention import Attention, CrossAttention


@dataclass(frozen=True)
class Axis:
    """A row (or column) for each label; `special` are the indices of those that stand for no part of the input."""

    kind: ClassVar[str] = ""

    name: str
    labels: tuple[str, ...]
    special: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TokenAxis(Axis):
    """Pieces of a text; `words` are the indices at which its words begin."""

    kind: ClassVar[str] = "text"

    words: tuple[int, ...] = ()


@dataclass(frozen=True)
class GridAxis(Axis):
    """Cells of a picture, row by row, behind the `first` tokens that are none: a class token, say."""

    kind: ClassVar[str] = "grid"

    grid: tuple[int, int] = (0, 0)  # rows, columns
    first: int = 0


@dataclass(frozen=True)
class FrameAxis(Axis):
    """Stretches of a sound, each of so many seconds."""

    kind: ClassVar[str] = "frames"

    seconds: float = 0.0


@dataclass(frozen=True)
class ItemAxis(Axis):
    """Rows of numbers, or members of a set."""

    kind: ClassVar[str] = "items"


def cells(grid: tuple[int, int], before: tuple[str, ...] = ()) -> GridAxis:
    """The cells of a grid, labelled `row,column` from 0, behind the tokens `before` them."""
    down, along = grid
    labels = tuple(f"{y},{x}" for y in range(down) for x in range(along))
    name = f"cells-{down}x{along}" + (f"+{len(before)}" if before else "")
    return GridAxis(name, before + labels, tuple(range(len(before))), grid, len(before))


def frames(count: int, seconds: float) -> FrameAxis:
    """Stretches of a sound one after the other, labelled by the second at which each begins."""
    digits = 2 if seconds >= 0.01 else 4
    return FrameAxis("frames", tuple(f"{at * seconds:.{digits}f} s" for at in range(count)), (), seconds)


def items(name: str, count: int) -> ItemAxis:
    """Items that have no name but their number, from 1."""
    return ItemAxis(name, tuple(str(at) for at in range(1, count + 1)))


SHOWN = 60  # letters of a text that are told in an error


@dataclass(frozen=True)
class ForcedText:
    """Tokens by their spelling, or by their number where they have none, and the text that they are.

    `by` is the title of the recording in which they were written; None: whoever reads them has written them.
    """

    pieces: tuple[str | int, ...]
    text: str
    by: str | None = None

    @staticmethod
    def of(ids: Sequence[int], words: Tokenizer) -> ForcedText:
        return ForcedText(tuple(spelling(words, id) for id in ids), text_of(words, ids))

    def ids(self, words: Tokenizer, rows: int | None) -> tuple[int, ...]:
        """The same tokens by their numbers in another vocabulary, of a model that has `rows` for so many."""
        found = tuple(words.backend.token_to_id(piece) if isinstance(piece, str) else piece for piece in self.pieces)
        for piece, id in zip(self.pieces, found, strict=True):
            if id is None or spelling(words, id) != piece or (rows is not None and id >= rows):
                raise self.foreign(f"{self.by} wrote {piece!r}, for which the model that shall read it has no token")
        ids = tuple(id for id in found if id is not None)
        if (read := text_of(words, ids)) != self.text:  # a piece may begin a word here, and go on with one there
            told = f"{self.by} wrote {self.text[:SHOWN]!r}, and the model that shall read it spells {read[:SHOWN]!r} so"
            raise self.foreign(told)
        return ids

    def foreign(self, said: str) -> UserError:
        return UserError(said, do="take models with the same tokens")


def spelling(words: Tokenizer, id: int) -> str | int:
    """How the vocabulary writes a token; its number where it has no name for it: models have rows to spare."""
    return (words.token(id) if id < words.vocab else "") or id


def text_of(words: Tokenizer, ids: Sequence[int]) -> str:
    return words.decode([id for id in ids if id < words.vocab])


BEST = 10  # choices that are told of each step
BLOCK = 64  # steps whose choices are held at once: 64 of 50k words are 13 MB


@dataclass(frozen=True)
class OutcomeStep:
    """One thing that was said: at which row of an axis (None: of the whole input), and what else was likely."""

    at: int | None
    said: str
    logprob: float
    top: tuple[tuple[str, float], ...]  # labels and their probabilities, falling


@dataclass(frozen=True)
class Outcome:
    """What a model said; `total` is the sum of the logprobs of what it said before any edit.

    For "vector" it is the cosine with the vector before any edit, less 1: nothing changed, nothing lost.  For
    "foreseen" it is how far the row has moved, in deviations of its columns, below 0.
    """

    kind: str  # "next", "fill", "written", "classes", "tags", "heard", "foreseen" or "vector"
    text: str
    steps: tuple[OutcomeStep, ...]
    total: float


class OutcomeReader(ABC):
    """How an outcome is told by what a call of the model gave."""

    @abstractmethod
    def settled(self, found: Tensor) -> OutcomeReader:
        """The same, where `found` is what the model gives before any edit."""

    @abstractmethod
    def outcome(self, found: Tensor, text: str | None = None) -> Outcome:
        """With the text where it is known, and else with what the model now says."""


def identity(logits: Tensor) -> Tensor:
    return logits


@dataclass(frozen=True, eq=False)
class Choices(OutcomeReader):
    """Steps at which a model chooses: found is N C, of which `head` makes the logits N K, or the logits themselves.

    `said` is what was chosen at each step; None until it is settled: what is likeliest.  `text` tells the likeliest of
    each step as a text, or writes it anew.
    """

    kind: str
    at: tuple[int | None, ...]
    said: tuple[int, ...] | None
    label: Callable[[int], str]
    text: Callable[[Sequence[int]], str]
    head: Callable[[Tensor], Tensor] = identity

    def settled(self, found: Tensor) -> Choices:
        return self if self.said is not None else replace(self, said=tuple(self.best(found)))

    def outcome(self, found: Tensor, text: str | None = None) -> Outcome:
        assert self.said is not None
        steps, best = list[OutcomeStep](), list[int]()
        for first, logprobs in self.blocks(found):
            places = slice(first, first + len(logprobs))
            top = logprobs.topk(min(BEST, logprobs.shape[1]))
            best += top.indices[:, 0].tolist()
            for at, said, row, *tops in zip(self.at[places], self.said[places], logprobs, *top, strict=True):
                steps.append(OutcomeStep(at, self.label(said), float(row[said]), self.named(*tops)))
        told = self.text(best) if text is None else text
        return Outcome(self.kind, told, tuple(steps), sum(step.logprob for step in steps))

    def named(self, logprobs: Tensor, choices: Tensor) -> tuple[tuple[str, float], ...]:
        chances = logprobs.exp().tolist()
        return tuple((self.label(k), chance) for k, chance in zip(choices.tolist(), chances, strict=True))

    def best(self, found: Tensor) -> list[int]:
        return [k for _, logprobs in self.blocks(found) for k in logprobs.argmax(-1).tolist()]

    def blocks(self, found: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The logarithms of all choices' probabilities, some steps at a time: never N K of a long text."""
        for first in range(0, len(found), BLOCK):
            logits = self.head(found[first : first + BLOCK])
            yield first, logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


@dataclass(frozen=True, eq=False)
class Vector(OutcomeReader):
    """A vector of length 1, C, compared with what it was `before` any edit."""

    before: Tensor | None = None

    def settled(self, found: Tensor) -> Vector:
        return replace(self, before=found)

    def outcome(self, found: Tensor, text: str | None = None) -> Outcome:
        assert self.before is not None
        # cos − 1 = −|a − b|² / 2, which is exactly 0 where nothing has changed
        turned = -0.5 * float((found - self.before).float().square().sum())
        return Outcome("vector", f"a vector of {len(found)} numbers", (), turned + 0.0)  # no −0


@dataclass(frozen=True, eq=False)
class NumericOutcome(OutcomeReader):
    """Numbers, C, compared with what they were `before` any edit; `describe` writes them."""

    describe: Callable[[Tensor], str]
    before: Tensor | None = None

    def settled(self, found: Tensor) -> NumericOutcome:
        return replace(self, before=found)

    def outcome(self, found: Tensor, text: str | None = None) -> Outcome:
        assert self.before is not None
        moved = float((found - self.before).float().square().mean().sqrt())
        return Outcome("foreseen", self.describe(found), (), 0.0 - moved)


@dataclass(frozen=True)
class InputImage:
    """An image as the model read it."""

    png: bytes
    width: int
    height: int


@dataclass(frozen=True)
class InputSound:
    """A sound as the model heard it, and its spectrogram: time along, pitch up."""

    wav: bytes
    seconds: float
    spectrogram: bytes  # PNG


@dataclass(frozen=True)
class InputSeries:
    """Rows of numbers one after the other, as they stand in a file; an axis has the names of the rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class Axes:
    """The rows and columns of attention maps: `streams` by the first word of a site's name, "" for all others.

    Cross-attention has the columns of `memory` and the rows of `written`.
    """

    streams: Mapping[str, Axis] = field(default_factory=dict[str, Axis])
    memory: Axis | None = None
    written: Axis | None = None

    def of(self, name: str, part: Attention, queries: int, keys: int) -> tuple[Axis, Axis]:
        """The row and column axes of a site with this many queries and keys."""
        stream = self.streams.get(name.split(".")[0]) or self.streams.get("")
        if not isinstance(part, CrossAttention):
            return fitting(stream, queries), fitting(stream, keys)
        if self.memory is None:  # a learned query that pools the stream
            return items("query", queries), fitting(stream, keys)
        return fitting(self.written, queries), fitting(self.memory, keys)


@dataclass(frozen=True, eq=False)
class TracedRun:
    """`call` runs the model once; `reader` turns its result into an outcome; `text` is the output, if known before.

    `forced_text` is what the model read as its own output: what it wrote, or what another model wrote.  It began with
    the tokens of `prefix`, which were given.
    """

    model: nn.Module
    call: Callable[[], Tensor]
    reader: OutcomeReader
    axes: Axes
    text: str | None = None
    picture: InputImage | None = None
    sound: InputSound | None = None
    series: InputSeries | None = None
    forced_text: ForcedText | None = None
    prefix: tuple[int, ...] = ()


@dataclass(frozen=True)
class TraceOptions:
    """How an input is traced.

    A language model generates at most `max_tokens` (and at least one) behind the ids of a `prefix`; an encoder–decoder
    writes to its end.  Either reads `forced_text`, if given, in place of its own output.  `context` is the model's
    context in tokens.
    """

    max_tokens: int
    context: int | None
    forced_text: ForcedText | None = None
    prefix: tuple[int, ...] = ()


def fitting(axis: Axis | None, count: int) -> Axis:
    """The axis if it has `count` labels, else an axis of plain numbers."""
    return axis if axis is not None and len(axis) == count else items(f"items-{count}", count)
