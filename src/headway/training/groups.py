"""Parameters of a run: groups with their own weight decay and learning rate, frozen ones, and those of another model.

The depth of a parameter follows from the model: the blocks of a `Stack` are layers 1, 2, 3, …, as are those of a
recurrent network; embeddings are below all of them, norms and heads above.  The layers of an encoder and of a decoder
are counted apart.  A block that is applied several times (ALBERT) has the depth of its last application.

Fine-tuning (`--from`) reuses the whole model, or its encoder under a new head or in a new captioner: tensors by name
and shape.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from headway.errors import UserError, listed, nearest
from headway.model import Model
from headway.nn.block import Repeat, Stack, weight_decay
from headway.nn.trunk import Trunk, tensors_of
from headway.recipe import Recipe
from headway.tasks.base import Task, TaskSetup
from headway.tasks.model_parts import reads_media
from headway.zoo.build import DataRequirements, config_for
from headway.zoo.encoders import EncoderPart, ImageConfig, encoder_config

ENCODER = "encoder"  # that may be frozen


@dataclass(frozen=True)
class Group:
    """Parameters by name; `decays`: their weights shrink; `share` of the rate; `hidden`: matrices of a layer."""

    parameters: dict[str, nn.Parameter]
    decays: bool
    share: float
    hidden: bool


@dataclass(frozen=True)
class Depth:
    """A layer and how many there are: 0 is below all of them, `layers` + 1 above."""

    layer: int
    layers: int


def groups(
    model: nn.Module, *, layer_decay: float = 1.0, spared: tuple[type[nn.Module], ...] = (nn.Embedding,)
) -> list[Group]:
    """The parameters that are trained, each once, however many names it has.

    The rate of each layer is `layer_decay` times that of the one above.  Weight decay leaves out vectors, parts
    whose `weight_decay` is False (biases, norms) and the parameters of `spared` modules.
    """
    if not 0.0 < layer_decay <= 1.0:
        raise UserError(f"layer_decay={layer_decay:g}", allowed="a share above 0, at most 1")
    depths, owners = depths_of(model), defaultdict[Tensor, list[nn.Module]](list)  # several where it is tied
    for part in model.modules():
        for parameter in part.parameters(recurse=False):
            owners[parameter].append(part)
    sorted_out: dict[tuple[bool, float, bool], dict[str, nn.Parameter]] = defaultdict(dict)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            depth, owned_by = depths[name], owners[parameter]
            exempt = any(weight_decay(owner) is False or isinstance(owner, spared) for owner in owned_by)
            decays = parameter.dim() > 1 and not exempt
            share = layer_decay ** (depth.layers + 1 - depth.layer)
            linear = parameter.dim() == 2 and all(isinstance(owner, nn.Linear) for owner in owned_by)
            hidden = linear and 0 < depth.layer <= depth.layers
            sorted_out[decays, share, hidden][name] = parameter
    if not sorted_out:
        raise UserError("no parameter is left to train", do="freeze fewer of them")
    return [Group(parameters, *key) for key, parameters in sorted_out.items()]


def freeze(model: nn.Module, what: int | Sequence[str]) -> list[str]:
    """Leaves parameters as they are; the names of those.

    A number is that of the lowest layers, with the embeddings below them.  Words are names of parts or parameters, in
    which `*` stands for anything: "encoder.embed", "encoder.stack.blocks.0", "*.attn".  "encoder", where no part is
    called so, is all but the head.
    """
    leave(model, frozen_layers(model, what) if isinstance(what, int) else frozen_parts(model, what))
    return [name for name, parameter in model.named_parameters() if not parameter.requires_grad]


def leave(model: nn.Module, names: Collection[str]) -> None:
    """Lets parameters of these names be as they are."""
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name in names:
            parameter.requires_grad_(False)


def frozen_layers(model: nn.Module, count: int) -> set[str]:
    depths = depths_of(model)
    most = max((depth.layers for depth in depths.values()), default=0)
    if not 0 <= count <= most:
        raise UserError(f"cannot freeze the first {count} layers", allowed=f"0 to {most}, the layers of this model")
    return {name for name, depth in depths.items() if count and depth.layer <= min(count, depth.layers)}


def frozen_parts(model: nn.Module, globs: Sequence[str]) -> set[str]:
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    found: set[str] = set()
    for glob in globs:
        if glob == ENCODER and not any(path == ENCODER for path, _ in model.named_children()):
            heads = tuple(joined(path, "head.") for path, _ in trunks_of(model))
            found |= {name for name in names if not name.startswith(heads)}  # as a linear probe leaves them
            continue
        matched = {name for name in names if any(fnmatchcase(path, glob) for path in paths_to(name))}
        if not matched:
            paths = dict.fromkeys(path for name in names for path in paths_to(name))
            allowed = f"names of parts, such as {listed([path for path in paths if path.count('.') <= 1], 6)}"
            raise UserError(f"no parameter is called {glob!r}", allowed=allowed, meant=nearest(glob, paths))
        found |= matched
    return found


def paths_to(name: str) -> Iterator[str]:
    """a.b.c → a, a.b, a.b.c"""
    return (name[: dot.start()] for dot in re.finditer(r"\.|$", name))


def depths_of(model: nn.Module) -> dict[str, Depth]:
    """How deep each parameter lies, by name; a tied one as deep as the first of its names in its trunk."""
    found = {name: Depth(1, 0) for name, _ in model.named_parameters()}
    for path, trunk in trunks_of(model):
        numbers = numbered(trunk)
        layers = max(numbers.values(), default=0)
        for name, _ in trunk.named_parameters():
            outside = 0 if isinstance(trunk, Trunk) and name.startswith("embed.") else layers + 1
            found[joined(path, name)] = Depth(numbers.get(name, outside), layers)
    return found


def trunks_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The encoder and the decoder, or the whole of a model that has no such parts."""
    return [(path, part) for path, part in model.named_modules() if isinstance(part, Trunk)] or [("", model)]


