"""What the files of the zoo choose from: activations, cells and heads by name, and how weights begin.

Configs name their choices, since files hold words and not objects.  An encoder gives what the head on its top gives;
what is beside that is asked by name: `model.head.pooler(features, ctx)`, where `features = model.features(ids, ctx)`
are the states B T C that every top reads.

Axes:  B batch   T tokens   C width   V vocabulary   K classes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import torch.nn.functional as F
from torch import nn

from headway.errors import UserError, listed, nearest
from headway.nn.attention import Attention
from headway.nn.block import Block, IgnoreContext
from headway.nn.ffn import FFN, Activation, Hidden, quick_gelu
from headway.nn.head import AuxHeads, Classifier, LastToken, LMHead, MLMHead, Pooler, TanhLayer, TokenClassifier
from headway.nn.recurrent import Cell, GRUCell, LSTMCell, RNNCell

T = TypeVar("T")


def named(kind: str, name: str, table: Mapping[str, T]) -> T:
    """What `name` means in a table of choices."""
    if name not in table:
        raise UserError(f"no {kind} {name!r}", allowed=listed(table, most=20), meant=nearest(name, table))
    return table[name]


ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "quick_gelu": quick_gelu,
    "relu": F.relu,
    "silu": F.silu,
}


def activation(name: str) -> Activation:
    return named("activation", name, ACTIVATIONS)


CELLS: dict[str, type[Cell]] = {"gru": GRUCell, "lstm": LSTMCell, "rnn": RNNCell}


def cell(name: str) -> type[Cell]:
    return named("recurrent cell", name, CELLS)


def top(name: str, dim: int, classes: int, dropout: float, words: Callable[[], MLMHead]) -> nn.Module:
    def bare() -> nn.Module:
        return IgnoreContext(nn.Identity())

    def rows() -> nn.Module:
        return Classifier(dim, classes, inside=TanhLayer(dim), dropout=dropout)

    def rows_relu() -> nn.Module:
        return Classifier(dim, classes, inside=Hidden(dim, F.relu, bias=True), dropout=dropout)

    tops: dict[str, Callable[[], nn.Module]] = {
        "none": bare,  # B T C
        "pooler": lambda: AuxHeads(bare(), pooler=Pooler(dim)),  # B T C
        "words": words,  # B T V
        "pretraining": lambda: AuxHeads(words(), pair=rows()),  # B T V; whether two sentences belong together: B K
        "pair": rows,  # B K
        "rows": rows,  # B K
        "rows, relu": rows_relu,  # B K, as DistilBERT has it
        "tokens": partial(TokenClassifier, dim, classes, dropout=dropout),  # B T K
        "spans": partial(TokenClassifier, dim, classes),  # B T 2, where an answer begins and ends
    }
    return named("top of an encoder", name, tops)()


def decoder_top(name: str, dim: int, classes: int, words: Callable[[], LMHead]) -> nn.Module:
    """What stands on a causal decoder, whose last token has seen all others."""
    tops: dict[str, Callable[[], nn.Module]] = {
        "words": words,  # B T V
        "rows": partial(Classifier, dim, classes, pool=LastToken(), bias=False),  # B K
        "none": lambda: IgnoreContext(nn.Identity()),  # B T C
    }
    return named("top of a decoder", name, tops)()


def check_stages(**sizes: tuple[int, ...]) -> None:
    """Refuses sizes that are not of the same stages."""
    if len({len(numbers) for numbers in sizes.values()}) != 1 or not all(sizes.values()):
        *most, last = (f"{name}={numbers}" for name, numbers in sizes.items())
        said = f"{', '.join(most)} and {last} are not of the same stages"
        raise UserError(said, allowed="as many numbers in each as there are stages")
    for name, numbers in sizes.items():
        if min(numbers) < 1:
            raise UserError(f"{name}={numbers}", allowed="1 or more in each stage")


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
