"""A run as its modules saw it: the module tree of a model, with the size of what each module gave.

Sizes are root mean squares of all numbers of an output, which no layout changes; a residual connection has also that of
what came in and of what it added.  Modules that were not called are left out, but for whole parts of the model that
this input has no use for, such as CLIP's other tower.  Containers are silent, as in the names of a trace: a residual
connection stands for its body.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import torch
from torch import Tensor, nn

from headway.look.recording import Recording, find_attention_sites
from headway.nn.block import Dropout, Residual
from headway.nn.trace import SILENT

TRIVIAL = (nn.Identity, Dropout)  # what they give is what they are given
LISTS = (nn.ModuleList, nn.ModuleDict)


@dataclass
class FlowNode:
    """A module of a run, and its path in the model; `site` is its attention site."""

    name: str = ""
    path: str = ""
    kind: str = ""
    parameters: int = 0
    site: str | None = None
    calls: int = 0  # 0: it was not called itself, but modules in it were
    shape: tuple[int, ...] = ()
    size: float | None = None
    before: float | None = None  # of a residual connection: the sizes of what came in and of what was added
    added: float | None = None
    first: int | None = None  # the place of its first call among those of all modules
    children: list[FlowNode] = field(default_factory=list["FlowNode"])

    def walk(self) -> Iterator[FlowNode]:
        yield self
        for child in self.children:
            yield from child.walk()


@torch.no_grad()
def module_flow(recording: Recording) -> FlowNode:
    """The tree of the modules that a run passes, in the order in which they were first called."""
    model, run = recording.run.model, recording.run
    seen = dict[nn.Module, FlowNode]()
    order = dict[nn.Module, int]()
    hooks = list[torch.utils.hooks.RemovableHandle]()
    for part in model.modules():
        if not isinstance(part, TRIVIAL):
            hooks.append(part.register_forward_pre_hook(partial(note_order, order)))
            hooks.append(part.register_forward_hook(partial(measure, seen)))
    try:
        found = run.call()
        run.reader.settled(found).outcome(found, recording.outcome.text)  # the head belongs to it
    finally:
        for hook in hooks:
            hook.remove()
    for part, node in seen.items():
        node.first = order[part]
    sites: dict[nn.Module, str] = {
        site.part: site.name for site in find_attention_sites(model) if site.name in recording.sites
    }
    return tree(model, "", "", seen, sites)


def note_order(order: dict[nn.Module, int], part: nn.Module, given: tuple[object, ...]) -> None:
    order.setdefault(part, len(order))


def measure(seen: dict[nn.Module, FlowNode], part: nn.Module, given: tuple[object, ...], out: object) -> None:
    """Note the size of what a module gave: of its last call, where there are several."""
    values = out if isinstance(out, tuple) else (out,)
    value = next((one for one in values if isinstance(one, Tensor) and one.is_floating_point()), None)
    if value is None:
        return
    node = seen.setdefault(part, FlowNode())
    node.calls += 1
    node.shape, node.size = tuple(value.shape), rms(value)
    x = given[0] if given else None
    if isinstance(part, Residual) and isinstance(x, Tensor) and x.shape == value.shape:
        node.before, node.added = rms(x), rms(value - x)


def rms(x: Tensor) -> float:
    return float(x.double().square().mean().sqrt()) if x.numel() else 0.0


def tree(
    part: nn.Module, name: str, path: str, seen: dict[nn.Module, FlowNode], sites: dict[nn.Module, str]
) -> FlowNode:
    """A module with those in it.  Silent containers and lists are replaced by what is in them."""
    node = replace(seen.get(part) or FlowNode())  # a shared module stands in the tree twice
    node.name, node.path, node.kind, node.site = name, path, type(part).__name__, sites.get(part)
    node.parameters = sum(parameter.numel() for parameter in part.parameters())
    children = list[FlowNode]()
    for word, child in part.named_children():
        if isinstance(child, TRIVIAL):
            continue
        silent = word in SILENT or isinstance(child, LISTS)
        below = tree(child, word, f"{path}.{word}".lstrip("."), seen, sites)
        unused = below.first is None and below.site is None and not below.children
        if unused and (path or silent or not below.parameters):
            continue  # attention may be asked for its weights without a call of the module
        children += below.children if silent else [below]
        if silent and (below.site or (isinstance(part, Residual) and word == "body")):
            node.kind, node.site = below.kind, below.site
    node.children = sorted(children, key=call_order)
    firsts = [each.first for each in (node, *children) if each.first is not None]
    node.first = min(firsts, default=None)
    return node


def call_order(node: FlowNode) -> float:
    """Attention that is asked for its weights without a call comes first, what is not used last."""
    return node.first if node.first is not None else -1 if node.site else inf
