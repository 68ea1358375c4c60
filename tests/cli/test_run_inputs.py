"""What `headway run` and `headway eval` are given: lines as they come, long texts, numbers, folders, broken files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pytest

from headway.cli.main import main
from headway.cli.standard_input import read_batches
from headway.data.preprocess import NumberPreprocess
from headway.errors import UserError
from headway.tasks.inputs import SeriesInput
from headway.tasks.media_classification import SeriesClassification
from headway.tasks.model_parts import named_classes
from headway.tasks.whisper import WhisperTranscription
from tests.cli.folders import CONTEXT, LABELS, encoder, sentences
from tests.data.files import idx, picture, png, put, wav
from tests.look.readers import built, loaded

Run = Callable[..., tuple[int, str, str]]
LONG = "the cat sat on the mat " * 10


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str | Path) -> tuple[int, str, str]:
        return main(list(map(str, words))), *capsys.readouterr()

    return call


# ---- lines


@contextmanager
def pipe() -> Iterator[tuple[TextIO, Callable[[bytes], object], Callable[[], None]]]:
    """A stream, what writes into it, and what ends it."""
    out, into = os.pipe()
    with os.fdopen(out, encoding="utf-8") as stream:
        yield stream, lambda data: os.write(into, data), lambda: os.close(into)


def test_lines_are_there_before_the_next_is_typed() -> None:
    with pipe() as (stream, type_in, end):
        batches = read_batches(stream, 2)
        type_in(b"a\n")
        assert next(batches) == ["a"]
        type_in(b"b\r\nc\nd\n")
        assert [next(batches), next(batches)] == [["b", "c"], ["d"]]
        type_in(b"\xc3")
        type_in(b"\xa4\n\ne")
        assert next(batches) == ["ä", ""]
        end()
        assert list(batches) == [["e"]]


@pytest.mark.slow
def test_lines_are_answered_as_one_by_one(run: Run, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*sentences(40), LONG]
    with pipe() as (stream, type_in, end):
        type_in("".join(f"{text}\n" for text in texts).encode())
        end()
        monkeypatch.setattr("sys.stdin", stream)
        code, out, err = run("run", folders / "labels", "--lines", "--json")
    assert (code, err) == (0, f"1 text of more than {CONTEXT} tokens cut to that\n")
    alone = [json.loads(run("run", folders / "labels", text, "--json")[1]) for text in (texts[0], LONG)]
    told = [json.loads(line) for line in out.splitlines()]
    assert [one["input"] for one in told] == texts
    for one, other in zip((told[0], told[-1]), alone, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], rel=1e-5)


def test_a_bad_byte_names_its_line(run: Run, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pipe() as (stream, type_in, end):
        type_in(b"the cat\na dog\nred \xff\nbig\n")
        end()
        monkeypatch.setattr("sys.stdin", stream)
        code, out, err = run("run", folders / "labels", "--lines")
    assert (code, len(out.splitlines())) == (2, 2)  # those before it are answered
    said = "error: line 3 of standard input: byte 5 of the line is 0xFF, which is not UTF-8; give it texts in UTF-8\n"
    assert err == said


# ---- texts longer than the context


CUT = {
    "narrow": f"1 text of more than {CONTEXT} tokens cut to that",
    "causal": f"1 text of more than {CONTEXT} tokens cut to the last {CONTEXT // 2}",
    "masked": f"1 text of more than {CONTEXT} tokens cut to that",
    "labels": f"1 text of more than {CONTEXT} tokens cut to that",
    "tags": f"1 text of more than {CONTEXT} tokens cut to that",
    "vectors": f"1 text of more than {CONTEXT} tokens cut to that",
}


@pytest.mark.parametrize("name", CUT)
def test_a_long_text_is_cut_and_it_is_said(run: Run, folders: Path, name: str) -> None:
    given = f"[MASK] {LONG}" if name == "masked" else LONG
    code, out, err = run("run", folders / name, given)
    assert code == 0
    assert out
    assert err.splitlines()[0] == CUT[name]
    assert run("run", folders / name, given, "--embed")[2].startswith(f"1 text of more than {CONTEXT} tokens cut")


def test_a_mask_behind_the_cut_is_said(run: Run, folders: Path) -> None:
    code, _, err = run("run", folders / "masked", f"{LONG} [MASK]")
    assert code == 2
    assert f"has no [MASK] to fill among its first {CONTEXT} tokens" in err


@pytest.mark.slow
def test_a_long_text_is_read_as_eval_reads_it(run: Run, folders: Path, tmp_path: Path) -> None:
    for name, labels in (("labels", LABELS[:1]), ("tags", ("O",))):
        told = json.loads(run("run", folders / name, LONG.strip(), "--json")[1])["output"]
        count = len(LONG.split()) if name == "tags" else 1
        answer = " ".join(tag for _, tag in told) if name == "tags" else told
        (tmp_path / f"{name}.tsv").write_text(f"{LONG.strip()}\t{' '.join(labels * count)}\n")
        found = json.loads(run("eval", folders / name, tmp_path / f"{name}.tsv", "--json")[1])
        right = sum(one in labels for one in answer.split()) / len(answer.split())
        assert found["scores"]["token_accuracy" if name == "tags" else "accuracy"] == pytest.approx(right)


# ---- limits of what is written


@pytest.mark.slow
def test_generate_says_that_it_stopped(run: Run, folders: Path) -> None:
    limits = {"the limit of 64 tokens (max_new_tokens)": (), "the end of its context": ("--beam", "2")}
    for limit, words in limits.items():
        code, out, err = run("generate", folders / "causal", "the", *words)
        assert (code, err) == (0, f"the answer stopped at {limit}\n")
        assert out.startswith("the")
    assert run("generate", folders / "causal", "the", "--max-new-tokens", "3")[2] == ""  # as it was asked to
    assert run("generate", folders / "causal", LONG, "--max-new-tokens", "3")[2] == f"{CUT['causal']}\n"
    assert run("generate", folders / "causal", "the")[1] == run("run", folders / "causal", "the")[1]


LIMIT = "the limit of {} tokens of a window (max_new_tokens)"


@pytest.mark.slow
def test_a_whisper_says_that_it_stopped(run: Run, tmp_path: Path) -> None:
    """One that never ends by itself."""
    model = loaded("whisper")
    assert isinstance(model.task, WhisperTranscription)
    end = model.task.transcriber(model.model).marks.end
    model = replace(model, extra_config={**model.extra_config, "suppress_tokens": [end]})
    model.save(tmp_path / "ear")
    clip = str(put(tmp_path, {"clip.wav": wav(length=200)}) / "clip.wav")
    assert model.predict(clip, max_new_tokens=2).stopped_at == LIMIT.format(2)
    code, _, err = run("run", tmp_path / "ear", clip)
    assert code == 0
    assert re.fullmatch(f"the answer stopped at {re.escape(LIMIT)}\n".replace(r"\{\}", r"\d+"), err)
    assert run("run", tmp_path / "ear", clip, "--max-new-tokens", "2")[2] == ""  # as it was asked to


# ---- numbers


COLUMNS = ("sepal", "petal", "width", "height")


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ready = NumberPreprocess((1.0,), (2.0,))
    model = built("vectors", ready, features=1, dim=16, layers=1, heads=2, classes=3, order="series")
    folder = tmp_path_factory.mktemp("series") / "model"
    replace(model, extra_config={**model.extra_config, "columns": list(COLUMNS)}).save(folder)
    return folder


ROW = "5.1; 1.4; 0.2; 3.5"


@pytest.mark.parametrize("given", ["5.1,1.4,0.2,3.5", "5.1 1.4 0.2 3.5", "5.1, 1.4, 0.2, 3.5", ROW])
def test_numbers_are_read_however_they_are_typed(run: Run, series: Path, given: str) -> None:
    assert run("run", series, given)[1:] == (run("run", series, ROW)[1], "")


TABLES = {
    "names.csv": "sepal,petal,width,height,kind\n5.1,1.4,0.2,3.5,cat\n0,1,2,3,dog\n",
    "order.csv": "kind,height,width,petal,sepal\ncat,3.5,0.2,1.4,5.1\ndog,3,2,1,0\n",
    "bare.csv": "5.1,1.4,0.2,3.5\n0,1,2,3\n",
    "tabs.tsv": "5.1\t1.4\t0.2\t3.5\n0\t1\t2\t3\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_answered_row_by_row(run: Run, series: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(TABLES[name])
    alone = run("run", series, ROW)[1] + run("run", series, "0,1,2,3")[1]
    assert run("run", series, tmp_path / name) == (0, alone, "")


HALVES = {
    "5.1,1.4": "'5.1,1.4' has 2 numbers; allowed: 4, which are sepal, petal, width, height",
    "5.1 1.4 0.2 3.5 6": "'5.1 1.4 0.2 3.5 6' has 5 numbers; allowed: 4, which are sepal, petal, width, height",
    "5.1,x,0.2,3.5": "'x' is not a number; allowed: numbers apart by spaces or commas",
}


@pytest.mark.parametrize("given", HALVES)
def test_half_a_row_is_refused(run: Run, series: Path, given: str) -> None:
    code, out, err = run("run", series, given)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {HALVES[given]}")


def test_a_bad_cell_names_its_line(run: Run, series: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sepal,petal,width,height\n1,2,3,4\n1,oops,3,4\n")
    code, _, err = run("run", series, tmp_path / "a.csv")
    assert code == 2
    assert "a.csv:3: " in err
    assert 'column 2 (petal) is "oops", not a number' in err


def test_models_of_earlier_versions_take_any_length() -> None:
    task = SeriesClassification(SeriesInput(NumberPreprocess((1.0,), (2.0,))), ("a", "b"))
    assert task.locate("1,2") == "1; 2"
    assert "columns" not in task.extra_config()


# ---- folders


@pytest.mark.slow
def test_a_folder_is_answered_file_by_file(run: Run, tmp_path: Path) -> None:
    loaded("vit").save(tmp_path / "vit")
    photos = put(tmp_path / "photos", {"b.png": png(1), "a/c.png": png(2), "notes.txt": b"no image"})
    names = [photos / "a" / "c.png", photos / "b.png"]
    alone = [run("run", tmp_path / "vit", name)[1] for name in names]
    told = "".join(f"{name}: {line}" for name, line in zip(names, alone, strict=True))
    assert run("run", tmp_path / "vit", photos) == (0, told, "")
    assert run("run", tmp_path / "vit", f"{photos}/./b.png") == (0, alone[1], "")
    (tmp_path / "empty").mkdir()
    code, _, err = run("run", tmp_path / "vit", tmp_path / "empty")
    assert (code, "empty holds no images" in err) == (2, True)


def test_an_idx_folder_is_answered_image_by_image(run: Run, tmp_path: Path) -> None:
    loaded("vit").save(tmp_path / "vit")
    images = np.random.default_rng(0).integers(0, 255, (3, 20, 28))
    put(tmp_path / "set", {"train-images-idx3-ubyte": idx(images)})
    code, out, err = run("run", tmp_path / "vit", tmp_path / "set")
    assert (code, err, len(out.splitlines())) == (0, "", 3)
    file = tmp_path / "set" / "train-images-idx3-ubyte"
    assert out.splitlines()[2] == f"{file}/3: {run('run', tmp_path / 'vit', file / '3')[1].strip()}"


@pytest.mark.slow
def test_clip_is_asked_about_each_image_of_a_folder(run: Run, tmp_path: Path) -> None:
    loaded("clip").save(tmp_path / "clip")
    photos = put(tmp_path / "photos", {"a.png": png(1), "b.png": png(2)})
    asked = ("the cat", "a dog")
    alone = [run("run", tmp_path / "clip", photos / name, *asked)[1] for name in ("a.png", "b.png")]
    told = "".join(f"{photos / name}: {line}" for name, line in zip(("a.png", "b.png"), alone, strict=True))
    assert run("run", tmp_path / "clip", photos, *asked) == (0, told, "")
    assert loaded("clip").task.inputs_named("a cat " * 100) == ["a cat " * 100]  # no name of a file is so long


# ---- classes


def test_the_five_likeliest_classes_of_a_foreign_model(run: Run, tmp_path: Path) -> None:
    names = tuple(f"class {at}" for at in range(9))
    model = encoder("rows", 9, named_classes(names))
    model.save_hf(tmp_path / "hf")
    assert "headway" not in json.loads((tmp_path / "hf" / "config.json").read_text())
    output, *shown = run("run", tmp_path / "hf", "the cat")[1].strip().split("  ")
    found = json.loads(run("run", tmp_path / "hf", "the cat", "--json")[1])["probabilities"]
    best = sorted(found, key=lambda name: -found[name])[:5]
    assert shown == [f"{name} {found[name]:.3f}" for name in best]
    assert output == best[0]


# ---- eval


def sounds(folder: Path) -> Path:
    return put(folder, {f"{('aye', 'no')[at % 2]}-{at}.wav": wav(at) for at in range(4)})


@pytest.mark.slow
def test_eval_finds_labels_as_the_training_did(run: Run, tmp_path: Path) -> None:
    model = loaded("conformer, classes")
    replace(model, extra_config=named_classes(("aye", "no", "other"))).save(tmp_path / "model")
    (tmp_path / "model" / "recipe.yaml").write_text("data:\n  label_from: '([a-z]+)-'\n")
    said = json.loads(run("eval", tmp_path / "model", sounds(tmp_path / "clips"), "--json")[1])
    assert "2 classes in their names (aye, no)" in said["data"]
    assert said["count"] == 4
    folders = put(tmp_path / "folders", {"aye/1.wav": wav(1), "no/2.wav": wav(2)})  # in whose names it finds nothing
    assert json.loads(run("eval", tmp_path / "model", folders, "--json")[1])["count"] == 2
    (tmp_path / "model" / "recipe.yaml").write_text("- no recipe")
    code, _, err = run("eval", tmp_path / "model", tmp_path / "clips")
    assert (code, "nothing says the classes" in err) == (2, True)


@pytest.mark.slow
def test_eval_shows_the_baselines_of_the_training(run: Run, tmp_path: Path) -> None:
    encoder("rows", 2, named_classes(LABELS)).save(tmp_path / "model")
    (tmp_path / "a.tsv").write_text("the cat\tgood\na dog\tbad\n")
    without = run("eval", tmp_path / "model", tmp_path / "a.tsv")[1]
    scores: dict[str, Any] = {"count": 40, "scores": {"accuracy": 0.9, "f1": None, "odd": 1}}
    scores["baselines"] = {"majority class": {"accuracy": 0.55}}
    (tmp_path / "model" / "scores.json").write_text(json.dumps(scores))
    told = run("eval", tmp_path / "model", tmp_path / "a.tsv")[1]
    assert told.startswith(without.strip())
    assert told.splitlines()[-5:] == [
        "for comparison, on the validation split of the training (n = 40 records)",
        "",
        "                   accuracy",
        "the model           90.00 %",
        "by majority class   55.00 %",
    ]
    found = json.loads(run("eval", tmp_path / "model", tmp_path / "a.tsv", "--json")[1])["training"]
    assert found["baselines"] == {"majority class": {"accuracy": 0.55}}
    (tmp_path / "model" / "scores.json").write_text("[]")
    assert run("eval", tmp_path / "model", tmp_path / "a.tsv")[1] == without


# ---- broken files


def images() -> dict[str, bytes]:
    film = [picture(seed) for seed in range(2)]
    return {
        "empty.png": b"",
        "text.jpg": b"no image",
        "cut.png": png()[:-20],
        "header.png": png()[:33],
        "changed.png": png()[:60] + b"\xff\xff\xff\xff" + png()[64:],
        "film.gif": gif(film),
        "wide.png": png_of(picture(height=2, width=300)),
        "deep.tiff": deep(),
    }


def gif(film: list[Any]) -> bytes:
    from tests.data.files import coded

    return coded(film[0], "GIF", save_all=True, append_images=film[1:])


def png_of(image: Any) -> bytes:
    from tests.data.files import coded

    return coded(image)


def deep() -> bytes:
    from PIL import Image

    from tests.data.files import coded

    return coded(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF")


SOUNDS = {
    "empty.wav": b"",
    "text.wav": b"no sound",
    "text.mp3": b"no sound, but words " * 50,
    "riff.wav": b"RIFF\x00\x00\x00\x00WAVE",
    "cut.wav": wav()[:-10],
    "header.wav": wav()[:20],
    "slow.wav": wav(rate=100),
    "silent.wav": wav(length=0),
    "many.wav": wav(channels=65, length=4),
}


@pytest.mark.parametrize("kind", ["images", "sounds"])
def test_every_broken_file_says_what_to_do(tmp_path: Path, kind: str) -> None:
    """Whoever opens it; and so do training and check."""
    from headway.data.checks import check
    from headway.data.images import Images, read_image
    from headway.data.media_sources import MediaError
    from headway.data.recognise import recognise
    from headway.data.sounds import Sounds, read_sound
    from headway.data.text_lines import MediaLocation

    broken = images() if kind == "images" else SOUNDS
    medium, read = (Images(), read_image) if kind == "images" else (Sounds(), read_sound)
    good = png if kind == "images" else wav
    suffix = "png" if kind == "images" else "wav"
    put(tmp_path / "set", {f"a/{name}": data for name, data in broken.items()})
    put(tmp_path / "set", {f"{name}/good{at}.{suffix}": good(at) for at in range(2) for name in "ab"})
    for name in broken:
        place = MediaLocation(tmp_path / "set" / "a" / name)
        found = medium.probe(place)
        assert isinstance(found, MediaError), name
        error = found.error(place)
        assert error.said.startswith(str(place.path)), name
        assert error.allowed or "allowed" in error.said or "may be" in error.said, name
        assert error.do, name
        if name != "film.gif":  # whose first frame is read
            with pytest.raises(UserError) as caught:
                read(place)
            assert caught.value.do, name
            assert "SF_INFO" not in str(caught.value)
    told = check(recognise([tmp_path / "set"])).to_text()
    assert ("\n  save it again as PNG" if kind == "images" else "\n  convert it, as in ffmpeg") in told
    with pytest.raises(UserError, match="does not exist; check the name"):
        read(MediaLocation(tmp_path / "gone.png"))
