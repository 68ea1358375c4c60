"""What a model costs: parameters, FLOPs and bytes, counted in one forward pass on the meta device.

The model has shapes and no numbers there, so no size is too large, and nothing is known of any architecture: the pass
tells of each layer what it multiplies, sees and caches.

FLOPs are 2 for each multiplication with its addition, in the matrices that each token meets (projections, feed-forward
layers, recurrent cells, the output layer) and in attention: for each pair of a query and a key that it may see, the
score's width and the value's width.  So a causal model's queries see half of the keys on average, and those of a window
at most the window.  Embeddings are looked up, norms and activations are small beside the rest: they count 0.
Training takes 3 × forward: the gradient of the inputs and that of the weights cost as much again, each.

Axes:  B batch   T tokens, frames or samples   Ch channels   M mels   H heads   S keys
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headway.errors import UserError
from headway.nn.attention import Attention, SelfAttention
from headway.nn.context import Context
from headway.nn.head import LMHead
from headway.nn.recompute import Forward, called_by
from headway.nn.state import State
from headway.nn.trace import SILENT, Seen, Trace, sites_of
from headway.nn.trunk import EncoderDecoder
from headway.ops.attention_map import AttentionMap
from headway.ops.pattern import Full, Pattern
from headway.zoo.build import config_of, on_meta

SHORT = 32  # tokens of a text beside an image or a sound, or of one that tells for a longer one
FRAMES, SAMPLES = 1000, 160_000  # ten seconds, where no length is given
TRAINING = 3  # × forward
ADAM = 2  # numbers for each parameter, in 32 bits


def cost(preset_or_config: object, *, batch: int = 1, length: int | None = None, bits: int = 32) -> Cost:
    """The costs of the model that a preset's name or a config tells of; `length` is its context unless given."""
    config = config_of(preset_or_config)
    if bits not in (8, 16, 32, 64):
        raise UserError(f"numbers of {bits} bits", allowed="8, 16, 32 or 64")
    model = on_meta(config).eval()
    unit, length, tensors = dummy_inputs(config, model, batch, length)
    return Cost(batch, length, bits, tally_layers(model, tensors), unit)


def activation_bytes(config: object, model: nn.Module, unit: str, length: int, *, recompute: bool = False) -> float:
    """Bytes that the forward pass keeps for the gradient, for each of the tokens, images, frames … of a batch (`unit`).

    Counted on one row of `length` of them; the model is on the meta device, and changed.  Where blocks `recompute`
    theirs, it keeps their inputs, and the backward pass holds the activations of one block at a time.
    """
    pairs = reads_pairs(model)
    if any(isinstance(part, nn.RNNBase) or recurrent_unit(part) is not None for part in model.modules()):
        length = min(length, SHORT)  # each of its steps is a pass of its own
    if unit == "images" or (pairs and unit != "tokens"):
        tensors = dummy_inputs(config, model, 1, SHORT if pairs else None).tensors
    else:
        tensors = dummy_inputs(config, model, 1, length).tensors
    weights = {address(weight) for weight in model.parameters()}
    saved = SavedTensors(weights)
    largest = 0

    def counted(block: nn.Module, forward: Forward) -> Forward:
        def run(x: Tensor, *others: Any) -> Tensor:
            nonlocal largest
            saved.pack(x)
            own = SavedTensors(weights | saved.found.keys())
            with torch.autograd.graph.saved_tensors_hooks(own.pack, lambda tensor: tensor):
                y = forward(x, *others)
            largest = max(largest, own.bytes())
            return y

        return run

    for part in model.modules():
        if isinstance(part, Attention):
            part.pattern = Full()
    hooks = torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor)
    blocks = called_by(model, counted) if recompute else nullcontext()
    with torch.enable_grad(), hooks, FusedAttention(), blocks:
        call(model, tensors, Context(), Context())
    units = {"images": 1, "tokens": (1 + pairs) * length}.get(unit, tensors[0].shape[1])
    return (saved.bytes() + largest) / units


