"""Transcription against transformers', token by token, and from the waveform on."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway.data.whisper_tokenizer import marks_of
from headway.errors import UserError
from headway.generate.beam import Beam
from headway.generate.sampling import GREEDY, Sampler
from headway.generate.transcribe import WINDOW as PUBLISHED
from headway.generate.transcribe import MeanBeam, Segment, Transcriber, TranscriptionOptions
from headway.ops.mel import WHISPER
from tests.generate.hearing import FIRST_TIME, ID, LETTERS, SETTINGS, WINDOW, Pair, frames, pair, words

RATE = 16_000
Told = list[tuple[list[int], float, float]]

HOW: dict[str, tuple[Sampler | Beam, dict[str, Any]]] = {
    "greedy": (GREEDY, {}),
    "beam": (MeanBeam(3), {"num_beams": 3, "early_stopping": True}),
    "patient beam": (MeanBeam(4, early=False), {"num_beams": 4, "early_stopping": "never"}),
}


def same(found: list[Segment], other: Told) -> None:
    assert [list(one.tokens) for one in found] == [tokens for tokens, _, _ in other]
    times = [time for _, *times in other for time in times]
    assert [time for one in found for time in (one.start, one.end)] == pytest.approx(times)


def heard(ours: Transcriber, features: Tensor, wish: TranscriptionOptions) -> list[Segment]:
    with torch.inference_mode():
        return list(ours.segments(features, len(features), wish, ours.hear(features, 0)))


def expected(theirs: Any, features: Tensor, **asked: Any) -> Told:
    """Their segments; where a window's last one ended with two times they keep both, to know it later."""
    found = theirs.generate(features.mT[None], return_segments=True, **asked)["segments"][0]
    segments: Told = []
    for one in found:
        tokens = one["tokens"].tolist()
        both = len(tokens) > 1 and min(tokens[-2:]) >= FIRST_TIME
        segments.append((tokens[:-1] if both else tokens, float(one["start"]), float(one["end"])))
    return segments


def written(theirs: Any, features: Tensor, prompt: int, **asked: Any) -> list[int]:
    """What they write for one window behind a prompt of so many tokens."""
    ids = theirs.generate(features.mT[None], force_unique_generate_call=True, **asked)[0].tolist()[prompt:]
    return ids[: ids.index(ID["<|endoftext|>"])] if ID["<|endoftext|>"] in ids else ids


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("seed", range(3))
def test_a_window_is_written_as_by_transformers(how: str, seed: int) -> None:
    theirs, ours = pair(seed)
    choice, asked = HOW[how]
    features = frames(seed, WINDOW)
    [found] = heard(ours, features, TranscriptionOptions("de", how=choice))
    assert list(found.tokens) == written(theirs, features, 4, language="de", task="transcribe", **asked)
    timed = heard(ours, features, TranscriptionOptions("de", timed=True, how=choice))
    same(timed, expected(theirs, features, language="de", task="transcribe", return_timestamps=True, **asked))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["greedy", "beam"])
@pytest.mark.parametrize(("seed", "length"), [(0, 75), (1, 61), (2, 41)])
def test_windows_follow_one_another_as_in_transformers(how: str, seed: int, length: int) -> None:
    theirs, ours = pair(seed)
    choice, asked = HOW[how]
    features = frames(100 + seed, length)
    found = heard(ours, features, TranscriptionOptions("fr", "translate", how=choice))
    same(found, expected(theirs, features, language="fr", task="translate", return_timestamps=True, **asked))
    assert len(found) > 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_language_is_heard_as_by_transformers(seed: int) -> None:
    theirs, ours = pair(seed)
    features = frames(200 + seed, WINDOW)
    with torch.inference_mode():
        code = ours.language(ours.hear(features, 0))
    assert code is not None
    assert ID[f"<|{code}|>"] == int(theirs.detect_language(features.mT[None]))


# ---- from the waveform


def clip(seconds: float, rate: int = RATE) -> Tensor:
    """A tone that rises and some noise."""
    at = torch.arange(round(seconds * rate)) / rate
    noise = torch.randn(len(at), generator=torch.Generator().manual_seed(5))
    return 0.3 * (2000 * at * (1 + at)).sin() + 0.01 * noise


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("seconds", [0.4, 1.0, 1.7])
def test_frames_are_those_of_transformers(mels: int, seconds: float) -> None:
    from transformers import WhisperFeatureExtractor

    extract, wave = WhisperFeatureExtractor(feature_size=mels, chunk_length=1), clip(seconds)
    fits = {} if seconds <= 1 else {"truncation": False, "padding": "longest"}
    other = extract(wave.numpy(), sampling_rate=RATE, return_tensors="pt", **fits).input_features[0].T
    ours = replace(pair(0, 50, 80).ours, sound=replace(WHISPER, mels=mels))
    found, real = ours.frames(wave, RATE)
    assert_close(found, other, atol=1e-5, rtol=0)
    assert real == round(seconds * 100)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.4, 1.7])
