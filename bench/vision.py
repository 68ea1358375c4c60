"""Training speed on images against peers: `python bench/vision.py` prints JSON; a race's name runs it alone.

Figures are images per CPU second, one thread, AdamW in all of them, no dropout and no stochastic depth.  ViT is of 4×4
patches of 32×32 images, 192 wide; Swin is Swin-T at 224×224, and a small one at 56×56.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.race import Batches, Peer, learner_of, our_step, raced
from headway.zoo import swin, vit
from tests.interop.timm_models import timm_models

CLASSES = 100


class Images(NamedTuple):
    """A batch: B Ch H W, and the class of each."""

    pixels: Tensor
    classes: Tensor

    @property
    def tokens(self) -> int:
        """What the speed is counted in."""
        return len(self.pixels)

    @property
    def targets(self) -> int:
        return len(self.pixels)


def main() -> None:
    large = swin.Config(classes=CLASSES, depth_dropout=0.0)
    small = swin.Config(56, 3, 2, 48, (2, 4), (3, 6), (7, 7), classes=CLASSES, depth_dropout=0.0)
    races = {"ViT": partial(vits, 16), "Swin, small": partial(swins, small, 16), "Swin-T": partial(swins, large, 4)}
    print(json.dumps(raced(races)))


def vits(batch: int) -> dict[str, Batches]:
    """ViT-Ti of 32×32 images: transformers' and ours."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"image_size": 32, "patch_size": 4, "hidden_size": 192, "num_attention_heads": 3, "num_hidden_layers": 12}
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    theirs = ViTForImageClassification(ViTConfig(**sizes, **rates, intermediate_size=768, num_labels=CLASSES))
    ours = vit.build(vit.Config(32, patch=4, dim=192, heads=3, classes=CLASSES))
    seen = drawn(batch, 32)
    return {
        "transformers ViT": [Peer(theirs).step(lambda: theirs(seen.pixels, labels=seen.classes).loss, batch)],
        "headway": [our_step(learner_of(ours, loss), seen)],
    }


def swins(c: swin.Config, batch: int) -> dict[str, Batches]:
    """timm's Swin and ours."""
    sizes = {"img_size": c.image, "patch_size": c.patch, "embed_dim": c.dim, "depths": c.layers, "num_heads": c.heads}
    theirs = timm_models().create_model(
        "swin_tiny_patch4_window7_224", **sizes, window_size=c.windows[0], num_classes=c.classes, drop_path_rate=0.0
    )
    seen = drawn(batch, c.image)
    return {
        "timm Swin": [Peer(theirs).step(lambda: F.cross_entropy(theirs(seen.pixels), seen.classes), batch)],
        "headway": [our_step(learner_of(swin.build(c), loss), seen)],
    }


def loss(model: nn.Module, batch: Images) -> Tensor:
    return F.cross_entropy(model(batch.pixels), batch.classes, reduction="sum")


def drawn(batch: int, side: int) -> Images:
    return Images(torch.randn(batch, 3, side, side), torch.randint(0, CLASSES, (batch,)))


if __name__ == "__main__":
    main()
