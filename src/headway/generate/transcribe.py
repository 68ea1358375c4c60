"""Long-form transcription with Whisper, in windows of 30 seconds.

    transcript = transcribe(model, tokenizer, wave, rate, TranscriptionOptions(language="de", how=MeanBeam(5)))
    print(transcript.text, transcript.language, transcript.segments)

A clip that fits one window is padded with silence.  A longer one is transcribed with timestamps: each window begins
where the last complete segment of the one before ended.

Axes:  N samples   T frames   M mels   W frames of a window   V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.tokenizer import Tokenizer
from headway.data.whisper_tokenizer import LATEST, Marks, marks_of, usual_settings
from headway.errors import UserError
from headway.generate.beam import Beam
from headway.generate.decoding import generate
from headway.generate.generation_config import rules_of
from headway.generate.rules import FREE, Rules
from headway.generate.sampling import GREEDY, Sampler
from headway.generate.session import context_of, vocab_of
from headway.generate.stopping import Stop
from headway.generate.timestamps import TimeRules, WindowSegments, cut_segments
from headway.nn.context import Context
from headway.nn.frames import ConvEmbed
from headway.nn.trunk import EncoderDecoder
from headway.ops.attend import shape_text
from headway.ops.mel import WHISPER, LogMel
from headway.ops.resample import resample

WINDOW = 3000  # frames: 30 seconds


@dataclass(frozen=True)
class MeanBeam(Beam):
    """A beam whose continuations are compared by the mean of their log-probabilities, as Whisper's are."""

    width: int = 5
    alpha: float = 1.0

    def score(self, total: float, length: int) -> float:
        return total / length**self.alpha


@dataclass(frozen=True)
class TranscriptionOptions:
    """`language` None is detected; `timed` asks for timestamps also where a clip fits one window.

    `most` is how many tokens a window may have, at most what the model has positions for.
    """

    language: str | None = None
    task: str = "transcribe"
    timed: bool = False
    how: Sampler | Beam = GREEDY
    most: int | None = None


PLAIN = TranscriptionOptions()


