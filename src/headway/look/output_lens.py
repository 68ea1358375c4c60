"""Where an output comes from: what each layer would already say, and what each head adds to the logit of the token.

The logit lens (nostalgebraist, 2020) reads the residual stream after each layer by the model's own last norm and head.
Direct logit attribution (Elhage et al. 2021) takes the last norm's factor as it is; then a logit is a sum over all that
was added to the residual stream: the embedding, each head, and what else each sublayer adds.  Logits are compared by
their distance from the mean of all, which a softmax does not see.

`partitions` give exact probabilities at other temperatures: p(k) at temperature T is p(k)^(1/T) / exp(partition).

Axes:  N steps   L layers   K choices   C width   H heads   E value width   S keys
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from headway.look.grid_map import output_matrix
from headway.look.recording import Recording, find_attention_sites
from headway.nn.block import Block, Identity, LayerScale, Residual, Scale, Stack
from headway.nn.head import LMHead
from headway.nn.trace import SILENT, record
from headway.nn.trunk import Trunk
from headway.ops.attend import per_head
from headway.ops.attention_map import Readable
from headway.tasks.tracing import Choices

TEMPERATURES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0)
MAX_STEPS = 64  # the last ones: each is a column of the page
MAX_FLOPS = 2 * 10**10  # of all logits
MAX_REST = 1e-3  # of a logit that its parts do not explain
TOP = 3  # choices of each layer
EMBEDDING = "embedding"


@dataclass(frozen=True)
class LayerChoice:
    """What a layer would say at a step: its likeliest choices, and the probability and rank of what was said."""

    top: tuple[tuple[str, float], ...]
    said: float
    rank: int  # 0: the likeliest


@dataclass(frozen=True)
class LogitParts:
    """What was added to the logit of the chosen token, less the mean of all logits; all `values` sum to `total`.

    `names` are heads (`0.attn head 3`), sublayers without their heads (`0.ffn`), the embedding and the head's bias.
    """

    names: tuple[tuple[str, int | None], ...]
    values: tuple[tuple[float, ...], ...]  # N × parts
    total: tuple[float, ...]  # N


@dataclass(frozen=True)
class OutputLens:
    """Of the steps from `first` on: the choices of each layer, embedding first, and the parts of their logits."""

    first: int
    layers: tuple[str, ...]
    choices: tuple[tuple[LayerChoice, ...], ...]  # N × L
    parts: LogitParts | None
    partitions: tuple[tuple[float, ...], ...]  # N × temperatures


@torch.no_grad()
def output_lens(recording: Recording) -> OutputLens | None:
    """None for a model whose output is not read token by token from a stack of blocks."""
    reader, run = recording.run.reader, recording.run
    if not isinstance(reader, Choices) or not reader.said:
        return None
    decoder, places = decoder_of(run.model, reader), [at for at in reader.at if at is not None]
    if decoder is None or len(places) < len(reader.said):
        return None
    path, trunk = decoder
    assert isinstance(trunk.stack, Stack)
    streams = ResidualStreams(run.model, path, trunk.stack)
    found = streams.record(recording)
    layers = streams.layers()
    vocab = reader.head(found[:1]).shape[-1]
    room = MAX_FLOPS // max(1, 2 * vocab * found.shape[-1] * (len(layers) + 1 + len(TEMPERATURES)))
    first = max(0, len(reader.said) - max(1, min(MAX_STEPS, room)))
    rows, said = (torch.tensor(each[first:], device=found.device) for each in (places, reader.said))
    choices = [layer_choices(reader, reader.head(trunk.stack.norm(x[rows])), said) for x in layers.values()]  # L × N
    logits = reader.head(found[first:])
    parts = logit_parts(streams, trunk, rows, logits, said)
    return OutputLens(first, tuple(layers), tuple(zip(*choices, strict=True)), parts, partitions(logits))


def decoder_of(model: nn.Module, reader: Choices) -> tuple[str, Trunk] | None:
    """The trunk whose head the outcome is read by, with its path, if it is a stack of blocks."""
    for path, part in model.named_modules():
        if isinstance(part, Trunk) and part.head is reader.head and isinstance(part.stack, Stack):
            blocks = all(isinstance(block, Block) for block in part.stack.blocks)
            return (path, part) if blocks and len(part.stack.blocks) > 0 else None
    return None


class ResidualStreams:
    """What enters and leaves each residual connection of a stack in one run, and what its attention heads read."""

    def __init__(self, model: nn.Module, path: str, stack: Stack):
        self.model, self.stack = model, stack
        prefix = f"{path}.stack".lstrip(".")
        self.blocks = {f"{prefix}.blocks.{at}": block for at, block in enumerate(stack.blocks)}
        names = {module: name for name, module in model.named_modules()}
        self.residuals = {names[part]: part for part in stack.modules() if isinstance(part, Residual)}
        inside = set(stack.modules())
        self.sites = [site for site in find_attention_sites(model) if site.part in inside]
        self.seen = dict[str, list[tuple[Tensor, Tensor]]]()
        self.values = dict[str, list[object]]()

    def record(self, recording: Recording) -> Tensor:
        """Run the model, and keep what passes."""

        def keep(name: str, part: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
            self.seen.setdefault(name, []).append((given[0], out))

        hooks = [
            part.register_forward_hook(partial(keep, name)) for name, part in {**self.blocks, **self.residuals}.items()
        ]
        try:
            names = [name for site in self.sites for name in site.trace_names[:2]]
            with record(self.model, *names) as trace:
                found = recording.run.call()
            self.values = {name: list(trace.values.get(name, [])) for name in names}
        finally:
            for hook in hooks:
                hook.remove()
        return found

    def layers(self) -> dict[str, Tensor]:
        """The residual stream after the embedding and after each block, T C; of a shared block, after each turn."""
        calls = [self.seen[name] for name in self.blocks]
        streams = {EMBEDDING: calls[0][0][0][0]}
        for at, (_, out) in enumerate(call for each in calls for call in each):
            streams[str(at)] = out[0]
        return streams


def layer_choices(reader: Choices, logits: Tensor, said: Tensor) -> list[LayerChoice]:
    """N choices of one layer, by its logits N K."""
    chances = logits.float().log_softmax(-1).exp()
    mine = chances.gather(-1, said[:, None])
    top, ranks = chances.topk(min(TOP, chances.shape[-1])), (chances > mine).sum(-1).tolist()
    return [
        LayerChoice(tuple((reader.label(k), p) for k, p in zip(ids, values, strict=True)), one, rank)
        for ids, values, one, rank in zip(
            top.indices.tolist(), top.values.tolist(), mine[:, 0].tolist(), ranks, strict=True
        )
    ]


def partitions(logits: Tensor) -> tuple[tuple[float, ...], ...]:
    """log Σ p^(1/T) over all choices, of each step at each temperature."""
    logs = logits.double().log_softmax(-1)
    found = torch.stack([(logs / heat).logsumexp(-1) for heat in TEMPERATURES], -1)
    return tuple(map(tuple, found.tolist()))


def logit_parts(
    streams: ResidualStreams, trunk: Trunk, rows: Tensor, logits: Tensor, said: Tensor
) -> LogitParts | None:
    """None where the logit is no sum: norms inside the stream (post-norm), a head of several layers, shared blocks."""
    head, norm = trunk.head, streams.stack.norm
    # what half precision loses in the stream would be missing from the sum
    plain = all(map(is_sum, streams.residuals.values())) and all(len(calls) == 1 for calls in streams.seen.values())
    if not (
        plain
        and type(head) is LMHead
        and head.weight.dtype == torch.float32
        and type(norm) in (Identity, nn.Identity, nn.LayerNorm, nn.RMSNorm)
    ):
        return None
    stream = list(streams.layers().values())
    weight, scale = head.weight.double(), head.multiplier.factor
    asked = scale * (weight[said] - weight.mean(0))  # N C
    way, constant = through_norm(norm, stream[-1][rows].double(), asked)
    if head.bias is not None:
        constant = constant + head.bias.double()[said] - head.bias.double().mean()
    names: list[tuple[str, int | None]] = [(EMBEDDING, None)]
    values = [(stream[0][rows].double() * way).sum(-1)]
    for name, residual in streams.residuals.items():
        [(before, after)] = streams.seen[name]
        whole = ((after - before)[0, rows].double() * way).sum(-1)
        for site, each in head_parts(streams, name, residual, rows, way).items():
            names += [(site, head) for head in range(len(each))]
            values += list(each)
            whole = whole - each.sum(0)
        names.append((short_name(name), None))
        values.append(whole)
    found = torch.stack([*values, constant], -1)
    total = logits.double().gather(-1, said[:, None])[:, 0] - logits.double().mean(-1)
    if bool(((total - found.sum(-1)).abs() > MAX_REST * (1 + total.abs())).any()):
        return None  # something else changes the stream
    return LogitParts((*names, ("bias", None)), tuple(map(tuple, found.tolist())), tuple(total.tolist()))


def is_sum(residual: Residual) -> bool:
    """x + scale · body: nothing but a factor between a head and the stream."""
    plain = all(isinstance(part, nn.Identity) for part in (residual.after, residual.inside, residual.skip))
    return plain and isinstance(residual.scale, nn.Identity | Scale | LayerScale)


def through_norm(norm: nn.Module, x: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
    """The vectors that `asked` is before a norm whose factor is that of x, N C, and what the norm adds by itself, N."""
    none, own = asked.new_zeros(len(asked)), {name: value.double() for name, value in norm.named_parameters()}
    way = asked * own["weight"] if "weight" in own else asked
    if isinstance(norm, nn.LayerNorm):
        way = way - way.mean(-1, keepdim=True)
        constant = asked @ own["bias"] if "bias" in own else none
        return way / (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt(), constant
    if isinstance(norm, nn.RMSNorm):
        eps = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps
        return way / (x.square().mean(-1, keepdim=True) + eps).sqrt(), none
    return asked, none


def head_parts(streams: ResidualStreams, name: str, residual: Residual, rows: Tensor, way: Tensor) -> dict[str, Tensor]:
    """What each head of each site within a residual connection adds to the asked logit, H N."""
    inside, found = set(residual.modules()), dict[str, Tensor]()
    for site in streams.sites:
        maps, values = (streams.values.get(each, []) for each in site.trace_names[:2])
        if site.part not in inside or site.grid_module is not None or len(maps) != 1 or len(values) != 1:
            continue
        [map], [v] = maps, values
        assert isinstance(map, Readable)
        assert isinstance(v, Tensor)
        out = output_matrix(site.part, map.shape[1] * v.shape[-1]).double()  # C (H·E)
        start = int(rows.min())
        band = map.band(start, int(rows.max()) + 1)
        weights = band.weights[0][:, rows - start].double()
        z = weights @ per_head(v, map.shape[1])[0][:, band.keys].double()  # H N E
        asked = (way @ residual.scale(out.T).T).unflatten(-1, z.shape[::2])  # N H E
        found[site.name] = (z.transpose(0, 1) * asked).sum(-1).T
    return found


def short_name(name: str) -> str:
    """A module's name as the sites of a trace have it."""
    return ".".join(part for part in name.split(".") if part not in SILENT)
