"""CLIP and SimCLR: two towers and their scale, texts that end, projections over any encoder; published sizes.

Axes:  N images   M texts   T tokens   P width of the vectors that are compared
"""

from __future__ import annotations

from math import log

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.context import Context, PackedLengths
from headway.nn.towers import TwoTowers
from headway.nn.trunk import Trunk
from headway.ops.losses import cosines, info_nce, nt_xent
from headway.zoo import clip, image_text, simclr, vit
from headway.zoo.build import build, config_of
from headway.zoo.encoders import image_encoder

END, LENGTHS = 9, [6, 3, 4]
TINY = {
    "vocab": 11,
    "end": END,
    "context": 8,
    "dim": 8,
    "layers": 2,
    "heads": 2,
    "image": 12,
    "patch": 4,
    "image_dim": 12,
    "image_layers": 2,
    "image_heads": 3,
    "width": 6,
}


def towers() -> TwoTowers:
    torch.manual_seed(1)
    return clip.build(clip.Config(**TINY)).eval()


def images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(2))


def texts() -> tuple[Tensor, Tensor]:
    """Texts of 6, 3 and 4 tokens that end, filled up with other words; and which tokens are real."""
    real = torch.arange(6) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(0, END, (3, 6), generator=torch.Generator().manual_seed(3))
    ids[torch.arange(3), torch.tensor(LENGTHS) - 1] = END
    return ids, real


# ---- two towers


def test_logits_are_scaled_cosines() -> None:
    model, (ids, real) = towers(), texts()
    logits = model(images(), ids, text_ctx=Context(keep=real[:, None]))
    assert logits.shape == (2, 3)
    vectors = model.image(images()), model.text(ids)
    assert_close(logits, cosines(*vectors) / 0.07)
    assert [x.shape[1] for x in vectors] == [6, 6]


def test_what_stands_behind_a_texts_end_is_not_read() -> None:
    """Told by a mask, by packed rows, by the end token alone, or cut off: the same vectors."""
    model, (ids, real) = towers(), texts()
    alone = torch.cat([model.text(ids[i : i + 1, :n]) for i, n in enumerate(LENGTHS)])
    rows = PackedLengths.of(LENGTHS)
    told = (
        model.text(ids, Context(keep=real[:, None])),
        model.text(ids),
        model.text(torch.where(real, ids, END)),
        model.text(rows.pack(ids), Context(rows=rows)),
    )
    for vectors in told:
        assert_close(vectors, alone, atol=1e-5, rtol=1e-5)


def test_a_text_without_an_end_is_read_to_its_last_token() -> None:
    model = towers()
    ids = torch.tensor([[1, 2, 3, 4]])
    assert_close(model.text(ids), model.text.head(model.text.features(ids)))


def test_a_text_is_the_vector_of_its_end() -> None:
    model, (ids, _) = towers(), texts()
    features = model.text.features(ids)
    expected = model.text.head.out(features[torch.arange(3), torch.tensor(LENGTHS) - 1])  # type: ignore[operator]
    assert_close(model.text(ids), expected)


def test_the_scale_is_held_while_it_learns() -> None:
    model = towers()
    assert model.log_scale.item() == pytest.approx(log(1 / 0.07))
    model.log_scale.data.fill_(5.0)
    assert model.scale.item() == pytest.approx(148.41, rel=1e-4)  # a file's own
    assert model.train().scale.item() == pytest.approx(100.0)


def test_all_of_it_learns() -> None:
    model, (ids, _) = towers().train(), texts()
    loss = info_nce(model.image(images(3)), model.text(ids), model.scale)
    loss.backward()
    # a softmax does not notice what a bias of keys adds to all of its logits alike
    grads = {path: p.grad for path, p in model.named_parameters() if not path.endswith("k.bias")}
    assert [path for path, grad in grads.items() if grad is None or grad.abs().max() == 0] == []


@pytest.mark.slow
def test_pairs_find_each_other() -> None:
    model, (ids, _) = towers().train(), texts()
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(40):
        optimiser.zero_grad()
        info_nce(model.image(images(3)), model.text(ids), model.scale).backward()
        optimiser.step()
    assert model.eval()(images(3), ids).argmax(1).tolist() == [0, 1, 2]


def test_images_of_other_sizes_go_too() -> None:
    assert towers().image(torch.randn(2, 3, 16, 20)).isfinite().all()


