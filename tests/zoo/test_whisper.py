"""Whisper's sizes against transformers', on the meta device; its parts by eye."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.interop.whisper import write_config
from headway.nn.attention import Attention
from headway.nn.frames import ConvEmbed
from headway.zoo.build import build, config_of
from headway.zoo.cost import cost
from headway.zoo.presets import PRESETS
from headway.zoo.whisper import Config
from headway.zoo.whisper import build as build_whisper

NAMES = [name for name in PRESETS if name.startswith("whisper-")]
MILLIONS = {"tiny": 39, "base": 74, "small": 244, "medium": 769, "large": 1550, "turbo": 809}  # as OpenAI tells them
SIZES = {
    "dim": 16,
    "layers": 1,
    "heads": 2,
    "hidden": 24,
    "decoder_layers": 2,
    "decoder_heads": 4,
    "decoder_hidden": 20,
}
TINY = Config(vocab=31, context=12, mels=6, source_context=8, **SIZES)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_of_transformers(name: str) -> None:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = config_of(name)
    assert isinstance(config, Config)
    with torch.device("meta"):
        ours, theirs = build(name), WhisperForConditionalGeneration(WhisperConfig(**write_config(config)))
    sines = config.source_context * config.dim  # a table that they store and we compute
    assert parameters(ours) == parameters(theirs) - sines
    size = name.removeprefix("whisper-").split("-")[0].removesuffix(".en")
    assert parameters(theirs) == pytest.approx(MILLIONS[size] * 1e6, rel=0.04)


@pytest.mark.slow
def test_exact_counts() -> None:
    def count(name: str) -> int:
        with torch.device("meta"):
            return parameters(build(name))

    assert count("whisper-tiny") == 37_184_640
    assert count("whisper-tiny.en") == 37_184_256
    assert count("whisper-large-v3") == 1_541_570_560
    assert count("whisper-turbo") == 806_958_080


def test_its_parts_by_eye() -> None:
    model = build_whisper(TINY)
    attentions = [part for part in model.modules() if isinstance(part, Attention)]
    assert len(attentions) == 1 + 2 * 2
    assert all(part.k.bias is None and part.q.bias is not None and part.v.bias is not None for part in attentions)
    assert isinstance(model.encoder.embed, ConvEmbed)
    assert model.decoder.head.weight is model.decoder.embed.token.weight  # type: ignore[union-attr]
    assert model(torch.randn(2, 16, 6), torch.zeros(2, 5, dtype=torch.long)).shape == (2, 5, 31)


def test_sound_enters_by_two_convolutions_and_all_sines_first() -> None:
    embed = build_whisper(TINY).encoder.embed
    assert isinstance(embed, ConvEmbed)
    with torch.no_grad():
        for conv in embed.convs:
            conv.weight.zero_()  # type: ignore[union-attr, operator]
            conv.bias.zero_()  # type: ignore[union-attr, operator]
        found = embed(torch.randn(1, 16, 6))[0]  # gelu(0) = 0: positions alone
    at = torch.arange(8.0)[:, None] * 10_000 ** -(torch.arange(8.0) / 7)
    assert_close(found, torch.cat([at.sin(), at.cos()], 1))


@pytest.mark.parametrize("frames", [16, 15, 1])
def test_a_row_is_heard_in_a_batch_as_alone(frames: int) -> None:
    from headway.nn.context import Context, PackedLengths

    model, sound = build_whisper(TINY).encoder.eval(), torch.randn(2, 16, 6)
    keep = torch.ones(2, 1, 16, dtype=torch.bool)
    keep[1, :, frames:] = False
    alone: Tensor = model(sound[1:, :frames])
    tokens = -(-frames // 2)
    assert alone.shape == (1, tokens, 16)
    assert_close(model(sound, Context(keep=keep))[1:, :tokens], alone, atol=1e-5, rtol=1e-4)
    rows = PackedLengths.of([16, frames])
    assert_close(model(rows.pack(sound), Context(rows=rows))[:, 8:], alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("strides", [(), (1, 0)])
def test_strides_that_cannot_be_are_told(strides: tuple[int, ...]) -> None:
    from headway.errors import UserError

    with pytest.raises(UserError, match="one stride or more, each of 1 frame or more"):
        ConvEmbed(4, 8, strides=strides)


@pytest.mark.slow
def test_its_cost_is_that_of_a_whole_window_of_sound() -> None:
    costs = cost("whisper-tiny", length=10)
    assert costs.total.parameters == 37_184_640
    conv = 2 * 3 * 384 * (80 * 3000 + 384 * 1500)
    assert costs.layers["encoder.embed"].flops == conv
    assert costs.layers["encoder.0"].attention == 6 * 1500 * 1500
    assert costs.layers["decoder.0"].cache == 2 * 384 * (10 + 1500)