@dataclass(frozen=True)
class Segment:
    """A segment of speech, from `start` to `end` seconds."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Transcript:
    """The text, language and segments of a clip."""

    text: str
    language: str | None  # None: the model knows English alone
    segments: tuple[Segment, ...]

    def plain(self) -> dict[str, Any]:
        """As data, for JSON."""
        return asdict(self)


def transcribe(
    model: EncoderDecoder,
    tokenizer: Tokenizer,
    wave: Tensor,
    rate: int,
    wish: TranscriptionOptions = PLAIN,
    settings: Mapping[str, Any] | None = None,
    window: int = WINDOW,
) -> Transcript:
    """The text of a clip (N) at `rate` samples a second, by a Whisper with its words and its generation settings."""
    return Transcriber.of(model, tokenizer, settings, window).transcribe(wave, rate, wish)


@dataclass(frozen=True, eq=False)
class Transcriber:
    """A Whisper model with its tokenizer; `rules` suppress tokens, `latest` is the maximum initial timestamp."""

    model: EncoderDecoder
    tokenizer: Tokenizer
    marks: Marks
    rules: Rules = FREE
    latest: int | None = LATEST
    window: int = WINDOW
    sound: LogMel = WHISPER

    @staticmethod
    def of(
        model: EncoderDecoder,
        tokenizer: Tokenizer,
        settings: Mapping[str, Any] | None = None,
        window: int = WINDOW,
    ) -> Transcriber:
        """With a generation_config.json's settings; where these suppress nothing, as OpenAI's code does."""
        told = dict(settings or {})
        marks = marks_of(tokenizer, told.get("is_multilingual"))
        if "suppress_tokens" not in told:
            told |= usual_settings(tokenizer, marks)
        rules = rules_of(told, vocab_of(model.decoder), begins=False)
        sound = replace(WHISPER, mels=embedding(model).features)
        return Transcriber(
            model, tokenizer, marks, rules, told.get("max_initial_timestamp_index", LATEST), window, sound
        )

    @torch.inference_mode()
    def transcribe(self, wave: Tensor, rate: int, wish: TranscriptionOptions = PLAIN) -> Transcript:
        """The text of a clip (N, numbers from −1 to 1) at `rate` samples a second."""
        frames, real = self.frames(wave, rate)
        heard = self.hear(frames, 0)
        language = self.language(heard) if wish.language is None else wish.language
        segments = tuple(self.segments(frames, real, replace(wish, language=language), heard))
        text = self.tokenizer.decode([token for one in segments for token in self.marks.text(one.tokens)])
        return Transcript(text.strip(), language, tuple(one for one in segments if one.text))

    def frames(self, wave: Tensor, rate: int) -> tuple[Tensor, int]:
        """The frames of a clip, T M, at least a whole window; and how many of them are not silence put behind it."""
        if wave.dim() != 1 or not wave.is_floating_point() or len(wave) == 0 or rate < 1:
            said = f"a clip of {shape_text(wave)}, {wave.dtype}, at {rate} samples a second"
            raise UserError(said, allowed="N numbers from −1 to 1, of one channel")
        sound = resample(wave, self.sound.rate, rate)
        missing = self.window * self.sound.hop - len(sound)
        found = self.sound(F.pad(sound, (0, max(0, missing)))[None])[0]
        return found, min(-(-len(sound) // self.sound.hop), len(found))

    def language(self, heard: Context) -> str | None:
        """The language that is likeliest in a window; None where the model knows one."""
        languages = self.marks.languages
        if not languages:
            return None
        assert heard.memory is not None
        begin = torch.tensor([[self.marks.begin]], device=heard.memory.device)
        logits = self.model.decoder(begin, heard)[0, -1].tolist()  # V
        return max(languages, key=lambda code: logits[languages[code]])

    def segments(self, frames: Tensor, real: int, wish: TranscriptionOptions, heard: Context) -> Iterator[Segment]:
        """What is said in `real` of the frames (T M), in the language of the wish; `heard` is the first window."""
        step, timed, at = embedding(self.model).factor, wish.timed or real > self.window, 0
        while True:
            size = min(self.window, real - at)
            tokens, steps = self.written(heard, wish, timed), size // step
            spans, done = (
                cut_segments(tokens, self.marks.first_time, steps) if timed else WindowSegments.whole(tokens, steps)
            )
            for span in spans:
                text = self.tokenizer.decode(self.marks.text(span.tokens)).strip()
                start, end = (self.seconds(at + time * step) for time in (span.start, span.end))
                yield Segment(start, end, text, span.tokens)
            at += size if done in (0, steps) else done * step
            if at >= real:
                return
            heard = self.hear(frames, at)

    def written(self, heard: Context, wish: TranscriptionOptions, timed: bool) -> tuple[int, ...]:
        """The tokens that the model writes for one window, without the end."""
        prompt = self.marks.prompt(wish.language, wish.task, timed)
        context = context_of(self.model.decoder)
        assert context is not None
        room = context - len(prompt)
        stop = Stop(room if wish.most is None else min(room, wish.most), (self.marks.end,))
        rules = self.time_rules() if timed else self.rules
        [found] = generate(self.model.decoder, [prompt], wish.how, stop, memory=heard, rules=rules)
        return found.body

    def hear(self, frames: Tensor, at: int) -> Context:
        """The memory of the window that begins at frame `at`."""
        return self.model.remember(self.part(frames, at)[None])

    def part(self, frames: Tensor, at: int) -> Tensor:
        """The window that begins at frame `at`, as the model reads it, W M; what is missing at its end is 0."""
        part, weight = frames[at : at + self.window], next(self.model.parameters())
        return F.pad(part, (0, 0, 0, self.window - len(part))).to(weight.device, weight.dtype)

    def seconds(self, frames: int) -> float:
        return frames * self.sound.hop / self.sound.rate

    def time_rules(self) -> TimeRules:
        """The rules where times are written."""
        marks, also, vocab = self.marks, asdict(self.rules), vocab_of(self.model.decoder)
        last = marks.first_time + self.window // embedding(self.model).factor
        if vocab is None or last >= vocab:
            said = f"the model has {vocab} tokens, and the times of a window end at number {last}"
            raise UserError(said, do="cut the clip into pieces that fit one window, and ask for no times")
        return TimeRules(**also, end=marks.end, first_time=marks.first_time, latest=self.latest)


def embedding(model: EncoderDecoder) -> ConvEmbed:
    """The part that takes in the frames of a sound."""
    found = model.encoder.embed
    if not isinstance(found, ConvEmbed):
        raise UserError(f"a model that begins with {type(found).__name__} hears nothing", do="take a Whisper")
    return found
