"""Folders in the shapes that people have: they load, run, convert and are looked at, with transformers' numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from headway.cli import main as cli
from headway.conversion import convert
from headway.data.tokenizer_readers import load_tokenizer
from headway.errors import UserError
from headway.interop.incomplete_config import TENSORS, completed
from headway.interop.registry import FAMILIES, model_type_of
from headway.loading import load
from headway.model import Model
from headway.nn.trunk import EncoderDecoder
from tests.data.test_tokenizer_parity import learn, learn_merges, learn_words
from tests.interop.cases_bert import model as encoder
from tests.interop.cases_decoders import CAPPED
from tests.interop.cases_decoders import model as decoder
from tests.interop.cases_gpt2 import gpt2
from tests.interop.cases_llama import llama
from tests.interop.cases_seq2seq import bart, t5
from tests.interop.parity import difference, shaken

Save = Callable[[dict[str, Tensor], Path], None]


def pickled(tensors: dict[str, Tensor], folder: Path) -> None:
    """As PyTorch wrote before its version 1.6."""
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def safe(tensors: dict[str, Tensor], folder: Path) -> None:
    save_file({name: x.clone().contiguous() for name, x in tensors.items()}, folder / "model.safetensors")


def sharded(tensors: dict[str, Tensor], folder: Path) -> None:
    """In two old pickles, with an index."""
    places = {name: f"pytorch_model-0000{1 + at % 2}-of-00002.bin" for at, name in enumerate(tensors)}
    for file in set(places.values()):
        part = {name: x for name, x in tensors.items() if places[name] == file}
        torch.save(part, folder / file, _use_new_zipfile_serialization=False)
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


@dataclass(frozen=True)
class Found:
    """A model of transformers' as a folder holds it: without some options of its config, and with others."""

    model_type: str
    make: Callable[..., Any]
    tokens: Callable[[Path], object]  # writes the tokenizer's files into the folder, before anything else
    save: Save
    without: tuple[str, ...] = ()
    extra: tuple[tuple[str, object], ...] = ()
    precision: torch.dtype = torch.float32
    notes: int = 0
    text: str = "the river runs to the sea"

    def write(self, folder: Path) -> Any:
        """The model whose numbers are those of the folder, in single precision."""
        self.tokens(folder)
        torch.manual_seed(0)
        theirs = shaken(self.make(vocab_size=load_tokenizer(folder, self.model_type).vocab)).eval()
        for weight in theirs.parameters():
            weight.data = weight.data.to(self.precision).float()
        values = {**json.loads(theirs.config.to_json_string(use_diff=False)), **dict(self.extra)}
        values["architectures"] = [type(theirs).__name__]
        for name in self.without:
            del values[name]
        (folder / "config.json").write_text(json.dumps(values))
        self.save({name: x.to(self.precision) for name, x in theirs.state_dict().items()}, folder)
        return theirs


def words(folder: Path) -> Path:
    return learn_words(folder, lower=True)


def spiece(folder: Path) -> Path:
    return learn(folder / "spiece.model")


def spelled(folder: Path) -> Path:
    return learn(folder / "tokenizer.model", "bpe", byte_fallback=True)


def merges(folder: Path) -> Path:
    """GPT-2's files, of a model that does not say so by its type."""
    found = learn_merges(folder)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    return found


