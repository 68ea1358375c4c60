"""Models as folders of CTranslate2: its numbers and greedy texts are ours, and what it does not compute is refused."""

from __future__ import annotations

import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from headway.cli.main import main
from headway.conversion import convert
from headway.data.tokenizer_readers import load_tokenizer
from headway.errors import UserError
from headway.loading import load
from headway.model import Model
from headway.nn.trunk import EncoderDecoder
from headway.zoo.llama import Frequencies, Multipliers
from tests.tasks.learners import words

SMALL = {
    **{"vocab": 0, "dim": 16, "layers": 2, "heads": 2, "hidden": 24, "context": 40, "dropout": 0.0},
    **{"decoder_layers": 2, "decoder_heads": 2, "decoder_hidden": 24, "head_dim": 8},
}
TEXT = "the small cat sees"

TRANSLATORS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "transformer, post-norm, one table": {"norms": "post", "tied": "all"},
    "transformer as fairseq": {"layout": "halves", "steps": 7, "first": 2, "tied": "target"},
    "marian": {},
    "bart": {},
    "mbart": {},
}
DECODERS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "llama": {"kv_heads": 2},
    "llama, grouped heads": {"kv_heads": 1, "rotary": Frequencies(500.0, part=0.5)},
    "llama, wide heads and biases": {"kv_heads": 2, "head_dim": 12, "biases": "qkv", "multipliers": Multipliers(3.0)},
}
REFUSED = {
    "gpt_neox": "a ParallelBlock of attn, ffn",
    "olmo2": r"a sublayer \(attn\) with more than a norm before or behind it",
    "bloom": "attention with another score than the scaled product of queries and keys",
    "t5": "attention with another score than the scaled product of queries and keys",
    "bert": "a model of bert",
    "llama, window": r"a decoder with the pattern Causal\(window=4\)",
    "llama, norms of heads": "attention with another score",
    "llama, unlike layers": "a stack whose layers attend in different ways",
    "llama, a part of each change": r"a sublayer \(attn\) with more than a norm",
    "transformer, a norm more": r"this order of norms \(LayerNorm\)",
}
MORE: dict[str, dict[str, Any]] = {
    "llama, window": {"kv_heads": 2, "window": 4},
    "llama, norms of heads": {"kv_heads": 2, "qk_norm": "heads"},
    "llama, unlike layers": {"kv_heads": 2, "unplaced_layers": (1,)},
    "llama, a part of each change": {"kv_heads": 2, "multipliers": Multipliers(residual=0.5)},
    "transformer, a norm more": {"norms": "post, last"},
}


def made(name: str, **more: Any) -> Model:
    """A small model, whose numbers are not too small to choose different tokens."""
    architecture, tokenizer = name.partition(",")[0].partition(" ")[0], words()
    zoo = import_module(f"headway.zoo.{architecture}")
    known = {field.name for field in fields(zoo.Config)}
    sizes = {key: value for key, value in (SMALL | {"vocab": tokenizer.vocab + 3}).items() if key in known}
    config = zoo.Config(**{**sizes, **more})
    torch.manual_seed(3)
    model = zoo.build(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    task = "seq2seq" if isinstance(model, EncoderDecoder) else None
    settings = {"decoder_start_token_id": 1, "eos_token_id": tokenizer.eos}
    return Model(model, config, architecture, None, settings, tokenizer, task_name=task)


def converted(name: str, tmp_path: Path, **more: Any) -> tuple[Any, Model, Path]:
    library: Any = pytest.importorskip("ctranslate2")

    made(name, **more).save(tmp_path / "model")
    told = convert(tmp_path / "model", tmp_path / "out", "ctranslate2")
    assert float(told.comparison.rpartition(": ")[2]) < 1e-4
    return library, load(tmp_path / "model"), tmp_path / "out"


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translator_gives_the_same_numbers_and_the_same_text(name: str, tmp_path: Path) -> None:
    library, model, folder = converted(name, tmp_path, **TRANSLATORS[name])
    tokenizer = load_tokenizer(folder)
    source = [tokenizer.token(id) for id in tokenizer.encode(TEXT)]
    theirs = library.Translator(str(folder), device="cpu", intra_threads=1)
    [found] = theirs.translate_batch([source], beam_size=1, max_decoding_length=12, return_scores=True)
    assert len(found.hypotheses[0]) > 1
    ours = model.predict(TEXT, max_new_tokens=12)
    assert tokenizer.decode([tokenizer.id(token) for token in found.hypotheses[0]]) == ours.output
    [scored] = theirs.score_batch([source], [found.hypotheses[0]])
    wanted = [tokenizer.id(token) for token in scored.tokens]
    ids = torch.tensor([[1, *wanted]])
    with torch.no_grad():
        logits = model.model(torch.tensor([tokenizer.encode(TEXT)]), ids[:, :-1]).log_softmax(-1)[0]
    assert_close(torch.tensor(scored.log_probs), logits.gather(1, ids[0, 1:, None])[:, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_gives_the_same_numbers_and_the_same_text(name: str, tmp_path: Path) -> None:
    library, model, folder = converted(name, tmp_path, **DECODERS[name])
    tokenizer = load_tokenizer(folder)
    ids = tokenizer.encode(TEXT)
    theirs = library.Generator(str(folder), device="cpu", intra_threads=1)
    prompt = [tokenizer.token(id) for id in ids]
    with torch.no_grad():
        logits = model.model(torch.tensor([ids]))
    assert_close(torch.from_numpy(np.array(theirs.forward_batch([prompt]))), logits, rtol=1e-4, atol=1e-5)
    [found] = theirs.generate_batch(
        [prompt], beam_size=1, sampling_topk=1, max_length=12, include_prompt_in_result=False
    )
    assert len(found.sequences_ids[0]) > 1
    with torch.no_grad():
        for _ in found.sequences_ids[0]:
            ids.append(int(model.model(torch.tensor([ids]))[0, -1].argmax()))
    assert found.sequences_ids[0] == ids[len(prompt) :]


@pytest.mark.parametrize("name", REFUSED)
def test_what_ctranslate2_does_not_compute_is_refused(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    made(name, **MORE.get(name, {})).save(tmp_path / "model")
    with pytest.raises(
        UserError, match=f"^{REFUSED[name]}.* has no place in CTranslate2's specifications; use to=onnx"
    ):
        convert(tmp_path / "model", tmp_path / "out", "ctranslate2")
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_other_requests_are_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made("gpt2").save(tmp_path / "model")
    words = [str(tmp_path / "model"), str(tmp_path / "out"), "--to", "ctranslate2"]
    assert main(["convert", *words, "--dtype", "int8"]) == 2
    assert "is written in fp32, and not in int8; leave --dtype out, and give compute_type" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert main(["convert", *words]) == 2
    assert "CTranslate2 is not installed; pip install 'headway[ctranslate2]'" in capsys.readouterr().err
    monkeypatch.undo()
    (tmp_path / "model" / "tokenizer.json").unlink()
    assert main(["convert", *words]) == 2
    assert "the model has no tokenizer, and CTranslate2 wants the names of tokens" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
