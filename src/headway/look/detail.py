"""The numbers behind the weights of one site: queries, keys, values, bias and output matrix.

Axes:  H heads   G kv-heads   T queries   S keys   D head width   E value width   C width   N tiles of a grid
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.look.grid_map import Tiling
from headway.nn.attention import Attention
from headway.nn.convnet import First
from headway.nn.learned_score import AdditiveScore
from headway.ops.attend import causal_keep, per_head
from headway.ops.attention_map import AttentionMap
from headway.ops.pattern import both
from headway.ops.score import Additive, DotScore


@dataclass(frozen=True, eq=False)
class Detail:
    """out · softmax(score(q, k) + bias) v of one site, in the coordinates of its axes.

    Queries and keys are as they enter the score: rotated, normalised, and weighted where the score does that.  The
    score is "dot", scale · q · k, or "additive", `additive` · tanh(q + k).
    """

    score: str
    scale: float
    q: Tensor  # H T D
    k: Tensor  # H S D, kv-heads repeated
    v: Tensor  # H S E, kv-heads repeated
    x: Tensor | None  # T C, the input of each query; None where a query is pooled from several
    out: Tensor  # C (H·E)
    bias: Tensor | None  # H|1 T S, −inf where a key is hidden
    additive: Tensor | None  # D: the vector of the additive score

    def terms(self, head: int, row: int, col: int) -> Tensor:
        """The contribution of each dimension to the logit, D, without the bias."""
        q, k = self.q[head, row], self.k[head, col]
        return self.scale * q * k if self.additive is None else self.additive * (q + k).tanh()


@torch.no_grad()
def detail_of(part: Attention, map: AttentionMap, v: Tensor, x: Tensor, tiling: Tiling | None) -> Detail:
    """The detail of a part whose map is 1 H T S, or N H T S in tiles; `v` is B G S E and `x` its input."""
    heads = map.shape[1]
    q, k, scale = score_operands(map)
    k, v, bias = per_head(k, heads), per_head(v, heads), logit_bias(map)
    additive = map.score.v if isinstance(map.score, Additive | AdditiveScore) else None
    if tiling is None:
        q, k, v, bias = q[0], k[0], v[0], None if bias is None else bias[0]
    else:
        # keys outside the tile of a query are hidden from it
        bias = torch.zeros(1, 1, 1, 1) if bias is None else bias
        bias = tiling.pairs(bias.expand(map.shape[0], -1, *map.shape[2:]), float("-inf"))
        q, k, v = tiling.queries(q), tiling.keys(k), tiling.keys(v)
    kind = "dot" if additive is None else "additive"
    return Detail(
        kind, scale, q, k, v, query_inputs(x, part, q.shape[1]), output_matrix(part, heads * v.shape[2]), bias, additive
    )


def score_operands(map: AttentionMap) -> tuple[Tensor, Tensor, float]:
    """Queries, keys and scale of the score; unchanged for a score that is no dot product."""
    score = map.score
    if isinstance(score, DotScore):
        return score.dotted(map.q, map.k)
    assert isinstance(score, Additive | AdditiveScore)
    return map.q, map.k, 1.0


def logit_bias(map: AttentionMap) -> Tensor | None:
    """The bias of the logits, B|1 H|1 T S, −inf where a key is hidden; None if there is none."""
    keep, causal = map.sight()
    keep = both(keep, causal_keep(map.q, map.k)) if causal else keep
    bias = map.logit_bias()
    if keep is None:
        return None if bias is None else bias.float()
    bias = torch.zeros(1, 1, 1, 1, device=keep.device) if bias is None else bias.float()
    found = torch.where(keep[:, None], bias, float("-inf"))
    return found.expand(-1, -1, *map.shape[2:])


def query_inputs(x: Tensor, part: Attention, queries: int) -> Tensor | None:
    """The input of each query, T C: from a sequence 1 T C, or from a grid 1 Y X C."""
    stride = getattr(part, "stride", 1)  # only the cells with a query
    rows = (x[:, ::stride, ::stride] if x.dim() == 4 else x).flatten(0, -2)
    return rows if len(rows) == queries else None


def output_matrix(part: Attention, wide: int) -> Tensor:
    """The output matrix of the concatenated heads, C (H·E)."""
    out = part.get_submodule("out")
    if isinstance(out, nn.Linear):
        return out.weight
    kept = out.dim if isinstance(out, First) else wide
    return torch.eye(wide)[:kept]  # without a matrix, the heads are passed on
