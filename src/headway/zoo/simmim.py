"""SimMIM: an encoder of images, some patches hidden behind one learned vector, says the pixels of these in one layer.

Xie et al. 2021.  The encoder is a ViT or a Swin, under its own names; it is called with images and what is hidden.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.errors import UserError
from headway.nn.image import MaskedPatches, PatchEmbed
from headway.nn.masked_autoencoder import MaskedImageModel
from headway.nn.trunk import Trunk
from headway.zoo import swin, swinv2, vit
from headway.zoo.build import FROM_FIELDS


@dataclass(frozen=True)
class Vit(vit.Config):
    top: str = "none"


@dataclass(frozen=True)
class Swin(swin.Config):
    classes: int = 0


@dataclass(frozen=True)
class SwinV2(swinv2.Config):
    classes: int = 0


@dataclass(frozen=True)
class Config:
    encoder: Vit | Swin | SwinV2 = Vit()


VOCABULARY = FROM_FIELDS


def build(c: Config) -> MaskedImageModel:
    e = c.encoder
    match e:
        case Vit():
            if e.patch_dropout:
                said = f"patch_dropout={e.patch_dropout} of SimMIM's encoder, which says the pixels of every patch"
                raise UserError(said, do="leave it at 0, or use MAE, whose encoder sees a part")
            trunk, stride, dim = vit.build(replace(e, top="none")), e.patch, e.dim
        case Swin():
            trunk, (stride, dim) = swin.build(replace(e, classes=0)), last_stage(e)
        case SwinV2():
            trunk, (stride, dim) = swinv2.build(replace(e, classes=0)), last_stage(e)
    hide(trunk)
    return MaskedImageModel(trunk, dim, e.channels, e.patch, stride)


def last_stage(e: swin.Config) -> tuple[int, int]:
    """How wide a cell is, in pixels and in channels, after all merging."""
    merges = len(e.layers) - 1
    return e.patch * 2**merges, e.dim * 2**merges


def hide(trunk: Trunk) -> None:
    """Lets the patches of an encoder be hidden; all else of it stays."""
    for parent in list(trunk.modules()):
        for name, child in parent.named_children():
            if isinstance(child, PatchEmbed):
                setattr(parent, name, MaskedPatches.of(child))
