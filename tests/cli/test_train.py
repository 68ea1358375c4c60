"""`headway train` as a person meets it: on own files, resumed, and asked only to plan."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import headway.training.calibration
from headway.training.build import StepTiming
from headway.training.recipe_sources import from_yaml
from headway.training.resuming import check_files
from tests.cli.command import SIX, TINY, Done, Place, full_after, left, made_place, names

SHORT = ["--train.steps", "3", "--train.threads", "1"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """With one run in it, `done`, that is finished, and one, `cut`, that ended for want of space."""
    place = made_place(tmp_path_factory.mktemp("place"))
    assert place(*SIX, "--out", "done").code == 0
    assert place(*SIX, "--train.checkpoint-every", "2", "--out", "cut", before=full_after(2)).code == 1
    return place


# Own data, of every kind.


def write_own(folder: Path) -> None:
    draw = random.Random(3)
    words = [
        "ışık",
        "İstanbul",
        "öğretmen",
        "我看见猫",
        "月亮很亮",
        "הילד רואה",
        "القط",
        "😀🚀",
        "👩\u200d👧",
        "🇹🇷 bir",
    ]
    texts = [" ".join(draw.choice(words) for _ in range(3)) for _ in range(200)]
    rows = [f"{text}\t{' · '.join(reversed(text.split()))} son" for text in texts]
    (folder / "all.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    (folder / "all.txt").write_text(". ".join(texts) + ".", encoding="utf-8")
    english = (folder / "text.txt").read_text(encoding="utf-8")
    (folder / "long.txt").write_text(f"{english}\n" * 6, encoding="utf-8")
    pairs = [line.split("\t") for line in (folder / "pairs.tsv").read_text(encoding="utf-8").splitlines()]
    for name, side in (("a.en.gz", 0), ("a.de.gz", 1)):
        with gzip.open(folder / name, "wt", encoding="utf-8") as file:
            file.writelines(f"{pair[side]}\n" for pair in pairs)


SMALL = ["--model.dim", "16", "--model.heads", "2", "--model.layers", "1"]
T5 = [*SMALL, "--model.head-dim", "8", "--model.hidden", "16"]
OWN = {
    "pairs": (["pairs.tsv", *SMALL], "translation", "the cat sees"),
    "labels": (["labels.csv", *SMALL], "classification", "the cat sees"),
    "tags": (["tags.jsonl", *SMALL], "tagging", "the cat sees"),
    "causal": (["long.txt", *SMALL], "language, causal", "the cat"),
    "masked": (["long.txt", "--objective", "masked", *SMALL], "language, masked", "the [MASK] sees"),
    "span": (["long.txt", "--objective", "span", *T5], "language, span", "the <extra_id_0> sees"),
    "parallel": (["--source", "a.en.gz", "--target", "a.de.gz", *SMALL], "translation", "the cat sees"),
    "all languages": (["all.tsv", *SMALL], "translation", "ışık 😀🚀 月亮很亮"),
    "all languages' text": (["all.txt", "--data.longest", "64", *SMALL], "language, causal", "القط ينام 我"),
}
QUICK = ("tags",)


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in OWN])
def test_one_command_trains_on_own_data(place: Place, name: str) -> None:
    write_own(place.folder)
    words, task, asked = OWN[name]
    out = f"own {name}"
    done = place("train", *words, "--out", out, *SHORT)
    assert (done.code, done.err) == (0, "")
    assert f"  task    {task}: " in done.out
    assert "step 3: validation loss" in done.out
    folder = place.folder / out
    assert {"config.json", "model.safetensors", "tokenizer.json", "recipe.yaml", "metrics.jsonl"} <= names(folder)
    assert {"README.md", "report.html", "times.jsonl", "data.json", "checkpoints"} <= names(folder)
    answer = place("run", out, asked)
    assert answer.code == 0
    assert all(line.startswith("the answer stopped at ") for line in answer.err.splitlines())
    assert answer.out


@pytest.mark.slow
def test_the_folder_is_named_after_the_data_where_no_other_name_is_given(place: Place) -> None:
    for name in ("pairs-model", "pairs-model-2"):
        assert place(*SIX).code == 0
        assert (place.folder / name / "model.safetensors").is_file()


# Asked only to plan.

CONTEXTS = {"gpt-nano": [], "bert-tiny": ["--objective", "masked"], "albert-base": ["--objective", "masked"]}
CONTEXTS |= {"llama-7b": SMALL, "mixtral-8x7b": [*SMALL, "--model.kv-heads", "2"]}


@pytest.mark.slow
@pytest.mark.parametrize("preset", CONTEXTS)
def test_a_context_that_is_not_that_of_the_data_is_refused(place: Place, preset: str) -> None:
    words = ["train", "text.txt", "--preset", preset, *CONTEXTS[preset], "--model.context", "16", *SHORT, "--dry-run"]
    refused = place(*words)
    said = r"error: --model\.context 16 with data that asks for \d+; give --data\.max-length 16 instead\n"
    assert refused.code == 2
    assert re.fullmatch(said, refused.err)


@pytest.mark.slow
def test_a_recipe_says_the_sizes_of_the_model_that_was_built(place: Place) -> None:
    words = ["--preset", "gpt-nano", *SMALL, "--data.max-length", "32", "--model.context", "32", "--out", "sizes"]
    assert place("train", "text.txt", *words, *SHORT).code == 0
    built = json.loads((place.folder / "sizes" / "config.json").read_text("utf-8"))["config"]
    assert from_yaml(place.folder / "sizes" / "recipe.yaml").model.sizes["context"] == built["context"] == 32
    assert place("train", "text.txt", "--preset", "gpt-nano", *SMALL, *SHORT, "--out", "usual").code == 0
    built = json.loads((place.folder / "usual" / "config.json").read_text("utf-8"))["config"]
    assert from_yaml(place.folder / "usual" / "recipe.yaml").model.sizes["context"] == built["context"]


@pytest.mark.slow
def test_a_dry_run_touches_nothing_and_tells_all(place: Place) -> None:
    (place.folder / "new.tsv").write_text((place.folder / "pairs.tsv").read_text() + "a cat\teine Katze\n")
    before = place.tree()
    done = place("train", "new.tsv", *TINY, "--train.steps", "50", "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert place.tree() == before
    for told in ("translation: ", " rows, ", " tokens", " parameters", "50 steps", "about ", "GiB", "new-model"):
        assert told in done.out
    assert done.out.endswith("nothing was written: this was a dry run\n")


@pytest.mark.slow
def test_a_finished_run_is_made_longer(place: Place) -> None:
    """By so many steps, or minutes at its pace; and it is the same however often it is done."""
    assert place(*SIX, "--out", "short").code == 0
    for copy in ("longer", "longer-2"):
        shutil.copytree(place.folder / "short", place.folder / copy)
        done = place("train", "--resume", "--out", copy, "--train.steps", "+4")
        assert (done.code, done.err) == (0, "")
        assert "4 steps more, 10 in all\n" in done.out
        assert "resumed at step 6\n" in done.out
        assert place("train", "--resume", "--out", copy).out.endswith("is finished: nothing is left to do\n")
        assert from_yaml(place.folder / copy / "recipe.yaml").train.steps == 10
    first, second = (load_file(place.folder / copy / "model.safetensors") for copy in ("longer", "longer-2"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    before = load_file(place.folder / "short" / "model.safetensors")
    assert not all(torch.equal(first[name], before[name]) for name in first)
    steps = [json.loads(line)["step"] for line in (place.folder / "longer" / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert steps[-1] == 10
    timed = place("train", "--resume", "--out", "longer", "--minutes", "+0.0005")
    assert timed.code == 0
    assert re.search(r"\d+ steps? more, \d+ in all", timed.out)


def test_class_weights_need_classes(place: Place) -> None:
    words = ["train", "pairs.tsv", *TINY, "--train.steps", "3", "--train.class-weights", "balanced", "--out", "weighed"]
    refused = place(*words)
    said = "--train.class-weights balanced weighs classes, and this task (seq2seq) learns none; leave out"
    assert refused.code == 2
    assert said in refused.err
    assert not (place.folder / "weighed").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pairs.tsv", "--minutes", "+10"], "--minutes +10 makes a run longer: with --resume, and without --dry-run"),
        (["--resume", "--out", "gone", "--minutes", "+10"], "--minutes +10 makes a run longer, and gone holds none"),
        (
            ["--resume", "--out", "done", "--epochs", "+1"],
            "--train.epochs +1 is no extension; allowed: --train.steps +N or",
        ),
        (["--resume", "--out", "done", "--train.steps", "+0"], "--train.steps +0 is no extension"),
        (["--resume", "--out", "done", "--train.steps", "+0.5"], "--train.steps +0.5 is no extension"),
    ],
)
def test_what_makes_no_run_longer(place: Place, words: list[str], said: str) -> None:
    before = place.tree()
    refused = place("train", *words)
    assert refused.code == 2
    assert refused.err.startswith("error: ")
    assert said in refused.err
    assert place.tree() == before


@pytest.mark.slow
def test_resume_starts_a_run_that_is_not_there_yet(place: Place) -> None:
    words = ["train", "pairs.tsv", *TINY, "--train.steps", "3", "--resume", "--out", "unbegun"]
    done = place(*words)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("unbegun holds no run yet, so it starts\n")
    next_lines = done.out.partition("\nnext\n")[2].splitlines()
    assert [line.split()[:2] for line in next_lines] == [["headway", "run"], ["headway", "look"], ["python", "-c"]]
    assert place(*words).out == "loading PyTorch …\nthe run in unbegun is finished: nothing is left to do\n"


@pytest.mark.slow
def test_the_plan_is_printed_as_it_is_found(place: Place) -> None:
    """What takes long is named before it begins, and a line of the plan stands there as soon as it is known."""

    def plant() -> None:
        from headway.training import run

        timed = run.timed

        def late(*words: object) -> object:
            assert "  batch   " in Path(os.readlink("/proc/self/fd/1")).read_text(encoding="utf-8")
            return timed(*words)

        run.timed = late

    done = place("train", "pairs.tsv", *TINY, "--train.steps", "3", "--dry-run", before=plant)
    assert (done.code, done.err) == (0, "")
    order = ["reading pairs.tsv …", "pairs.tsv: ", "loading PyTorch …", "preparing the data …", "  task ", "  batch "]
    order += ["timing steps and an evaluation …", "  length ", "  folder ", "nothing was written"]
    places = [done.out.index(line) for line in order]
    assert places == sorted(places)


@pytest.mark.slow
def test_a_dry_run_tells_what_is_wrong_with_the_data(place: Place) -> None:
    lines = (place.folder / "pairs.tsv").read_text().splitlines()
    lines[7] = lines[7].split("\t")[0]
    lines[20] = lines[20] + "\tmore"
    lines.append(lines[3])
    (place.folder / "bad.tsv").write_text("\n".join(lines) + "\n")
    before = place.tree()
    done = place("train", "bad.tsv", *TINY, "--train.steps", "50", "--dry-run")
    assert "bad.tsv:8: 1 column where the file has 2; 1 line more like this" in done.said
    skipping = place("train", "bad.tsv", *TINY, "--train.steps", "50", "--dry-run", "--skip-bad")
    assert skipping.code == 0
    left_out = next(line for line in skipping.out.splitlines() if "left out" in line)
    counts = json.loads(place("check", "bad.tsv", "--json").out)["counts"]
    expected = counts["wrong columns"] + counts["duplicate"]
    assert expected >= 3
    assert left_out.startswith(f"--skip-bad: {expected} lines left out")
    assert place.tree() == before


@pytest.mark.slow
def test_what_was_prepared_with_other_lines_is_not_taken_for_it(place: Place) -> None:
    """The same file has other rows with --skip-bad, though its words are the same."""
    lines = (place.folder / "pairs.tsv").read_text().splitlines()
    (place.folder / "twice.tsv").write_text("\n".join(list(dict.fromkeys(lines)) * 2) + "\n")
    rows = [rows_told(place("train", "twice.tsv", *TINY, *SHORT[:2], *more)) for more in ([], ["--skip-bad"])]
    assert rows[0] > rows[1] + 50


def rows_told(done: Done) -> int:
    told = next(line for line in done.out.splitlines() if line.startswith("  task"))
    return int(told.split(":")[1].split()[0].replace(",", ""))


@pytest.mark.slow
def test_skipped_lines_are_counted_also_where_the_cache_knows_the_rest(place: Place) -> None:
    """Where nothing needs to be read again, the count must be told all the same."""
    lines = (place.folder / "pairs.tsv").read_text().splitlines()
    (place.folder / "gaps.tsv").write_text("\n".join([*lines[:100], "gap", lines[0]]) + "\n")
    (place.folder / "held.tsv").write_text("\n".join(lines[100:]) + "\n")
    words = ["train", "gaps.tsv", "--validation", "held.tsv", "--from", "done", "--skip-bad", *SHORT]
    told = [[line for line in place(*words).out.splitlines() if "left out" in line] for _ in range(2)]
    assert told[0] == told[1]
    assert " lines left out" in told[0][0]


@pytest.mark.slow
def test_a_printed_recipe_trains_the_same(place: Place) -> None:
    printed = place(*SIX, "--print-config", "--out", "other")
    assert (printed.code, printed.err) == (0, "")
    (place.folder / "c.yaml").write_text(printed.out, encoding="utf-8")
    assert place("train", "--config", "c.yaml").code == 0
    assert left(place, "other") == left(place, "done")


KINDS = {
    "masked": ["long.txt", "--preset", "bert-tiny", *SMALL],  # so masked, which nobody says
    "unigram": ["pairs.tsv", "--data.tokenizer", "unigram", "--train.epochs", "0.5", *SMALL],
    "bpe": ["pairs.tsv", "--data.tokenizer", "bpe", "--preset", "rnnsearch-small", "--model.hidden", "8"],
}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_printed_recipe_trains_the_same_on_data_of_any_kind(place: Place, kind: str) -> None:
    write_own(place.folder)
    steps = ["--train.threads", "1", *([] if "--train.epochs" in KINDS[kind] else ["--train.steps", "3"])]
    words = ["train", *KINDS[kind], *steps]
    assert place(*words, "--out", f"first {kind}").code == 0
    printed = place(*words, "--out", f"second {kind}", "--print-config")
    (place.folder / f"{kind}.yaml").write_text(printed.out, encoding="utf-8")
    assert place("train", "--config", f"{kind}.yaml").code == 0
    assert left(place, f"first {kind}") == left(place, f"second {kind}")


@pytest.mark.slow
def test_minutes_are_made_into_steps_that_a_resumed_run_keeps(place: Place) -> None:
    words = ["train", "pairs.tsv", *TINY, "--minutes", "0.08", "--out", "minutes"]

    def hurry() -> None:
        headway.training.calibration.measured = lambda made, clock: StepTiming(
            0.4, 0.4, 0
        )  # nine steps, however busy the machine is
        full_after(2)()

    assert place(*words, "--train.checkpoint-every", "1", before=hurry).code == 1
    recipe = (place.folder / "minutes" / "recipe.yaml").read_text()
    assert "  minutes: null\n" in recipe
    done = place(*words, "--resume")
    assert (done.code, done.err) == (0, "")
    assert "--minutes was made into steps when the run began" in done.out
    assert (place.folder / "minutes" / "recipe.yaml").read_text() == recipe


# Resumed.


@pytest.mark.slow
def test_a_run_that_found_no_space_goes_on_as_if_nothing_had_happened(place: Place) -> None:
    done = place("train", "--out", "cut", "--resume")
    assert (done.code, done.err) == (0, "")
    assert "resumed at step 4" in done.out
    assert left(place, "cut") == left(place, "done")


@pytest.mark.slow
def test_a_finished_run_is_left_as_it_is(place: Place) -> None:
    before = place.tree()
    done = place(*SIX, "--out", "done", "--resume")
    told = "loading PyTorch …\nthe run in done is finished: nothing is left to do\n"
    assert (done.code, done.out, done.err) == (0, told, "")
    assert place.tree() == before


@pytest.mark.slow
def test_a_run_without_a_checkpoint_starts_anew_and_says_so(place: Place) -> None:
    assert place(*SIX, "--out", "early", before=full_after(0)).code == 1
    done = place(*SIX, "--out", "early", "--resume")
    assert (done.code, done.err) == (0, "")
    assert "no checkpoint was written yet, so the run starts from the beginning" in done.out
    assert left(place, "early") == left(place, "done")


@pytest.mark.slow
def test_a_run_may_be_moved_and_so_may_its_data(place: Place) -> None:
    assert place(*SIX, "--train.checkpoint-every", "2", "--out", "here", before=full_after(1)).code == 1
    (place.folder / "there").mkdir()
    (place.folder / "here").rename(place.folder / "there" / "run")
    moved = place.folder / "there" / "moved.tsv"
    moved.write_bytes((place.folder / "pairs.tsv").read_bytes())
    done = place("train", "there/moved.tsv", "--out", "there/run", "--resume")
    assert (done.code, done.err) == (0, "")
    assert left(place, "there/run") == left(place, "done")
    assert not (place.folder / "here").exists()


@pytest.fixture
def begun(place: Place) -> str:
    """A run that has begun and not ended, on a file of its own."""
    (place.folder / "mine.tsv").write_bytes((place.folder / "pairs.tsv").read_bytes())
    (place.folder / "valid.tsv").write_text("the cat sees\tsieht tac.\nthe dog sees\tsieht god.\n")
    if not (place.folder / "begun").exists():
        words = ["train", "mine.tsv", "--validation", "valid.tsv", *TINY, "--train.epochs", "1", "--out", "begun"]
        assert place(*words, "--train.evaluate-every", "100", before=full_after(0)).code == 1
    return "begun"


REFUSED = {
    "steps": (["--train.steps", "7"], "--train.steps 7, but the run in begun has train.steps = "),
    "seed": (["--seed", "1"], "--seed 1, but the run in begun has seed = 0"),
    "a size": (["--model.dim", "32"], "--model.dim 32, but the run in begun has model.dim = 16"),
    "epochs": (["--train.epochs", "3"], "--train.epochs 3.0 are "),
    "preset": (["--preset", "t5-tiny"], "--preset t5-tiny, but the run in begun has model.preset = transformer-nano"),
    "another file": (["pairs2.tsv"], "pairs2.tsv has changed since this run began"),
    "no file": (["gone.tsv"], "gone.tsv does not exist"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_a_run_goes_on_as_it_began_or_not_at_all(place: Place, begun: str, name: str) -> None:
    words, told = REFUSED[name]
    (place.folder / "pairs2.tsv").write_text((place.folder / "pairs.tsv").read_text() + "a cat\teine Katze\n")
    before = place.tree()
    assert told in place("train", *words, "--out", begun, "--resume").said
    assert place.tree() == before


@pytest.mark.slow
@pytest.mark.parametrize("file", ["mine.tsv", "valid.tsv"])
@pytest.mark.parametrize("change", [b"the moon hears\tno good", b"\xff\xfe", None])
def test_data_that_has_changed_is_refused_by_name(place: Place, begun: str, file: str, change: bytes | None) -> None:
    path = place.folder / file
    if change is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + change)
    said = place("train", "--out", begun, "--resume").said
    assert file in said
    assert "has changed since this run began" in said or change is None


@pytest.mark.slow
def test_the_same_settings_may_be_given_again(place: Place, begun: str) -> None:
    words = ["train", "mine.tsv", "--validation", "valid.tsv", *TINY, "--train.epochs", "1", "--out", begun]
    done = place(*words, "--resume", "--dry-run")
    assert (done.code, done.err) == (0, "")
    (place.folder / "weak.yaml").write_text("train: {steps: 99, batch: 1}\n")
    assert place(*words, "--config", "weak.yaml", "--resume", "--dry-run").code == 0  # stronger ones win, as they did


def test_the_embedded_data_set_is_no_file_that_could_be_gone() -> None:
    check_files({"data.path": ("dates",)}, {})


@pytest.mark.slow
def test_a_folder_that_holds_something_is_refused_before_the_data_is_read(place: Place) -> None:
    (place.folder / "full").mkdir(exist_ok=True)
    (place.folder / "full" / "notes").write_text("mine")
    assert "done holds a run already; go on with it by --resume" in place(*SIX, "--out", "done").said
    assert "full is there already and not empty" in place("train", "no.tsv", "--out", "full").said
    assert "is not a folder" in place(*SIX, "--out", "pairs.tsv/x").said
    (place.folder / "half").mkdir(exist_ok=True)
    (place.folder / "half" / "data.json").write_text("{}")  # which a crash left before there was a run
    assert place(*SIX, "--out", "half").code == 0