@dataclass
class SavedTensors:
    """What is kept for a gradient, each piece of memory once, but for that at the addresses of `others`."""

    others: Set[int]
    found: dict[int, Tensor] = field(default_factory=dict[int, Tensor])

    def pack(self, tensor: Tensor) -> Tensor:
        if address(tensor) not in self.others:
            self.found[address(tensor)] = tensor
        return tensor

    def bytes(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in self.found.values())


class FusedAttention(TorchFunctionMode):
    """Attention on the meta device as the fused kernel computes it: without keeping weights for the gradient.

    There torch takes the plain way, which keeps them twice; on a processor only for dropout and a learned bias.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        given: tuple[Any, ...] = (*args, False)
        q, k, v, mask, dropout, causal = given[:6]
        learned = mask is not None and mask.requires_grad
        if dropout or learned or q.shape[-1] != v.shape[-1]:
            return func(*args, **(kwargs or {}))
        groups = q.shape[1] // k.shape[1]
        k, v = (one.repeat_interleave(groups, 1) if groups > 1 else one for one in (k, v))
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, attn_mask=mask)[0]


def address(tensor: Tensor) -> int:
    """What views of the same memory have in common, on the meta device too."""
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True)
class Cost:
    """The costs of a batch of `batch` rows of `length` tokens, with numbers of `bits` bits.

    In an encoder–decoder of texts, source and target have this length both, and a token is one of each.  Where a model
    reads something else, `unit` tells what is meant by tokens: images, one to a row; frames of sound; samples.
    """

    batch: int
    length: int
    bits: int
    layers: dict[str, Tally] = field(repr=False)
    unit: str = "token"

    @property
    def total(self) -> Tally:
        each = self.layers.values()
        return Tally(
            sum(x.parameters for x in each),
            sum(x.flops for x in each),
            sum(x.cache for x in each),
            sum(x.attention for x in each),
        )

    def per_token(self, flops: int) -> int:
        return round(flops / (self.batch * self.length))

    def bytes(self, numbers: int) -> int:
        return numbers * self.bits // 8

    @property
    def training_per_token(self) -> int:
        return TRAINING * self.per_token(self.total.flops)

    def plain(self) -> dict[str, object]:
        """As data, for JSON."""
        return {
            "parameters": self.total.parameters,
            "batch": self.batch,
            "length": self.length,
            "bits": self.bits,
            "unit": self.unit,
            f"flops_forward_per_{self.unit}": self.per_token(self.total.flops),
            f"flops_training_per_{self.unit}": self.training_per_token,
            "flops_forward": self.total.flops,
            "bytes": self.bytes_by_kind(),
            "layers": [{"name": name, **self.row(tally)} for name, tally in self.layers.items()],
        }

    def bytes_by_kind(self) -> dict[str, int]:
        total = self.total
        return {
            "weights": self.bytes(total.parameters),
            "gradients": self.bytes(total.parameters),
            "optimizer": ADAM * 4 * total.parameters,
            "kv_cache": self.bytes(total.cache),
            "attention": self.bytes(total.attention),
        }

    def row(self, tally: Tally) -> dict[str, int]:
        return {
            "parameters": tally.parameters,
            f"flops_forward_per_{self.unit}": self.per_token(tally.flops),
            "kv_cache": self.bytes(tally.cache),
            "attention": self.bytes(tally.attention),
        }


@dataclass
class Tally:
    """What one layer has, and takes for a whole batch: numbers, not bytes."""

    parameters: int = 0
    flops: int = 0
    cache: int = 0
    attention: int = 0


# ---- what a model is called with, by shapes alone: tokens, images, sound, or one of these and the tokens it writes


class DummyInputs(NamedTuple):
    """A batch without numbers, on the meta device, and what it is counted in."""

    unit: str  # token, image, frame or sample
    length: int  # units of each row
    tensors: tuple[Tensor, ...]


def dummy_inputs(config: object, model: nn.Module, batch: int, length: int | None) -> DummyInputs:
    """A batch for the model of a config; rows are as long as its context, if it has one, unless a length is given."""
    paired = reads_pairs(model)
    sources = images(config, model, batch) or sounds(config, batch, None if paired else length)
    if sources and not paired:
        unit, own = {4: ("image", 1), 3: ("frame", sources[0].shape[1])}[sources[0].dim()]
        if unit == "image" and length is not None:
            raise UserError(f"a length of {length} for a model that reads images", do="leave length= out")
        return DummyInputs("sample" if sources[0].shape[-1] == 1 else unit, own, sources)
    if length is None:
        context: object = getattr(config, "context", None)
        length = context if isinstance(context, int) else 512  # some take any length
    if batch < 1 or length < 1:
        raise UserError(f"a batch of {batch} rows of {length} tokens", allowed="1 or more of each")
    return DummyInputs("token", length, (*sources, empty(batch, length, kind=torch.long)))


def reads_pairs(model: nn.Module) -> bool:
    """Whether a model is called with two inputs and a context of each."""
    return bool(getattr(model, "reads_pairs", False))


def images(config: object, model: nn.Module, batch: int) -> tuple[Tensor, ...]:
    """B Ch H W, and the mask of patches that a masked image model takes besides."""
    c: Any = config if hasattr(config, "image") else getattr(config, "encoder", None)
    if not hasattr(c, "image"):
        return ()
    made = empty(batch, getattr(c, "channels", 3), c.image, c.image)
    mask = getattr(model, "example_mask", None)
    return (made,) if mask is None else (made, mask(made))


def sounds(config: object, batch: int, length: int | None) -> tuple[Tensor, ...]:
    """B T M; Whisper's window is fixed, two frames of it a token, and AST's; waveforms have one number at a time."""
    c = cast(Any, config)
    if hasattr(c, "mels"):
        return (empty(batch, 2 * c.source_context, c.mels),)
    if hasattr(c, "features"):
        return (empty(batch, getattr(c, "frames", FRAMES if length is None else length), c.features),)
    if hasattr(c, "strides"):
        return (empty(batch, SAMPLES if length is None else length, 1),)
    return ()


def empty(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
    if min(shape) < 1:
        raise UserError(f"a batch of {'×'.join(str(n) for n in shape)}", allowed="1 or more of each")
    return torch.zeros(*shape, dtype=kind, device="meta")


# ---- one pass, and what it tells of each layer


@torch.no_grad()
def tally_layers(model: nn.Module, given: tuple[Tensor, ...]) -> dict[str, Tally]:
    """The tally of each layer, in the order of the model, when it is called with what is `given`."""
    tallies: dict[str, Tally] = {}
    for path, parameter in model.named_parameters():
        tallies.setdefault(layer(path), Tally()).parameters += parameter.numel()
    patterns = settle(model)
    names = {module: layer(path) for path, module in model.named_modules()}
    names |= {module: names[unit] for module in names if (unit := recurrent_unit(module)) is not None}
    for module, name in names.items():
        module.register_forward_hook(partial(add_products, tallies.setdefault(name, Tally())))
    attends = any(what == "weights" for _, what in sites_of(model).values())
    trace = Trace(model, *(["*.weights", "*.values"] if attends else []))
    reads_tokens = not given[-1].is_floating_point()
    state = State() if reads_tokens and only_looks_back(model, patterns) else None
    ctx = Context(trace=trace, state=state)
    call(model, given, Context(trace=trace), ctx)
    for (site, what), name in trace.names.items():
        if what == "weights":
            values = trace.all(name.removesuffix("weights") + "values")
            add_maps(tallies[names[site]], patterns[site], trace.all(name), values)
    for owner, tensors in state_tensors(state):
        tallies[names[owner]].cache += sum(x.numel() for x in tensors if x.is_floating_point())
    return {name: tally for name, tally in tallies.items() if tally != Tally()}


def call(model: nn.Module, given: tuple[Tensor, ...], source: Context, ctx: Context) -> object:
    """The output for what is `given`; of texts, source and target are alike."""
    return model(given[0], given[-1], source, ctx) if reads_pairs(model) else model(*given, ctx)


def settle(model: nn.Module) -> dict[nn.Module, Pattern]:
    """Prepares a model for a pass without numbers, and tells what each attention may see.

    Recurrent layers take no steps, and nothing is hidden from a query, since steps and pairs are counted and not
    computed.
    """
    patterns: dict[nn.Module, Pattern] = {}
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.RNNBase):
                setattr(parent, name, Unrolled(child))
        if isinstance(parent, Attention):
            patterns[parent], parent.pattern = parent.pattern, Full()
    return patterns


class Unrolled(nn.Module):
    """Layers of torch's recurrent units, by their shapes alone: the meta device takes 2 ms for each step of a layer."""

    def __init__(self, rnn: nn.RNNBase):
        super().__init__()
        self.rnn, self.width = rnn, rnn.hidden_size * (2 if rnn.bidirectional else 1)

    def forward(self, x: Tensor, hidden: object) -> tuple[Tensor, object]:
        return x.new_empty(*x.shape[:2], self.width), hidden


