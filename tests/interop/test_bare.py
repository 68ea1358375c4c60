"""Folders without config.json: a fairseq Transformer and torch's `nn.Transformer`, read, converted and run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close

import headway
from headway.cli.main import main
from headway.errors import UserError
from headway.interop import fairseq
from headway.loading import load
from headway.zoo.transformer import Config, build
from tests.interop.parity import shaken

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")

SIZES = {"d_model": 16, "nhead": 4, "num_encoder_layers": 2, "num_decoder_layers": 1, "dim_feedforward": 24}
WAVES = {"layout": "halves", "steps": 7, "first": 2}


def torch_folder(folder: Path, prefix: str = "") -> nn.Transformer:
    model = nn.Transformer(**SIZES, batch_first=True).eval()
    shaken(model)
    folder.mkdir()
    save_file({prefix + name: x for name, x in model.state_dict().items()}, folder / "model.safetensors")
    return model


def fairseq_folder(folder: Path) -> nn.Module:
    """A tiny model with two dictionaries, whose merges know no capitals."""
    config = Config(8, 7, 16, 1, 1, 2, 24, norms="pre", tied="target", **WAVES)
    model, names = build(config).eval(), fairseq.keymap(config)
    stored = names.save(dict(model.named_parameters()))
    stored["decoder.output_projection.weight"] = stored["decoder.embed_tokens.weight"].clone()
    folder.mkdir()
    save_file(stored, folder / "model.safetensors")
    (folder / "bpe.code").write_text("#version: 0.2\na b</w>\n")
    (folder / "dict.x.txt").write_text("ab 3\na@@ 2\nb 1\n")
    (folder / "dict.y.txt").write_text("c 3\nd 2\ne@@ 1\nf 1\n")
    return model


@pytest.mark.parametrize("prefix", ["", "model.transformer."])
def test_vectors_go_through_as_in_torch(tmp_path: Path, prefix: str) -> None:
    theirs = torch_folder(tmp_path / "theirs", prefix)
    source, target = torch.randn(2, 7, 16), torch.randn(2, 5, 16)
    future = nn.Transformer.generate_square_subsequent_mask(5)
    expected = theirs(source, target, tgt_mask=future, tgt_is_causal=True)
    loaded = headway.load(tmp_path / "theirs", heads=4)
    assert_close(loaded.model(source, target), expected, atol=1e-5, rtol=1e-5)
    loaded.save(tmp_path / "ours")
    assert torch.equal(load(tmp_path / "ours").model(source, target), loaded.model(source, target))


def test_fairseq_goes_through_our_folder(tmp_path: Path) -> None:
    theirs = fairseq_folder(tmp_path / "theirs")
    loaded = load(tmp_path / "theirs", heads=2)
    source, target = torch.tensor([[4, 5, 6, 2]]), torch.tensor([[2, 4, 7]])
    assert_close(loaded.model(source, target), theirs(source, target))
    assert loaded.tokenizer is not None
    assert loaded.target_tokenizer is not None
    assert (loaded.tokenizer.encode(" AB b "), loaded.target_tokenizer.vocab) == ([4, 6, 2], 8)
    loaded.save(tmp_path / "ours")
    again = load(tmp_path / "ours")
    assert again.run("Ab B") == loaded.run("ab b") | {"input": "Ab B"}


@pytest.mark.slow
def test_the_command_converts_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fairseq_folder(tmp_path / "theirs")
    folders = str(tmp_path / "theirs"), str(tmp_path / "ours")
    assert main(["convert", *folders, "--heads", "2"]) == 0
    assert "do not show it: ReLU" in capsys.readouterr().out
    assert main(["run", folders[0], "ab", "--heads", "2"]) == 0
    direct = capsys.readouterr().out
    assert main(["run", folders[1], "ab"]) == 0
    assert capsys.readouterr().out == direct
    assert main(["generate", folders[0], "ab", "--heads", "2"]) == 0
    assert capsys.readouterr().out == direct


def test_the_command_compares_with_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch_folder(tmp_path / "theirs")
    assert main(["convert", str(tmp_path / "theirs"), str(tmp_path / "ours"), "--heads", "4"]) == 0
    assumed, compared = capsys.readouterr().out.splitlines()[1:]
    assert assumed.endswith("norms after each sublayer (norm_first=False) and ReLU")
    assert compared.startswith("largest difference of a value from nn.Transformer: ")
    assert float(compared.rpartition(" ")[2]) < 1e-5


def strange(folder: Path) -> None:
    torch_folder(folder)
    save_file({"weight": torch.zeros(2)}, folder / "model.safetensors")


def with_words(folder: Path) -> None:
    torch_folder(folder)
    held = {f"transformer.{name}": x for name, x in nn.Transformer(**SIZES).state_dict().items()}
    save_file({**held, "source.weight": torch.zeros(9, 16)}, folder / "model.safetensors")


def configured(folder: Path) -> None:
    torch_folder(folder)
    load(folder, heads=4).save(folder)


def other_words(folder: Path) -> None:
    fairseq_folder(folder)
    (folder / "dict.y.txt").write_text("c 3\n")


MISTAKES: list[tuple[Callable[[Path], Any], int | None, str]] = [
    (torch_folder, None, "holds an nn.Transformer and no config.json, and its tensors do not show how many heads"),
    (fairseq_folder, None, "give their number, as in heads=8"),
    (torch_folder, 3, "heads=3 does not divide dim=16"),
    (strange, 4, "config.json does not exist, and the tensors are no fairseq Transformer's or nn.Transformer's"),
    (with_words, 4, "1 tensors have no place in this model: source.weight"),
    (configured, 4, "has a config.json, which tells the heads; leave heads= out"),
    (other_words, 2, "the model reads 7 tokens and writes 8, and there are dict.x.txt with 7, dict.y.txt with 5"),
]


@pytest.mark.parametrize(("make", "heads", "told"), MISTAKES, ids=[told[:40] for *_, told in MISTAKES])
def test_what_is_missing_is_told(tmp_path: Path, make: Callable[[Path], Any], heads: int | None, told: str) -> None:
    make(tmp_path / "model")
    with pytest.raises(UserError) as caught:
        load(tmp_path / "model", heads=heads)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_converted_folder_translates_by_itself(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from io import StringIO

    from sacrebleu import corpus_chrf

    folder = shared / "weights" / "transformer_nqo"
    sources, references = (
        [line.strip() for line in (folder / f"sample.{name}").read_text("utf-8").split("\n") if line.strip()]
        for name in ("roman", "nqo")
    )
    assert main(["convert", str(folder), str(tmp_path / "ours"), "--heads", "8"]) == 0
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", StringIO("\n".join(line.title() for line in sources)))
    assert main(["run", str(tmp_path / "ours"), "--lines"]) == 0
    found = capsys.readouterr().out.splitlines()
    assert corpus_chrf(found, [references]).score >= 95
