"""How a Whisper is asked about sounds whose transcripts are known: for each token of these, as it hears the sound.

It is told to transcribe in the language that it hears, without times, as it is where a sound fits one window.

Axes:  B sounds   W frames of a window   M mels   T tokens of a text   C width
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from headway.app.inspect.calls import Call, Informed, Sample, Shown, of_decoder
from headway.app.inspect.windows import WindowReader
from headway.data.sources import Record
from headway.errors import UserError
from headway.generate.feed import context_of
from headway.generate.transcribe import PLAIN
from headway.nn.head import word_head
from headway.tasks.task import Said, cut


@dataclass(frozen=True, eq=False)
class Dictated(Informed):
    """Sounds of one window at most, and their transcripts."""

    reader: WindowReader

    @property
    def target(self) -> str:
        return "token"

    def samples(self) -> Iterator[Sample]:
        for record in self.data.read():
            self.check(record)
            told, text = record.handed[0], self.written(record.fields[1])
            size = self.reader.tokens + len(text)
            yield Sample((len(text),), size, (told, text), Path(record.name).name)

    def check(self, record: Record) -> None:
        """A transcript does not say in which window its words are."""
        ear = self.reader.ear
        samples, rate = record.extent
        most = ear.seconds(ear.window)
        if samples > most * rate:
            said = f"{record.name} lasts {samples / rate:.1f} seconds, and the model hears {most:g} at once"
            raise UserError(said, do="cut sounds and transcripts into pieces, or give the sounds without transcripts")

    def written(self, text: str) -> list[int]:
        """What is to be written: a first space, as Whisper begins, the text, and its end."""
        ear, room = self.reader.ear, context_of(self.reader.model.decoder)
        ids = [*ear.tokenizer.plain(f" {text.strip()}"), ear.marks.end]
        return ids if room is None else cut(ids, room + 1 - len(self.prompt(next(iter(ear.marks.languages), None))))

    def prompt(self, language: str | None) -> list[int]:
        return self.reader.ear.marks.prompt(language, PLAIN.task, timed=False)

    @torch.no_grad()
    def call(self, samples: Sequence[Sample], site: str) -> Call:
        model, ear = self.reader.model, self.reader.ear
        frames = torch.stack([next(self.reader.windows(sample.row[0])).frames for sample in samples])  # B W M
        prompts = [self.prompt(language) for language in self.languages(frames)]
        wanted = torch.tensor([sample.row[1] for sample in samples])  # B T
        read = torch.cat([torch.tensor(prompts), wanted[:, :-1]], 1)
        first = len(prompts[0]) - 1

        def run() -> float:
            features = model.decoder.features(read, model.remember(frames))[:, first:]  # B T C
            return float(Said(word_head(model.decoder.head), features.flatten(0, 1), wanted.flatten()).loss())

        rows = read.tolist() if of_decoder(site) else [()] * len(samples)
        shown = [Shown(one.name, tuple(row), ear.tokenizer) for one, row in zip(samples, rows, strict=True)]
        return Call(run, wanted.numel(), shown)

    def languages(self, frames: Tensor) -> list[str | None]:
        """The language of each window, as the model hears it."""
        heard = self.reader.model.remember(frames)
        assert heard.memory is not None
        return [self.reader.ear.language(replace(heard, memory=one[None])) for one in heard.memory]
