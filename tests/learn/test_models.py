"""`headway explain shapes`, `block` and `diff` against the models themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headway.learn.explain import explain
from headway.learn.explanation import Diagram
from headway.learn.module_tree import meta_model, module_tree, part_shapes
from headway.learn.rendering import to_text
from headway.nn.context import Context
from headway.zoo.build import build, config_of, on_meta
from headway.zoo.cost import call, dummy_inputs
from headway.zoo.presets import PRESETS

SMALL = 13_000_000  # parameters of a model that is built with numbers


def drawing(preset: str) -> str:
    value = explain("block", preset).values()["drawing"]
    assert isinstance(value, Diagram)
    return "\n".join(value.lines)


def real_inputs(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.zeros(x.shape, dtype=x.dtype) for x in tensors)


@pytest.mark.long
@pytest.mark.parametrize("preset", PRESETS)
def test_shapes_are_those_of_the_real_model(preset: str) -> None:
    """Of models of moderate size with numbers; larger ones run on the meta device, each part of them once."""
    found = meta_model(preset)
    shapes = part_shapes(found.model, found.run)
    assert shapes[0].path == ""
    if found.parameters > SMALL:
        assert len(shapes) > 10
        return
    model, inputs = build(preset).eval(), real_inputs(found.inputs.tensors)
    with torch.no_grad():
        assert part_shapes(model, lambda: call(model, inputs, Context(), Context())) == shapes


NARROW: dict[str, dict[str, object]] = {  # of architectures whose presets are all large
    "bart-base": {
        "dim": 32,
        "layers": 1,
        "heads": 4,
        "hidden": 64,
        "decoder_layers": 1,
        "decoder_heads": 4,
        "vocab": 50,
    },
    "llama3-8b": {"dim": 32, "layers": 1, "heads": 4, "kv_heads": 2, "hidden": 64, "vocab": 50},
    "mistral-7b": {"dim": 32, "layers": 1, "heads": 4, "kv_heads": 2, "hidden": 64, "vocab": 50},
    "marian": {"dim": 32, "layers": 1, "heads": 4, "hidden": 64, "vocab": 50},
    "mvit-b": {"layers": (1, 1, 1, 1), "dim": 32},
    "mvitv2-t": {"layers": (1, 1, 1, 1), "dim": 32},
    "swinv2-t": {"layers": (1, 1, 1, 1), "dim": 32, "heads": (1, 2, 4, 8)},
    "resnet-50-attention": {"layers": (1, 1, 1, 1)},
    "seq2seq-lstm": {"vocab": 50, "target_vocab": 40, "dim": 16, "hidden": 16, "layers": 2},
    "whisper-tiny": {
        "dim": 32,
        "layers": 1,
        "heads": 4,
        "hidden": 64,
        "decoder_layers": 1,
        "decoder_heads": 4,
        "vocab": 50,
    },
    "wav2vec2-conformer-large": {"dim": 32, "layers": 1, "heads": 4, "hidden": 64},
}


@pytest.mark.slow
@pytest.mark.parametrize("preset", NARROW)
def test_shapes_of_large_architectures_made_small(preset: str) -> None:
    config = config_of(preset, **NARROW[preset])
    meta = on_meta(config).eval()
    reads_text = hasattr(config, "vocab") and not hasattr(config, "strides")
    given = dummy_inputs(config, meta, 1, 8 if reads_text else 4000 if hasattr(config, "strides") else None).tensors
    model, inputs = build(config).eval(), real_inputs(given)
    with torch.no_grad():
        shapes = part_shapes(meta, lambda: call(meta, given, Context(), Context()))
        assert part_shapes(model, lambda: call(model, inputs, Context(), Context())) == shapes


@pytest.mark.slow
def test_shapes_of_a_preset_are_folded() -> None:
    rows = explain("shapes", "gpt-nano", n=5).values()["shapes"].data()
    assert isinstance(rows, list)
    told = [tuple(dict(row).values()) for row in rows]  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert told[0] == ("gpt-nano", "Trunk", "1×5×50257")
    assert ("      0–2 (3 ×)", "Block", "1×5×48") in told
    assert ("            up", "Linear", "1×5×192") in told


def test_layers_that_alternate_are_folded() -> None:
    alternating = nn.ModuleList([nn.Linear(2, 3 + at % 2) for at in range(6)])
    assert [node.label for node in module_tree(alternating).children] == ["0, 2 … 4", "1, 3 … 5"]
    same = nn.ModuleList([nn.Linear(2, 2) for _ in range(4)])
    assert [node.label for node in module_tree(same).children] == ["0–3"]
    runs = nn.ModuleList([nn.Linear(2, width) for width in (2, 2, 3, 3, 3)])
    assert [node.label for node in module_tree(runs).children] == ["0–1", "2–4"]


@pytest.mark.slow
def test_a_drawing_shows_where_norms_stand() -> None:
    pre, post = drawing("gpt-nano"), drawing("bert-tiny")
    assert "│  LayerNorm(48, eps=1e-05)\n" in pre
    assert "│  SelfAttention(heads=3, head_dim=16, pattern=Causal(), dropout=0.1)\n" in pre
    assert "│  LayerNorm" not in post
    assert "└── ⊕\n" in post
    assert post.split("└── ⊕\n")[1].strip().startswith("LayerNorm(128, eps=1e-12)")


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["transformer-nano", "t5-tiny", "bart-base", "whisper-tiny", "captioner-small"])
def test_every_decoder_layer_reads_the_last_encoder_output(preset: str) -> None:
    _, memory = explain("block", preset).steps
    of = memory.sentences[0].removeprefix("In a forward pass, ").split()
    assert of[0] == of[2]
    assert int(of[0]) > 0


@pytest.mark.slow
def test_a_decoder_that_reads_another_layer_would_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.nn.trunk import EncoderDecoder

    plain = EncoderDecoder.remember

    def other(self: EncoderDecoder, *given: torch.Tensor) -> Context:
        from dataclasses import replace

        ctx = plain(self, *given)
        assert ctx.memory is not None
        return replace(ctx, memory=ctx.memory + 0)

    monkeypatch.setattr(EncoderDecoder, "remember", other)
    assert explain("block", "transformer-nano").steps[1].sentences[0].startswith("In a forward pass, 0 of 2")


@pytest.mark.slow
def test_diff_names_what_differs() -> None:
    text = to_text(explain("diff", "bert", "gpt2"))
    for line in (
        "attention sees          Full                       Causal",
        "norms stand        post-norm                     pre-norm",
        "gpt2  SelfAttention(heads=12, head_dim=64, pattern=Causal(), dropout=0.1)",
    ):
        assert line in text
    assert "The same in both: encoder and decoder, attention layers, positions." in text
    same = explain("diff", "gpt2", "gpt2")
    assert same.values()["parts that differ"].data() == ["nothing"]
    assert same.values()["configs"].data() == []
