"""A model as a tree of its modules, where layers that are alike stand together: what they are, and what they put out.

Axes:  B batch   T tokens   C width
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.attention import Attention
from headway.nn.block import IgnoreContext, Scale, StochasticDepth
from headway.nn.context import Context
from headway.nn.ffn import FFN
from headway.zoo.build import ARCHITECTURES, architecture, config_of, on_meta
from headway.zoo.cost import DummyInputs, call, dummy_inputs
from headway.zoo.presets import PRESETS

TOKENS = 16  # of a text where no length is given
STAGE = re.compile(r"(?:encoder\.)?(?:(embed)|stack\.blocks\.(\d+))")


@dataclass(frozen=True)
class PartShape:
    """A module that was called: its path, its class, the shape of its (first) output, and how often it was called."""

    path: str
    kind: str
    shape: tuple[int, ...]
    calls: int = 1


@dataclass(frozen=True, eq=False)
class MetaModel:
    """The model of a preset or an architecture without numbers, and a batch for it."""

    name: str
    config: Any
    model: nn.Module
    inputs: DummyInputs

    @property
    def parameters(self) -> int:
        return sum(one.numel() for one in self.model.parameters())

    def run(self) -> object:
        with torch.no_grad():
            return call(self.model, self.inputs.tensors, Context(), Context())


def meta_model(name: str, tokens: int | None = None) -> MetaModel:
    """The model of a preset, or of an architecture in its default size; `tokens` is the length of a text or sound."""
    config = config_of(name) if name in PRESETS else architecture(name).Config()
    assert name in PRESETS or name in ARCHITECTURES
    model = on_meta(config).eval()
    inputs = dummy_inputs(config, model, 1, None)
    if inputs.unit == "image" and tokens is not None:
        raise UserError(f"n={tokens} for {name}, which reads images", do="leave n= out")
    if tokens is not None or inputs.unit == "token":
        inputs = dummy_inputs(config, model, 1, TOKENS if tokens is None else tokens)
    return MetaModel(name, config, model, inputs)


class Stage(NamedTuple):
    """What a stage of a network on grids gives."""

    name: str
    rows: int
    columns: int
    channels: int


def stages(config: object) -> list[Stage]:
    """The grids that the embedding and each stage of a model give; none where it has no stages."""
    model = on_meta(config).eval()
    inputs = dummy_inputs(config, model, 1, None)
    shapes = part_shapes(model, MetaModel("", config, model, inputs).run)
    found = [(STAGE.fullmatch(part.path), part.shape) for part in shapes]
    grids = [Stage(match[1] or match[2], *shape[1:]) for match, shape in found if match and len(shape) == 4]
    return grids if len(grids) > 2 else []


def part_shapes(model: nn.Module, run: Callable[[], object]) -> list[PartShape]:
    """The shape of the first output of every module that `run` calls, in the order of the tree."""
    seen: dict[str, tuple[tuple[int, ...], int]] = {}
    handles = [
        module.register_forward_hook(recorder(path, seen))
        for path, module in model.named_modules(remove_duplicate=False)
    ]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    kinds = {path: type(module).__name__ for path, module in model.named_modules(remove_duplicate=False)}
    return [PartShape(path, kinds[path], *seen[path]) for path in kinds if path in seen]


def recorder(path: str, seen: dict[str, tuple[tuple[int, ...], int]]) -> Callable[..., None]:
    def record(module: nn.Module, inputs: object, output: object) -> None:
        first = first_tensor(output)
        if first is not None:
            shape, calls = seen.get(path, (tuple(first.shape), 0))
            seen[path] = shape, calls + 1

    return record


def first_tensor(output: object) -> Tensor | None:
    while isinstance(output, tuple | list) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None


# ---- the tree


@dataclass(eq=False)
class TreeNode:
    """A module with its children; of siblings that are alike, the first stands for all."""

    name: str
    module: nn.Module
    children: list[TreeNode] = field(default_factory=list["TreeNode"])
    alike: list[str] = field(default_factory=list[str])  # names of all that it stands for

    @property
    def label(self) -> str:
        """The names of all that it stands for: 0–5; or 0, 2 … 4, where two kinds of layers alternate."""
        if len(self.alike) < 2:
            return self.name
        first, second, *_, last = (*self.alike, self.alike[-1])
        return f"{first}–{last}" if int(second) == int(first) + 1 else f"{first}, {second} … {last}"

    def walk(self, path: str = "", depth: int = 0) -> Iterator[tuple[str, int, TreeNode]]:
        """Path, depth and node of all below and itself, from above; the path has * for those that are alike."""
        yield path, depth, self
        for child in self.children:
            name = "*" if len(child.alike) > 1 else child.name
            yield from child.walk(f"{path}.{name}" if path else name, depth + 1)


def module_tree(module: nn.Module, name: str = "") -> TreeNode:
    """Numbered children that are alike are one node, if they follow one another or alternate with another kind."""
    given = list(module.named_children())
    numbered = [child for child_name, child in given if child_name.isdigit()]
    period = next((p for p in (1, 2) if len(numbered) >= 2 * p and repeats(numbered, p)), 1)
    children: list[TreeNode] = []
    for child_name, child in given:
        before = children[-period] if len(children) >= period else None
        if before is not None and child_name.isdigit() and before.name.isdigit() and is_alike(before.module, child):
            before.alike.append(child_name)
            children.append(children.pop(-period))  # the next one is compared with the other kind
        else:
            children.append(TreeNode(child_name, child, module_tree(child).children, [child_name]))
    children.sort(key=lambda node: [name for name, _ in given].index(node.name))
    return TreeNode(name, module, children)


def repeats(modules: list[nn.Module], period: int) -> bool:
    return all(is_alike(one, other) for one, other in zip(modules, modules[period:], strict=False))


def is_alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether two modules have the same parts with the same settings and shapes."""
    if type(one) is not type(other) or one is other:
        return one is other
    mine, yours = dict(one.named_children()), dict(other.named_children())
    own = [[(name, p.shape) for name, p in part.named_parameters(recurse=False)] for part in (one, other)]
    return (
        mine.keys() == yours.keys()
        and own[0] == own[1]
        and describe(one) == describe(other)
        and all(is_alike(mine[name], yours[name]) for name in mine)
    )


