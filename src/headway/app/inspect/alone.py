"""Samples that a model reads, and says nothing of that could be right or wrong.

Axes:  B rows of a call   T tokens
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from headway.answer import Speaker
from headway.app.inspect.asked import IMAGE
from headway.app.inspect.calls import Call, Sample, Shown, Uninformed
from headway.app.inspect.reading import Reader, samples_in
from headway.app.inspect.windows import WindowReader
from headway.data.archives import Place
from headway.errors import UserError
from headway.inspect.layers import layers_of
from headway.nn.trace import sites_of


class Alone(Uninformed):
    """There is no loss where nothing is to be said."""

    @property
    def target(self) -> None:
        return None


@dataclass(frozen=True, eq=False)
class ReadAlone(Alone):
    """Texts, images, sounds or numbers, each as long as it is."""

    reader: Reader

    def samples(self) -> Iterator[Sample]:
        for at, told in enumerate(self.reader.opened(samples_in(self.path))):
            # images are of one size; of others none is padded where each is read alone
            name = told if self.reader.noun in ("texts", "numbers") else Place.parsed(told).path.name
            yield Sample((0 if self.reader.noun == "images" else at,), IMAGE, told, name)

    def call(self, samples: Sequence[Sample], site: str) -> Call:
        check_read(self.reader, site)
        read = self.reader.read([sample.row for sample in samples])

        def run() -> float:
            self.reader.trunk.features(*read)
            return 0.0

        answerer = self.reader.answerer
        rows = read.inputs.tolist() if isinstance(answerer, Speaker) else [[]] * len(samples)
        words = answerer.tokenizer if isinstance(answerer, Speaker) else None
        return Call(run, 0, [Shown(one.name, tuple(row), words) for one, row in zip(samples, rows, strict=True)])


@dataclass(frozen=True, eq=False)
class HeardAlone(Alone):
    """Sounds by the windows of a Whisper, which are equally long: silence put behind a sound is a part of them."""

    reader: WindowReader

    def samples(self) -> Iterator[Sample]:
        ear = self.reader.ear
        for told in self.reader.opened(samples_in(self.path)):
            name = Place.parsed(told).path.name
            for at, _ in enumerate(self.reader.windows(told)):
                behind = f" from {ear.seconds(at * ear.window):g} s" if at else ""
                yield Sample((), self.reader.tokens, (told, at), name + behind)

    def call(self, samples: Sequence[Sample], site: str) -> Call:
        check_read(self.reader, site)
        frames = torch.stack([self.window(*sample.row) for sample in samples])

        def run() -> float:
            self.reader.trunk.features(frames)
            return 0.0

        return Call(run, 0, [Shown(one.name) for one in samples])

    def window(self, told: str, at: int) -> torch.Tensor:
        """W M"""
        return next(islice(self.reader.windows(told), at, None)).frames


def check_read(reader: Reader | WindowReader, site: str) -> None:
    """A part that only writes, or reads something else, shows nothing of samples that are read alone."""
    module, _ = sites_of(reader.model)[site]
    if module not in set(reader.trunk.modules()):
        near = layers_of(reader.model, reader.trunk)[-1]
        said = f"{site!r} shows nothing where {reader.noun} are read and nothing is written about them"
        raise UserError(said, do=f"give {reader.noun} with texts about them, or another --site, such as {near}")