def only_looks_back(model: nn.Module, patterns: dict[nn.Module, Pattern]) -> bool:
    """Whether the model writes word by word, and so has a cache; of an encoder–decoder, the decoder does."""
    writer = model.decoder if isinstance(model, EncoderDecoder) else model
    return not any(
        getattr(m, "directions", 1) == 2 or (isinstance(m, SelfAttention) and patterns[m].looks_ahead())
        for m in writer.modules()
    )


def recurrent_unit(module: nn.Module) -> nn.Module | None:
    """The unit whose matrices a recurrent part multiplies with at each step."""
    return getattr(module, "recurrent_unit", None)


def add_products(tally: Tally, module: nn.Module, inputs: object, output: Tensor | tuple[Tensor, object]) -> None:
    """Adds the products of a module's own matrices with the vectors of one call."""
    out = output if isinstance(output, Tensor) else output[0]
    unit = recurrent_unit(module)
    if unit is not None:
        tally.flops += 2 * prod(out.shape[:-1]) * sum(p.numel() for p in unit.parameters() if p.dim() == 2)
    elif isinstance(module, nn.Linear | LMHead | nn.Conv1d | nn.Conv2d):
        tally.flops += 2 * out.numel() // module.weight.shape[0] * module.weight.numel()


def add_maps(tally: Tally, pattern: Pattern, maps: Sequence[Seen], values: Sequence[Seen]) -> None:
    """Adds the products of attention, and the numbers that its matrices would have."""
    for amap, value in zip(maps, values, strict=True):
        assert isinstance(amap, AttentionMap)
        assert isinstance(value, Tensor)
        rows, heads, queries, keys = amap.shape
        pairs = rows * heads * visible(pattern, queries, keys)
        tally.flops += 2 * pairs * (amap.k.shape[-1] + value.shape[-1])
        weight: object = getattr(amap.score, "weight", None)  # of a bilinear score, which each query meets
        if isinstance(weight, Tensor):
            tally.flops += 2 * rows * heads * queries * weight.numel()
        tally.attention += prod(amap.shape)


@cache
def visible(pattern: Pattern, queries: int, keys: int) -> int:
    """How many pairs of a query and a key the pattern lets see each other, both counted from position 0."""
    if isinstance(pattern, Full):
        return queries * keys
    reached = ((max(a, 0), min(b, keys)) for at in range(queries) for a, b in pattern.reach((at, at + 1)))
    return sum(b - a for a, b in reached if a < b)


def state_tensors(state: State | None) -> Iterator[tuple[nn.Module, tuple[Tensor, ...]]]:
    """All that a state holds, by owner."""
    if state is not None:
        yield from ((owner, filled.tensors) for owner, filled in state.seen.items())
        yield from state.kept.items()
        for child in state.children.values():
            yield from state_tensors(child)


def layer(path: str) -> str:
    """The layer that a path belongs to, as sites are named: `decoder.3` for decoder.stack.blocks.3.attn.body.q"""
    words = [word for word in path.split(".") if word not in SILENT]
    side = 1 if words[:1] in (["encoder"], ["decoder"], ["image"], ["text"]) else 0
    return ".".join(words[: side + 1])