def numbered(trunk: nn.Module) -> dict[str, int]:
    """The layer of each parameter that lies in one; layers count from 1, on from stack to stack."""
    found: dict[str, int] = {}
    for path, part in trunk.named_modules():
        last = max(found.values(), default=0)
        if isinstance(part, Stack) and not any(name.startswith(f"{path}.") for name in found):
            for at, block in enumerate(part.blocks):
                last += block.times if isinstance(block, Repeat) else 1
                found |= {joined(path, f"blocks.{at}.{name}"): last for name, _ in block.named_parameters()}
        elif isinstance(part, nn.RNNBase):
            for name, _ in part.named_parameters(recurse=False):
                number = re.search(r"_l(\d+)(_reverse)?$", name)  # weight_ih_l2_reverse → 2
                assert number is not None, name
                found[joined(path, name)] = last + int(number[1]) + 1
    return found


def joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


OUT = "head.out."  # what says the classes


def reused_part(start: Model, task: type[Task]) -> EncoderPart:
    """What of a model can learn a task: the whole, or its encoder; or else become the encoder of a new model."""
    able, encoder = task.architectures, encoder_config(start.config)
    for part in (EncoderPart(start.config), encoder):
        if part.architecture in able:
            return part
    if task.encoder_place and isinstance(encoder.config, ImageConfig):
        reads_media(start)
        return encoder._replace(place=task.encoder_place)
    said = f"model.from: a model of {start.architecture} cannot learn this task ({describe_task(task)})"
    encoders = ", or an image encoder such as resnet-18 or vit-s16" if task.encoder_place else ""
    raise UserError(said, allowed=listed(able) + encoders)


def describe_task(task: type[Task]) -> str:
    return f"{task.kind}, {task.objective}" if task.objective else task.kind


def reused_config(recipe: Recipe, setup: TaskSetup, part: EncoderPart, required: DataRequirements) -> object:
    """The config of a model that is fine-tuned: its own, but for what the recipe and the new data change."""
    dropout, sizes = recipe.train.dropout, sizes_of(part.config)
    if dropout is not None:
        sizes.pop("embed_dropout", None)
    sizes |= recipe.model.sizes
    new_tokenizer = "data.tokenizer" in setup.chosen  # the model had none
    same = () if new_tokenizer else ("vocab", "source_vocab", "target_vocab", "context", "tied")
    kept = {name: sizes[name] for name in same if name in sizes}
    return replace(cast(Any, config_for(part.architecture, sizes, required, dropout)), **kept)


def sizes_of(config: Any) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(config)}


class ReusedWeights(NamedTuple):
    """Tensors of a model by the new one's names, how many the model has in all, and the parts that are new."""

    tensors: Mapping[str, Tensor]
    total: int
    new: list[str]


def reused_weights(model: nn.Module, start: Model, part: EncoderPart, task: Task) -> ReusedWeights:
    """What a new model takes over; its classes too, where they are the same ones."""
    old = tensors_of(start.model)
    names = task.extra_config().get("id2label")
    same = part.architecture == start.architecture and names in (None, start.extra_config.get("id2label"))
    mine = {
        part.place + name.removeprefix(part.prefix): tensor
        for name, tensor in old.items()
        if name.startswith(part.prefix)
    }
    wanted = {name: tensor.shape for name, tensor in tensors_of(model).items()}
    fit = {
        name: tensor
        for name, tensor in mine.items()
        if wanted.get(name) == tensor.shape and (same or not name.startswith(OUT))
    }
    return ReusedWeights(fit, len(old), parts_of([name for name in wanted if name not in fit], fit))


def take_over(model: nn.Module, found: ReusedWeights) -> None:
    """Copies what is taken over; all else keeps its own."""
    own = tensors_of(model)
    with torch.no_grad():
        for name, tensor in found.tensors.items():
            own[name].copy_(tensor)


def parts_of(names: Collection[str], others: Collection[str]) -> list[str]:
    """The largest parts that hold nothing but these names."""
    found: dict[str, None] = {}
    for name in names:
        paths = (path for path in paths_to(name) if not any(other.startswith(f"{path}.") for other in others))
        found[next(paths, name)] = None
    return list(found)


def describe_reuse(found: ReusedWeights, folder: str) -> str:
    new = f"; new: {listed(found.new, 4)}" if found.new else ""
    return f"{len(found.tensors)} of {found.total} tensors of {folder}{new}"
