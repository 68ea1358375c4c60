"""Rows, batches, and rows for inspection: what a task makes of data, and what a model is called with.

Texts of any lengths travel packed, one behind the other, so that padding costs nothing.

Axes:  B batch   N tokens of all rows   T tokens of a row   M targets   C width   V vocabulary   K classes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.tokenizer import CLASS_SEGMENT, Tokenizer
from headway.nn.context import EMPTY, Context, PackedLengths
from headway.nn.head import WordHead
from headway.nn.trunk import device_of

T = TypeVar("T")
Row = tuple[np.ndarray, ...]  # ids by column: the source, and where there is one the target


class Batch:
    """Tensors for one call of a model.  `tokens` is how many tokens, images or frames the model reads."""

    wanted: Tensor

    @property
    def targets(self) -> int:
        """What the loss sums over: tokens to predict, or rows to classify."""
        return len(self.wanted)

    def tokens_at(self, site: str) -> Tensor | None:
        """The ids of the tokens whose vectors are at a site; None where these are no text."""
        return None


class DataRow(NamedTuple):
    """A row for `headway.inspect`, of about `size` tokens; rows with the same `key` are equally long.

    `name` is for people; `sample` is the number of the sample that it belongs to: a long sound has several rows.
    """

    key: tuple[int, ...]
    size: int
    row: Any
    name: str
    sample: int = 0


class EncoderInput(NamedTuple):
    """What an encoder is called with; where only some tokens are averaged, `real` masks them and `counts` (B) them.

    `marks` are its further inputs.
    """

    inputs: Tensor
    context: Context = EMPTY
    real: Context | None = None
    counts: Tensor | None = None
    marks: tuple[Tensor, ...] = ()


def ids(*parts: int | Sequence[int] | np.ndarray) -> np.ndarray:
    """Numbers and lists of numbers, one after the other."""
    return np.concatenate([np.atleast_1d(np.asarray(part, dtype=np.int64)) for part in parts])


MAX_LOGITS = 2**23  # that are held at once
NO_TARGET = -100  # the number that torch's cross-entropy leaves out


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """Rows of any lengths, ready for a model: packed, 1 N; or B T where all are equally long.

    `segments`, of the same shape, are 1 at the tokens of a second text, 2 at a class token apart, and 0 at all others.
    """

    ids: Tensor
    rows: PackedLengths | None
    segments: Tensor | None = None

    @staticmethod
    def of(rows: Sequence[np.ndarray], seconds: Sequence[int] | None = None, *, apart: bool = False) -> PackedBatch:
        """Rows of ids; `seconds` says where in each a second text begins, and `apart`: the last token is of neither."""
        lengths = [len(row) for row in rows]
        ids, segments = torch.from_numpy(np.concatenate(rows).astype(np.int64)), None
        if seconds is not None or apart:
            both = [np.arange(length) >= second for length, second in zip(lengths, seconds or lengths, strict=True)]
            segments = torch.from_numpy(np.concatenate(both).astype(np.int64))
            if apart:
                segments[np.cumsum(lengths) - 1] = CLASS_SEGMENT
        if len(set(lengths)) == 1:
            return PackedBatch(
                ids.view(len(rows), -1), None, None if segments is None else segments.view(len(rows), -1)
            )
        return PackedBatch(ids[None], PackedLengths.of(lengths), None if segments is None else segments[None])

    @staticmethod
    def of_texts(model: nn.Module, rows: Sequence[FittedRow], tokenizer: Tokenizer) -> PackedBatch:
        """Texts as a model reads them, on its device; one without tokens is a token of padding."""
        texts = [np.array(row.ids or [tokenizer.pad or 0]) for row in rows]
        two = any(row.second is not None for row in rows)
        seconds = [len(text) if row.second is None else row.second for text, row in zip(texts, rows, strict=True)]
        read = PackedBatch.of(texts, seconds if two else None, apart=tokenizer.ends_apart)
        return to_device(read, device_of(model))

    def output(self, model: nn.Module) -> Tensor:
        """What a model makes of the rows."""
        return model(self.ids, self.context, *self.marks(model))

    def marks(self, model: nn.Module) -> tuple[Tensor, ...]:
        """The segments, for a model that knows several, and of as many."""
        known = getattr(model, "segments", 0)
        return () if self.segments is None or known < 2 else (self.segments.clamp(max=known - 1),)

    @property
    def context(self) -> Context:
        return Context(rows=self.rows)

    @property
    def lengths(self) -> list[int]:
        """How long each row is."""
        return [self.ids.shape[1]] * len(self.ids) if self.rows is None else list(self.rows.lengths)

    def split(self) -> list[Tensor]:
        """The ids of each row."""
        return list(self.ids.flatten().split(self.lengths))

    def __len__(self) -> int:
        return self.ids.numel()


class TextBatch(Batch):
    """Texts that are read by one model."""

    read: PackedBatch

    @property
    def tokens(self) -> int:
        return len(self.read)

    def tokens_at(self, site: str) -> Tensor:
        return self.read.ids


class TokenPrediction(NamedTuple):
    """Tokens that a model is to predict: its head, what that reads for each (M C), and what is right (M)."""

    head: WordHead
    features: Tensor
    wanted: Tensor
    smoothing: float = 0.0

    def loss(self) -> Tensor:
        """The cross-entropy of all tokens together."""
        return self.head.loss(self.features, self.wanted, self.smoothing)

    def losses(self) -> Tensor:
        """The cross-entropy of each token, M, without a gradient."""
        return self.head.losses(self.features, self.wanted)

    @torch.no_grad()
    def right(self) -> Tensor:
        """Whether the likeliest token is the right one, M."""
        if len(self.wanted) == 0:
            return self.wanted.bool()
        vocab = self.head(self.features[:1]).shape[-1]
        some = self.features.split(max(1, MAX_LOGITS // vocab))
        return torch.cat([self.head(x).argmax(-1) for x in some]) == self.wanted


class ClassPrediction(NamedTuple):
    """Things that a model classifies: logits (M K), the right class (M) or shares of all (M K), and weights of classes.

    Things without a class have the number NO_TARGET.
    """

    logits: Tensor
    wanted: Tensor
    weights: tuple[float, ...] = ()
    smoothing: float = 0.0

    @property
    def head(self) -> nn.Module:
        return nn.Identity()

    @property
    def features(self) -> Tensor:
        """The logits of those that have a class."""
        return self.logits if self.wanted.is_floating_point() else self.logits[self.wanted != NO_TARGET]

    def loss(self) -> Tensor:
        """The cross-entropy of all things together."""
        weight = self.logits.new_tensor(self.weights) if self.weights else None
        return F.cross_entropy(self.logits, self.wanted, weight, reduction="sum", label_smoothing=self.smoothing)


class FittedRow(NamedTuple):
    """The ids of a text that a model reads; `cut` says to what a longer one was cut.

    `second` is where a second text begins in them.
    """

    ids: list[int]
    cut: str | None = None
    second: int | None = None


def fitted(rows: Sequence[list[int]], max_length: int | None) -> list[FittedRow]:
    """Texts of any lengths, of which at most so many ids are read."""
    if max_length is None:
        return [FittedRow(row) for row in rows]
    return [FittedRow(cut(row, max_length), cut_to(max_length) if len(row) > max_length else None) for row in rows]


def cut_to(max_length: int) -> str:
    """To what texts were cut, for a sentence."""
    return f"of more than {max_length:,} tokens cut to that"


def some(id: int | None) -> list[int]:
    """A special token where there is one."""
    return [] if id is None else [id]


def around(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The tokens that begin and end every text, as `encode` puts them around people's texts."""
    if tokenizer.ends_apart:  # neither a text's beginning nor its end there is what the roles say
        return [], tokenizer.literal_backend.encode("").ids
    return some(tokenizer.bos), some(tokenizer.eos)


