"""`headway inspect` on sounds and images of which something is said: Whispers, CTC, decoders, captions, hidden parts.

What is computed here is computed once more, row by row, by calling the models as anybody would.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from headway.errors import UserError
from headway.evaluation import EvalQuery
from headway.inspect import cka, direction, probe, sae
from headway.inspect.activations import layer_means, samples_in
from headway.inspect.loss_batches import LossBatch, collect, equal_length_batches, loss_source, mean_loss
from headway.inspect.steering import Steering
from headway.model import Model
from headway.nn.trace import record
from headway.nn.trunk import EncoderDecoder
from headway.tasks.captioning import WritesAboutMedia
from headway.tasks.ctc_speech import CTC
from headway.tasks.results import TextPrediction
from headway.tasks.whisper import WhisperTranscription
from tests.look.readers import READERS, loaded

RATE = 16_000
WINDOW = 0.2  # seconds, of the small Whisper
TEXTS = ["the cat", "a dog", "on", "red mat", "dog ran"]  # short enough for as many tokens of sound


def write_sound(path: Path, tone: float, seconds: float, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).normal(0, 0.02, round(seconds * RATE))
    soundfile.write(path, 0.5 * np.sin(np.arange(len(noise)) * 2 * np.pi * tone / RATE) + noise, RATE)
    return path


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Low and high tones, shorter and longer than a window."""
    place = tmp_path_factory.mktemp("tones")
    for label, tone in (("high", 3000.0), ("low", 300.0)):
        for at in range(8):
            write_sound(place / label / f"{label}_{at}.wav", tone, 0.08 + 0.05 * at, at)
    return place


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sounds with transcripts, none longer than a window, some equally long."""
    place = tmp_path_factory.mktemp("speech")
    lines = list[str]()
    for at in range(24):
        write_sound(place / f"{at}.wav", 200.0 + 50 * at, 0.19 if at % 2 else 0.2, at)
        lines.append(f"{at}.wav\t{TEXTS[at % len(TEXTS)] if at % 2 else 'cat'}\n")
    (place / "transcripts.tsv").write_text("file\ttranscript\n" + "".join(lines))
    return place


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with two captions each."""
    place, draw = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    lines = list[str]()
    for at in range(24):
        Image.fromarray(draw.integers(0, 255, (20, 28, 3), np.uint8)).save(place / f"{at}.png")
        lines += [f"{at}.png\t{text}\n" for text in (TEXTS[at % len(TEXTS)], "red house")]
    (place / "captions.tsv").write_text("file\tcaption\n" + "".join(lines))
    return place


def whisper() -> tuple[nn.Module, WhisperTranscription]:
    task = loaded("whisper").task
    assert isinstance(task, WhisperTranscription)
    return loaded("whisper").model, task


