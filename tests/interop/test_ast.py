"""The Audio Spectrogram Transformer: folders both ways, its frames, and what is done with sounds.

Axes:  T frames   M mels   N samples
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from torch.testing import assert_close

from headway.cli.main import main
from headway.data.preprocess import FixedSoundPreprocess, read_preprocess, write_preprocess
from headway.errors import UserError
from headway.loading import load
from headway.nn.context import Context, PackedLengths
from headway.zoo import ast
from tests.interop.cases_ast import CASES
from tests.interop.parity import shaken

RATE = 16_000
LABELS = {"id2label": {0: "low", 1: "high"}, "label2id": {"low": 0, "high": 1}}


def tone(hertz: float, seconds: float = 0.5) -> np.ndarray:
    time = np.arange(int(RATE * seconds)) / RATE
    draw = np.random.default_rng(int(hertz))
    return (0.4 * np.sin(2 * np.pi * hertz * time) + 0.05 * draw.standard_normal(len(time))).astype(np.float32)


def extractor(**options: Any) -> Any:
    import transformers

    return transformers.ASTFeatureExtractor(num_mel_bins=10, max_length=14, **options)


@pytest.mark.parametrize("options", [{}, {"do_normalize": False}, {"max_length": 60, "num_mel_bins": 128}], ids=str)
def test_frames_are_transformers(options: dict[str, Any], tmp_path: Path) -> None:
    """Also of clips that are shorter than what a model reads, and where low mels hold no frequency."""
    theirs = extractor(**options) if "num_mel_bins" not in options else type(extractor())(**options)
    theirs.save_pretrained(tmp_path)
    ready = read_preprocess(tmp_path)
    assert isinstance(ready, FixedSoundPreprocess)
    for wave in (tone(440.0), tone(3000.0, 0.06)):
        expected = theirs(wave, sampling_rate=RATE, return_tensors="pt").input_values[0]
        found = ready.fit(ready.mel(torch.from_numpy(wave)[None])[0])
        assert_close(found, expected, atol=1e-4, rtol=1e-4)
    write_preprocess(ready, tmp_path)
    assert read_preprocess(tmp_path) == ready
    again = type(theirs).from_pretrained(tmp_path)
    assert_close(again(wave, sampling_rate=RATE, return_tensors="pt").input_values[0], expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_their_folder_is_read_and_ours_is_read_by_them(case: Any, tmp_path: Path) -> None:
    model = shaken(case.make()).eval()
    model.save_pretrained(tmp_path / "theirs")
    load(tmp_path / "theirs").save_hf(tmp_path / "ours")
    again = type(model).from_pretrained(tmp_path / "ours")
    for key, tensor in model.state_dict().items():
        assert_close(again.state_dict()[key], tensor, rtol=0, atol=0)


@pytest.mark.long
def test_sounds_are_classified_learned_and_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import transformers

    for name, hertz in (("low", 200.0), ("high", 3000.0)):
        (tmp_path / "sounds" / name).mkdir(parents=True)
        for at in range(8):
            soundfile.write(tmp_path / "sounds" / name / f"{at}.wav", tone(hertz + 10 * at), RATE)
    model = CASES[1].make().config
    torch.manual_seed(0)
    theirs = shaken(transformers.ASTForAudioClassification(transformers.ASTConfig(**model.to_dict() | LABELS))).eval()
    folder, clip = tmp_path / "theirs", tmp_path / "sounds" / "low" / "0.wav"
    theirs.save_pretrained(folder)
    extractor().save_pretrained(folder)
    with torch.no_grad():
        out = theirs(**extractor()(tone(200.0), sampling_rate=RATE, return_tensors="pt")).logits[0].softmax(-1)
    assert main(["run", str(folder), str(clip), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["probabilities"]
    assert [said["low"], said["high"]] == pytest.approx(out.tolist(), abs=1e-3)  # the file has 16 bits
    learned = str(tmp_path / "learned")
    words = ["train", str(tmp_path / "sounds"), "--from", str(folder), "--out", learned, "--steps", "4"]
    assert main(words) == 0
    assert main(["eval", learned, str(tmp_path / "sounds")]) == 0
    assert main(["look", learned, str(clip), "--out", str(tmp_path / "page.html")]) == 0
    assert main(["convert", learned, str(tmp_path / "back"), "--to", "hf"]) == 0
    assert transformers.ASTForAudioClassification.from_pretrained(tmp_path / "back").config.id2label == {
        0: "high",
        1: "low",
    }


def small() -> Any:
    return ast.build(ast.Config(6, 8, 4, (2, 2), classes=3, dim=8, layers=1, heads=2)).eval()


def test_packed_clips_are_those_of_a_batch() -> None:
    model, x = small(), torch.randn(3, 8, 6)
    rows = PackedLengths.of([8, 8, 8])
    assert_close(model(rows.pack(x), Context(rows=rows)), model(x))
    assert_close(model(x[:1]), model(x)[:1])


def test_other_sizes_are_refused() -> None:
    with pytest.raises(UserError, match="spectrograms are 2×7×6; allowed: B 8 6, frames and features"):
        small()(torch.randn(2, 7, 6))
    with pytest.raises(UserError, match="8 frames and 3 features hold no patch of 4×4"):
        ast.build(ast.Config(3, 8, 4))