def cut(row: list[int], max_length: int) -> list[int]:
    """At most so many ids of a text; the last one, which ends it, stays."""
    return row if len(row) <= max_length else [*row[: max_length - 1], row[-1]]


# ---- devices: data is read and collated on the CPU, and moves where a model is about to read it


def to_device(value: T, device: torch.device) -> T:
    """A value whose tensors, at any depth of tuples, lists, mappings and dataclasses, are on a device.

    What is there already is returned as it is, without a copy.
    """
    return cast(T, moved(value, device))


def moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value if value.device == device else copied(value, device)
    parts = parts_of(value)
    found = {name: moved(part, device) for name, part in parts.items()}
    if all(part is found[name] for name, part in parts.items()):
        return value
    if isinstance(value, Mapping):
        return found
    if isinstance(value, tuple | list):
        make: Callable[[Any], Any] = getattr(cast(Any, value), "_make", type(cast(Any, value)))  # of a named tuple
        return make(found.values())
    return with_fields(value, found)


def parts_of(value: Any) -> Mapping[Any, Any]:
    """What a value is made of, by key, index or field; nothing, where it is no container."""
    if isinstance(value, Mapping):
        return cast(Mapping[Any, Any], value)
    if isinstance(value, tuple | list):
        return dict(enumerate(cast(Sequence[Any], value)))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return {}


def with_fields(value: Any, parts: dict[str, Any]) -> Any:
    """A dataclass with other fields; what it has computed of the old ones and remembers is left behind."""
    made = object.__new__(type(value))
    for name, part in parts.items():
        object.__setattr__(made, name, part)
    return made


def copied(value: Tensor, device: torch.device) -> Tensor:
    """From pinned memory to a CUDA device, so that the copy runs beside the computation."""
    if device.type == "cuda" and value.device.type == "cpu":
        return value.pin_memory().to(device, non_blocking=True)
    return value.to(device)


@runtime_checkable
class StatefulLoss(Protocol):
    """A task that may remember something from batch to batch: tensors, which travel with the run."""

    def memory(self, model: nn.Module) -> Mapping[str, Tensor] | None:
        """What it begins with; None where nothing is remembered for this model."""

    def loss_after(
        self, model: nn.Module, batch: Any, memory: Mapping[str, Tensor]
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The loss after the batches that are remembered, and what is remembered then."""
        ...
