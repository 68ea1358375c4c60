"""Transcription by Whisper, which reads sounds of any length window by window.

Axes:  T frames   M mels   W frames of a window   B sounds   C width
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.records import Record
from headway.data.sounds import read_sound
from headway.data.text_lines import MediaLocation
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.beam import Beam
from headway.generate.session import context_of
from headway.generate.transcribe import PLAIN, MeanBeam, Transcriber, TranscriptionOptions, embedding
from headway.nn.context import EMPTY, Context
from headway.nn.frames import length_mask
from headway.nn.head import word_head
from headway.nn.trunk import EncoderDecoder, device_of
from headway.tasks.batches import Batch, DataRow, EncoderInput, Row, TokenPrediction, cut, to_device
from headway.tasks.ctc_speech import Transcribes
from headway.tasks.generation import AHEAD, GREEDY_OPTIONS, WRITING, GenerationOptions
from headway.tasks.inputs import file_named
from headway.tasks.media_encoding import sample_sound, sound_of
from headway.tasks.model_parts import ModelParts, required_tokenizer
from headway.tasks.results import EvalResult, TranscriptPrediction
from headway.tasks.text_tracing import WrittenTokens, known_ids, traced_writing
from headway.tasks.tracing import TracedRun, TraceOptions, frames
from headway.zoo import whisper


@dataclass(frozen=True, eq=False)
class WhisperBatch(Batch):
    frames: Tensor  # B W M
    read: Tensor  # B L, by the decoder: the prompt, then the transcript without its end
    wanted: Tensor  # B T
    prompt: int  # tokens

    @property
    def targets(self) -> int:
        return self.wanted.numel()

    @property
    def tokens(self) -> int:
        return self.read.numel()

    def tokens_at(self, site: str) -> Tensor | None:
        return self.read if site.startswith("decoder.") else None


@dataclass(frozen=True, eq=False)
class WhisperTranscription(Transcribes):
    """Write what is said in a sound; `settings` are its generation_config.json's, and `window` is in frames."""

    decoding = tuple(name for name in WRITING if name not in ("stop", "length_penalty", "best", "patient", *AHEAD))
    name = "whisper"
    target = "token"

    tokenizer: Tokenizer
    settings: Mapping[str, Any]
    window: int

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        if not isinstance(parts.config, whisper.Config):
            return None
        window = parts.config.source_context * prod(whisper.STRIDES)
        return cls(required_tokenizer(parts), parts.extra_config, window)

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> Any:
        raise UserError("a Whisper cannot be trained here yet", do="take a conformer, with data.task speech")

    def loss(self, model: nn.Module, batch: WhisperBatch) -> Tensor:
        assert isinstance(model, EncoderDecoder)
        features = model.decoder.features(batch.read, model.remember(batch.frames))[:, batch.prompt - 1 :]  # B T C
        return TokenPrediction(word_head(model.decoder.head), features.flatten(0, 1), batch.wanted.flatten()).loss()

    def validate(self, model: nn.Module, batches: Sequence[Any], records: Iterable[Record]) -> EvalResult:
        return self.evaluate(model, records)

    def transcriber(self, model: nn.Module) -> Transcriber:
        assert isinstance(model, EncoderDecoder)
        return Transcriber.of(model, self.tokenizer, self.settings, self.window)

    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[TranscriptPrediction]:
        """What is said in each file, in which language and when."""
        ear, how = self.transcriber(model), options.decoding
        how = MeanBeam(how.width) if isinstance(how, Beam) else how
        for one in inputs:
            wave = torch.from_numpy(read_sound(file_named(one), ear.sound.rate))
            asked = TranscriptionOptions(how=how, most=options.max_new_tokens, interrupt=options.interrupt)
            found = ear.transcribe(wave, ear.sound.rate, asked)
            told = found.to_dict()
            yield TranscriptPrediction(one, told.pop("text"), told, found.limit)

    def sample_input(self, folder: Path, context: int | None) -> str:
        return str(sample_sound(folder / "tone.wav"))

    # ---- inspection

    encoder_batch = 4  # windows: each is 1,500 tokens of most Whispers

    @property
    def noun(self) -> str:
        return "sounds"

    def locate(self, given: str) -> str:
        return file_named(given).spelled()

    def frames(self, ear: Transcriber, sound: str) -> tuple[Tensor, int]:
        """The frames of a sound, T M, and how many of them are no padding."""
        return ear.frames(torch.from_numpy(read_sound(MediaLocation.parsed(sound), ear.sound.rate)), ear.sound.rate)

    def encoder_rows(self, model: nn.Module, inputs: Sequence[str]) -> Iterator[DataRow]:
        """The windows of each sound; padding is a part of the last."""
        ear = self.transcriber(model)
        size = embedding(ear.model).length(ear.window)
        for sample, sound in enumerate(inputs):
            name = MediaLocation.parsed(sound).path.name
            for at in range(0, self.frames(ear, sound)[1], ear.window):
                offset = f" from {ear.seconds(at):g} s" if at else ""
                yield DataRow((), size, (sound, at), name + offset, sample)

    def encoder_input(self, model: nn.Module, rows: Sequence[DataRow]) -> EncoderInput:
        """Windows with the tokens that are no padding, which the model reads and nobody averages."""
        ear = self.transcriber(model)
        embed, known = embedding(ear.model), {sound: self.frames(ear, sound) for sound, _ in (one.row for one in rows)}
        windows, counts = list[Tensor](), list[int]()
        for sound, at in (one.row for one in rows):
            whole, real = known[sound]
            windows.append(ear.part(whole, at))
            counts.append(embed.length(min(ear.window, real - at)))
        real = torch.tensor(counts, device=device_of(model))
        keep = length_mask(real, embed.length(ear.window))[:, None]  # B 1 T
        return EncoderInput(torch.stack(windows), EMPTY, Context(keep=keep), real)

    def has_loss(self, model: nn.Module, described: bool) -> bool:
        return described

    def loss_rows(self, model: nn.Module, records: Iterable[Record]) -> Iterator[DataRow]:
        """Sounds of one window at most: a transcript does not say in which window its words are."""
        ear = self.transcriber(model)
        size, most = embedding(ear.model).length(ear.window), ear.seconds(ear.window)
        for record in records:
            samples, rate = record.extent
            if samples > most * rate:
                said = f"{record.name} lasts {samples / rate:.1f} seconds, and the model hears {most:g} at once"
                do = "cut sounds and transcripts into pieces, or give the sounds without transcripts"
                raise UserError(said, do=do)
            text = self.target_ids(ear, record.fields[1])
            yield DataRow((len(text),), size + len(text), (record.handed[0], text), Path(record.name).name)

    def target_ids(self, ear: Transcriber, text: str) -> list[int]:
        """A leading space, as Whisper begins, the text, and its end."""
        found = [*ear.tokenizer.plain(f" {text.strip()}"), ear.marks.end]
        prompt = self.prompt(ear, next(iter(ear.marks.languages), None))
        context = context_of(ear.model.decoder)
        return found if context is None else cut(found, context + 1 - len(prompt))

    def prompt(self, ear: Transcriber, language: str | None) -> list[int]:
        """To transcribe in a language, without timestamps."""
        return ear.marks.prompt(language, PLAIN.task, timed=False)

    @torch.no_grad()
    def loss_batch(self, model: nn.Module, rows: Sequence[DataRow]) -> WhisperBatch:
        """Sounds and their transcripts, each behind the prompt of the language that the model detects."""
        ear = self.transcriber(model)
        frames = torch.stack([ear.part(self.frames(ear, one.row[0])[0], 0) for one in rows])  # B W M
        heard = ear.model.remember(frames)
        assert heard.memory is not None
        languages = [ear.language(replace(heard, memory=one[None])) for one in heard.memory]
        prompts = [self.prompt(ear, language) for language in languages]
        wanted = torch.tensor([one.row[1] for one in rows])  # B T
        read = torch.cat([torch.tensor(prompts), wanted[:, :-1]], 1)
        return to_device(WhisperBatch(frames, read, wanted, len(prompts[0])), device_of(model))

    # ---- vectors and traces

    def embed(self, model: nn.Module, inputs: Sequence[str]) -> Tensor:
        raise UserError("a Whisper gives texts and no vectors", do="leave embed= out")

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        """The first window of 30 seconds with what the model writes for it, in the language it hears.

        No edit changes the language.
        """
        assert isinstance(model, EncoderDecoder)
        ear, words = self.transcriber(model), self.tokenizer
        rate = ear.sound.rate
        wave = torch.from_numpy(read_sound(file_named(input), rate))
        whole, real = ear.frames(wave, rate)  # T M
        window, timed = ear.part(whole, 0), real > ear.window
        wish = TranscriptionOptions(language=ear.language(ear.hear(whole, 0)))
        prompt, prefix = ear.marks.prompt(wish.language, wish.task, timed), known_ids(options.prefix, model.decoder)

        def write() -> WrittenTokens:
            tokens = list(ear.written(ear.hear(whole, 0), wish, timed, prefix).body)
            room = context_of(model.decoder)
            if room is None or len(prompt) + len(tokens) < room:  # it ends by itself wherever there is room for more
                tokens.append(ear.marks.end)
            return WrittenTokens(prompt, tokens, words.decode(ear.marks.text(tokens)).strip())

        factor, hop = embedding(model).factor, ear.sound.hop
        axis = frames(len(window) // factor, factor * hop / rate)
        run = traced_writing(model, (window[None], EMPTY), words, axis, axis, options, write)
        sound = sound_of(wave[: len(window) * hop], rate, whole[: min(real, len(window))])
        return replace(run, sound=sound)
