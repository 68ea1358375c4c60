"""Encoder–decoders: their published sizes, and the choices that their configs name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.zoo import bart, marian, t5, transformer

TINY = transformer.Config(vocab=11, source_vocab=13, dim=8, layers=2, heads=2)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "count"),
    [
        (transformer.Config(source_vocab=37_000), 101_009_544),
        (transformer.Config(dim=1024, heads=16, tied="all"), 214_249_472),
        (t5.Config(), 60_506_624),
        (t5.Config(dim=768, layers=12, heads=12, hidden=3072), 222_903_552),
        (t5.Config(dim=768, layers=12, heads=12, ffn="gated", act="gelu_tanh", tied=False), 247_577_856),
        (t5.Config(decoder_layers=0), 35_330_816),
        (bart.Config(), 406_291_456 + 50_265),  # with the bias of the output, a buffer in the published count
        (marian.Config(), 74_410_496 - 2 * 512 * 512 + 58_101),  # and without its two tables of sines
    ],
)
def test_sizes_are_the_published_ones(
    config: transformer.Config | t5.Config | bart.Config | marian.Config, count: int
) -> None:
    with torch.device("meta"):
        assert parameters(made(config)) == count


def made(config: transformer.Config | t5.Config | bart.Config | marian.Config) -> nn.Module:
    if isinstance(config, transformer.Config):
        return transformer.build(config)
    if isinstance(config, t5.Config):
        return t5.build(config)
    return bart.build(config) if isinstance(config, bart.Config) else marian.build(config)


def test_norms_stand_where_the_config_says() -> None:
    def norms(name: str) -> set[str]:
        model = transformer.build(replace(TINY, norms=name, layers=1))
        found = (path for path, part in model.named_modules() if isinstance(part, nn.LayerNorm))
        return {path.removeprefix("decoder.stack.") for path in found if path.startswith("decoder")}

    sublayers = ("attn", "cross", "ffn")
    assert norms("pre") == {*(f"blocks.0.{name}.before" for name in sublayers), "norm"}
    assert norms("post") == {f"blocks.0.{name}.after" for name in sublayers}
    assert norms("post, last") == norms("post") | {"norm"}


def test_tables_of_words_are_tied_as_the_config_says() -> None:
    def tables(tied: str) -> tuple[bool, bool]:
        model = transformer.build(replace(TINY, source_vocab=None, tied=tied))
        source, target, output = model.encoder.embed.token, model.decoder.embed.token, model.decoder.head.weight
        assert isinstance(source, nn.Embedding)
        assert isinstance(target, nn.Embedding)
        return source.weight is target.weight, target.weight is output

    assert tables("none") == (False, False)
    assert tables("target") == (False, True)
    assert tables("all") == (True, True)


def test_one_table_cannot_hold_two_vocabularies() -> None:
    with pytest.raises(UserError, match="the tied weight is 13×8"):
        transformer.build(replace(TINY, tied="all"))


@pytest.mark.parametrize(("field", "meant"), [("norms", "pre"), ("tied", "none"), ("layout", "pairs"), ("act", "relu")])
def test_a_mistyped_choice_is_told(field: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"did you mean {meant!r}"):
        transformer.build(replace(TINY, **{field: meant[:-1]}))


def test_words_enter_scaled_and_marked() -> None:
    model = transformer.build(TINY).eval()
    token = model.encoder.embed.token
    assert isinstance(token, nn.Embedding)
    first = model.encoder.embed(torch.tensor([[3]]))[0, 0]
    assert_close(first, token.weight[3] * 8**0.5 + torch.tensor([0.0, 1.0] * 4))


def test_t5_shares_its_distances_within_a_side() -> None:
    model = t5.build(t5.Config(vocab=11, dim=8, layers=3, heads=2, head_dim=4, hidden=16))
    assert isinstance(model, EncoderDecoder)
    tables = [name for name, _ in model.named_parameters() if name.endswith("table")]
    assert tables == [f"{side}.stack.blocks.0.attn.body.logit_bias.table" for side in ("encoder", "decoder")]


def test_t5_without_decoder_layers_is_an_encoder() -> None:
    model = t5.build(t5.Config(vocab=11, dim=8, layers=1, decoder_layers=0, heads=2, head_dim=4, hidden=16))
    assert isinstance(model, Trunk)
    assert model(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, 8)


def test_t5_begins_with_logits_of_one_size() -> None:
    """Without a scale in the score, its first queries must be small."""
    torch.manual_seed(0)
    model = t5.build(t5.Config(vocab=11, dim=256, layers=1, heads=4, head_dim=64, hidden=16))
    attention = next(part for part in model.modules() if hasattr(part, "head_dim"))
    x = torch.randn(64, 256)
    scores = attention.q(x)[:, :64] @ attention.k(x)[:, :64].T
    assert 0.8 < float(scores.detach().std()) < 1.2
