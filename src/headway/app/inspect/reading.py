"""Samples that a person names, and what a model's layers hold of them.

Samples are the lines of a file (texts; or names of images or sounds, for a model of these), the rows of a table, or the
files of a folder.

Axes:  N samples   C width
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from headway.answer import Speaker
from headway.app.evaluate import given_data
from headway.data.batched import batched
from headway.data.keyed import random_for
from headway.data.kinds import HEARD, NUMERIC, PICTURED, TEXTUAL, Kind
from headway.data.lines import read_lines, suffix_of
from headway.data.listings import MEDIA
from headway.data.recognise import recognise
from headway.data.split import place
from headway.errors import UserError
from headway.generate.feed import context_of
from headway.inspect.layers import pooled_layers
from headway.nn.model import EncoderDecoder, Trunk
from headway.observer import Observer, encoder_of
from headway.tasks.senses import Read
from headway.tasks.task import Ragged, cut, ids

TOGETHER = 32  # samples at a time
TABLES = (".tsv", ".csv", ".jsonl")
KINDS = {"texts": TEXTUAL, "images": PICTURED, "sounds": HEARD, "numbers": NUMERIC}  # of data, by what models read

T = TypeVar("T")


@dataclass(frozen=True)
class Samples:
    """`told` is what a model reads; `kind` what data it comes from, or None for lines, which any model may read."""

    told: tuple[str, ...]
    kind: Kind | None
    source: Path

    def __len__(self) -> int:
        return len(self.told)


def samples_in(path: Path, most: int | None = None) -> Samples:
    """The samples of a file or folder, in order; at most so many of them, always the same."""
    if suffix_of(path) in TABLES and not path.is_dir():
        given = recognise([path])
        kept = some_of(given_data(given).read(), lambda record: record.fields[0], most)
        return Samples(tuple(record.handed[0] for record in kept), given.kind, path)
    found = media_in(path) if path.is_dir() else lines_of(path)
    return Samples(tuple(some_of(found, lambda one: one, most)), None, path)


def media_in(folder: Path) -> list[str]:
    """The images and sounds in a folder and the folders in it."""
    suffixes = {suffix for medium in MEDIA for suffix in medium.suffixes}
    found = sorted(str(file) for file in folder.rglob("*") if file.suffix.lower() in suffixes)
    if not found:
        raise UserError(f"the folder {folder} holds no images and no sounds", do="name a file with a text on each line")
    return found


def lines_of(path: Path) -> list[str]:
    """The lines of a file that are not blank."""
    lines = list[str]()
    for line in read_lines(path):
        if line.problem:
            raise UserError(str(line.problem))
        if line.bare.strip():
            lines.append(line.bare)
    if not lines:
        raise UserError(f"{path} is empty", do="give a file with a text, or the name of a file, on each line")
    return lines


def some_of(things: Iterable[T], text: Callable[[T], str], most: int | None) -> list[T]:
    """At most so many of them, in order: decided by each one's own text, since files are often sorted by class."""
    if most is None:
        return list(things)
    if most < 1:
        raise UserError(f"--most {most}", allowed="1 or more")
    chosen = nsmallest(most, enumerate(things), key=lambda pair: (place(text(pair[1]), 0), pair[0]))
    return [thing for _, thing in sorted(chosen, key=lambda pair: pair[0])]


def opened(samples: Samples, noun: str, place: Callable[[str], str]) -> Sequence[str]:
    """What a model of texts, images, sounds or numbers (`noun`) reads; `place` says where a file is that is named."""
    if noun == "texts" and samples.source.is_dir():
        raise UserError(f"the model reads texts, and {samples.source} is a folder", do="give a file of texts")
    if samples.kind is not None and samples.kind not in KINDS[noun]:
        holds = "texts" if samples.kind in TEXTUAL else f"data for {samples.kind.value}"
        raise UserError(f"the model reads {noun}, and {samples.source} holds {holds}", do=f"give it {noun}")
    if samples.kind is not None or noun == "texts":
        return samples.told
    return [place(beside(name, samples.source)) for name in samples.told]


@dataclass(frozen=True, eq=False)
class Reader:
    """A model with the part of it that takes samples in."""

    model: nn.Module
    trunk: Trunk
    answerer: Speaker | Observer

    @staticmethod
    def of(answerer: Speaker | Observer) -> Reader:
        model = answerer.model
        if isinstance(answerer, Observer):
            return Reader(model, encoder_of(model), answerer)
        return Reader(model, model.encoder if isinstance(model, EncoderDecoder) else answerer.trunk(), answerer)

    def layers(self, samples: Samples) -> dict[str, Tensor]:
        """The mean over each sample's tokens after each layer, N C, by the layers' names."""
        parts = [
            pooled_layers(self.model, self.trunk, *self.read(some)) for some in batched(self.opened(samples), TOGETHER)
        ]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def opened(self, samples: Samples) -> Sequence[str]:
        """What `read` takes, where the model reads this kind of samples at all."""
        return opened(samples, self.noun, self.answerer.place if isinstance(self.answerer, Observer) else str)

    @property
    def noun(self) -> str:
        """What the model reads, in a word."""
        if isinstance(self.answerer, Speaker):
            return "texts"
        unit = self.answerer.sense.unit
        return {"images": "images", "vectors": "numbers"}.get(unit, "sounds")

    def read(self, told: Sequence[str]) -> Read:
        """A batch, as the model is called with it; texts are cut to what it has places for, as they are in training."""
        if isinstance(self.answerer, Observer):
            sense = self.answerer.sense
            return sense.together([sense.look(one, random_for("unused")) for one in told])
        words, longest = self.answerer.tokenizer, context_of(self.trunk)
        prefix = self.answerer.tokens.get("prefix") or ""
        rows = words.encode_batch([prefix + text for text in told])
        rows = [row or [words.pad or 0] for row in rows]
        rows = rows if longest is None else [cut(row, longest) for row in rows]
        read = Ragged.of([ids(row) for row in rows])
        return Read(read.ids, read.context)


def beside(name: str, listing: Path) -> str:
    """A file that a line names: as it is, or beside the file that has the line."""
    near = listing.parent / name
    return str(near) if not Path(name).exists() and near.exists() else name
