"""The models of images that laws are tried on.

Axes:  B batch   Ch channels   H W height and width in pixels
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from headway.nn.image import PatchEmbed
from headway.nn.trunk import Trunk
from headway.nn.window_attention import Windowed
from headway.zoo import (
    beit,
    clip,
    convnext,
    deit,
    dinov2,
    dinov3,
    lrnet,
    mvit,
    mvitv2,
    resnet,
    siglip,
    simclr,
    swin,
    swinv2,
)

CHANNELS, CLASSES = 2, 3
PYRAMID = {"channels": CHANNELS, "patch": 2, "dim": 4, "layers": (2, 2), "heads": (1, 2), "classes": CLASSES}

CONVOLUTIONS = {"channels": CHANNELS, "dim": 8, "layers": (2, 1), "widths": (16, 24), "classes": CLASSES}


def shaken(model: Trunk) -> Trunk:
    """Zeros and ones of a fresh model would hide what it does."""
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model.eval()


def swin_of(windows: tuple[int, int]) -> Trunk:
    return shaken(swin.build(swin.Config(16, **PYRAMID, windows=windows)))


def swinv2_of(windows: tuple[int, int]) -> Trunk:
    return shaken(swinv2.build(swinv2.Config(16, **PYRAMID, windows=windows)))


def clip_tower() -> Trunk:
    """CLIP's tower of images, which are coloured there."""
    sizes = {"image_dim": 8, "image_layers": 2, "image_heads": 2}
    tower = clip.image_tower(clip.Config(image=16, patch=2, **sizes), CLASSES)
    tower.embed.patches = PatchEmbed(CHANNELS, 8, 2, bias=False)
    return shaken(tower)


def siglip_tower() -> Trunk:
    """SigLIP's tower of images, which are coloured there."""
    tower = siglip.image_tower(siglip.Config(image=16, patch=2, image_dim=CLASSES, image_layers=2, image_heads=1))
    tower.embed.patches = PatchEmbed(CHANNELS, CLASSES, 2)
    return shaken(tower)


MODELS: dict[str, Callable[[], Trunk]] = {
    "swin": lambda: swin_of((2, 2)),
    "swin, padded": lambda: swin_of((3, 3)),
    "swinv2": lambda: swinv2_of((2, 2)),
    "swinv2, padded": lambda: swinv2_of((3, 3)),
    "mvit": lambda: shaken(mvit.build(mvit.Config(16, **PYRAMID, stride=2))),
    "mvitv2": lambda: shaken(mvitv2.build(mvitv2.Config(16, **PYRAMID, stride=2))),
    "resnet with attention": lambda: shaken(resnet.build(resnet.Config(16, **CONVOLUTIONS, attention=(1, 2), heads=2))),
    "lrnet": lambda: shaken(lrnet.build(lrnet.Config(16, **CONVOLUTIONS, hidden=(8, 9), share=2, size=3))),
    "lrnet with prior": lambda: shaken(
        lrnet.build(lrnet.Config(16, **CONVOLUTIONS, hidden=(8, 9), share=2, size=3, stem="small", prior=True))
    ),
    "clip": clip_tower,
    "siglip": siglip_tower,
    "dinov2": lambda: shaken(
        dinov2.build(dinov2.Config(16, CHANNELS, 2, CLASSES, 8, 2, 2, registers=2, top="classes"))
    ),
    "dinov3": lambda: shaken(
        dinov3.build(dinov3.Config(16, CHANNELS, 2, CLASSES, 8, 2, 2, 12, registers=2, top="classes"))
    ),
    "deit": lambda: shaken(deit.build(deit.Config(16, CHANNELS, 2, CLASSES, 8, 2, 2))),
    "beit": lambda: shaken(beit.build(beit.Config(16, CHANNELS, 2, CLASSES, 8, 2, 2, 12))),
    "convnext": lambda: shaken(convnext.build(convnext.Config(16, CHANNELS, 2, (2, 1), (8, 12), classes=CLASSES))),
    "convnextv2": lambda: shaken(
        convnext.build(convnext.Config(16, CHANNELS, 2, (1, 2), (8, 12), "normed", classes=CLASSES, layer_scale=0))
    ),
    "simclr": lambda: shaken(simclr.build(simclr.Config("resnet-nano-attention", 16, CHANNELS, width=CLASSES))),
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
PYRAMIDS: dict[str, Callable[[tuple[int, int]], Trunk]] = {"swin": swin_of, "swinv2": swinv2_of}
every_pyramid = pytest.mark.parametrize("make", PYRAMIDS.values(), ids=PYRAMIDS)


def images(batch: int = 2, high: int = 16, wide: int = 16) -> Tensor:
    return torch.randn(batch, CHANNELS, high, wide)


def windowed(model: nn.Module) -> list[tuple[nn.Module, str, Windowed]]:
    """Every attention in windows: its parent, its name there, itself."""
    found = ((parent, name, child) for parent in model.modules() for name, child in parent.named_children())
    return [(parent, name, child) for parent, name, child in found if isinstance(child, Windowed)]
