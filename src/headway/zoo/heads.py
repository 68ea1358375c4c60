"""What stands on top of an encoder, by name, since a checkpoint's config says it.

An encoder gives what its top gives.  What is beside that is asked by name: `model.head.pooler(features, ctx)`, where
`features = model.features(ids, ctx)` are the states B T C that every top reads.

Axes:  B batch   T tokens   C width   V vocabulary   K classes
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import nn

from headway.nn.block import IgnoreContext
from headway.nn.ffn import Hidden
from headway.nn.head import AuxHeads, Classifier, MLMHead, Pooler, TanhLayer, TokenClassifier
from headway.zoo.choices import named


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
