"""Masked image modelling: what the encoder sees, what the decoder is told, and what the loss counts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway import Context, record
from headway.errors import UserError
from headway.nn.masked_autoencoder import MaskedAutoencoder, MaskedImageModel
from headway.ops.patches import hidden_mask, normalise, patchify, squared_error
from headway.ops.rotary import sinusoid_2d
from headway.zoo import mae, simmim, swin, swinv2, vit
from headway.zoo.build import build, from_plain, to_plain

SMALL = mae.Config(
    image=12, channels=2, patch=4, dim=16, layers=2, heads=2, decoder_dim=8, decoder_layers=1, decoder_heads=2
)
VIT = simmim.Vit(image=16, channels=2, patch=2, dim=16, layers=2, heads=2)
PYRAMID = {"image": 16, "channels": 2, "patch": 2, "dim": 8, "layers": (1, 2), "heads": (1, 2), "windows": (4, 4)}
ENCODERS = {"vit": VIT, "swin": simmim.Swin(**PYRAMID), "swinv2": simmim.SwinV2(**PYRAMID)}


def autoencoder(**sizes: object) -> MaskedAutoencoder:
    torch.manual_seed(0)
    model = build(SMALL, **sizes)
    assert isinstance(model, MaskedAutoencoder)
    return model.eval()


def over(encoder: str) -> MaskedImageModel:
    torch.manual_seed(0)
    return simmim.build(simmim.Config(ENCODERS[encoder])).eval()


def images(batch: int = 2, high: int = 12, wide: int = 12) -> Tensor:
    return torch.randn(batch, 2, high, wide, generator=torch.Generator().manual_seed(1))


def drawn(batch: int, patches: int, visible: int) -> Tensor:
    return torch.rand(batch, patches, generator=torch.Generator().manual_seed(2)).argsort(1)[:, :visible]


# Masked autoencoder


@pytest.mark.parametrize("visible", [1, 4, 9])
def test_the_encoder_of_visible_patches_is_the_whole_one_restricted_to_them(visible: int) -> None:
    """The whole encoder, in which no query may see a hidden patch, says the same of those that are visible."""
    model, x, seen = autoencoder(), images(3, 12, 12), drawn(3, 9, visible)
    keep = torch.cat([torch.ones(3, 1, dtype=torch.bool), ~hidden_mask(seen, 9)], 1)[:, None]  # B 1 T
    whole = model.encoder.features(x, Context(keep=keep))
    tokens = torch.cat([torch.zeros(3, 1, dtype=torch.long), 1 + seen], 1)
    assert_close(model.encode(x, seen), whole.take_along_dim(tokens[..., None], 1), atol=1e-5, rtol=1e-5)


def test_where_all_is_visible_the_encoder_is_a_vit() -> None:
    model, x = autoencoder(), images()
    plain = vit.build(vit.Config(image=12, channels=2, patch=4, dim=16, layers=2, heads=2, top="none")).eval()
    plain.load_state_dict(model.encoder.state_dict())
    assert_close(model.encode(x, torch.arange(9).expand(2, -1)), plain(x))


def test_what_is_hidden_does_not_matter() -> None:
    model, x, seen = autoencoder(), images(), drawn(2, 9, 3)
    hidden = hidden_mask(seen, 9).view(2, 1, 3, 3).repeat_interleave(4, 2).repeat_interleave(4, 3)
    assert_close(model(x + hidden * torch.randn_like(x), seen), model(x, seen), rtol=0, atol=0)
    assert not torch.allclose(model(x + ~hidden * torch.randn_like(x), seen), model(x, seen))


def test_the_order_in_which_visible_patches_are_given_does_not_matter() -> None:
    model, x, seen = autoencoder(), images(), drawn(2, 9, 4)
    assert_close(model(x, seen.flip(1)), model(x, seen), atol=1e-5, rtol=1e-5)


def test_attention_inside_is_among_the_visible_and_then_among_all() -> None:
    model = autoencoder()
    with record(model) as trace:
        model(images(2, 12, 16), drawn(2, 12, 3))
    assert [trace[site].shape[-1] for site in ("encoder.0.attn", "encoder.1.attn", "decoder.0.attn")] == [4, 4, 13]


def test_the_decoder_puts_each_visible_patch_where_it_stood() -> None:
    """One that says what it reads: visible patches are their own, hidden ones all the same but for their positions."""
    model, seen = autoencoder(), drawn(2, 9, 4)
    decoder = model.decoder
    decoder.stack = torch.nn.Sequential()
    decoder.stack.forward = lambda x, ctx: x
    x = torch.randn(2, 5, 16)
    said = decoder(x, seen, (3, 3))
    marks = decoder.position(torch.zeros(1, 3, 3, 8)).flatten(1, 2)
    hidden = decoder.out(decoder.hidden + marks).expand(2, -1, -1)
    own = decoder.out(decoder.narrow(x[:, 1:]) + marks.expand(2, -1, -1).take_along_dim(seen[..., None], 1))
    expected = hidden.scatter(1, seen[..., None].expand_as(own), own)
    assert_close(said, expected, atol=1e-5, rtol=1e-5)


def test_positions_are_fixed_sines_of_x_and_then_of_y() -> None:
    model = autoencoder()
    table = dict(model.named_parameters())["encoder.embed.position.table"]
    y, x = sinusoid_2d(3, 3, 16).unflatten(0, (3, 3)).chunk(2, -1)
    assert_close(table.data, torch.cat([x, y], -1))
    fixed = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    encoder = {"encoder.embed.position.table", "encoder.embed.token.position"}
    assert fixed == encoder | {"decoder.position.table", "decoder.first"}


@pytest.mark.parametrize("normed", [True, False])
def test_its_loss_is_the_mean_error_of_hidden_patches_summed(normed: bool) -> None:
    model, x, seen = autoencoder(normalised=normed), images(), drawn(2, 9, 3)
    wanted = normalise(patchify(x, 4)) if normed else patchify(x, 4)
    assert_close(model.loss(x, seen), squared_error(model(x, seen), wanted, hidden_mask(seen, 9)))


def test_a_batch_loses_what_its_images_do() -> None:
    model, x, seen = autoencoder(), images(), drawn(2, 9, 3)
    alone = [model.loss(x[i : i + 1], seen[i : i + 1]) for i in range(2)]
    assert_close(model.loss(x, seen), sum(alone), atol=1e-4, rtol=1e-5)


@pytest.mark.slow
def test_it_learns_what_is_hidden() -> None:
    """Images of one colour each: the visible patches tell the hidden ones, which are 1 from nothing in the mean."""
    model = autoencoder(normalised=False).train()
    learns = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    losses = list[float]()
    for _ in range(100):
        x = torch.randn(16, 2, 1, 1).expand(-1, -1, 12, 12)
        seen = torch.rand(16, 9).argsort(1)[:, :3]
        loss = model.loss(x, seen) / (16 * 6)
        learns.zero_grad()
        loss.backward()
        learns.step()
        losses.append(loss.item())
    assert sum(losses[-10:]) / 10 < 0.3


# SimMIM


@pytest.mark.parametrize("encoder", ENCODERS)
def test_any_encoder_says_the_pixels_of_every_patch(encoder: str) -> None:
    model, hidden = over(encoder), torch.rand(2, 64) < 0.5
    assert model(images(2, 16, 16), hidden).shape == (2, 64, 2 * 2 * 2)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_hidden_patches_may_hold_anything_and_visible_ones_count(encoder: str) -> None:
    model, x, hidden = over(encoder), images(2, 16, 16), torch.rand(2, 64) < 0.5
    covered = hidden.view(2, 1, 8, 8).repeat_interleave(2, 2).repeat_interleave(2, 3)
    assert_close(model(x + covered * torch.randn_like(x), hidden), model(x, hidden), rtol=0, atol=0)
    assert not torch.allclose(model(x + ~covered * torch.randn_like(x), hidden), model(x, hidden), atol=1e-3)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_where_nothing_is_hidden_it_is_the_encoder_and_a_layer(encoder: str) -> None:
    model, x, nothing = over(encoder), images(2, 16, 16), torch.zeros(2, 64, dtype=torch.bool)
    plain = {"vit": vit.build, "swin": swin.build, "swinv2": swinv2.build}[encoder](ENCODERS[encoder]).eval()
    names = {name: x for name, x in model.encoder.state_dict().items() if name in plain.state_dict()}
    assert set(model.encoder.state_dict()) - set(names) == {
        ("embed.patches" if encoder == "vit" else "embed") + ".token"
    }
    plain.load_state_dict(names)
    cells = plain(x).flatten(1, -2)[:, -64 if encoder == "vit" else -16 :]
    said, stride = model.out(cells), 2 if encoder == "vit" else 4
    picture = torch.nn.functional.fold(
        said.unflatten(2, (stride * stride, 2)).transpose(2, 3).flatten(2).mT, (16, 16), stride, stride=stride
    )
    assert_close(model(x, nothing), patchify(picture, 2), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_config_of_any_encoder_is_plain_data(encoder: str) -> None:
    config = simmim.Config(ENCODERS[encoder])
    assert from_plain(simmim.Config, json.loads(json.dumps(to_plain(config)))) == config


# Mistakes


MISTAKES = [
    (lambda: autoencoder()(images(), torch.zeros(1, 3, dtype=torch.long)), "visible patches are 1×3 of int64"),
    (lambda: autoencoder()(images(), torch.zeros(2, 9, dtype=torch.bool)), "visible patches are 2×9 of bool"),
    (lambda: autoencoder()(images(2, 12, 13), drawn(2, 9, 3)), "an image of 12×13 does not divide into patches of 4"),
    (lambda: over("swin")(images(2, 18, 16), torch.zeros(2, 72).bool()), "does not divide into patches of 4"),
    (lambda: over("vit")(images(2, 16, 16), torch.zeros(2, 63).bool()), "hidden patches are 2×63 of bool"),
    (lambda: simmim.build(simmim.Config(replace(VIT, patch_dropout=0.5))), r"patch_dropout=0\.5 of SimMIM's encoder"),
]


@pytest.mark.parametrize(("mistake", "told"), MISTAKES)
def test_mistakes_are_told(mistake: object, told: str) -> None:
    assert callable(mistake)
    with pytest.raises(UserError, match=told):
        mistake()
