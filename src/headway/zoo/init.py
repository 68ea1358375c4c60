"""How weights begin, where a paper says so."""

from __future__ import annotations

from torch import nn


def normal(model: nn.Module, std: float) -> None:
    """Matrices and tables from N(0, std²), biases 0, norms as they are: BERT's and GPT's beginning."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def xavier(model: nn.Module) -> None:
    """Every matrix uniform by Xavier's rule: the 2017 Transformer's beginning."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
