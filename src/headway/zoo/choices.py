"""What a config may say: ranges of its numbers, and activations, cells and heads by name; and how weights begin.

Configs name their choices, since files hold words and not objects.  An encoder gives what the head on its top gives;
what is beside that is asked by name: `model.head.pooler(features, ctx)`, where `features = model.features(ids, ctx)`
are the states B T C that every top reads.

The range of a number follows from the name of its field, which means the same in every architecture.  Values come from
files, so they are checked before anything is computed with them, and long before a layer is made: a model of 10⁹ layers
has no end even without memory.  The ranges are wide: what is published lies far inside.

Axes:  B batch   T tokens   C width   V vocabulary   K classes
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import torch.nn.functional as F
from torch import nn

from headway.errors import UserError, listed, nearest
from headway.nn.attention import Attention, SelfAttention
from headway.nn.block import Block, IgnoreContext
from headway.nn.ffn import FFN, Activation, Hidden, quick_gelu
from headway.nn.head import AuxHeads, Classifier, LastToken, LMHead, MLMHead, Pooler, TanhLayer, TokenClassifier
from headway.nn.latent_attention import ClippedAttention
from headway.nn.recurrent import Cell, GRUCell, LSTMCell, RNNCell

T = TypeVar("T")
Range = tuple[float, float]

MAX_LAYERS, MAX_HEADS, MAX_WIDTH, MAX_TOKENS, MAX_CELLS = 1024, 2**12, 2**20, 2**24, 2**12
MAX_BLOCKS = 2**13  # layers, times the experts in each
MAX_ITEMS = 2**12  # of a list
IMAGE: Range = (1, 2**12)  # pixels of a side
MELS: Range = (1, 2**10)
RATE: Range = (0, 1)  # of dropout


def each(names: str, low: float, high: float) -> dict[str, Range]:
    return dict.fromkeys(names.split(), (low, high))


BOUNDS: Mapping[str, Range] = {
    **each("layers image_layers groups inner experts top", 1, MAX_LAYERS),
    **each("decoder_layers", 0, MAX_LAYERS),  # T5's encoder alone has none
    **each("heads decoder_heads image_heads kv_heads", 1, MAX_HEADS),
    **each("dim decoder_dim image_dim width widths head_dim align readout channels features steps", 1, MAX_WIDTH),
    **each("latent plain turned rank", 1, MAX_WIDTH),
    **each("hidden decoder_hidden image_hidden expert_hidden shared_hidden value", 1, MAX_WIDTH),
    **each("vocab source_vocab target_vocab", 0, MAX_TOKENS),  # a Transformer of vectors has no vocabulary
    **each("context source_context frames window longest farthest original_context", 1, MAX_TOKENS),
    **each("first end start pad image_token", 0, MAX_TOKENS),
    **each("local_layers unplaced_layers dense_layers shared taps", 0, MAX_LAYERS),
    **each("kept", 1, MAX_LAYERS),
    **each("classes", 0, MAX_WIDTH),
    **each("segments", 0, MAX_WIDTH),
    **each("registers", 0, MAX_CELLS),
    **each("buckets", 0, MAX_WIDTH),
    **each("image", *IMAGE),
    **each("mels", *MELS),
    **each("patch stride strides kernel kernels size share windows", 1, MAX_CELLS),
    **each("pretrained attention", 0, MAX_CELLS),  # 0: as in training, and the number of a stage
    **each("directions", 1, 2),
    **each("factor stretch", 1, 1e6),
    **each("eps", 0, 1),
    **each("ratio temperature", 1e-6, 1e3),
    **each("base", 1e-3, 1e12),
    **each("part", 0, 1),
    **each("embed residual score logit_divisor score_dim score_cap logit_cap limit clip", 1e-6, 1e6),
    **each("layer_scale low high beta_fast beta_slow short long mscale mscale_all", 0, 1e6),
}


def range_of(name: str) -> Range | None:
    return RATE if name.endswith("dropout") else BOUNDS.get(name)


def check_range(name: str, value: object, given: str | None = None) -> None:
    """Refuses a number, or a list that has one, outside the range of its field; `given` is what its file calls it."""
    found = range_of(name)
    if found is None or value is None:
        return
    numbers = cast(Iterable[object], value) if isinstance(value, list | tuple) else (value,)
    for at, number in enumerate(numbers):
        right = isinstance(number, int | float) and not isinstance(number, bool) and found[0] <= number <= found[1]
        if not right or at >= MAX_ITEMS:
            raise UserError(f"{given or name}={value!r:.60} in a config", allowed=spelled(name))


def spelled(name: str) -> str:
    low, high = range_of(name) or (-math.inf, math.inf)
    return f"numbers from {low:,.10g} to {high:,.10g}"


def check_blocks(config: object) -> None:
    """Refuses more layers than are ever built, each of which takes time even without memory."""

    def total(name: str) -> int:
        value: Any = getattr(config, name, None)
        numbers = cast(Iterable[Any], value) if isinstance(value, tuple) else (value,)
        return sum(number for number in numbers if isinstance(number, int)) or 1

    if total("layers") * total("experts") * total("inner") > MAX_BLOCKS:
        counts = " and ".join(
            f"{name}={getattr(config, name)}" for name in ("layers", "experts") if hasattr(config, name)
        )
        raise UserError(f"a model with {counts:.60}", allowed=f"{MAX_BLOCKS:,} layers and experts in all")


def named(kind: str, name: str, table: Mapping[str, T]) -> T:
    """What `name` means in a table of choices."""
    if name not in table:
        raise UserError(f"no {kind} {name!r}", allowed=listed(table, most=20), meant=nearest(name, table))
    return table[name]


ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "quick_gelu": quick_gelu,
    "relu": F.relu,
    "silu": F.silu,
}


def activation(name: str) -> Activation:
    return named("activation", name, ACTIVATIONS)


CELLS: dict[str, type[Cell]] = {"gru": GRUCell, "lstm": LSTMCell, "rnn": RNNCell}


def cell(name: str) -> type[Cell]:
    return named("recurrent cell", name, CELLS)


def top(name: str, dim: int, classes: int, dropout: float, words: Callable[[], MLMHead]) -> nn.Module:
    def bare() -> nn.Module:
        return IgnoreContext(nn.Identity())

    def rows() -> nn.Module:
        return Classifier(dim, classes, inside=TanhLayer(dim), dropout=dropout)

    def rows_by(act: Activation) -> nn.Module:
        return Classifier(dim, classes, inside=Hidden(dim, act, bias=True), dropout=dropout)

    tops: dict[str, Callable[[], nn.Module]] = {
        "none": bare,  # B T C
        "pooler": lambda: AuxHeads(bare(), pooler=Pooler(dim)),  # B T C
        "words": words,  # B T V
        "pretraining": lambda: AuxHeads(words(), pair=rows()),  # B T V; whether two sentences belong together: B K
        "pair": rows,  # B K
        "rows": rows,  # B K
        "rows, relu": partial(rows_by, F.relu),  # B K, as DistilBERT has it
        "rows, gelu": partial(rows_by, F.gelu),  # B K, as ELECTRA has it
        "replaced": lambda: TokenClassifier(dim, 1, inside=Hidden(dim, F.gelu, bias=True)),  # B T 1, ELECTRA's
        "tokens": partial(TokenClassifier, dim, classes, dropout=dropout),  # B T K
        "spans": partial(TokenClassifier, dim, classes),  # B T 2, where an answer begins and ends
    }
    return named("top of an encoder", name, tops)()


def decoder_top(name: str, dim: int, classes: int, words: Callable[[], LMHead]) -> nn.Module:
    """What stands on a causal decoder, whose last token has seen all others."""
    tops: dict[str, Callable[[], nn.Module]] = {
        "words": words,  # B T V
        "rows": partial(Classifier, dim, classes, pool=LastToken(), bias=False),  # B K
        "none": lambda: IgnoreContext(nn.Identity()),  # B T C
    }
    return named("top of a decoder", name, tops)()


def window_of(layer: int, window: int | None, local_layers: tuple[int, ...] | None) -> int | None:
    """The window of a layer, where only some have one."""
    return window if local_layers is None or layer in local_layers else None


def clipped(clip: float | None) -> Callable[..., SelfAttention]:
    """Self-attention whose queries, keys and values are held within ±clip; None: plain."""
    return SelfAttention if clip is None else partial(ClippedAttention, clip=clip)


def check_stages(**sizes: tuple[int, ...]) -> None:
    """Refuses sizes that are not of the same stages."""
    if len({len(numbers) for numbers in sizes.values()}) != 1 or not all(sizes.values()):
        *most, last = (f"{name}={numbers}" for name, numbers in sizes.items())
        said = f"{', '.join(most)} and {last} are not of the same stages"
        raise UserError(said, allowed="as many numbers in each as there are stages")
    for name, numbers in sizes.items():
        if min(numbers) < 1:
            raise UserError(f"{name}={numbers}", allowed="1 or more in each stage")


def normal(model: nn.Module, std: float) -> None:
    """Matrices and tables from N(0, std²), biases 0, norms as they are: BERT's and GPT's beginning."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding | LMHead):
            nn.init.normal_(module.weight, std=std)
        bias = getattr(module, "bias", None)
        if isinstance(module, nn.Linear) and isinstance(bias, nn.Parameter):
            nn.init.zeros_(bias)


