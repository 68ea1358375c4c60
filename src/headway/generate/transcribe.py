"""Long-form transcription with Whisper, in windows of 30 seconds.

    transcript = Transcriber.of(model, tokenizer).transcribe(wave, rate, TranscriptionOptions("de", how=MeanBeam(5)))
    print(transcript.text, transcript.language, transcript.segments)

A clip that fits one window is padded with silence.  A longer one is transcribed with timestamps: each window begins
where the last complete segment of the one before ended.  A segment is written as <|0.00|> words <|2.40|>, and the next
begins with the time at which this one ended, so that two times stand side by side where a segment ends.  Radford et al.
2022, §2.3 and §4.5.

Axes:  B rows   N samples   T frames   M mels   W frames of a window   V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.tokenizer import Tokenizer
from headway.data.whisper_tokenizer import LATEST, Marks, marks_of, usual_settings
from headway.errors import UserError
from headway.generate.beam import Beam
from headway.generate.decoding import generate
from headway.generate.request import Generated, Interrupt, Reason, Stop, go_on, rules_of
from headway.generate.sampling import FREE, GREEDY, Rules, Sampler, Tokens
from headway.generate.session import context_of, vocab_of
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

    `most` is the maximum number of tokens of a window, where the model has positions for as many.
    """

    language: str | None = None
    task: str = "transcribe"
    timed: bool = False
    how: Sampler | Beam = GREEDY
    most: int | None = None
    interrupt: Interrupt = go_on


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
    """The text, language and segments of a clip; `limit` is the number of tokens at which a window was ended."""

    text: str
    language: str | None  # None: the model knows English alone
    segments: tuple[Segment, ...]
    limit: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "language": self.language, "segments": list(map(asdict, self.segments))}


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
        config = dict(settings or {})
        marks = marks_of(tokenizer, config.get("is_multilingual"))
        if "suppress_tokens" not in config:
            config |= usual_settings(tokenizer, marks)
        rules = rules_of(config, vocab_of(model.decoder), begins=False)
        latest = config.get("max_initial_timestamp_index", LATEST)
        sound = replace(WHISPER, mels=embedding(model).features)
        return Transcriber(model, tokenizer, marks, rules, latest, window, sound)

    @torch.inference_mode()
    def transcribe(self, wave: Tensor, rate: int, options: TranscriptionOptions = PLAIN) -> Transcript:
        """The text of a clip (N, numbers from −1 to 1) at `rate` samples a second."""
        frames, real = self.frames(wave, rate)
        memory = self.hear(frames, 0)
        language = self.language(memory) if options.language is None else options.language
        limits = list[int]()
        segments = tuple(self.segments(frames, real, replace(options, language=language), memory, limits.append))
        text = self.tokenizer.decode([token for one in segments for token in self.marks.text(one.tokens)])
        return Transcript(text.strip(), language, tuple(one for one in segments if one.text), next(iter(limits), None))

    def frames(self, wave: Tensor, rate: int) -> tuple[Tensor, int]:
        """The frames of a clip, T M, at least a whole window; and how many of them are not silence put behind it."""
        if wave.dim() != 1 or not wave.is_floating_point() or len(wave) == 0 or rate < 1:
            given = f"a clip of {shape_text(wave)}, {wave.dtype}, at {rate} samples a second"
            raise UserError(given, allowed="N numbers from −1 to 1, of one channel")
        sound = resample(wave, self.sound.rate, rate)
        missing = self.window * self.sound.hop - len(sound)
        found = self.sound(F.pad(sound, (0, max(0, missing)))[None])[0]
        return found, min(-(-len(sound) // self.sound.hop), len(found))

    def language(self, memory: Context) -> str | None:
        """The language that is likeliest in a window; None where the model knows one."""
        languages = self.marks.languages
        if not languages:
            return None
        assert memory.memory is not None
        begin = torch.tensor([[self.marks.begin]], device=memory.memory.device)
        logits = self.model.decoder(begin, memory)[0, -1].tolist()  # V
        return max(languages, key=lambda code: logits[languages[code]])

    def segments(
        self,
        frames: Tensor,
        real: int,
        options: TranscriptionOptions,
        memory: Context,
        stopped: Callable[[int], None] = lambda _: None,
    ) -> Iterator[Segment]:
        """What is said in `real` of the frames (T M), in the options' language; `memory` is of the first window.

        `stopped` is called with the number of tokens of a window whose text was ended by the limit.
        """
        step, timed, at = embedding(self.model).factor, options.timed or real > self.window, 0
        while True:
            size = min(self.window, real - at)
            found, steps = self.written(memory, options, timed), size // step
            tokens = found.body
            if found.reason is Reason.LENGTH:
                stopped(len(found.tokens))
            spans, done = [TimedSpan(0, steps, tokens)], steps
            if timed:
                spans, done = cut_segments(tokens, self.marks.first_time, steps)
            for span in spans:
                text = self.tokenizer.decode(self.marks.text(span.tokens)).strip()
                start, end = (self.seconds(at + time * step) for time in (span.start, span.end))
                yield Segment(start, end, text, span.tokens)
            at += size if done in (0, steps) else done * step
            if at >= real:
                return
            memory = self.hear(frames, at)

    def written(self, memory: Context, options: TranscriptionOptions, timed: bool, prefix: Tokens = ()) -> Generated:
        """What the model writes for one window, behind the tokens of a `prefix` that it is given."""
        prompt = self.marks.prompt(options.language, options.task, timed)
        context = context_of(self.model.decoder)
        assert context is not None
        room = context - len(prompt)
        stop = Stop(room if options.most is None else min(room, options.most), (self.marks.end,))
        rules = replace(self.time_rules() if timed else self.rules, prefix=prefix)
        decoder, how, interrupt = self.model.decoder, options.how, options.interrupt
        [found] = generate(decoder, [prompt], how, stop, memory=memory, rules=rules, interrupt=interrupt)
        return found

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
        marks, vocab = self.marks, vocab_of(self.model.decoder)
        last = marks.first_time + self.window // embedding(self.model).factor
        if vocab is None or last >= vocab:
            given = f"the model has {vocab} tokens, and the times of a window end at number {last}"
            raise UserError(given, do="cut the clip into pieces that fit one window, and ask for no times")
        return TimeRules(**asdict(self.rules), end=marks.end, first_time=marks.first_time, latest=self.latest)


def embedding(model: EncoderDecoder) -> ConvEmbed:
    """The part that takes in the frames of a sound."""
    found = model.encoder.embed
    if not isinstance(found, ConvEmbed):
        raise UserError(f"a model that begins with {type(found).__name__} hears nothing", do="take a Whisper")
    return found


@dataclass(frozen=True)
class TimeRules(Rules):
    """Times come in pairs, never fall, and come first; a time is written where all together are likelier than a word.

    Text has ids below `end`; times have those from `first_time` on.  The first is at most `latest` steps.
    """

    end: int = 0
    first_time: int = 1
    latest: int | None = None

    @property
    def reads_tokens(self) -> bool:
        return True

    def masked(self, logits: Tensor, length: int, rooms: Sequence[int], ids: Tensor) -> Tensor:
        logits = super().masked(logits, length, rooms, ids)
        if length < len(self.prefix):
            return logits
        barred = torch.zeros_like(logits, dtype=torch.bool)
        for row, seen in zip(barred, ids.tolist(), strict=True):
            for first, last in self.spans(seen[len(seen) - length :], logits.shape[1]):
                row[first:last] = True
        logits = logits.masked_fill(barred, -inf)
        words, times = logits[:, : self.first_time], logits[:, self.first_time :]
        timed = times.logsumexp(1) > words.amax(1)
        return torch.cat([words.masked_fill(timed[:, None], -inf), times], 1)

    def spans(self, written: Sequence[int], vocab: int) -> list[tuple[int, int]]:
        """The ids that may not come next, from … up to: <|notimestamps|>, and what would break the order of times."""
        first, barred = self.first_time, [(self.first_time - 1, self.first_time)]
        if not written:
            late = vocab if self.latest is None else first + self.latest + 1
            return [(0, first), (late, vocab)]
        now, before = written[-1] >= first, len(written) < 2 or written[-2] >= first
        last = max((token for token in written if token >= first), default=first - 1)
        if now and not before:  # a segment has ended: the time at which the next begins, or the end
            return [*barred, (0, self.end), (first, last)]
        return [*barred, (first, vocab if now else last + 1)]


class TimedSpan(NamedTuple):
    """A segment: when it begins and ends, in steps of time from the start of its window, and what was written."""

    start: int
    end: int
    tokens: tuple[int, ...]


class WindowSegments(NamedTuple):
    """The segments of a window."""

    spans: list[TimedSpan]
    done: int  # steps of time of the window that the next window need not repeat


def cut_segments(tokens: Sequence[int], first_time: int, steps: int) -> WindowSegments:
    """The segments of a window of `steps` steps of time.

    What stands behind the last pair of times was cut off by the window's end, and is heard again in the next; a single
    time at the end means that nothing was said after it.
    """
    times = [token >= first_time for token in tokens]
    ends = [at + 1 for at in range(len(times) - 1) if times[at] and times[at + 1]]
    finished = times[-2:] == [False, True]
    if not ends:
        known = [token - first_time for token in tokens if token >= first_time]
        return WindowSegments([TimedSpan(0, known[-1] if known and known[-1] else steps, tuple(tokens))], steps)
    edges = [0, *ends, *([len(tokens)] if finished else [])]
    spans = [
        TimedSpan(tokens[a] - first_time, tokens[b - 1] - first_time, tuple(tokens[a:b])) for a, b in pairwise(edges)
    ]
    return WindowSegments(spans, steps if finished else spans[-1].end)