def mean_of_windows(file: Path) -> Tensor:
    """The mean of the encoder's last layer over the part of a file that is not silence put behind it, C."""
    model, task = whisper()
    ear = task.transcriber(model)
    frames, real = ear.frames(torch.from_numpy(soundfile.read(file, dtype="float32")[0]), RATE)
    parts = list[Tensor]()
    for at in range(0, real, ear.window):
        with record(model, "encoder.0.out") as trace, torch.no_grad():
            ear.hear(frames, at)
        shown = trace["encoder.0.out"]
        assert isinstance(shown, Tensor)
        parts.append(shown[0, : -(-min(ear.window, real - at) // 2)])
    return torch.cat(parts).mean(0)


@pytest.mark.slow
def test_a_whisper_holds_all_windows_of_a_sound_and_no_silence(classes: Path) -> None:
    found = layer_means(loaded("whisper"), samples_in(classes))
    assert list(found) == ["encoder.embed.out", "encoder.0.out"]
    files = sorted(classes.rglob("*.wav"))
    assert max(soundfile.info(file).duration for file in files) > 2 * WINDOW
    expected = torch.stack([mean_of_windows(file) for file in files])
    torch.testing.assert_close(found["encoder.0.out"], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["whisper", "conformer, decoder", "conformer, ctc", "wav2vec2, ctc"])
def test_classes_of_sounds_are_read_off_layers(name: str, classes: Path) -> None:
    options: dict[str, Any] = {"most": 100}
    found = probe(loaded(name), classes, **options).to_dict()
    assert (found["classes"], found["learned"], found["held"]) == (["high", "low"], 12, 4)
    assert max(layer["accuracy"] for layer in found["layers"]) == 1.0
    named = probe(loaded(name), classes, **options, label_from="([a-z]+)_").to_dict()
    assert named["layers"] == found["layers"]


def talkative() -> Model:
    """A Whisper with weights so large that it writes something."""
    found = READERS["whisper"].make()
    torch.manual_seed(0)
    for parameter in found.model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.5)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["whisper", "conformer, decoder"])
def test_a_direction_between_sounds(name: str, classes: Path) -> None:
    file, model = str(classes / "low" / "low_1.wav"), talkative() if name == "whisper" else loaded(name)
    move = [Steering(file, by, "encoder.0") for by in (0.0, 20.0)]
    still, moved = (direction(model, classes / "high", classes / "low", move=one) for one in move)
    assert max(way.accuracy for way in still.layers.values()) == 1.0
    assert still.moved is not None
    assert moved.moved is not None
    assert still.moved.before == moved.moved.before == model.predict(file)
    # torch decodes what is edited, and the native step what is not: probabilities differ by their rounding
    assert still.moved.after.output == still.moved.before.output
    if isinstance(still.moved.after, TextPrediction):
        (after,), (before,) = still.moved.after.hypotheses, still.moved.before.hypotheses
        assert after.tokens == before.tokens
        assert after.logprobs == pytest.approx(before.logprobs, rel=1e-5)
    assert moved.moved.after.output != moved.moved.before.output


@pytest.mark.slow
def test_layers_of_two_models_that_hear_are_compared(classes: Path) -> None:
    found = cka(loaded("whisper"), lambda: loaded("conformer, ctc"), classes)
    assert (found.rows, found.columns) == (["encoder.embed.out", "encoder.0.out"], ["embed.out", "0.out", "1.out"])
    assert all(0 < value <= 1 for row in found.values for value in row)
    own = cka(loaded("whisper"), None, classes)
    assert [own.values[at][at] for at in range(2)] == pytest.approx([1.0, 1.0])


# ---- losses


def calls_of(name: str, data: Path, site: str) -> list[LossBatch]:
    source = loss_source(loaded(name), EvalQuery.of(data))
    assert source.target is not None
    return [source.batch(some, site) for some in equal_length_batches(source.rows())]


def lines_of(folder: Path) -> list[tuple[str, str]]:
    """Files and texts; of several texts about a file, the first."""
    [table] = folder.glob("*.tsv")
    found: dict[str, str] = {}
    for line in table.read_text().splitlines()[1:]:
        name, text = line.split("\t")
        found.setdefault(str(folder / name), text)
    return list(found.items())


@pytest.mark.slow
def test_the_loss_of_a_whisper_is_that_of_the_transcripts(speech: Path) -> None:
    model, task = whisper()
    ear, total, count = task.transcriber(model), 0.0, 0
    for file, text in lines_of(speech):
        wave = torch.from_numpy(soundfile.read(file, dtype="float32")[0])
        frames, _ = ear.frames(wave, RATE)
        language = ear.transcribe(wave, RATE).language
        prompt = ear.marks.prompt(language, "transcribe", False)
        ids = torch.tensor([[*prompt, *task.tokenizer.encode(f" {text}"), ear.marks.end]])
        with torch.no_grad():
            logits = model(frames[None, : ear.window], ids[:, :-1])[0, len(prompt) - 1 :]
        wanted = ids[0, len(prompt) :]
        total, count = total + float(F.cross_entropy(logits, wanted, reduction="sum")), count + len(wanted)
    for site in ("encoder.0.out", "decoder.1.out"):
        calls = calls_of("whisper", speech, site)
        assert sum(call.targets for call in calls) == count
        assert mean_loss(calls) == pytest.approx(total / count, rel=1e-4)
    rows = [row for call in calls_of("whisper", speech, "decoder.1.out") for row in call.rows]
    assert {task.tokenizer.decode(row.ids).strip() for row in rows} == {text for _, text in lines_of(speech)}


@pytest.mark.slow
def test_the_loss_of_symbols_is_that_of_all_ways_to_say_them(speech: Path) -> None:
    model, task = loaded("conformer, ctc").model, loaded("conformer, ctc").task
    assert isinstance(task, CTC)
    total, count = 0.0, 0
    for file, text in lines_of(speech):
        wanted = torch.tensor([[1 + id for id in task.words().plain(text)]])
        with torch.no_grad():
            found = model(*task.read(model, [file])).transpose(0, 1)  # T 1 V
        lengths = torch.tensor([found.shape[0]]), torch.tensor([wanted.shape[1]])
        total += float(F.ctc_loss(found, wanted, *lengths, reduction="sum"))
        count += wanted.shape[1]
    assert mean_loss(calls_of("conformer, ctc", speech, "0.out")) == pytest.approx(total / count, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("conformer, decoder", "speech"),
        ("captioner, vit", "pictures"),
        ("captioner, soft", "pictures"),
        ("captioner, hard", "pictures"),
    ],
)
def test_the_loss_of_a_text_about_something_is_that_of_its_words(
    name: str, data: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(data)
    model, task = loaded(name).model, loaded(name).task
    assert isinstance(model, EncoderDecoder)
    assert isinstance(task, WritesAboutMedia)
    words = task.words()
    total, count = 0.0, 0
    for file, text in lines_of(folder):
        ids = torch.tensor([[words.bos, *words.encode(text)]])
        with torch.no_grad():
            logits = model(task.read(model, [file]).inputs, ids[:, :-1])[0]
        total += float(F.cross_entropy(logits, ids[0, 1:], reduction="sum"))
        count += ids.shape[1] - 1
    site = "decoder.1.out" if name == "captioner, vit" else "decoder.0.out" if data == "speech" else "encoder.embed.out"
    calls = calls_of(name, folder, site)
    assert sum(call.targets for call in calls) == count
    assert mean_loss(calls) == pytest.approx(total / count, rel=1e-4)


@pytest.mark.parametrize("name", ["mae", "simmim"])
def test_the_loss_of_hidden_parts_is_that_of_the_model(name: str, pictures: Path) -> None:
    calls, again = (calls_of(name, pictures, "encoder.1.out" if name == "mae" else "encoder.0.1.out") for _ in range(2))
    assert sum(call.targets for call in calls) == 24
    assert mean_loss(calls) == mean_loss(again)  # the same parts are hidden
    assert mean_loss(calls) > 0


# ---- dictionaries


def learned(name: str, data: Path, site: str) -> dict[str, Any]:
    return sae(loaded(name), data, site, top=3, steps=20, atoms=24, vectors=300).to_dict()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "site", "per"),
    [
        ("whisper", "speech", "encoder.0.out", "token"),
        ("whisper", "speech", "decoder.0.cross.heads", "token"),
        ("conformer, ctc", "speech", "0.out", "symbol"),
        ("conformer, decoder", "speech", "decoder.0.out", "token"),
        ("captioner, vit", "pictures", "encoder.0.out", "token"),
        ("captioner, vit", "pictures", "decoder.0.out", "token"),
        ("mae", "pictures", "encoder.1.out", "image"),
        ("simmim", "pictures", "encoder.0.1.out", "image"),
    ],
)
def test_what_a_dictionary_loses_is_told(
    name: str, data: str, site: str, per: str, request: pytest.FixtureRequest
) -> None:
    found = learned(name, request.getfixturevalue(data), site)
    losses = found["loss"]
    assert losses["per"] == per
    values = [losses[what] for what in ("whole", "rebuilt", "mean", "zero")]
    assert len({round(value, 9) for value in values}) == 4
    assert all(place["code"] > 0 for atom in found["most_used"] for place in atom["places"])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "site"), [("whisper", "encoder.0.out"), ("conformer, ctc", "0.out")])