def test_a_clip_is_transcribed_as_by_transformers(seconds: float) -> None:
    from transformers import WhisperFeatureExtractor

    (theirs, ours), wave = pair(1, 50, 80), clip(seconds)
    fits = {} if seconds <= 1 else {"truncation": False, "padding": "longest"}
    extract = WhisperFeatureExtractor(feature_size=80, chunk_length=1)
    features = extract(wave.numpy(), sampling_rate=RATE, return_tensors="pt", **fits).input_features[0].T
    found = ours.transcribe(wave, RATE)
    code = f"<|{found.language}|>"
    assert ID[code] == int(theirs.detect_language(features.mT[None], num_segment_frames=100))
    asked = {"language": code, "task": "transcribe"}
    whole = [written(theirs, features, 4, **asked)] if seconds <= 1 else []
    tokens = whole or [tokens for tokens, _, _ in expected(theirs, features, return_timestamps=True, **asked)]
    letters = [LETTERS[token] for part in tokens for token in part if token < len(LETTERS)]
    assert found.text == "".join(letters).strip() != ""
    assert "".join(one.text for one in found.segments).replace(" ", "") == found.text.replace(" ", "")
    assert found.to_dict()["segments"][0]["start"] == found.segments[0].start


def test_another_rate_is_heard_at_its_own() -> None:
    ours = pair(0, 50, 80).ours
    here, real = ours.frames(clip(0.5), RATE)
    there, also = ours.frames(clip(0.5, 8000), 8000)
    assert real == also == 50
    assert here.shape == there.shape == (100, 80)


@pytest.mark.slow
def test_from_a_waveform_to_text() -> None:
    ours = pair(1, 50, 80).ours
    again = Transcriber.of(ours.model, words(), SETTINGS, window=100)
    found = again.transcribe(clip(1.2), RATE, TranscriptionOptions("en"))
    assert found == ours.transcribe(clip(1.2), RATE, TranscriptionOptions("en"))
    assert found.language == "en"
    assert PUBLISHED == 3000


def test_times_need_not_be_told_where_a_clip_fits_a_window() -> None:
    ours = pair(1, 50, 80).ours
    untimed, timed = (
        ours.transcribe(clip(0.5), RATE, TranscriptionOptions("en", timed=timed)) for timed in (False, True)
    )
    assert [(one.start, one.end) for one in untimed.segments] == [(0.0, 0.5)]
    assert timed.segments[0].tokens[0] >= FIRST_TIME


def test_as_many_tokens_as_are_asked_for() -> None:
    ours = pair(1, 50, 80).ours
    assert len(ours.transcribe(clip(0.5), RATE, TranscriptionOptions("en", most=3)).segments[0].tokens) <= 3


# ---- what it is told, and what it may not write


@pytest.mark.slow
def test_a_model_of_english_is_told_neither_language_nor_task() -> None:
    whole: Pair = pair(0)
    marks = marks_of(words(), multilingual=False)
    english = replace(whole.ours, marks=marks)
    features = frames(0, WINDOW)
    with torch.inference_mode():
        assert english.language(english.hear(features, 0)) is None
    assert marks.prompt(None, "transcribe", timed=True) == [ID["<|startoftranscript|>"]]
    assert marks.prompt("en", "transcribe", timed=False) == [ID["<|startoftranscript|>"], ID["<|notimestamps|>"]]
    theirs = whole.theirs
    kept = theirs.generation_config
    try:
        theirs.generation_config = deepcopy(kept)
        theirs.generation_config.is_multilingual = False
        del theirs.generation_config.lang_to_id
        [found] = heard(english, features, TranscriptionOptions())
        assert list(found.tokens) == written(theirs, features, 2)
    finally:
        theirs.generation_config = kept


def test_where_no_file_bars_anything_openai_does() -> None:
    ours = Transcriber.of(pair(0).ours.model, words(), None, WINDOW)
    asked = ("startoftranscript", "translate", "transcribe", "startoflm", "startofprev", "nospeech")
    assert {ID[f"<|{mark}|>"] for mark in asked} <= set(ours.rules.never)
    assert {ID["<|notimestamps|>"], ID["<|en|>"]}.isdisjoint(ours.rules.never)
    assert ours.rules.not_first == (LETTERS.index(" "), ID["<|endoftext|>"])


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (TranscriptionOptions("dee"), r"knows no language 'dee'; allowed: en, de, fr; did you mean 'de'"),
        (TranscriptionOptions("de", task="transcripe"), r"no task 'transcripe'.*did you mean 'transcribe'"),
    ],
)
def test_wishes_that_cannot_be_are_told(wish: TranscriptionOptions, said: str) -> None:
    with pytest.raises(UserError, match=said):
        pair(0, 50, 80).ours.transcribe(clip(0.3), RATE, wish)


@pytest.mark.parametrize(
    "wave", [torch.zeros(2, 500), torch.zeros(500, dtype=torch.int16), torch.zeros(0)], ids=["stereo", "int16", "empty"]
)
def test_clips_that_cannot_be_are_told(wave: Tensor) -> None:
    with pytest.raises(UserError, match=r"a clip of .*; allowed: N numbers from −1 to 1, of one channel"):
        pair(0, 50, 80).ours.transcribe(wave, RATE)


def test_a_model_without_times_is_told() -> None:
    ours = replace(pair(0).ours, window=WINDOW + 2)
    with pytest.raises(UserError, match=r"has 62 tokens, and the times of a window end at number 62; cut the clip"):
        heard(ours, frames(0, WINDOW + 4), TranscriptionOptions("de"))


def test_english_cannot_be_asked_for_another_language() -> None:
    marks = marks_of(words(), multilingual=False)
    with pytest.raises(UserError, match=r"knows English alone was asked for de, transcribe"):
        marks.prompt("de", "transcribe", timed=True)
