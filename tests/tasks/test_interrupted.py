"""A call of Task.predict that nobody waits for ends before its next step, whatever the task and however it decodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from headway.generate.beam import Beam
from headway.generate.ctc_decoding import PrefixBeam
from headway.generate.request import InterruptedCall
from headway.generate.sampling import GREEDY, RandomSampler
from headway.generate.speculative import PromptLookup
from headway.loading import load
from headway.model import Model
from headway.tasks.generation import GenerationOptions
from tests.cli.folders import FOLDERS, TEXTS
from tests.tasks.test_predict_media import whisper_folder

BEFORE = Path(__file__).parent.parent / "fixtures" / "before"
WAYS: dict[str, Any] = {"greedy": GREEDY, "sampled": RandomSampler(seed=1), "beam": Beam(2)}
STEPS = 3


class LeavingClient:
    """Waits for so many steps."""

    def __init__(self, steps: int):
        self.steps, self.asked = steps, 0

    def __call__(self) -> None:
        self.asked += 1
        if self.asked > self.steps:
            raise InterruptedCall


def ends_when_nobody_waits(predict: Callable[[Any], object]) -> None:
    leaving, staying = LeavingClient(STEPS), LeavingClient(10**6)
    with pytest.raises(InterruptedCall):
        predict(leaving)
    assert leaving.asked == STEPS + 1
    predict(staying)
    assert staying.asked > STEPS + 1  # there was more to do


def predicted(model: Model, inputs: list[str], **how: Any) -> Callable[[Any], object]:
    def predict(interrupt: Any) -> object:
        options = GenerationOptions(interrupt=interrupt, **{"max_new_tokens": 12, **how})
        return list(model.task.predict(model.model, inputs, options))

    return predict


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["pairs", "narrow", "spans", "causal"])
def test_texts(name: str, way: str) -> None:
    ends_when_nobody_waits(predicted(FOLDERS[name](), TEXTS[:2], decoding=WAYS[way]))


def test_with_a_draft() -> None:
    ends_when_nobody_waits(predicted(FOLDERS["causal"](), TEXTS[:2], draft=PromptLookup(1, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["greedy", "beam"])
def test_speech_by_whisper(tmp_path: Path, way: str) -> None:
    whisper_folder(tmp_path / "ear")
    soundfile.write(tmp_path / "clip.wav", np.random.default_rng(0).normal(0, 0.1, 1600), 8000)
    ends_when_nobody_waits(predicted(load(tmp_path / "ear"), [str(tmp_path / "clip.wav")], decoding=WAYS[way]))


def test_speech_by_ctc() -> None:
    heard = torch.randn(1, 9, 5).log_softmax(-1)
    ends_when_nobody_waits(lambda interrupt: PrefixBeam(interrupt=interrupt)(heard))


def test_tables() -> None:
    model = load(BEFORE / "forecaster")
    names = model.task.column_names  # type: ignore[attr-defined]
    typed = "; ".join(" ".join([str(at)] * len(names)) for at in range(12))
    ends_when_nobody_waits(predicted(model, [typed]))
