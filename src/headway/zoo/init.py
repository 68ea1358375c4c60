"""How weights begin, where a paper says so."""

from __future__ import annotations

from torch import nn

from headway.nn.attention import Attention
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
