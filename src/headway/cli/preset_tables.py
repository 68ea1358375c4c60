"""`headway list` and `headway cost`: the published sizes, and what a model of such a size takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from json import dumps
from math import inf
from typing import TYPE_CHECKING, cast

from headway.console import aligned, binary, short, spaced
from headway.errors import UserError
from headway.zoo import presets

if TYPE_CHECKING:
    from headway.learn.module_tree import Stage
    from headway.zoo.cost import Cost

COLUMNS = ("dim", "layers", "heads", "hidden")


def list_presets(json: bool = False) -> str:
    """All presets, with the sizes that most have; as JSON, with all that a preset gives."""
    if json:
        told = [{"name": name, **chosen._asdict()} for name, chosen in presets.PRESETS.items()]
        return dumps(told, indent=1)
    width = max(map(len, presets.PRESETS))
    rows: list[tuple[str, ...]] = [(f"{'preset':{width}}  architecture", *COLUMNS)]
    for name, chosen in presets.PRESETS.items():
        encoder = chosen.sizes.get("encoder")
        sizes = {**encoder, **chosen.sizes} if isinstance(encoder, Mapping) else chosen.sizes
        numbers = (size(column, sizes.get(column, "")) for column in COLUMNS)
        rows.append((f"{name:{width}}  {chosen.architecture}", *numbers))
    return f"{aligned(rows)}\n\nheadway cost PRESET says what one takes; headway list --json gives all sizes."


def size(column: str, value: object) -> str:
    """A number; of stages, their layers added up, and of all else the first and the last."""
    if not isinstance(value, tuple):
        return str(value)
    stages = [str(number) for number in cast(tuple[int, ...], value)]
    return "+".join(stages) if column == "layers" else f"{stages[0]}–{stages[-1]}"


def cost(
    preset: str,
    batch: int = 1,
    length: int | None = None,
    json: bool = False,
    bits: int = 32,
    tokens: float | None = None,
    sizes: Mapping[str, object] | None = None,
) -> str:
    """What a preset's model takes: parameters, FLOPs, bytes, layer by layer; `tokens` are those of a whole training."""
    presets.preset(preset)  # a mistyped name is told before torch is imported
    if tokens is not None and not 1 <= tokens < inf:
        raise UserError(f"tokens={tokens:g}", allowed="1 or more")
    from headway.learn.module_tree import stages
    from headway.zoo.build import config_of
    from headway.zoo.cost import cost

    config = config_of(preset, **(sizes or {}))
    costs = cost(config, batch=batch, length=length, bits=bits)
    grids = stages(config) if costs.unit == "image" else []
    run = None if tokens is None else {f"{costs.unit}s": tokens, "flops": round(tokens) * costs.training_per_token}
    if json:
        whole = {} if run is None else {"training_run": run}
        whole |= {"stages": [grid._asdict() for grid in grids]} if grids else {}
        return dumps({"preset": preset, "sizes": dict(sizes or {}), **costs.plain(), **whole}, indent=1)
    rows = f"batch {costs.batch}" + (f", length {costs.length}" if costs.unit != "image" else "")
    heading = f"{preset} ({presets.preset(preset).architecture}): {rows}, numbers of {costs.bits} bits"
    if sizes:
        heading += "\nwith " + ", ".join(f"{name}={value}" for name, value in sizes.items())
    whole = [] if run is None else [f"training on {tokens:.4g} {costs.unit}s: {run['flops']:.4g} FLOPs"]
    return "\n\n".join([heading, totals(costs), *whole, layers(costs), *stage_table(grids), NOTES])


NOTES = """\
FLOPs: 2 for each multiplication with its addition, in matrices and attention;
training is 3 × forward.  The optimizer is Adam, two numbers of 32 bits for each
parameter.  Attention is what its matrices would take, if they were stored."""


def stage_table(grids: Sequence[Stage]) -> list[str]:
    """The resolution and channels after each stage, where a model has several."""
    rows = [(grid.name, f"{grid.rows}×{grid.columns}", str(grid.channels)) for grid in grids]
    return [aligned([("stage", "resolution", "channels"), *rows])] if rows else []


def totals(costs: Cost) -> str:
    forward = costs.per_token(costs.total.flops)
    training = costs.training_per_token
    each = f"{'an' if costs.unit == 'image' else 'a'} {costs.unit}"
    rows = [
        ("parameters", spaced(costs.total.parameters), short(costs.total.parameters)),
        (f"FLOPs of {each}, forward", spaced(forward), short(forward)),
        (f"FLOPs of {each}, training", spaced(training), short(training)),
    ]
    kinds = {"kv_cache": "KV cache"}
    for kind, size in costs.bytes_by_kind().items():
        rows.append((f"bytes of {kinds.get(kind, kind)}", spaced(size), binary(size)))
    return aligned(rows)


def layers(costs: Cost) -> str:
    """A row for each layer, and one for a run of layers that are alike."""

    def line(label: str, row: dict[str, int]) -> tuple[str, ...]:
        flops = short(row[f"flops_forward_per_{costs.unit}"])
        return label, spaced(row["parameters"]), flops, binary(row["kv_cache"]), binary(row["attention"])

    rows: list[tuple[str, ...]] = [("layer", "parameters", f"FLOPs/{costs.unit}", "KV cache", "attention")]
    for row, alike in groupby(costs.layers.items(), lambda item: costs.row(item[1])):
        names = [name for name, _ in alike]
        label = names[0] if len(names) == 1 else f"{names[0]} to {names[-1].rpartition('.')[2]}, each"
        rows.append(line(label, row))
    return aligned([*rows, line("all", costs.row(costs.total))])
