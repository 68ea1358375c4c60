"""How weights begin, where a paper says so."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from headway.nn.attention import Attention
from headway.nn.block import Block
from headway.nn.embed import PatchEmbed
from headway.nn.ffn import FFN
from headway.nn.head import LMHead


def normal(model: nn.Module, std: float) -> None:
    """Matrices and tables from N(0, std²), biases 0, norms as they are: BERT's and GPT's beginning."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding | LMHead):
            nn.init.normal_(module.weight, std=std)
        bias = getattr(module, "bias", None)
        if isinstance(module, nn.Linear) and isinstance(bias, nn.Parameter):
            nn.init.zeros_(bias)


def xavier(model: nn.Module) -> None:
    """Every matrix uniform by Xavier's rule: the 2017 Transformer's beginning."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)


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


def fan_out(model: nn.Module) -> None:
    """Convolutions from N(0, 2 / (outputs · cells of the kernel)), all else as torch has it: ResNet's beginning."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def residual_depth(blocks: Sequence[Block]) -> None:
    """Matrices from N(0, 1 / dim), smaller by √(2 layers) where they end on the residual path: CLIP's beginning.

    The first matrix of a feed-forward layer is smaller by √2; biases are 0.
    """
    deep = (2 * len(blocks)) ** -0.5
    for module in (module for block in blocks for module in block.modules()):
        if isinstance(module, Attention):
            scales = {module.q: 1.0, module.k: 1.0, module.v: 1.0, module.out: deep}
        elif isinstance(module, FFN):
            scales = {module.up: 2**-0.5, module.down: deep}
        else:
            continue
        dim = next(iter(scales)).in_features
        for layer, scale in scales.items():
            nn.init.normal_(layer.weight, std=scale * dim**-0.5)
            nn.init.zeros_(layer.bias)


def unscaled(model: nn.Module) -> None:
    """Matrices from N(0, 1 / inputs), queries smaller by √D, since the score is not divided by it: T5's beginning."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
    for module in model.modules():
        if isinstance(module, Attention):
            nn.init.normal_(module.q.weight, std=(module.q.in_features * module.head_dim) ** -0.5)
