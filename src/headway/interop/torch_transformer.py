"""torch's `nn.Transformer`: its state dict, alone or inside a model that gives it words and an output.

It knows vectors alone, and so does a `headway.zoo.transformer` without words: B S C, B T C → B T C.  Within a model,
`keymap` takes the prefix of its names there, and rules for the tensors around it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from warnings import catch_warnings

from torch import Tensor, nn

from headway.errors import UserError
from headway.interop.keymap import KeyMap, Rule, linear, linears, qkv
from headway.nn.ffn import ffn_width
from headway.zoo.choices import named
from headway.zoo.transformer import NORMS, Config

FIRST = "encoder.layers.0.linear1"


def read_config(
    tensors: Mapping[str, Tensor],
    heads: int,
    *,
    norm_first: bool = False,
    act: str = "relu",
    eps: float = 1e-5,
    dropout: float = 0.1,
    prefix: str = "",
) -> Config:
    """The sizes that the tensors show, and what they do not show, by torch's names and with its defaults."""
    first = prefix + FIRST
    if f"{first}.weight" not in tensors or f"{first}.bias" not in tensors:
        said = f"these are not the weights of an nn.Transformer with biases: there is no {first}.weight or .bias"
        raise UserError(said, do="give the prefix of its names, as in prefix='transformer.'")
    hidden, dim = tensors[f"{first}.weight"].shape
    return Config(
        vocab=0,
        dim=dim,
        layers=count(tensors, f"{prefix}encoder"),
        decoder_layers=count(tensors, f"{prefix}decoder"),
        heads=heads,
        hidden=hidden,
        act=act,
        norms="pre" if norm_first else "post, last",
        eps=eps,
        dropout=dropout,
    )


def prefix_of(tensors: Collection[str]) -> str | None:
    """What stands before the names of an `nn.Transformer`; None where there is none."""
    found = (name.removesuffix(f"{FIRST}.weight") for name in tensors if name.endswith(f"{FIRST}.weight"))
    return next(
        (prefix for prefix in found if f"{prefix}decoder.layers.0.multihead_attn.in_proj_weight" in tensors), None
    )


def count(tensors: Mapping[str, Tensor], side: str) -> int:
    return sum(name.startswith(f"{side}.layers.") and name.endswith(".linear1.weight") for name in tensors)


def reference(c: Config) -> nn.Transformer:
    """torch's own model of these sizes."""
    layers = (c.layers, c.layers if c.decoder_layers is None else c.decoder_layers)
    hidden, first = ffn_width(c.dim, c.hidden), c.norms == "pre"
    with catch_warnings(action="ignore"):  # it tells of a fast path that it will not take
        return nn.Transformer(
            c.dim, c.heads, *layers, hidden, c.dropout, c.act, layer_norm_eps=c.eps, batch_first=True, norm_first=first
        )


def keymap(c: Config, *around: Rule, prefix: str = "") -> KeyMap:
    slot = named("norms", c.norms, NORMS).slot
    return KeyMap(
        (
            *side("encoder", {"self_attn": "attn"}, slot, prefix),
            *side("decoder", {"self_attn": "attn", "multihead_attn": "cross"}, slot, prefix),
            *around,
        )
    )


def side(name: str, attentions: Mapping[str, str], slot: str, prefix: str) -> tuple[Rule, ...]:
    there, here = f"{prefix}{name}.layers.*", f"{name}.stack.blocks.*"
    rules = list[Rule]()
    for theirs, ours in attentions.items():
        rules += qkv(f"{there}.{theirs}.in_proj_", f"{here}.{ours}.body")
        rules += linear(f"{there}.{theirs}.out_proj", f"{here}.{ours}.body.out")
    sublayers = (*attentions.values(), "ffn")  # whose norms are numbered
    parts = {f"norm{i}": f"{ours}.{slot}" for i, ours in enumerate(sublayers, 1)}
    parts |= {"linear1": "ffn.body.up", "linear2": "ffn.body.down"}
    return (*rules, *linears(there, here, parts), *linear(f"{prefix}{name}.norm", f"{name}.stack.norm"))
