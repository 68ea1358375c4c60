"""The Conformers: a clip alone is the clip in a batch, through every top; sizes; and a clip is learned by heart.

Axes:  B batch   T frames   F features   V symbols
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.generate.ctc_decoding import PrefixBeam, ctc_greedy
from headway.nn.block import Block
from headway.nn.context import Context, PackedLengths
from headway.nn.trace import sites_of
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.ctc import ctc_loss
from headway.ops.mel import LogMel
from headway.zoo import conformer, wav2vec2_conformer
from headway.zoo.build import build
from headway.zoo.presets import PRESETS

FEATURES, VOCAB = 6, 7
SMALL = conformer.Config(FEATURES, 8, layers=2, heads=2, kernel=5, vocab=VOCAB, decoder_layers=1, classes=3)
WAVES = wav2vec2_conformer.Config(
    VOCAB, 8, layers=2, heads=2, hidden=12, kernel=5, channels=(4, 5), kernels=(3, 2), strides=(2, 1), classes=3
)
MODELS: dict[str, Callable[[], nn.Module]] = {
    "ctc": lambda: conformer.build(SMALL),
    "none": lambda: conformer.build(replace(SMALL, top="none")),
    "tokens": lambda: conformer.build(replace(SMALL, top="tokens")),
    "rows": lambda: conformer.build(replace(SMALL, top="rows")),
    "every frame": lambda: conformer.build(replace(SMALL, factor=1)),
    "by two": lambda: conformer.build(replace(SMALL, factor=2, channels=3)),
    "waves, ctc": lambda: wav2vec2_conformer.build(WAVES),
    "waves, rows": lambda: wav2vec2_conformer.build(replace(WAVES, top="rows", norms="first")),
    "waves, tokens": lambda: wav2vec2_conformer.build(replace(WAVES, top="tokens")),
    "waves, none": lambda: wav2vec2_conformer.build(replace(WAVES, top="none", norms="first")),
}
models = pytest.mark.parametrize("name", MODELS)
LENGTHS = [23, 11, 5]
close = {"atol": 2e-5, "rtol": 1e-4}


def built(name: str) -> Trunk:
    torch.manual_seed(1)
    model = MODELS[name]().eval()
    assert isinstance(model, Trunk)
    for buffer_name, buffer in model.named_buffers():  # as after some training
        if buffer_name.endswith(("running_mean", "running_var")):
            buffer += torch.rand(buffer.shape, generator=torch.Generator().manual_seed(4))
    return model


def sound(name: str, batch: int = 3, length: int = LENGTHS[0]) -> Tensor:
    features = 1 if name.startswith("waves") else FEATURES
    return torch.randn(batch, length, features, generator=torch.Generator().manual_seed(2))


# ---- a clip is heard alone as in a batch


@models
@pytest.mark.parametrize("side", ["right", "left"])
@torch.no_grad()
def test_padding_is_not_heard(name: str, side: str) -> None:
    model, x, keep = built(name), sound(name), PackedLengths.of(LENGTHS).keep
    keep = keep.flip(2) if side == "left" else keep
    noisy = torch.where(keep[:, 0, :, None], x, 9.0)
    together = model(noisy, Context(keep=keep))
    for row, length in enumerate(LENGTHS):
        alone = model(x[row : row + 1, -length:] if side == "left" else x[row : row + 1, :length])
        assert_close(together[row : row + 1, : alone.shape[1]] if alone.dim() == 3 else together[[row]], alone, **close)


@models
@torch.no_grad()
def test_packed_is_padded(name: str) -> None:
    model, x, rows = built(name), sound(name), PackedLengths.of(LENGTHS)
    padded, packed = model(x, Context(keep=rows.keep)), model(rows.pack(x), Context(rows=rows))
    inner = model.inner(Context(rows=rows)).rows
    assert inner is not None
    assert_close(packed, inner.pack(padded) if padded.dim() == 3 else padded, **close)


@torch.no_grad()
def test_a_decoder_writes_of_each_clip_as_alone() -> None:
    torch.manual_seed(1)
    model = conformer.build(replace(SMALL, top="decoder")).eval()
    assert isinstance(model, EncoderDecoder)
    x, words, rows = sound("frames"), torch.arange(12).view(3, 4) % VOCAB, PackedLengths.of(LENGTHS)
    padded = model(x, words, Context(keep=rows.keep))
    packed = model(rows.pack(x), words, Context(rows=rows))
    for row, length in enumerate(LENGTHS):
        alone = model(x[row : row + 1, :length], words[row : row + 1])
        assert_close(padded[row : row + 1], alone, **close)
        assert_close(packed[row : row + 1], alone, **close)
    assert padded.shape == (3, 4, VOCAB)


@pytest.mark.parametrize("name", ["ctc", "waves, none"])
@pytest.mark.long
def test_a_model_is_captured_whole(name: str) -> None:
    torch._dynamo.reset()
    model, x, keep = built(name), sound(name), PackedLengths.of(LENGTHS).keep
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        assert_close(compiled(x, Context(keep=keep)), model(x, Context(keep=keep)), **close)


@models
def test_what_can_be_recorded(name: str) -> None:
    shown = ("attn.input", "attn.weights", "attn.values", "attn.heads", "out")
    layers = [f"{i}.{what}" for i in range(2) for what in shown]
    assert set(sites_of(built(name))) == {"embed.out", *layers}


# ---- what it is made of


@torch.no_grad()
def test_a_block_by_hand() -> None:
    torch.manual_seed(1)
    block = conformer.conformer_block(8, 2, 16, kernel=3).eval()
    x = torch.randn(2, 5, 8)
    parts = dict(block.named_children())

    def change(name: str, at: Tensor) -> Tensor:
        return parts[name].body(parts[name].before(at))  # type: ignore[operator, union-attr]

    y = x + 0.5 * change("ffn_in", x)
    y = y + change("attn", y)
    y = y + change("conv", y)
    y = parts["ffn_out"].after(y + 0.5 * change("ffn_out", y))  # type: ignore[operator]
    assert isinstance(block, Block)
    assert_close(block(x), y)
    assert_close(y.mean(-1), torch.zeros(2, 5), atol=1e-6, rtol=0)


# encoder, as the file says; with CTC; with a decoder
SIZES = {
    "conformer-nano": (303_264, 305_344, 405_920),
    "conformer-s": (8_710_848, 8_859_328, 10_865_664),
    "conformer-m": (27_327_488, 27_590_656, 33_910_784),
    "conformer-l": (115_111_424, 115_636_736, 140_860_928),
}


def weights(name: str, top: str) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(name, top=top).parameters())


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str) -> None:
    assert tuple(weights(name, top) for top in ("none", "ctc", "decoder")) == SIZES[name]
    assert all(f"{SIZES[size][0]:,}" in (conformer.__doc__ or "") for size in SIZES if size[-2] == "-")


@pytest.mark.slow
def test_the_encoder_is_counted_by_hand() -> None:
    """Two feed-forward layers, four projections and that of distances, the convolution's parts, five norms."""
    dim, layers, mels = 144, 16, 80
    ffn, attention = 2 * dim * 4 * dim + 5 * dim, 4 * (dim * dim + dim) + dim * dim + 2 * dim
    convolution = 2 * dim * (dim + 1) + dim * (31 + 1) + 2 * dim + dim * (dim + 1)
    shortening = dim * (9 + 1) + dim * (9 * dim + 1) + dim * (mels // 4 * dim + 1)
    assert weights("conformer-s", "none") == layers * (2 * ffn + attention + convolution + 10 * dim) + shortening


@pytest.mark.slow
def test_the_published_waveform_model() -> None:
    assert weights("wav2vec2-conformer-large", "ctc") == 610_201_120
    assert weights("wav2vec2-conformer-large", "none") == 610_201_120 - 32 * 1025


def test_presets_are_there() -> None:
    assert [name for name in PRESETS if name.startswith("conformer")] == list(SIZES)
    assert 150_000 < SIZES["conformer-nano"][0] < 400_000


def test_mistakes_are_told() -> None:
    with pytest.raises(UserError, match=r"no top of a Conformer 'ctx'; .*did you mean 'ctc'\?"):
        conformer.build(replace(SMALL, top="ctx"))
    with pytest.raises(UserError, match=r"an odd number of frames; try kernel=33"):
        conformer.build(replace(SMALL, kernel=32))
    with pytest.raises(UserError, match="not of the same convolutions"):
        wav2vec2_conformer.build(replace(WAVES, strides=(2,)))
    with pytest.raises(UserError, match="no norms 'some'; allowed: all, first"):
        wav2vec2_conformer.build(replace(WAVES, norms="some"))


# ---- from sound to symbols


@pytest.mark.slow
def test_two_clips_are_learned_by_heart() -> None:
    """Tones that rise and fall, in a ragged batch, and the symbols that tell which: all parts in one line."""
    mel = LogMel.speech(2000, 8)
    time = torch.arange(2000) / 2000
    waves = torch.stack([torch.sin(2 * torch.pi * (200 + 500 * time) * time), torch.sin(900 / (time + 0.3))])
    lengths, targets = [2000, 1500], torch.tensor([[1, 2, 3], [3, 1, 0]])
    frames, counts = mel(waves, lengths), [mel.frames(length) for length in lengths]
    torch.manual_seed(0)
    sizes = {"layers": 1, "heads": 2, "kernel": 5, "vocab": 4, "dropout": 0.0, "attention_dropout": 0.0}
    model = conformer.build(conformer.Config(8, 16, **sizes, act_dropout=0.0))  # type: ignore[arg-type]
    assert isinstance(model, Trunk)
    ctx = Context(keep=PackedLengths.of(counts).keep)
    tokens = [model.embed.length(count) for count in counts]  # type: ignore[operator, union-attr]
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(90):
        loss = ctc_loss(model(frames, ctx), torch.tensor(tokens), targets, torch.tensor([3, 2])).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.5
    with torch.no_grad():
        heard = model.eval()(frames, ctx)
    assert [found.symbols for found in ctc_greedy(heard, tokens)] == [(1, 2, 3), (3, 1)]
    assert [found[0].symbols for found in PrefixBeam()(heard, tokens)] == [(1, 2, 3), (3, 1)]
