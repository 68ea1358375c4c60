"""ViT: an image cut into patches, each a token of a plain encoder, pre-norm, GELU, learned positions, no mask.

Dosovitskiy et al. 2020; Ti and S: Touvron et al. 2021.  Images of any size that the patches divide: positions are
resampled.  With patches of one pixel it is the transformer on pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.errors import UserError
from headway.nn.attention import Biases, SelfAttention
from headway.nn.block import Block, Dropout, IgnoreContext, Residual, Stack, StochasticDepth
from headway.nn.ffn import FFN
from headway.nn.head import AuxHeads, Classifier, FirstToken, MeanPool, Pool, Pooler
from headway.nn.image import ImageEmbed, LearnedGridPosition, PatchDropout, PatchEmbed, PlacedClassToken
from headway.nn.trunk import Trunk
from headway.ops.patches import Resample, bicubic, bicubic_smooth
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, named
from headway.zoo.swin import rising


@dataclass(frozen=True)
class Config:
    image: int = 224  # the side of the images that its positions are made for; others go too
    channels: int = 3
    patch: int = 16
    classes: int = 1000  # where the top has some
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    pool: str = "class"
    top: str = "classes"
    act: str = "gelu"
    eps: float = 1e-6
    biased: bool = True  # queries, keys and values
    resample: str = "bicubic"  # positions, for images of other sizes
    dropout: float = 0.0
    attention_dropout: float = 0.0
    depth_dropout: float = 0.0  # how often the last layer is left out; those before it less, the first never
    patch_dropout: float = 0.0  # the share of an image's patches that training leaves out


VOCABULARY = FROM_FIELDS
RESAMPLES: dict[str, Resample] = {"bicubic": bicubic, "bicubic, smooth": bicubic_smooth}
POOLS: dict[str, type[Pool]] = {
    "class": FirstToken,  # a token of its own
    "mean": MeanPool,  # of all, each normed
    "mean, norm": MeanPool,  # of all, and then normed
}


def build(c: Config) -> Trunk:
    side = patches_across(c.image, c.patch)
    resample, pool = named("way of resampling", c.resample, RESAMPLES), named("way of pooling", c.pool, POOLS)
    norm = partial(nn.LayerNorm, c.dim, eps=c.eps)
    embed = ImageEmbed(
        PatchEmbed(c.channels, c.dim, c.patch),
        LearnedGridPosition(side, side, c.dim, resample=resample),
        thin=PatchDropout(c.patch_dropout),
        token=PlacedClassToken(c.dim) if c.pool == "class" else None,
        dropout=c.dropout,
    )
    late = c.pool == "mean, norm"
    classes = partial(Classifier, c.dim, c.classes, pool=pool(), norm=norm() if late else None)
    tops = {
        "classes": classes,  # B K
        "none": bare,  # B T C
        "pooler": lambda: AuxHeads(bare(), pooler=Pooler(c.dim)),  # B T C
    }
    model = Trunk(embed, Stack(blocks(c), None if late else norm()), named("top of a ViT", c.top, tops)())
    dense_xavier(model)
    return model


def blocks(c: Config) -> list[Block]:
    """Those of a masked autoencoder's decoder are alike, and narrower."""
    norm, bias = partial(nn.LayerNorm, c.dim, eps=c.eps), Biases(c.biased, c.biased, c.biased)

    def residual(body: nn.Module, rate: float) -> Residual:
        return Residual(body, before=norm(), inside=Dropout(c.dropout), drop=StochasticDepth(rate))

    return [
        Block(
            attn=residual(SelfAttention(c.dim, c.heads, bias=bias, dropout=c.attention_dropout), rate),
            ffn=residual(FFN(c.dim, c.hidden, act=activation(c.act)), rate),
        )
        for rate in rising(c.depth_dropout, c.layers)
    ]


def patches_across(image: int, patch: int) -> int:
    """How many patches stand side by side."""
    if image < patch or image % patch:
        said = f"image={image} does not divide into patches of {patch}"
        raise UserError(said, do=f"try image={max(1, round(image / patch)) * patch}")
    return image // patch


def bare() -> nn.Module:
    return IgnoreContext(nn.Identity())


def dense_xavier(model: nn.Module) -> None:
    """Linear layers and projections of patches uniform by Xavier's rule, biases 0: ViT's and MAE's beginning."""
    for module in model.modules():
        if isinstance(module, PatchEmbed):
            nn.init.xavier_uniform_(module.project.weight.flatten(1))
        bias = getattr(module, "bias", None)
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
        if isinstance(module, nn.Linear) and isinstance(bias, nn.Parameter):
            nn.init.zeros_(bias)
