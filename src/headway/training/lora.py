"""LoRA in a run: what `model.lora` says, the low-rank parts that learn, and the folder that holds them alone.

It trains low-rank parts (`nn/low_rank.py`), and what is new in the model, such as a head of other classes.
The weights that it starts from stay as they are; neither checkpoints nor the folder of the run hold them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from headway.errors import UserError, listed

if TYPE_CHECKING:  # a recipe is checked before torch is imported
    from torch import Tensor, nn

MAX_RANK = 2**14
LORA_LR = 10.0  # times the learning rate of fine-tuning all weights


@dataclass(frozen=True)
class LoRA:
    """`alpha` / `rank` scales the low-rank parts; `targets` are names of layers; without, all of the stacks are.

    With `dora` the lengths of the weights' rows are learned, too.
    """

    rank: int
    alpha: float
    dropout: float = 0.0
    targets: tuple[str, ...] = ()
    dora: bool = False

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    @classmethod
    def of(cls, words: Sequence[int | str]) -> LoRA:
        """From the words of model.lora: rank=8, alpha=16, dropout=0.1, targets=q+v, dora=true; a number is the rank."""
        pairs = [str(word).partition("=") for word in words]
        given = {name if marked else "rank": value if marked else name for name, marked, value in pairs}
        unknown = [name for name in given if name not in ("rank", "alpha", "dropout", "targets", "dora")]
        if unknown or "rank" not in given or len(given) < len(words):
            said = f"model.lora {','.join(map(str, words))}"
            raise UserError(said, allowed="rank=8, and once each alpha=16, dropout=0.1, targets=q+v, dora=true")
        rank = number("rank", given["rank"], 1, MAX_RANK)
        if rank != int(rank):
            raise UserError(f"model.lora rank={given['rank']}", allowed=f"a whole number from 1 to {MAX_RANK:,}")
        alpha = number("alpha", given.get("alpha", str(2 * rank)), 1e-6, 1e6)
        dropout = number("dropout", given.get("dropout", "0"), 0, 0.99)
        dora = given.get("dora", "false").lower()
        if dora not in ("true", "false"):
            raise UserError(f"model.lora dora={given['dora']}", allowed="true or false")
        return cls(int(rank), alpha, dropout, tuple(filter(None, given.get("targets", "").split("+"))), dora == "true")


def number(name: str, text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise UserError(f"model.lora {name}={text}", allowed=f"a number from {least:g} to {most:,g}")
    return value


def attach(model: nn.Module, lora: LoRA, reused: Mapping[str, Tensor]) -> None:
    """Gives the targets low-rank parts and freezes the tensors that the model has `reused`, by name."""
    from headway.nn.low_rank import adapt, decompose
    from headway.training.groups import depths_of, leave

    layers, depths = linear_layers(model, reused), depths_of(model)
    found = [name for name in layers if is_target(name, lora.targets)]
    for target in lora.targets:
        if not any(is_target(name, (target,)) for name in layers):
            parts = listed(dict.fromkeys(name.rpartition(".")[2] for name in layers), 12)
            raise UserError(f"model.lora: no linear layer is called {target!r}", allowed=f"names such as {parts}")
    if not lora.targets:
        inner = (depths[f"{name}.weight"] for name in found)
        found = [name for name, depth in zip(found, inner, strict=True) if 0 < depth.layer <= depth.layers]
    if not found:
        raise UserError("model.lora: the model has no layer that could learn so", do="train it without model.lora")
    leave(model, reused)
    for name in found:
        adapted = adapt(layers[name], lora.rank, lora.scale, lora.dropout)
        if lora.dora:
            decompose(adapted)


def linear_layers(model: nn.Module, reused: Collection[str]) -> dict[str, nn.Linear]:
    """Those of torch's own class, each under its first name; a layer of another class may use its weight otherwise."""
    from torch import nn

    return {
        name: part for name, part in model.named_modules() if type(part) is nn.Linear and f"{name}.weight" in reused
    }


def is_target(name: str, targets: Sequence[str]) -> bool:
    """Whether one of the targets is a layer's name, the end of it, or a pattern of either; without any, all are."""
    return not targets or any(fnmatchcase(name, end) for one in targets for end in (one, f"*.{one}"))
