"""Training that is larger than this machine, by an explicit model: memory, communication, time and the layout to take.

The run is data-parallel × tensor-parallel in 16-bit mixed precision with Adam, as torch's DDP, FSDP2 and tensor
parallelism compute it.  Formulas, for P parameters, `tp` devices that share each matrix, and `shard` that share what a
device has of all:

  weights      4 P / (tp·shard) bytes, and 16-bit copies: of all (DDP), or of the layer in use and the next (FSDP)
  gradients    4 P / (tp·shard), and those of one layer before they are shared out (FSDP)
  optimizer    8 P / (tp·shard)
  activations  what one forward pass keeps (`zoo/cost.py`), of the rows of a micro-batch, / tp
  compute      FLOPs of training / (devices · peak · sustained), on a CPU with the time of activations beside; with
               recomputation 4/3 of it
  FSDP         all weights gathered twice and all gradients reduced once for each micro-batch, beside computing
  DDP          2 · gradients for each step, beside computing
  tp           four sums of the hidden vectors for each layer (six with recomputation), which computing waits for
  update       28 bytes for each parameter of a device, at the speed of its memory

What runs beside computing costs a tenth of its time, and all by which it is longer.  MFU counts the FLOPs of the model
alone, not those of recomputation.  Not in the model: pipeline and expert parallelism, stragglers, failures, evaluation
and reading data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

from headway.console import aligned
from headway.errors import UserError, counted
from headway.training.accelerators import GIGA, MAX_DEVICES, Accelerator, devices
from headway.zoo.build import config_to_train, on_meta
from headway.zoo.cost import activation_bytes, cost, reads_pairs
from headway.zoo.presets import preset

USABLE = 0.9  # of a device's memory; the rest are buffers, and gaps between tensors
RESERVED = 1.5 * GIGA  # of an accelerator's memory: its context and libraries
REACHED = 0.8  # of a link's speed, by collectives
BESIDE = 0.1  # of the time of communication beside computing
ADAM_TRAFFIC = 28  # bytes: weight, gradient and two averages are read, weight and averages written
NEAR = 1.02  # times the least time: the simplest layout within it is taken
# Tokens of a batch by parameters (GPT-3, table 2.1; Llama 2 took 4e6 for all sizes); images, where a row is one
BATCHES = ((1e9, 0.5e6), (4e9, 1e6), (20e9, 2e6), (inf, 4e6))
IMAGE_BATCH = 4096


@dataclass(frozen=True)
class Workload:
    """A model as far as the arithmetic goes; a row is a text of `units` tokens, an image, or a sound."""

    preset: str
    unit: str
    units: int
    parameters: int
    largest: int  # parameters of a layer at most
    flops: int  # of training on a row
    kept: tuple[float, float]  # bytes of activations of a row in 32 bits: all, and with recomputation
    dim: int
    layers: int
    heads: int  # which tensor parallelism must divide; 1 where it is not to be had

    @staticmethod
    def of(name: str, length: int | None, **sizes: Any) -> Workload:
        config: Any = config_to_train(name, **sizes)
        costs = cost(config, length=length)
        pairs = reads_pairs(on_meta(config))
        rows = 1 if costs.unit == "image" else costs.length * (1 + pairs if costs.unit == "token" else 1)
        kept = (
            activation_bytes(config, on_meta(config), f"{costs.unit}s", costs.length, recompute=r)
            for r in (False, True)
        )
        names = ("dim", "layers", "heads", "kv_heads")
        own = {key: size for key in names if isinstance(size := getattr(config, key, None), int)}
        alike = own.keys() >= {*names[:3]}  # stages of their own sizes have no tensor parallelism here
        return Workload(
            name,
            costs.unit,
            costs.length,
            costs.total.parameters,
            max(layer.parameters for layer in costs.layers.values()),
            3 * costs.total.flops,
            (rows * next(kept), rows * next(kept)),
            *((own["dim"], own["layers"], own.get("kv_heads", own["heads"])) if alike else (0, 0, 1)),
        )

    @property
    def usual_batch(self) -> float:
        """Units of a batch, where nothing is said."""
        if self.unit == "image":
            return IMAGE_BATCH
        return next(size for most, size in BATCHES if self.parameters < most)


@dataclass(frozen=True)
class ParallelLayout:
    """`tp` × `shard` × `replicas` devices, each of which computes `accumulate` micro-batches of `micro` rows a step."""

    tp: int
    shard: int
    replicas: int
    micro: int
    accumulate: int
    recompute: bool

    @property
    def rows(self) -> int:
        return self.replicas * self.shard * self.micro * self.accumulate

    @property
    def name(self) -> str:
        """DDP, FSDP or HSDP (sharded within groups, replicated between them), and TP."""
        data = "DDP" if self.shard == 1 else "FSDP" if self.replicas == 1 else "HSDP"
        parallel = data if self.shard * self.replicas > 1 else ""
        tensor = f"TP {self.tp}" if self.tp > 1 else ""
        return " × ".join(filter(None, (parallel, tensor))) or "one device"

    @property
    def simplicity(self) -> tuple[int, ...]:
        return self.tp, self.shard, self.recompute, -self.micro


@dataclass(frozen=True)
class StepEstimate:
    """What a step takes of each device by a layout: bytes by kind, bytes sent, seconds by kind."""

    work: Workload
    device: Accelerator
    layout: ParallelLayout

    @cached_property
    def memory(self) -> dict[str, float]:
        layout, work = self.layout, self.work
        held, layer = work.parameters / (layout.tp * layout.shard), work.largest / layout.tp
        low = self.device.number_bytes
        copies = 2 * low * layer if layout.shard > 1 else (low * work.parameters / layout.tp if low < 4 else 0)
        return {
            "weights": 4 * held + copies,
            "gradients": 4 * held + (4 * layer if layout.shard > 1 else 0),
            "optimizer": 8 * held,
            "activations": layout.micro * work.kept[layout.recompute] * low / 4 / layout.tp,
            "reserved": RESERVED if low < 4 else 0,
        }

    @property
    def fits(self) -> bool:
        return sum(self.memory.values()) <= USABLE * self.device.memory

    @cached_property
    def sent(self) -> dict[str, float]:
        """Bytes that a device sends in a step, by what for."""
        layout, work = self.layout, self.work
        share = work.parameters / layout.tp
        own = (layout.shard - 1) / layout.shard * share * layout.accumulate
        hidden = layout.micro * work.units * work.dim * self.device.number_bytes
        sums = (6 if layout.recompute else 4) * work.layers * layout.accumulate
        return {
            "gather": 2 * own * self.device.number_bytes,
            "reduce": 4 * own,
            "all_reduce": 2 * 4 * share / layout.shard * (layout.replicas - 1) / layout.replicas,
            "tensor": sums * 2 * (layout.tp - 1) / layout.tp * hidden,
        }

    def transfer(self, sent: float, group: int, inner: int) -> float:
        """Seconds in which each device of a group sends bytes; `inner` neighbours stand between two of its members.

        Within a node over its links; between nodes over the networks of all members in a node at once.
        """
        here = max(1, min(group, self.device.per_node // inner))
        across = sent / (here * self.device.network) if group > here else 0.0
        return max(sent / self.device.link if here > 1 else 0.0, across) / REACHED

    @cached_property
    def seconds(self) -> dict[str, float]:
        layout, work, device = self.layout, self.work, self.device
        total = layout.tp * layout.shard * layout.replicas
        rows = layout.rows / total
        products = rows * work.flops / (device.flops * device.sustained)
        beside = rows * work.kept[False] * device.number_bytes / 4 / device.activations
        compute = (products + beside) * (4 / 3 if layout.recompute else 1)
        sent = self.sent
        data = self.transfer(sent["gather"] + sent["reduce"], layout.shard, layout.tp)
        data += self.transfer(sent["all_reduce"], layout.replicas, layout.tp * layout.shard)
        waiting = max(0.0, data - compute) + BESIDE * min(data, compute)
        tensor = self.transfer(sent["tensor"], layout.tp, 1)
        update = ADAM_TRAFFIC * work.parameters / (layout.tp * layout.shard) / device.bandwidth
        return {"compute": compute, "data_parallel": waiting, "tensor_parallel": tensor, "update": update}

    @property
    def time(self) -> float:
        return sum(self.seconds.values())

    @property
    def mfu(self) -> float:
        devices = self.layout.tp * self.layout.shard * self.layout.replicas
        return self.layout.rows * self.work.flops / (self.time * devices * self.device.flops)


@dataclass(frozen=True)
class ClusterPlan:
    """The layout that is recommended, what it takes, and the best of each other kind."""

    devices: int
    tokens: float
    best: StepEstimate
    others: tuple[StepEstimate, ...]

    @property
    def steps(self) -> float:
        return self.tokens / (self.best.layout.rows * self.best.work.units)

    @property
    def hours(self) -> float:
        return self.steps * self.best.time / 3600

    def to_dict(self) -> dict[str, Any]:
        best = self.best
        layout, work = best.layout, best.work
        return {
            "preset": work.preset,
            "device": best.device.name,
            "devices": self.devices,
            "parameters": work.parameters,
            f"{work.unit}s": self.tokens,
            "flops": self.tokens / work.units * work.flops,
            "layout": {
                "name": layout.name,
                "tensor_parallel": layout.tp,
                "shard": layout.shard,
                "replicas": layout.replicas,
                "micro_batch": layout.micro,
                "accumulate": layout.accumulate,
                "recompute": layout.recompute,
            },
            "batch": {"rows": layout.rows, f"{work.unit}s": layout.rows * work.units},
            "memory": {**best.memory, "total": sum(best.memory.values()), "device": best.device.memory},
            "sent": best.sent,
            "seconds": {**best.seconds, "step": best.time},
            "mfu": best.mfu,
            f"{work.unit}s_per_second": layout.rows * work.units / best.time,
            "steps": self.steps,
            "hours": self.hours,
            "device_hours": self.hours * self.devices,
            "why": self.reasons(),
        }

    def reasons(self) -> list[str]:
        """Why this layout and none of the others."""
        best, found = self.best, list[str]()
        for other in self.others:
            memory = sum(other.memory.values()) / GIGA
            if not other.fits:
                found.append(
                    f"{other.layout.name} does not fit: {memory:,.1f} GB of {USABLE * other.device.memory / GIGA:,.1f}"
                )
            else:
                found.append(
                    f"{other.layout.name} would take {other.time / best.time:.2f} × as long, and {memory:,.1f} GB"
                )
        if best.layout.recompute:
            found.append("activations are computed again in the backward pass: kept, they do not fit, or it gains less")
        return found

    def to_text(self) -> str:
        best = self.best
        layout, work, device = best.layout, best.work, best.device
        rows = [
            ("memory of a device", ""),
            *((f"  {name}", f"{size / GIGA:,.2f} GB") for name, size in best.memory.items()),
            ("  of", f"{device.memory / GIGA:,.0f} GB"),
            ("sent by a device in a step", ""),
            *((f"  {name.replace('_', '-')}", f"{size / GIGA:,.2f} GB") for name, size in best.sent.items() if size),
            ("time of a step", f"{best.time:,.3g} s"),
            *((f"  {name.replace('_', ' ')}", f"{time:,.3g} s") for name, time in best.seconds.items() if time),
            ("MFU", f"{100 * best.mfu:.1f} %"),
            (f"{work.unit}s a second", f"{layout.rows * work.units / best.time:,.0f}"),
            ("steps", f"{self.steps:,.0f}"),
            ("FLOPs", f"{self.tokens / work.units * work.flops:.3g}"),
            ("time", f"{self.hours:,.1f} h, that is {self.hours * self.devices:,.0f} device hours"),
        ]
        micro = f"{counted(layout.micro, 'row')} on each device, {layout.accumulate} × in a step"
        heading = f"{work.preset} ({work.parameters:,} parameters) on {self.devices} × {device.name}: {layout.name}"
        shape = f"tensor parallel {layout.tp}, sharded over {layout.shard}, replicated {layout.replicas} times"
        recompute = ", activations recomputed" if layout.recompute else ""
        batch = f"a batch of {layout.rows:,} rows ({layout.rows * work.units:,} {work.unit}s): {micro}{recompute}"
        why = "\n".join(f"  {reason}" for reason in self.reasons())
        return "\n\n".join([heading, f"{shape}\n{batch}", aligned(rows), f"why\n{why}", NOTES])


NOTES = """\
A model of torch's DDP, FSDP2 and tensor parallelism in mixed precision with Adam, not a
measurement; docs/SCALE.md has its formulas, its limits, and what it was compared with."""


def cluster_plan(
    name: str,
    where: str,
    tokens: float,
    *,
    batch: float | None = None,
    length: int | None = None,
    network: float | None = None,
    sizes: Mapping[str, Any] | None = None,
) -> ClusterPlan:
    """The fastest layout that fits for training a preset on devices such as 64xH100; of nearly equal ones the simplest.

    `batch` is in tokens (images, frames), `network` in GB a second for each device; `sizes` replace the preset's.
    """
    for said, value in (("tokens", tokens), ("batch", batch), ("network", network)):
        if value is not None and not 0 < value < inf:
            raise UserError(f"{said}={value:g}", allowed="a number above 0")
    preset(name)
    count, device = devices(where)
    if network is not None:
        device = replace(device, network=network * GIGA)
    work = Workload.of(name, length, **(sizes or {}))
    rows = max(1, round((work.usual_batch if batch is None else batch) / work.units))
    estimates = [StepEstimate(work, device, one) for one in layouts(work, device, count, rows)]
    if not estimates:
        do = f"give {rows:,} devices or fewer, or a larger batch"
        raise UserError(f"a batch of {counted(rows, 'row')} cannot feed {count:,} devices", do=do)
    fitting = [one for one in estimates if one.fits]
    if not fitting:
        raise too_large(work, device, count, rows)
    least = NEAR * min(one.time for one in fitting)
    best = min((one for one in fitting if one.time <= least), key=lambda one: one.layout.simplicity)
    return ClusterPlan(count, tokens, best, tuple(best_of_others(estimates, best)))


def layouts(work: Workload, device: Accelerator, count: int, rows: int) -> Iterator[ParallelLayout]:
    """All that use every device, with about so many rows in a batch."""
    for tp in powers(min(count, device.per_node, work.heads)):
        data = count // tp
        if count % tp or work.heads % tp or data > rows:
            continue
        node = max(1, device.per_node // tp)
        shards: set[int] = {1, data, node} if data % node == 0 else {1, data}
        for shard in sorted(shards):
            for micro in powers(rows // data):
                accumulate = max(1, round(rows / (data * micro)))
                for recompute in (False, True):
                    yield ParallelLayout(tp, shard, data // shard, micro, accumulate, recompute)


def powers(most: int) -> list[int]:
    """The powers of two up to a number."""
    return [2**k for k in range(max(1, most).bit_length())]


def best_of_others(estimates: list[StepEstimate], best: StepEstimate) -> Iterator[StepEstimate]:
    """Of each other kind of layout the fastest that fits, or else that of the least memory."""
    for name in dict.fromkeys(one.layout.name for one in estimates):
        alike = [one for one in estimates if one.layout.name == name]
        if name != best.layout.name:
            fitting = [one for one in alike if one.fits]
            yield (
                min(fitting, key=lambda one: one.time)
                if fitting
                else min(alike, key=lambda one: sum(one.memory.values()))
            )


def too_large(work: Workload, device: Accelerator, count: int, rows: int) -> UserError:
    """How many devices it takes."""
    said = f"{work.preset} does not fit on {count:,} × {device.name} by data and tensor parallelism"
    enough = (
        n
        for n in powers(MAX_DEVICES)
        if n > count and any(StepEstimate(work, device, one).fits for one in layouts(work, device, n, rows))
    )
    number = next(enough, None)
    return UserError(said, do=f"give {number:,} or more" if number else "give devices with more memory")
