"""Models of images, sounds and numbers in folders: what they answer when somebody names a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image

from headway.cli.main import main
from headway.data.preprocess import ImagePreprocess, NumberPreprocess
from headway.generate.transcribe import Transcriber
from headway.loading import load
from headway.model import Model
from headway.zoo import vectors, vit, whisper
from tests.generate.hearing import SETTINGS, STEPS, pair, words

READY = ImagePreprocess((8, 8), None, 3, (0.5,) * 3, (0.25,) * 3)
NAMES = {"id2label": {"0": "cat", "1": "dog", "2": "bird"}}


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    file = tmp_path / "picture.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 30, 3), np.uint8)).save(file)
    return file


@pytest.fixture
def seer(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = vit.Config(image=8, patch=4, classes=3, dim=16, layers=1, heads=2)
    model = vit.build(config).eval()
    torch.nn.init.normal_(model.head.out.weight)  # type: ignore[union-attr]
    Model(model, config, "vit", extra_config=NAMES, preprocess=READY).save(tmp_path / "seer")
    return tmp_path / "seer"


def test_an_image_is_named(seer: Path, picture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = load(seer).run(str(picture))
    assert list(answer["probabilities"]) == sorted(answer["probabilities"], key=lambda n: -answer["probabilities"][n])
    assert set(answer["probabilities"]) == {"cat", "dog", "bird"}
    assert answer["output"] == next(iter(answer["probabilities"]))
    assert main(["run", str(seer), str(picture), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer
    assert main(["run", str(seer), str(picture)]) == 0
    assert capsys.readouterr().out.startswith(f"{answer['output']}  {answer['output']} 0.")


def test_many_images_are_answered_as_one_by_one(seer: Path, picture: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.png"
    Image.new("L", (5, 9), 77).save(other)
    model = load(seer)
    files = [str(picture), str(other)] * 20
    together = [one.to_dict() for one in model.predict(files)]
    assert [one["input"] for one in together] == files
    for alone, one in zip([model.run(file) for file in files[:2]], together, strict=False):
        assert one["probabilities"] == pytest.approx(alone["probabilities"], abs=1e-5)


@pytest.mark.slow
def test_what_is_seen_can_be_had_as_a_vector(seer: Path, picture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(seer), str(picture), "--embed", "--json"]) == 0
    vector = json.loads(capsys.readouterr().out)["output"]
    assert len(vector) == 16
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("given", ["nothing.png", "seer/config.json"])
def test_what_is_no_image_is_told(seer: Path, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(seer), str(seer.parent / given)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert given in err
    assert "Traceback" not in err


def test_numbers_are_named(tmp_path: Path) -> None:
    config = vectors.Config(features=2, classes=3, dim=16, layers=1, heads=2, order="set")
    ready = NumberPreprocess((0.0, 1.0), (1.0, 2.0))
    Model(vectors.build(config), config, "vectors", extra_config=NAMES, preprocess=ready).save(tmp_path / "heap")
    loaded = load(tmp_path / "heap")
    assert loaded.preprocess == ready
    one, other = (loaded.run(told)["probabilities"] for told in ("1 2; 3 4; 5 6", "5 6; 1 2; 3 4"))
    assert one == pytest.approx(other, abs=1e-6)


def whisper_folder(folder: Path) -> Transcriber:
    """A Whisper in a folder, as it hears."""
    ear = pair(3).ours
    config = whisper.Config(
        vocab=ear.model.decoder.embed.token.num_embeddings,  # type: ignore[union-attr]
        mels=5,
        source_context=STEPS,
        context=24,
        dim=16,
        layers=1,
        decoder_layers=2,
        heads=2,
        decoder_heads=2,
        hidden=16,
        decoder_hidden=16,
    )
    Model(ear.model, config, "whisper", "whisper", SETTINGS, words()).save(folder)
    return ear


@pytest.mark.slow
def test_a_whisper_writes_what_it_hears(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ear = whisper_folder(tmp_path / "ear")
    soundfile.write(tmp_path / "clip.wav", np.random.default_rng(0).normal(0, 0.1, 1600), 8000)
    assert main(["run", str(tmp_path / "ear"), str(tmp_path / "clip.wav"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    wave, rate = soundfile.read(tmp_path / "clip.wav", dtype="float32")
    expected = ear.transcribe(torch.from_numpy(wave), rate)
    assert told["output"] == expected.text
    assert told["language"] == expected.language
    assert main(["run", str(tmp_path / "ear"), str(tmp_path / "clip.wav"), "--beam", "3"]) == 0
    assert capsys.readouterr().out.strip()
