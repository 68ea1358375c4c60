"""Whole models in outline: contexts reach every part, also where the embedding makes the input shorter."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from headway import Context, Rows
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import SinusoidalPosition, TokenEmbed
from headway.nn.frames import FrameEmbed, Subsample
from headway.nn.head import Classifier, LMHead, MeanPool
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.pattern import Causal

DIM, HEADS, VOCAB = 16, 4, 9


def encoder(embed: nn.Module, head: nn.Module | None = None) -> Trunk:
    return Trunk(embed, Stack([Block(attn=Residual(SelfAttention(DIM, HEADS)))]), head)


def decoder() -> Trunk:
    block = Block(
        attn=Residual(SelfAttention(DIM, HEADS, pattern=Causal())), cross=Residual(CrossAttention(DIM, HEADS))
    )
    embed = TokenEmbed(VOCAB, DIM, position=SinusoidalPosition(DIM))
    return Trunk(embed, Stack([block]), LMHead(DIM, VOCAB, tied=embed.token))


@pytest.mark.parametrize("embed", [Subsample(6, DIM), FrameEmbed(6, DIM, factor=3)])
def test_a_padded_recording_is_transcribed_as_alone(embed: nn.Module) -> None:
    model = EncoderDecoder(encoder(embed), decoder())
    frames, words, rows = torch.randn(2, 22, 6), torch.randint(0, VOCAB, (2, 5)), Rows.of([22, 9])
    padded = model(frames, words, Context(keep=rows.keep))
    assert_close(padded[1:], model(frames[1:, :9], words[1:]), atol=1e-5, rtol=1e-4)
    targets = Rows.of([5, 3])
    packed = model(rows.pack(frames), targets.pack(words), Context(rows=rows), Context(rows=targets))
    assert_close(packed, targets.pack(padded), atol=1e-5, rtol=1e-4)


def test_a_head_of_whole_rows_sees_no_padding() -> None:
    model = encoder(TokenEmbed(VOCAB, DIM), Classifier(DIM, 3, pool=MeanPool()))
    words, rows = torch.randint(0, VOCAB, (2, 7)), Rows.of([7, 4])
    padded = model(words, Context(keep=rows.keep))
    assert padded.shape == (2, 3)
    assert_close(padded[1:], model(words[1:, :4]), atol=1e-5, rtol=1e-4)
    assert_close(model(rows.pack(words), Context(rows=rows)), padded, atol=1e-5, rtol=1e-4)


def test_a_head_may_be_asked_for_some_tokens_alone() -> None:
    model, words = decoder(), torch.randint(0, VOCAB, (2, 5))
    ctx = Context(memory=torch.randn(2, 4, DIM))
    features = model.features(words, ctx)
    wanted = torch.tensor([1, 4])
    assert_close(model.head(features[:, wanted]), model(words, ctx)[:, wanted])


def test_rows_pack_and_pad() -> None:
    rows = Rows.of([3, 1, 2])
    x = torch.arange(9.0).view(3, 3, 1)
    assert rows.pack(x).flatten().tolist() == [0, 1, 2, 3, 6, 7]
    assert rows.pad(rows.pack(x))[..., 0].tolist() == [[0, 1, 2], [3, 0, 0], [6, 7, 0]]
    assert rows.positions.tolist() == [[0, 1, 2, 0, 0, 1]]
    assert rows.owners.tolist() == [0, 0, 0, 1, 2, 2]
    assert rows.keep[:, 0].tolist() == [[True, True, True], [True, False, False], [True, True, False]]
