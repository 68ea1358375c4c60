"""Every architecture is a set of graphs or says why not; graphs with a past compute what the model does without one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.errors import UserError
from headway.model import Model
from headway.nn.context import Context
from headway.nn.trunk import EncoderDecoder
from headway.onnx_export.onnx_folder import facts
from headway.onnx_export.onnx_graphs import BATCH, PAST, TOKENS, OnnxGraph, graphs_of, writes
from headway.zoo.build import ARCHITECTURES
from tests.onnx_export.small_models import SMALL, small

REFUSED = {
    "llava": "models read an image among the words of a text",
    "mae": "models are made to learn: they are told which patches are hidden",
    "simmim": "models are made to learn: they are told which patches are hidden",
    "rnn": "models read their tokens one by one with torch's GRU",
    "seq2seq": "models read their tokens one by one with torch's LSTM",
}
WRITTEN = [name for name in SMALL if name not in REFUSED]
# what a file is called, of models that are not one graph alone
FILES = {
    "encoder": ["encoder_model", "decoder_model_merged", "decoder_model_merged"],
    "towers": ["vision_model", "text_model"],
}
DECODERS = [
    *("bloom", "deepseek", "gemma", "gpt2", "gpt_neox", "gpt_oss", "llama", "mixtral", "olmo", "olmo2"),
    *("qwen2_moe", "workbench"),
]
PAIRS = [
    "bart",
    "blip",
    "captioner",
    "led",
    "marian",
    "mbart",
    "t5",
    "t5gemma",
    "transformer",
    "trocr",
    "vit_captioner",
    "whisper",
]
TOWERS = ["clip", "image_text", "siglip"]


def test_every_architecture_is_small_here() -> None:
    assert set(SMALL) == set(ARCHITECTURES)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_written_says_why(name: str) -> None:
    with pytest.raises(UserError) as caught:
        graphs_of(small(name))
    assert REFUSED[name] in str(caught.value)


@pytest.mark.slow
def test_graphs_are_called_as_optimum_calls_them() -> None:
    for name in WRITTEN:
        kind = "encoder" if name in PAIRS else "towers" if name in TOWERS else ""
        assert [graph.file for graph in graphs_of(small(name))] == FILES.get(kind, ["model"]), name
    [graph] = graphs_of(small("llama"))
    assert list(graph.inputs) == ["input_ids", "attention_mask", "past_key_values.0.key", "past_key_values.0.value"]
    assert list(graph.outputs) == ["logits", "present.0.key", "present.0.value"]
    assert graph.inputs["past_key_values.0.key"] == (BATCH, 1, PAST, 8)
    encoder, _, later = graphs_of(small("marian"))
    assert (list(encoder.inputs), list(encoder.outputs)) == (["input_ids", "attention_mask"], ["last_hidden_state"])
    assert list(later.inputs) == [
        *("input_ids", "encoder_attention_mask", "encoder_hidden_states"),
        *("past_key_values.0.decoder.key", "past_key_values.0.decoder.value"),
        *("past_key_values.0.encoder.key", "past_key_values.0.encoder.value"),
    ]
    assert {*graphs_of(small("bert"))[0].inputs} == {"input_ids", "attention_mask", "token_type_ids"}


def test_towers_say_how_their_vectors_are_compared() -> None:
    model = small("siglip")
    told = json.loads(json.dumps(facts(model, [])))
    assert (told["answer"], told["scale"], told["bias"]) == (
        "vector",
        model.model.scale.item(),
        model.model.bias.item(),
    )  # type: ignore[union-attr]
    assert told["fill"] == 1  # what texts are filled up with
    assert facts(small("clip"), [])["bias"] == 0


def drawn(graph: OnnxGraph, sizes: Any) -> Sequence[Tensor]:
    return graph.draw(sizes, torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_a_past_and_padding_change_nothing(name: str) -> None:
    """Prompts that are padded on the left, read in two pieces, as each of them by itself."""
    [graph] = graphs_of(small(name))
    model = graph.module.decoder
    assert writes(model)
    whole = torch.randint(0, 31, (2, 8), generator=torch.Generator().manual_seed(3))
    mask = torch.tensor([[1] * 8, [0, 0, 0, 1, 1, 1, 1, 1]])
    empty = list(drawn(graph, {BATCH: 2, PAST: 0, TOKENS: 1}))[2:]
    before, *past = graph.module([whole[:, :5], mask[:, :5], *empty])
    after, *_ = graph.module([whole[:, 5:], mask, *past])
    found = torch.cat([before, after], 1)
    torch.testing.assert_close(found[0], model(whole[:1])[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[1, 3:], model(whole[1:, 3:])[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", PAIRS)
@torch.no_grad()
def test_a_decoder_goes_on_from_its_past(name: str) -> None:
    model: Any = small(name).model
    assert isinstance(model, EncoderDecoder)
    encoder, first, later = graphs_of(small(name))
    source = drawn(encoder, encoder.sizes[0])
    masks = dict(zip(encoder.inputs, source, strict=True))
    memory, *shorter = encoder.module(source)
    mask = [shorter[0] if shorter else masks["attention_mask"]] if "attention_mask" in masks else []
    tokens = torch.randint(0, 31, (2, 3), generator=torch.Generator().manual_seed(4))
    logits, *past = first.module([tokens[:, :1], *mask, memory])
    found = [logits]
    for at in (1, 2):
        logits, *past = later.module([tokens[:, at : at + 1], *mask, memory, *past])
        found.append(logits)
    for row in range(2):  # each by itself, without padding
        real = slice(None) if not mask else mask[0][row].bool()
        wanted = model.decoder(tokens[row : row + 1], Context(memory=memory[row : row + 1, real]))
        torch.testing.assert_close(torch.cat(found, 1)[row], wanted[0], atol=1e-5, rtol=1e-5)


def test_a_conformer_that_writes_hands_on_its_padding() -> None:
    encoder, first, _ = graphs_of(small("conformer", top="decoder"))
    assert list(encoder.outputs) == ["last_hidden_state", "encoder_attention_mask"]
    assert "encoder_attention_mask" in first.inputs


def test_a_module_of_your_own_is_refused() -> None:
    with pytest.raises(UserError, match=r"call torch\.onnx\.export with it"):
        graphs_of(replace(small("gpt2"), architecture="custom"))


def test_a_head_without_words_is_an_encoder() -> None:
    for top, outputs in {
        "none": ("last_hidden_state", "sentence_embedding"),
        "pooler": ("last_hidden_state", "pooler_output", "sentence_embedding"),
        "rows": ("logits",),
    }.items():
        [graph] = graphs_of(small("bert", top=top))
        assert graph.outputs == outputs


def test_nothing_but_models_is_given() -> None:
    with pytest.raises(UserError, match="a Linear is not written as ONNX"):
        graphs_of(Model(torch.nn.Linear(2, 2), None, "bert"))
