"""How the layers of a model are split in tensor parallelism: a table, by kind of part (Shoeybi et al. 2019).

The first layers of a part are split by their outputs and its last by its inputs, so that each process computes some of
the heads of an attention, or some of the hidden numbers of a feed-forward layer, and the results are summed once.
What the table does not name, such as embeddings, norms and heads, is computed by all processes alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from torch import nn

from headway.errors import UserError
from headway.nn.attention import Attention, CrossAttention, SelfAttention
from headway.nn.bias import Alibi, T5Bias
from headway.nn.block import Identity
from headway.nn.ffn import FFN, GatedFFN
from headway.nn.norm import OffsetRMSNorm
from headway.ops.attend import Dot, SoftCapped


class Split(Enum):
    """What a process has of a layer."""

    OUTPUTS = "some of the outputs"
    INPUTS = "some of the inputs; the results of all processes are summed"
    HEADS = "all of it, for some of the heads; gradients are summed"


ATTENTION = {
    **dict.fromkeys(("q", "k", "v"), Split.OUTPUTS),
    **dict.fromkeys(("q_norm", "k_norm"), Split.HEADS),
    "out": Split.INPUTS,
}
PLANS: Mapping[type[nn.Module], Mapping[str, Split]] = {
    SelfAttention: ATTENTION,
    CrossAttention: ATTENTION,
    FFN: {"up": Split.OUTPUTS, "down": Split.INPUTS},
    GatedFFN: {"gate": Split.OUTPUTS, "up": Split.OUTPUTS, "down": Split.INPUTS},
}
# what attention has in its slots that is the same for all heads, or is made for all of them of positions alone
NORMS = (Identity, nn.RMSNorm, nn.LayerNorm, OffsetRMSNorm)
SCORES = (Dot, SoftCapped)
BIASES = (type(None), Alibi, T5Bias)


def split_parts(model: nn.Module) -> dict[str, nn.Module]:
    """The parts of a model that are split, by name."""
    return {name: part for name, part in model.named_modules() if type(part) in PLANS}


def check_plan(model: nn.Module, architecture: str, processes: int) -> None:
    """Refuses a model whose parts cannot be shared by so many processes."""
    parts, do = split_parts(model), "give train.tensor_parallel=1"
    related = [part for part in model.modules() if isinstance(part, Attention | FFN)]
    if not parts or not all(map(splittable, related)):
        raise UserError(f"{architecture} has no plan for tensor parallelism", do=do)
    for name, part in parts.items():
        for what, size in sizes(part).items():
            if size % processes:
                said = f"train.tensor_parallel={processes} does not divide {what}={size} of {name}"
                raise UserError(said, allowed=f"a divisor of {size}", do=do)


def splittable(part: Attention | FFN) -> bool:
    """Whether some heads of an attention, or some hidden numbers, can be computed without the others."""
    if isinstance(part, FFN):
        return type(part) in PLANS and type(part.middle) is Identity
    slots = ((part.q_norm, NORMS), (part.k_norm, NORMS), (part.score, SCORES), (part.logit_bias, BIASES))
    return type(part) in PLANS and all(type(slot) in kinds for slot, kinds in slots)


def sizes(part: nn.Module) -> dict[str, int]:
    """What is shared out among the processes."""
    if isinstance(part, Attention):
        return {"heads": part.heads, "kv_heads": part.kv_heads}
    assert isinstance(part, FFN)
    return {"hidden": part.up.out_features}
