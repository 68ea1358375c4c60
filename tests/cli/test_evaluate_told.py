"""`headway eval` as a person meets it: what it prints, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.cli import main as cli
from headway.model import Model
from tests.cli.conftest import Run
from tests.cli.folders import LABELS, named_lines, saved, worded_lines


def says(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = cli.main(["eval", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.slow
def test_people_see_a_table(
    models: dict[str, Model], folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path / "pairs.tsv", worded_lines(models, 14))
    code, out, err = says(capsys, folders / "pairs", path, "--task", "translation")
    assert (code, err) == (0, "")
    first, count, table, signatures, stops = out.strip().split("\n\n")
    assert first.startswith(f"{path}: 14 lines of two text columns, so translation")
    assert count == "14 pairs, each score with its 95 % interval"
    assert table.splitlines()[0].split() == ["words", "count", "BLEU", "chrF", "exact"]
    assert table.splitlines()[1].split()[:2] == ["all", "14"]
    assert signatures.splitlines()[0].startswith("BLEU  nrefs:1|case:mixed|eff:no|tok:13a|")
    assert stops.endswith("of 14 answers stopped at the limit of 16 tokens (max_new_tokens)")


def test_two_columns_are_what_the_model_is_for(measured: Run, tmp_path: Path) -> None:
    path = saved(tmp_path / "few.tsv", ["the cat\tgood", "a dog\tbad"])  # too few to be taken for labels
    assert measured("labels", path)["task"] == "classification"
    assert measured("pairs", saved(tmp_path / "many.tsv", named_lines(LABELS, 30)))["task"] == "translation"


PAIRS = ["the cat sat\ta dog ran", "a dog\tthe cat", "red\tbig", "big house\tred mat", "on\tand"]
MISMATCHES: dict[str, tuple[str, str, list[str], list[str], str]] = {
    "a classifier, pairs": ("labels", "a.tsv", PAIRS, [], "is none of the model's 2 classes; allowed: bad, good"),
    "a classifier, told pairs": ("labels", "a.tsv", PAIRS, ["--task", "translation"], "names the class of a text, but"),
    "a classifier, texts": ("labels", "a.txt", ["the cat"], [], "names the class of a text, but"),
    "a classifier, dates": ("labels", "dates", [], [], "names the class of a text, but dates: 1,000 dates"),
    "a writer, texts": ("pairs", "a.txt", ["the cat"], [], "writes a text from a text, but"),
    "a continuer, pairs": ("causal", "a.tsv", PAIRS, [], "continues texts, but"),
    "a filler, pairs": ("masked", "a.tsv", PAIRS, [], "fills masks in texts, but"),
    "a tagger, pairs": ("tags", "a.tsv", PAIRS, [], "a.tsv:1: 'a' is none of the model's 3 classes"),
    "another label": ("labels", "a.tsv", ["cat\tgood", "dog\tgod"], [], "a.tsv:2: 'god' is none of the model's 2"),
    "a label nearly right": ("labels", "a.tsv", ["cat\tgood", "dog\tgod"], [], "did you mean 'good'?"),
    "vectors": ("vectors", "a.tsv", PAIRS, [], "vectors gives vectors, which no data can be compared with"),
    "a long source": ("narrow", "a.tsv", ["cat\tdog", f"{'cat ' * 40}\tdog"], [], "a.tsv:2: the source has 41 tokens"),
    "beams that nobody needs": ("causal", "a.txt", ["the cat"], ["--beam", "2"], "has no use for --beam"),
    "no beams": ("pairs", "a.tsv", PAIRS, ["--beam", "0"], "allowed: 1 beam or more"),
    "no such task": ("pairs", "a.tsv", PAIRS, ["--task", "translate"], "did you mean 'translation'?"),
    "a bad line": ("pairs", "a.tsv", ["cat\tdog", "cat"], ["--task", "translation"], "see headway check"),
    "an empty file": ("pairs", "a.tsv", [], [], "is empty"),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_what_does_not_fit_is_one_sentence(
    case: str, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, name, lines, options, told = MISMATCHES[case]
    if name != "dates":
        saved(tmp_path / name, lines)
    code, out, err = says(capsys, folders / model, name, *options, "--json")
    assert (code, out) == (2, "")
    assert told in err
    assert err.startswith("error: ")
    assert len(err.strip().splitlines()) <= 3  # a sentence, a tip, and a long list of what is allowed


def test_a_model_and_data_must_be_there(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert says(capsys, tmp_path / "none", saved(tmp_path / "a.tsv", PAIRS))[0] == 2
    code, _, err = says(capsys, folders / "pairs", tmp_path / "none.tsv")
    assert (code, "none.tsv" in err) == (2, True)
    code, _, err = says(capsys, folders / "pairs")
    assert (code, "no data was given" in err) == (2, True)
