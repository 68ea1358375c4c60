"""`headway train`, `run` and `eval` on images with captions, and on speech that a decoder writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Place, made_place

FEW = ["--train.threads", "1", "--train.batch", "8", "--data.tokenizer", "words", "--model.image", "8"]
SHORT = ["--train.steps", "4", *FEW]
GRID = ["--model.widths", "[8, 8]", "--model.dim", "8", "--model.hidden", "12", "--model.align", "8"]
SMALL = ["--model.dim", "16", "--model.heads", "2", "--model.layers", "1"]
TOWERS = [*SMALL, "--model.patch", "4", "--model.image-dim", "16", "--model.image-heads", "2"]
TOWERS += ["--model.image-layers", "1", "--model.width", "8"]
MODELS = {
    "chosen by itself": ["--model.widths", "[8, 8]"],
    "soft": ["--preset", "captioner-small", *GRID],
    "hard": ["--preset", "captioner-small-hard", *GRID],
    "transformer": ["--preset", "vit-captioner-small", *SMALL, "--model.patch", "4", "--model.decoder-layers", "1"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return made_place(tmp_path_factory.mktemp("place"))


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_captions_are_learned_written_and_measured(place: Place, name: str) -> None:
    done = place("train", "told", *MODELS[name], *SHORT, "--data.held-out", "0.3", "--out", name)
    assert (done.code, done.err) == (0, "")
    assert "  task    captions, text: " in done.out
    assert "cider" in done.out
    page = (place.folder / name / "report.html").read_text(encoding="utf-8")
    assert "Held-out images" in page
    assert "where it looked" in page
    for how in ([], ["--beam", "3"])[: 1 if name == "chosen by itself" else 2]:
        told = place("run", name, "told/0.png", "told/1.png", *how, "--json")
        assert told.code == 0
        assert all("of 2 answers stopped at the limit of" in line for line in told.err.splitlines())
        assert [json.loads(line)["input"] for line in told.out.splitlines()] == ["told/0.png", "told/1.png"]
        found = json.loads(place("eval", name, "told", *how, "--json").out)
        assert (found["task"], found["count"]) == ("captions", 40)
        assert set(found["scores"]) == {"cider", "bleu_1", "bleu_2", "bleu_3", "bleu_4"}


@pytest.mark.long
def test_texts_and_images_are_found_by_each_other(place: Place) -> None:
    """Three colours are soon told apart, and no image is of two."""
    words = ["--objective", "contrastive", "--preset", "clip-nano", *TOWERS, *FEW, "--train.rate", "0.01"]
    done = place("train", "told", *words, "--train.steps", "80", "--out", "towers")
    assert (done.code, done.err) == (0, "")
    assert "  task    captions, contrastive: " in done.out
    told = json.loads(place("run", "towers", "told/0.png", "a green square", "a red square", "--json").out)
    assert (told["input"], told["output"]) == ("told/0.png", "a red square")
    assert sum(told["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    found = json.loads(place("eval", "towers", "told", "--json").out)
    assert {f"{there}_{k}" for there in ("texts", "images") for k in (1, 5, 10)} < set(found["scores"])
    assert found["scores"]["images_10"] > 2 * found["chance"]["images_10"]
    assert len(json.loads(place("run", "towers", "told/0.png", "--embed", "--json").out)["output"]) == 8
    again = place("train", "told", "--from", "towers", "--train.steps", "1", "--train.threads", "1", "--out", "more")
    assert (again.code, again.err) == (0, "")
    assert "  task    captions, contrastive: " in again.out
    refused = place("eval", "towers", "told", "--beam", "2").said
    assert "finds the texts that belong to an image and has no use for --beam" in refused
    assert "does not exist" in place("run", "towers", "no.png", "a text").said


@pytest.mark.long
def test_speech_is_written_by_a_decoder_where_that_is_asked_for(place: Place) -> None:
    data = ["sounds", "--task", "speech", "--data.label-from", r"(\d_\d_\d)"]
    model = ["--preset", "conformer-nano", *SMALL, "--model.hidden", "16", "--model.channels", "4"]
    steps = ["--model.decoder-layers", "1", "--train.steps", "4", "--train.threads", "1", "--train.batch", "400"]
    done = place("train", *data, "--objective", "text", *model, *steps, "--out", "dictated")
    assert (done.code, done.err) == (0, "")
    assert "  task    speech, text: " in done.out
    sound = next((place.folder / "sounds").glob("*.wav")).relative_to(place.folder)
    told = json.loads(place("run", "dictated", str(sound), "--beam", "2", "--json").out)
    assert told["input"] == str(sound)
    words = json.loads((place.folder / "dictated" / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert {word for word in words if len(word) == 1} == set("01 ")  # the letters of the transcripts, and no others


@pytest.fixture
def astray(place: Place) -> Iterator[Path]:
    """Captions, one of them of an image that is not there."""
    file = place.folder / "told" / "captions.jsonl"
    before = file.read_bytes()
    file.write_bytes(before + b'{"image": "gone.png", "captions": ["a square"]}\n')
    yield file
    file.write_bytes(before)


@pytest.mark.long
def test_a_caption_of_no_image_is_named_and_can_be_left_out(place: Place, astray: Path) -> None:
    refused = place("train", "told", *MODELS["soft"], "--dry-run").said
    assert "captions.jsonl:41" in refused
    assert "gone.png" in refused
    done = place("train", "told", *MODELS["soft"], *SHORT, "--skip-bad", "--dry-run")
    assert done.code == 0, done.err
    assert "--skip-bad: 1 " in done.out
