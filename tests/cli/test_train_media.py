"""`headway train`, `run` and `eval` on images, sounds and numbers, as a person meets them."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from headway.training.recipe_sources import from_yaml
from tests.cli.command import Place, made_place

SHORT = ["--train.steps", "4", "--train.threads", "1"]
SMALL = ["--model.dim", "16", "--model.heads", "2", "--model.layers", "1"]
HEARING = [
    *SMALL,
    "--preset",
    "conformer-nano",
    "--model.hidden",
    "16",
    "--model.channels",
    "4",
    "--train.batch",
    "400",
]

OWN = {
    "images": (["photos", "--preset", "vit-nano", *SMALL], "images: ", "photos/dark/0.png"),
    "chosen by itself": (["photos"], "images: ", "photos/light/1.png"),
    "sounds": (["sounds", "--data.label-from", r"(\d)", *HEARING], "sounds: ", "sounds/0_1_1-0.wav"),
    "speech": (
        ["sounds", "--task", "speech", "--data.label-from", r"(\d_\d_\d)", "--model.factor", "2", *HEARING],
        "speech: ",
        "sounds/0_1_1-0.wav",
    ),
    "series": (["series.csv", *SMALL], "series: ", "0.5; 0.25; 1; 2; 3; 4"),
    "sets": (["sets.jsonl", *SMALL], "sets: ", "0.5 1; 2 3"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = made_place(tmp_path_factory.mktemp("place"))
    sound = next(place.folder.glob("sounds/*-0.wav"))
    sound.rename(place.folder / "sounds" / "0_1_1-0.wav")
    return place


@pytest.mark.long
@pytest.mark.parametrize("name", OWN)
def test_one_command_trains_and_what_it_leaves_answers(place: Place, name: str) -> None:
    words, task, asked = OWN[name]
    out = f"own {name}"
    done = place("train", *words, *SHORT, "--out", out)
    assert (done.code, done.err) == (0, "")
    assert f"  task    {task}" in done.out
    folder = place.folder / out
    assert {"config.json", "model.safetensors", "preprocessor_config.json", "report.html", "README.md"} <= {
        file.name for file in folder.iterdir()
    }
    told = place("run", out, asked, "--json")
    assert (told.code, told.err) == (0, "")
    answer = json.loads(told.out)
    assert answer["input"] == asked
    if name != "speech":
        assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-5)


@pytest.mark.long
def test_a_model_of_images_is_measured_and_refuses_what_it_does_not_read(place: Place) -> None:
    assert place("train", "photos", "--preset", "vit-nano", *SMALL, *SHORT, "--out", "seen").code == 0
    found = json.loads(place("eval", "seen", "photos", "--json").out)
    assert found["task"] == "images"
    assert found["count"] == 40
    assert set(found["scores"]) == {"accuracy", "f1"}
    refused = place("eval", "seen", "pairs.tsv")
    assert refused.code == 2
    assert "names the class of an image" in refused.err
    for given, said in (("nothing.png", "does not exist"), ("pairs.tsv", "is no image of a known format")):
        refused = place("run", "seen", given)
        assert (refused.code, refused.out) == (2, "")
        assert said in refused.err


@pytest.mark.long
def test_augmentation_that_is_not_known_is_told_with_what_is(place: Place) -> None:
    refused = place("train", "photos", "--data.augment", "flop", "--dry-run")
    assert refused.code == 2
    assert "flop" in refused.err
    assert "flip" in refused.err


@pytest.mark.long
def test_an_objective_that_the_data_does_not_have_is_told(place: Place) -> None:
    refused = place("train", "series.csv", "--objective", "masked", "--dry-run")
    assert refused.code == 2
    assert "--objective masked has no meaning for series" in refused.err


@pytest.mark.long
def test_numbers_without_labels_are_foreseen_or_said_to_have_one(place: Place) -> None:
    rows = "".join(f"{at},{at + 1},{at * 7 % 5}\n" for at in range(20))
    (place.folder / "prices.csv").write_text(f"open,high,low\n{rows}", encoding="utf-8")
    done = place("train", "prices.csv", *SMALL, *SHORT, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert "prices.csv: 20 lines of 3 numbers (open, high, low; the first line is a header), so forecasting" in done.out
    assert "classification of series" in place("train", "prices.csv", "--task", "series", *SHORT, "--dry-run").out


TEST = ["--data.test-from", "_.-.$"]  # ten recordings of thirty
DIGITS = ["sounds", "--data.label-from", r"(\d)"]


@pytest.mark.long
def test_what_is_kept_for_a_test_is_neither_learned_from_nor_opened(place: Place) -> None:
    bad = place.folder / "sounds" / "1_1_1-5.wav"
    before = bad.read_bytes() if bad.exists() else None
    bad.write_bytes(b"RIFF, and nothing more")
    try:
        assert "1_1_1-5.wav" in place("train", *DIGITS, *HEARING, *SHORT, "--dry-run").said
        done = place("train", *DIGITS, *TEST, *HEARING, *SHORT, "--data.held-from", "_.-1.$", "--dry-run")
        assert (done.code, done.err) == (0, "")
        count = len(list((place.folder / "sounds").glob("*-?.wav")))
        assert f"; {count} files kept for a test, by '_.-.$' in their names" in done.out
        assert "  task    sounds: 10 rows, " in done.out
    finally:
        bad.unlink() if before is None else bad.write_bytes(before)


@pytest.mark.long
def test_a_test_is_measured_once_by_its_names(place: Place) -> None:
    trained = place("train", *DIGITS, *TEST, *HEARING, *SHORT, "--out", "tested")
    assert (trained.code, trained.err) == (0, "")
    assert from_yaml(place.folder / "tested" / "recipe.yaml").data.test_from == "_.-.$"
    for option in ("--test-from", "--held-from"):
        found = json.loads(place("eval", "tested", "sounds", "--label-from", r"(\d)", option, "_.-.$", "--json").out)
        assert (found["task"], found["count"]) == ("sounds", 10)
    refused = place("eval", "tested", "sounds", "--label-from", r"(\d)", "--test-from", "bob").said
    assert "--test-from 'bob' finds none of the names" in refused


@pytest.mark.long
def test_a_check_compares_what_is_learned_with_the_test(place: Place) -> None:
    same = place.folder / "sounds" / "0_0_0-30.wav"
    same.write_bytes((place.folder / "sounds" / "0_1_1-0.wav").read_bytes())
    words = ["check", "sounds", "--label-from", r"(\d)", "--test-from", "_.-.$"]
    try:
        found = place(*words)
        assert found.code == 2
        assert "in training too, at sounds/0_0_0-30.wav" in found.out
    finally:
        same.unlink()
    assert "are both given" in place(*words, "--validation", "sounds").said


@pytest.mark.long
def test_patterns_for_names_need_files(place: Place) -> None:
    assert "--data.test-from" in place("train", "dates", *TEST, "--dry-run").said
    assert "only files of images or sounds" in place("train", "pairs.tsv", *TEST, "--dry-run").said
    assert "is no pattern" in place("train", *DIGITS, "--data.test-from", "(", "--dry-run").said


@pytest.mark.long
def test_a_bad_image_is_named(place: Place) -> None:
    bad = place.folder / "photos" / "dark" / "bad.png"
    bad.write_bytes(b"\x89PNG\r\n\x1a\nnothing more")
    try:
        refused = place("train", "photos", "--dry-run")
        assert refused.code == 2
        assert "bad.png" in refused.err
        done = place("train", "photos", "--skip-bad", "--preset", "vit-nano", *SMALL, *SHORT, "--dry-run")
        assert done.code == 0, done.err
        assert "1" in done.out
    finally:
        bad.unlink()


@pytest.mark.long
def test_what_is_left_out_of_validation_is_told(place: Place) -> None:
    for at in range(4):
        kind = place.folder / "shown" / ("dark", "light")[at % 2]
        kind.mkdir(parents=True, exist_ok=True)
        (kind / f"{at}.png").write_bytes((place.folder / "photos" / kind.name / f"{at}.png").read_bytes())
    (place.folder / "shown" / "dark" / "bad.png").write_text("no image")
    words = [
        "train",
        "photos",
        "--validation",
        "shown",
        "--skip-bad",
        "--preset",
        "vit-nano",
        *SMALL,
        *SHORT,
        "--dry-run",
    ]
    done = place(*words)
    assert (done.code, done.err) == (0, "")
    assert "; of the validation data: 1 record left out (unreadable image 1)" in done.out


@pytest.mark.long
def test_names_that_are_no_utf8_are_trained_on(place: Place) -> None:
    for at in range(4):
        kind = place.folder / "odd" / ("dark", "light")[at % 2]
        kind.mkdir(parents=True, exist_ok=True)
        name = os.path.join(os.fsencode(kind), f"caf{at}".encode() + b"\xe9.png")
        with open(name, "wb") as file:
            file.write((place.folder / "photos" / kind.name / f"{at}.png").read_bytes())
    done = place("train", "odd", "--preset", "vit-nano", *SMALL, *SHORT, "--data.held-out", "0", "--out", "odd-model")
    assert (done.code, done.err) == (0, "")
    told = json.loads((place.folder / "odd-model" / "data.json").read_text(encoding="utf-8"))
    assert "caf0\udce9.png" in json.dumps(told, ensure_ascii=False)


@pytest.mark.long
def test_a_measurement_says_how_to_see_what_is_wrong(place: Place) -> None:
    assert place("train", "photos", "--preset", "vit-nano", *SMALL, *SHORT, "--out", "for eval").code == 0
    (place.folder / "marred").mkdir()
    for kind in ("dark", "light"):
        (place.folder / "marred" / kind).mkdir()
        (place.folder / "marred" / kind / "0.png").write_text("no image")
    refused = place("eval", "for eval", "marred")
    assert refused.code == 2
    assert refused.err.endswith("see headway check marred\n")


@pytest.mark.long
def test_who_asks_for_what_is_not_there_is_told_so(place: Place) -> None:
    for words in (["nowhere", "--task", "images"], ["photos", "--validation", "nowhere"]):
        assert "nowhere does not exist" in place("train", *words, "--dry-run").err
    (place.folder / "hollow").mkdir(exist_ok=True)
    assert "the folder hollow is empty" in place("check", "hollow").err
    assert "did you mean 'photos/../photos'" in place("check", "photos/../photo").err


@pytest.mark.long
@pytest.mark.parametrize("size", ["dim 0", "layers -1", "patch 0", "hidden -1", "image 0"])
def test_sizes_that_are_none_are_told(place: Place, size: str) -> None:
    name, value = size.split()
    refused = place("train", "photos", "--preset", "vit-nano", f"--model.{name}", value, "--dry-run")
    assert refused.code == 2
    assert f"--model.{name} {value}; allowed: whole numbers of 1 or more" in refused.err


@pytest.mark.long
def test_sizes_of_stages_may_stand_between_commas(place: Place) -> None:
    done = place("train", "photos", "--preset", "swin-nano", "--model.layers", "1,1", *SHORT, "--dry-run")
    assert (done.code, done.err) == (0, "")


@pytest.mark.long
def test_a_tip_mends_the_value_and_not_the_option(place: Place) -> None:
    refused = place("train", "photos", "--data.augment", "specaugment", "--dry-run")
    assert "tip: headway train photos --data.augment randaugment --dry-run" in refused.err


@pytest.mark.long
def test_what_hears_classes_learns_to_write_letters(place: Place) -> None:
    heard = ["sounds", "--data.label-from", r"(\d)", *HEARING, *SHORT, "--out", "heard"]
    assert place("train", *heard).code == 0
    letters = ["sounds", "--task", "speech", "--data.label-from", r"(\d_\d_\d)", "--model.factor", "2"]
    done = place("train", *letters, "--from", "heard", *SHORT, "--out", "spelled")
    assert (done.code, done.err) == (0, "")
    assert "  reuses  " in done.out
    assert "new: " in done.out


@pytest.mark.long
def test_a_captioner_has_vectors_and_does_not_write_from_texts(place: Place) -> None:
    small = ["--model.widths", "8,8", "--model.dim", "8", "--model.hidden", "12", "--model.align", "8"]
    words = ["told", "--preset", "captioner-small", *small, "--model.image", "8", *SHORT, "--out", "telling"]
    assert place("train", *words).code == 0
    vector = [float(x) for x in place("run", "telling", "told/0.png", "--embed").out.split()]
    assert sum(x * x for x in vector) == pytest.approx(1, abs=1e-3)
    refused = place("generate", "telling", "told/0.png")
    assert refused.code == 2
    assert "does not write from texts; try headway run telling" in refused.err
    card = (place.folder / "telling" / "README.md").read_text()
    assert "A model for captioning" in card
    assert "trained with headway on told, " in card


@pytest.mark.long
def test_images_that_moved_are_found_where_they_are(place: Place) -> None:
    """Rows that are kept for all runs on the same data name their files."""
    words = ["--preset", "vit-nano", *SMALL, *SHORT]
    first = place.folder / "album"
    shutil.copytree(place.folder / "photos", first)
    assert place("train", "album", *words, "--out", "of album").code == 0
    first.rename(place.folder / "shelf")
    done = place("train", "shelf", *words, "--out", "of shelf")
    assert (done.code, done.err) == (0, "")