def xavier(model: nn.Module) -> None:
    """Every matrix uniform by Xavier's rule: the 2017 Transformer's beginning."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)


def fan_out(model: nn.Module) -> None:
    """Convolutions from N(0, 2 / (outputs · cells of the kernel)), all else as torch has it: ResNet's beginning."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def residual_depth(blocks: Sequence[Block]) -> None:
    """Matrices from N(0, 1 / dim), smaller by √(2 layers) where they end on the residual path: CLIP's beginning.

    The first matrix of a feed-forward layer is smaller by √2; biases are 0.
    """
    deep = (2 * len(blocks)) ** -0.5
    for module in (module for block in blocks for module in block.modules()):
        if isinstance(module, Attention):
            scales = {module.q: 1.0, module.k: 1.0, module.v: 1.0, module.out: deep}
        elif isinstance(module, FFN):
            scales = {module.up: 2**-0.5, module.down: deep}
        else:
            continue
        dim = next(iter(scales)).in_features
        for layer, scale in scales.items():
            nn.init.normal_(layer.weight, std=scale * dim**-0.5)
            nn.init.zeros_(layer.bias)


def unscaled(model: nn.Module) -> None:
    """Matrices from N(0, 1 / inputs), queries smaller by √D, since the score is not divided by it: T5's beginning."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
    for module in model.modules():
        if isinstance(module, Attention):
            nn.init.normal_(module.q.weight, std=(module.q.in_features * module.head_dim) ** -0.5)
