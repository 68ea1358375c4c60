"""`--dtype`: what a model computes in, the loss of quality beside fp32, and what cannot be done."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headway.cli.main import main
from headway.conversion import convert
from headway.errors import UserError
from headway.loading import load
from headway.model import Model
from headway.system import read_json
from tests.cli.conftest import Run
from tests.cli.folders import TEXTS, saved, worded_lines


@pytest.mark.slow
def test_a_folder_of_int8_loads_as_such(folders: Path, tmp_path: Path) -> None:
    told = convert(folders / "causal", tmp_path / "low", dtype="int8")
    assert "(headway, int8)" in told.to_text()
    assert "was not measured" in told.to_text()
    assert "was not measured" in (tmp_path / "low" / "README.md").read_text(encoding="utf-8")
    assert read_json(tmp_path / "low" / "config.json")["dtype"] == "int8"
    low, asked = load(tmp_path / "low"), load(folders / "causal", dtype="int8")
    assert (low.dtype, asked.dtype) == ("int8", "int8")
    for name, tensor in asked.model.state_dict().items():
        assert torch.equal(low.model.state_dict()[name], tensor)
    assert low.predict("a cat") == asked.predict("a cat")


def test_a_model_in_int8_can_be_looked_into(folders: Path) -> None:
    low, full = (load(folders / "vectors", dtype=dtype).attend("a cat") for dtype in ("int8", "fp32"))
    assert list(low.sites) == list(full.sites)
    details = [one.detail(next(iter(full.sites))) for one in (low, full)]
    for name in ("q", "k", "v", "out"):
        ours, theirs = (getattr(one, name).flatten() for one in details)
        assert not torch.equal(ours, theirs)
        assert torch.cosine_similarity(ours, theirs, 0).item() > 0.999


@pytest.mark.slow
def test_half_precision_is_stored_and_read_as_single(folders: Path, tmp_path: Path) -> None:
    convert(folders / "causal", tmp_path / "half", dtype="bf16")
    half = load(tmp_path / "half", dtype="bf16")
    assert {one.dtype for one in half.model.parameters()} == {torch.bfloat16}
    single = load(tmp_path / "half")
    assert (half.dtype, single.dtype) == ("bf16", "fp32")
    sizes = [(place / "model.safetensors").stat().st_size for place in (tmp_path / "half", folders / "causal")]
    assert sizes[0] < 0.6 * sizes[1]
    assert half.predict("a cat").output


@pytest.mark.slow
def test_eval_compares_with_fp32(
    models: dict[str, Model],
    folders: Path,
    measured: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = saved(tmp_path / "pairs.tsv", worded_lines(models, 14))
    low, full = measured("pairs", path, "--dtype", "int8"), measured("pairs", path)
    assert low["dtype"] == "int8"
    assert {"model": full["model"], **low["fp32"]} == full
    assert main(["eval", str(folders / "pairs"), str(path), "--dtype", "int8"]) == 0
    table = capsys.readouterr().out.partition("int8 against fp32 (n = 14 pairs)\n\n")[2].splitlines()
    assert table[0].split() == ["fp32", "int8", "difference"]
    assert table[1].split()[:3] == ["BLEU", f"{full['scores']['bleu']:.2f}", f"{low['scores']['bleu']:.2f}"]


@pytest.mark.slow
def test_vectors_are_compared_by_cosine_and_the_card_keeps_it(folders: Path, measured: Run, tmp_path: Path) -> None:
    path = saved(tmp_path / "lines.txt", TEXTS)
    found = measured("vectors", path, "--dtype", "int8")
    assert found["count"] == len(TEXTS)
    ours, theirs = (load(folders / "vectors", dtype=dtype).embed(TEXTS) for dtype in ("int8", "fp32"))
    assert found["scores"]["cosine"] == pytest.approx(float((ours * theirs).sum(-1).mean()))
    assert 0.99 < found["scores"]["cosine"] < 1
    convert(folders / "vectors", tmp_path / "low", dtype="int8", data=path)
    card = (tmp_path / "low" / "README.md").read_text(encoding="utf-8")
    assert f"| mean cosine to fp32 | {found['scores']['cosine']:.5f} |" in card
    assert f"(n = {len(TEXTS)} vectors)" in card


REFUSED = {
    "no such dtype": (["run", "FOLDER", "a", "--dtype", "int4"], "no dtype 'int4'; allowed: fp32, bf16, fp16 or int8"),
    "other weights": (["run", "LOW", "a", "--dtype", "fp32"], "holds int8 weights, of which no others can be made"),
    "converted again": (["convert", "LOW", "NEW"], "holds int8 weights, of which no others can be made"),
    "their layout": (["convert", "FOLDER", "NEW", "--to", "hf", "--dtype", "int8"], "in headway's layout alone"),
    "data for nothing": (["convert", "FOLDER", "NEW", "--data", "LINES"], "fp32 loses nothing"),
    "training": (["train", "LINES", "--from", "LOW", "--steps", "1", "--out", "NEW"], "which cannot be trained"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_one_sentence(
    case: str, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(folders / "causal", dtype="int8").save(tmp_path / "low")
    lines = saved(tmp_path / "lines.txt", TEXTS * 20)
    places = {"FOLDER": folders / "causal", "LOW": tmp_path / "low", "NEW": tmp_path / "new", "LINES": lines}
    words, told = REFUSED[case]
    assert main([str(places.get(word, word)) for word in words]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_module_of_your_own_is_not_int8(folders: Path, tmp_path: Path) -> None:
    module = torch.nn.Linear(2, 2)
    Model(module, None, "custom").save(tmp_path)
    with pytest.raises(UserError, match="a torch module of your own cannot be int8"):
        load(tmp_path, module=module, dtype="int8")