UNTYPED = ("model_type", "architectures")
OWN = (("condition_on_chain", True), ("trained_on", "stories"))
TAGS = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}, "label2id": {"O": 0, "B-PER": 1, "I-PER": 2}}
START = (("decoder_start_token_id", 0),)  # which transformers 5 keeps elsewhere
OF_TODAY = ("Qwen3 with keys of its own", "Gemma 2 in bf16", "StarCoder 2")
FOLDERS = {
    "GPT-2 with keys of its own": Found("gpt2", gpt2, learn_merges, safe, extra=OWN, notes=1),
    "GPT-2 of before 1.6": Found("gpt2", gpt2, learn_merges, pickled, UNTYPED, OWN, notes=3),
    "BERT of classes without a type": Found(
        "bert", partial(encoder, "BertForSequenceClassification", num_labels=3), words, pickled, UNTYPED, notes=2
    ),
    "BERT of tags without architectures": Found(
        "bert", partial(encoder, "BertForTokenClassification", **TAGS), words, safe, ("architectures",), notes=1
    ),
    "BERT in old shards": Found(
        "bert", partial(encoder, "BertForMaskedLM"), words, sharded, ("model_type",), notes=1, text="the [MASK] runs"
    ),
    "T5 with SentencePiece alone": Found("t5", t5, spiece, pickled, UNTYPED, START, notes=2),
    "Llama in bf16": Found("llama", llama, spelled, safe, precision=torch.bfloat16),
    "Llama in fp16, without a type": Found("llama", llama, spelled, safe, ("model_type",), OWN, torch.float16, notes=2),
    "Qwen3 with keys of its own": Found(
        "qwen3", partial(decoder, "Qwen3ForCausalLM", head_dim=16), merges, safe, extra=OWN, notes=1
    ),
    "Gemma 2 in bf16": Found(
        "gemma2", partial(decoder, "Gemma2ForCausalLM", **CAPPED), merges, safe, precision=torch.bfloat16
    ),
    "StarCoder 2": Found("starcoder2", partial(decoder, "Starcoder2ForCausalLM", sliding_window=3), merges, safe),
}


def logits(loaded: Model, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return loaded.model(ids, ids) if isinstance(loaded.model, EncoderDecoder) else loaded.model(ids)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in OF_TODAY else name for name in FOLDERS]
)
def test_a_folder_as_people_have_it_works(name: str, tmp_path: Path) -> None:
    found, folder = FOLDERS[name], tmp_path / "found"
    theirs = found.write(folder)
    loaded = load(folder, unsafe=found.save is not safe)
    assert len(loaded.notes) == found.notes
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.float32}
    ids = torch.tensor([loaded.vocabulary().encode(found.text)])
    paired = {"decoder_input_ids": ids} if isinstance(loaded.model, EncoderDecoder) else {}
    with torch.no_grad():
        expected = theirs(input_ids=ids, **paired).logits
    assert difference(logits(loaded, ids), expected) <= 1e-5
    limit: dict[str, Any] = {"max_new_tokens": 3} if loaded.task.decoding else {}
    answer = loaded.predict(found.text, **limit).to_dict()
    recording = loaded.attend(found.text, most=3)
    assert recording._repr_html_()
    for layout in ("headway", "hf"):
        made = convert(folder, tmp_path / layout, layout, unsafe=found.save is not safe)
        assert made.notes == loaded.notes
        assert float(made.comparison.rpartition(" ")[2]) <= 1e-5
        again = load(tmp_path / layout)
        assert again.notes == ()
        assert again.predict(found.text, **limit).to_dict() == answer
        assert torch.equal(logits(again, ids), logits(loaded, ids))
    (folder / "config.json").write_text(theirs.config.to_json_string(use_diff=False))
    assert load_tokenizer(folder).encode(found.text) == ids[0].tolist()
    written = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (written["model_type"], written["architectures"]) == (theirs.config.model_type, [type(theirs).__name__])