def test_sounds_of_which_nothing_is_said_are_read_alone(name: str, site: str, classes: Path) -> None:
    found = learned(name, classes, site)
    assert found["loss"] is None
    assert found["data"] == str(classes)
    assert found["vectors"]["learned"] > found["vectors"]["held"] > 0


def test_windows_of_a_long_sound_are_rows(classes: Path) -> None:
    source = loss_source(loaded("whisper"), EvalQuery.of(classes / "low"))
    names = [sample.name for sample in source.rows()]
    lasting = [soundfile.info(file).duration for file in sorted((classes / "low").iterdir())]
    assert len(names) == sum(int(-(-(seconds - 1e-9) // WINDOW)) for seconds in lasting)
    assert names[-1] == "low_7.wav from 0.4 s"
    found = collect(loaded("whisper").model, "encoder.0.out", source, 10_000)
    assert len(found.vectors) == 10 * len(names)  # tokens of a window


# ---- mistakes


def refused(do: Callable[[], object]) -> str:
    with pytest.raises(UserError) as found:
        do()
    return str(found.value)


def test_mistakes_are_told_in_a_sentence(classes: Path, speech: Path, pictures: Path, tmp_path: Path) -> None:
    write_sound(tmp_path / "long.wav", 300, 0.5)
    write_sound(tmp_path / "short.wav", 300, 0.1)
    table = tmp_path / "transcripts.tsv"
    table.write_text("file\ttranscript\nlong.wav\tthe cat sat on\nshort.wav\ta mat and on and\n")
    said: dict[str, Callable[[], object]] = {
        "'decoder.0.out' shows nothing where sounds are read": lambda: learned("whisper", classes, "decoder.0.out"),
        "or another site=, such as encoder.1.out": lambda: learned("conformer, decoder", classes, "decoder.0.out"),
        "long.wav lasts 0.5 seconds, and the model hears 0.2 at once": lambda: learned(
            "whisper", tmp_path, "encoder.0.out"
        ),
        "a probe needs classes": lambda: probe(loaded("whisper"), speech, most=100),
        "the model reads sounds, and": lambda: cka(loaded("whisper"), None, pictures / "captions.tsv"),
        "the model reads images, and": lambda: cka(loaded("vit"), None, speech / "transcripts.tsv"),
        "writes what is said in a sound, but": lambda: learned("whisper", pictures, "encoder.0.out"),
    }
    for words, do in said.items():
        assert words in refused(do)
