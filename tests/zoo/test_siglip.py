"""SigLIP: its loss, its probabilities, and texts that are filled up to the context."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.testing import assert_close

from headway import Context, Rows
from headway.interop.registry import family
from headway.nn.head import LastToken
from headway.nn.towers import SigmoidTowers
from headway.ops.losses import sigmoid_pairs
from headway.zoo import siglip
from tests.interop.cases_siglip import siglip as theirs_of
from tests.interop.parity import load, shaken, some_images, some_texts


def test_the_loss_is_the_references() -> None:
    torch.manual_seed(0)
    theirs: Any = shaken(theirs_of()).eval()
    known = family("siglip")
    config = known.read_config(theirs.config.to_dict())
    ours: Any = known.build(config).eval()
    load(ours, known.keymap(config).load(theirs.state_dict()))
    images, (ids, _) = some_images(theirs.config.vision_config), some_texts(theirs.config.text_config)
    out = theirs(input_ids=ids, pixel_values=images, return_loss=True)
    assert_close(ours.loss(ours.image(images), ours.text(ids)) / len(ids), out.loss, atol=1e-5, rtol=1e-5)
    near = ours.probabilities(ours.image(images), ours.text(ids))
    assert_close(near, out.logits_per_image.sigmoid(), atol=1e-5, rtol=1e-5)


def test_texts_of_one_image_are_not_each_others_wrong_answers() -> None:
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    scale, bias, owners = torch.tensor(2.0), torch.tensor(-1.0), torch.tensor([0, 0, 1])
    logits = 2 * F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT - 1
    signs = torch.tensor([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])
    expected = -(F.logsigmoid(signs * logits) * signs.abs()).sum()
    assert_close(sigmoid_pairs(a, b, scale, bias, owners), expected)


@torch.no_grad()
def test_short_texts_are_filled_and_read_at_the_last_place() -> None:
    sizes = {"dim": 8, "layers": 1, "heads": 2, "image": 8, "patch": 4, "image_dim": 6, "image_layers": 1}
    model = siglip.build(siglip.Config(11, 3, 5, image_heads=2, **sizes)).eval()
    assert isinstance(model, SigmoidTowers)
    assert isinstance(model.text.head.pool, LastToken)
    whole = model.text(torch.tensor([[7, 8, 9, 3, 3], [5, 6, 3, 3, 3]]))
    keep = torch.tensor([[True, True, True], [False, True, True]])
    assert_close(model.text(torch.tensor([[7, 8, 9], [0, 5, 6]]), Context(keep=keep[:, None])), whole)
    assert_close(model.text(torch.tensor([[7, 8, 9, 5, 6]]), Context(rows=Rows.of([3, 2]))), whole)


def test_what_its_data_ends_texts_with_fills_them() -> None:
    required = siglip.DataRequirements(5, fields={"vocab": 11, "end": 2, "context": 5})
    assert siglip.VOCABULARY.sizes(required, {}) == {"vocab": 11, "pad": 2, "context": 5}