def is_empty(module: nn.Module) -> bool:
    """An identity, a factor of 1, or dropout, which does nothing when a model is used."""
    if isinstance(module, IgnoreContext):
        return is_empty(module.body)
    if isinstance(module, Scale):
        return module.factor == 1.0
    return isinstance(module, nn.Identity | nn.Dropout | StochasticDepth)


# ---- a module in words


def describe(module: nn.Module) -> str:
    """The class, and its settings that are not the default."""
    if type(module).extra_repr is not nn.Module.extra_repr or type(module).__module__.startswith("torch."):
        words = [word for word in module.extra_repr().split(", ") if word not in USUAL]
        inside = re.sub(r"\((\d+)(?:,|, \1)\)", r"\1", ", ".join(words))  # sizes such as (512,) and (7, 7)
        return type(module).__name__ + (f"({inside})" if inside else "")
    makers = [signature(kind.__init__).parameters for kind in reversed(type(module).__mro__)]
    defaults = {name: one.default for maker in makers for name, one in maker.items()}
    settings = {
        name: value_text(value)
        for name, value in vars(module).items()
        if is_setting(name, value) and not (name in defaults and same(defaults[name], value))
    }
    if isinstance(module, Attention):
        settings.pop("kv_dim", None)
        if module.kv_heads == module.heads:
            settings.pop("kv_heads", None)
        parts = {name: getattr(module, name) for name in ("logit_bias", "score", "q_norm")}
        settings |= {name: describe(one) for name, one in parts.items() if is_part(one)}
    widths = f"{module.up.in_features} → {module.up.out_features}" if isinstance(module, FFN) else ""
    inside = ", ".join(filter(None, [widths, *(f"{name}={text}" for name, text in settings.items())]))
    return type(module).__name__ + (f"({inside})" if inside else "")


USUAL = ("elementwise_affine=True", "bias=True", "affine=True", "track_running_stats=True")  # of torch's modules


def is_part(value: object) -> bool:
    return isinstance(value, nn.Module) and not is_empty(value)


def is_setting(name: str, value: object) -> bool:
    plain = isinstance(value, int | float | str | tuple) or is_dataclass(value) or callable(value)
    return plain and not name.startswith("_") and name != "training" and not isinstance(value, Tensor | nn.Module)


def same(default: object, value: object) -> bool:
    return type(default) is type(value) and default == value


def value_text(value: Any) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        pairs = [(one, getattr(value, one.name)) for one in fields(value)]
        inside = ", ".join(f"{one.name}={value_text(own)}" for one, own in pairs if own != one.default)
        return f"{type(value).__name__}({inside})"
    if callable(value):
        return function_name(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def function_name(function: Any) -> str:
    """relu; gelu(approximate=tanh) of a partial one."""
    if isinstance(function, partial):
        given = ", ".join([*map(str, function.args), *(f"{name}={value}" for name, value in function.keywords.items())])
        return f"{function.func.__name__}({given})"
    return getattr(function, "__name__", type(function).__name__)