@pytest.mark.slow
def test_the_commands_say_what_was_inferred(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FOLDERS["GPT-2 of before 1.6"].write(tmp_path / "found")
    assert cli.main(["run", str(tmp_path / "found"), "the river", "--unsafe", "--max-new-tokens", "2"]) == 0
    told = capsys.readouterr()
    assert told.err.splitlines()[:3] == [
        "note: config.json has no model_type; it is taken to be 'gpt2'",
        "note: config.json has no architectures; its tensors are those of a GPT2LMHeadModel",
        "note: config.json sets what gpt2 models do not know in transformers either: "
        "condition_on_chain=True, trained_on='stories'",
    ]
    assert cli.main(["convert", str(tmp_path / "found"), str(tmp_path / "hf"), "--to", "hf", "--unsafe"]) == 0
    assert (
        "note: config.json has no architectures; its tensors are those of a GPT2LMHeadModel" in capsys.readouterr().out
    )


# ---- what a config.json leaves out


MADE: dict[str, Callable[[], Any]] = {
    **{
        name: lambda name=name: encoder(name, **({"pad_token_id": 1} if "Roberta" in name else {}))
        for name in (
            *("BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForNextSentencePrediction"),
            *("BertForQuestionAnswering", "RobertaForMaskedLM", "RobertaForSequenceClassification"),
            *("AlbertForMaskedLM", "AlbertForSequenceClassification", "AlbertModel"),
        )
    },
    "BartForConditionalGeneration": bart,
    "T5ForConditionalGeneration": t5,
    "GPT2LMHeadModel": gpt2,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_tensors_tell_the_type_and_the_head(name: str) -> None:
    theirs = MADE[name]()
    values = {key: x for key, x in theirs.config.to_dict().items() if key not in UNTYPED}
    found, notes = completed(values, theirs.state_dict())
    assert (found["model_type"], found["architectures"]) == (theirs.config.model_type, [name])
    assert len(notes) == 2
    assert completed({**found, "architectures": []}, theirs.state_dict())[0] == found


def test_a_bare_encoder_of_one_segment_is_robertas() -> None:
    theirs = encoder("RobertaModel", pad_token_id=1, type_vocab_size=1)
    values = {key: x for key, x in theirs.config.to_dict().items() if key not in UNTYPED}
    assert completed(values, theirs.state_dict())[0]["model_type"] == "roberta"


def test_tensors_that_many_models_have_tell_no_type() -> None:
    theirs = llama()  # as Gemma's are called, which computes otherwise
    with pytest.raises(UserError, match=r"neither do the names of its tensors; add its model_type to the file"):
        completed({"hidden_size": 8}, theirs.state_dict())
    assert set(TENSORS) <= set(FAMILIES)


def test_a_class_of_transformers_belongs_to_its_type_and_no_other() -> None:
    from transformers.models.auto import modeling_auto

    pairs = {
        (model_type, name)
        for table, types in vars(modeling_auto).items()
        if table.endswith("MAPPING_NAMES")
        for model_type, names in types.items()
        for name in ([names] if isinstance(names, str) else names)
    }
    told = {(model_type, name): model_type_of({"architectures": [name]}) for model_type, name in pairs}
    # a GPT-SW3 is a GPT-2 with another tokenizer
    wrong = {pair: found for pair, found in told.items() if found not in (None, pair[0]) and pair[0] != "gpt-sw3"}
    assert wrong == {}
    assert len([found for found in told.values() if found]) > 90
    # the class of an encoder and a decoder does not say which two they are
    untold = ("timm", "mvit", "vision-encoder-decoder")
    assert {found for found in told.values() if found} == {name for name in FAMILIES if not name.startswith(untold)}


@pytest.mark.parametrize("given", [{}, {"architectures": []}, {"architectures": "GPT2Model"}, {"architectures": [3]}])
def test_a_config_that_tells_nothing_is_told(given: dict[str, object]) -> None:
    assert model_type_of(given) is None
    with pytest.raises(UserError, match=r"config\.json says model_type=3; allowed: one of albert, "):
        model_type_of({**given, "model_type": 3})


# ---- files of other formats


FORMATS = {
    "model-q4.gguf": r"holds GGUF, the format of llama\.cpp, model-q4\.gguf, and no weights; name the file itself",
    "model.onnx": "holds an ONNX graph",
    "onnx/model.onnx": "holds an ONNX graph",
    "openvino_model.xml": "holds an OpenVINO graph",
    "flax_model.msgpack": r"holds weights of Flax.*from_flax=True",
    "tf_model.h5": r"holds weights of TensorFlow.*from_tf=True",
    "model.ckpt.index": "holds a TensorFlow checkpoint",
    "model_index.json": "holds a diffusers pipeline of several models",
    "model.fp16.safetensors": r"holds weights under another name.*rename the file to model\.safetensors",
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("config", ["{}", '{"model_type": "gpt2"}', None])
def test_other_formats_are_named(name: str, config: str | None, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("{}")
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(UserError, match=FORMATS[name]):
        load(tmp_path)


def test_a_file_of_another_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    with pytest.raises(UserError, match=r"model\.onnx holds an ONNX graph; fetch the model"):
        load(tmp_path / "model.onnx")