# ---- sizes


PUBLISHED = {
    "clip-nano": 2_048_385,
    "clip-vit-b32": 151_277_313,
    "clip-vit-b16": 149_620_737,
    "clip-vit-l14": 427_616_513,
    "clip-vit-l14-336": 427_944_193,
    "simclr-nano": 331_488,
    "simclr-resnet-50": 25_557_032 - 2049 * 1000 + 2049 * 2048 + 2048 * 128,  # ResNet's without classes, and the head
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_published(name: str) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in build(name).parameters()) == PUBLISHED[name]


# ---- SimCLR


def seeing() -> Trunk:
    torch.manual_seed(1)
    model = simclr.build(simclr.Config("swin-nano", image=28, channels=1, width=5))
    assert isinstance(model, Trunk)
    return model


@pytest.mark.slow
def test_a_projection_over_any_encoder() -> None:
    model, views = seeing().eval(), torch.randn(3, 1, 28, 28)
    features = model.features(views)  # 3 7 7 96
    assert features.dim() == 4
    hidden = model.head.inside(features.mean((1, 2)))  # type: ignore[operator]
    assert_close(model(views), model.head.out(hidden))  # type: ignore[operator]
    assert model(views).shape == (3, 5)
    assert (hidden >= 0).all()


def test_the_class_token_is_read_where_there_is_one() -> None:
    sizes = {"image": 8, "channels": 1, "patch": 4, "dim": 8, "layers": 1, "heads": 2}
    for pool, first in (("class", 1), ("mean", 0)):
        eye = image_encoder(vit.Config(**sizes, pool=pool), image=16, channels=3)
        assert (eye.dim, eye.stride, eye.first) == (8, 4, first)
        assert eye.trunk.features(torch.zeros(1, 3, 16, 16)).shape == (1, 16 + first, 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vit-ti16", (192, 16, 1)),
        ("swin-t", (768, 32, 0)),
        ("resnet-18", (512, 32, 0)),
        ("resnet-nano", (128, 4, 0)),
        ("mvit-nano", (128, 8, 0)),
        ("lrnet-nano", (256, 8, 0)),
    ],
)
def test_any_preset_of_images_is_an_eye(name: str, expected: tuple[int, int, int]) -> None:
    config = config_of(name)
    with torch.device("meta"):
        assert image_encoder(config, config.image, config.channels)[1:] == expected  # type: ignore[attr-defined]


@pytest.mark.slow
def test_two_views_have_a_loss_whose_gradient_reaches_the_encoder() -> None:
    model, views = seeing(), torch.randn(4, 1, 28, 28)
    nt_xent(model(views), model(views + 0.1 * torch.randn_like(views))).backward()
    assert model.embed.project.weight.grad.abs().max() > 0  # type: ignore[union-attr]


def test_mistakes_are_told() -> None:
    with pytest.raises(UserError, match="'bert-tiny' reads no images"):
        simclr.build(simclr.Config("bert-tiny"))
    with pytest.raises(UserError, match="image=13 does not divide into patches of 4; try image=12"):
        clip.build(clip.Config(**{**TINY, "image": 13}))
    with pytest.raises(UserError, match="could not learn"):
        TwoTowers(towers().image, towers().text, start=200.0)


# ---- CLIP over any encoder


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["vit-nano", "swin-nano", "mvit-nano", "resnet-nano", "lrnet-nano"])
def test_any_eye_is_compared_with_texts(encoder: str) -> None:
    torch.manual_seed(1)
    sizes = {key: value for key, value in TINY.items() if not key.startswith("image") and key != "patch"}
    model = image_text.build(image_text.Config(encoder, 28, **sizes)).eval()
    seen, (ids, real) = torch.randn(2, 3, 28, 28), texts()
    near = model(seen, ids, text_ctx=Context(keep=real[:, None]))
    assert near.shape == (2, 3)
    assert_close(near, model.scale * cosines(model.image(seen), model.text(ids, Context(keep=real[:, None]))))
    info_nce(model.image(seen), model.text(ids[:2]), model.scale).backward()
    assert all(p.grad is not None for p in model.image.parameters())
    # the texts are read as by a CLIP of these sizes
    other = clip.build(clip.Config(**TINY)).eval()
    other.text.load_state_dict(model.text.state_dict())
    assert_close(model.text(ids), other.text(ids), atol=0, rtol=0)
