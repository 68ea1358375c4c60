"""Swin in Hugging Face's layout.

It merges at the end of a stage, we at the beginning of the next.  Its files spell the parts of a block as they were
called before its release 5, its models in memory as they are called since; both are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import SPELLED, Options, written_as
from headway.interop.encoders import classes, labels
from headway.interop.keymap import KeyMap, Rule, linear
from headway.zoo.swin import Config

CLASSIFIER, BARE = "SwinForImageClassification", "SwinModel"
BLOCK = "stack.blocks.*.stack.blocks.*"  # ours
ATTENTION = f"{BLOCK}.attn.body.attention"


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "swin")
    classified = o.architecture(CLASSIFIER, BARE) == CLASSIFIER
    sizes = read_sizes(o)
    window = side(o, "window_size", 7)
    o.done()
    windows = (window,) * len(sizes["layers"])
    return Config(**sizes, windows=windows, classes=classes(o) if classified else 0)


def read_sizes(o: Options) -> dict[str, Any]:
    """What the configs of Swin and Swin-V2 call the same."""
    o.require("qkv_bias", True, default=True)
    o.require("path_norm", True, default=True)
    o.require("use_absolute_embeddings", False, default=False)
    o.require("layer_norm_eps", 1e-5, default=1e-5)
    o.require("hidden_dropout_prob", 0.0, default=0.0)
    o.ignore("num_layers", "hidden_size", "encoder_stride")  # told by the others, or of masked images
    o.ignore("out_features", "out_indices", "_out_features", "_out_indices", "stage_names")
    return {
        "image": side(o, "image_size", 224),
        "channels": o.take("num_channels", 3),
        "patch": side(o, "patch_size", 4),
        "dim": o.take("embed_dim", 96),
        "layers": tuple(o.take("depths", [2, 2, 6, 2])),
        "heads": tuple(o.take("num_heads", [3, 6, 12, 24])),
        "ratio": float(o.take("mlp_ratio", 4.0)),
        "act": o.activation("hidden_act", "gelu"),
        "attention_dropout": float(o.take("attention_probs_dropout_prob", 0.0)),
        "depth_dropout": float(o.take("drop_path_rate", 0.1)),
    }


def side(o: Options, name: str, default: int) -> int:
    """The side of a square that may be told as its two sides."""
    given: int | list[int] = o.take(name, default)
    sides = given if isinstance(given, list | tuple) else [given]
    if len(set(sides)) != 1:
        raise UserError(f"{name}={given} is not supported for {o.family} models", allowed="squares")
    return sides[0]


def write_config(c: Config) -> dict[str, Any]:
    if len(set(c.windows)) != 1:
        said = f"windows={c.windows} differ from stage to stage, and there is one window_size there"
        raise UserError(said, do=written_as("timm_swin"))
    return {"model_type": "swin", **write_sizes(c, CLASSIFIER, BARE), "window_size": c.windows[0]}


def write_sizes(c: Config, classifier: str, bare: str) -> dict[str, Any]:
    return {
        "architectures": [classifier if c.classes else bare],
        "image_size": c.image,
        "num_channels": c.channels,
        "patch_size": c.patch,
        "embed_dim": c.dim,
        "depths": list(c.layers),
        "num_heads": list(c.heads),
        "mlp_ratio": c.ratio,
        "hidden_act": SPELLED[c.act],
        "attention_probs_dropout_prob": c.attention_dropout,
        "drop_path_rate": c.depth_dropout,
        "qkv_bias": True,
        "use_absolute_embeddings": False,
        "layer_norm_eps": 1e-5,
        "hidden_dropout_prob": 0.0,
        "num_layers": len(c.layers),
        "hidden_size": c.dim * 2 ** (len(c.layers) - 1),
        **labels("rows", c.classes),
    }


def settle(c: Config, names: Collection[str]) -> Config:
    """A file without classes is the bare model's, whatever `architectures` tells."""
    return c if "classifier.weight" in names else replace(c, classes=0)


def keymap(c: Config) -> KeyMap:
    there = "encoder.layers.*.blocks.*"
    table = "relative_position_bias_table"
    return KeyMap(
        rules=(
            *frame_rules(c, "before"),
            *linear(f"{there}.layernorm_before", f"{BLOCK}.attn.before"),
            *linear(f"{there}.layernorm_after", f"{BLOCK}.ffn.before"),
            *block_rules(there),
            Rule(f"{there}.attention.self.{table}", f"{ATTENTION}.logit_bias.table"),
            *linear(f"{there}.attention.q_proj", f"{ATTENTION}.q"),
            *linear(f"{there}.attention.k_proj", f"{ATTENTION}.k"),
            *linear(f"{there}.attention.v_proj", f"{ATTENTION}.v"),
            *linear(f"{there}.attention.o_proj", f"{ATTENTION}.out"),
            *linear(f"{there}.mlp.fc1", f"{BLOCK}.ffn.body.up"),
            *linear(f"{there}.mlp.fc2", f"{BLOCK}.ffn.body.down"),
            Rule(f"{there}.attention.relative_position_bias.{table}", f"{ATTENTION}.logit_bias.table"),
        ),
        prefixes=prefixes(c, "swin."),
        ignored=(f"{there}.attention.self.relative_position_index",),
    )


def prefixes(c: Config, name: str) -> tuple[str, ...]:
    return (name,) if c.classes else ("", name)


def block_rules(there: str) -> tuple[Rule, ...]:
    """The matrices of a block, as Swin-V2's files and Swin's of before release 5 spell them."""
    return (
        *linear(f"{there}.attention.self.query", f"{ATTENTION}.q"),
        *linear(f"{there}.attention.self.key", f"{ATTENTION}.k"),
        *linear(f"{there}.attention.self.value", f"{ATTENTION}.v"),
        *linear(f"{there}.attention.output.dense", f"{ATTENTION}.out"),
        *linear(f"{there}.intermediate.dense", f"{BLOCK}.ffn.body.up"),
        *linear(f"{there}.output.dense", f"{BLOCK}.ffn.body.down"),
    )


def frame_rules(c: Config, norm: str) -> tuple[Rule, ...]:
    """What is around the blocks; `norm` is where a merge has it."""

    def merge(stage: int) -> tuple[Rule, ...]:
        there, here = f"encoder.layers.{stage - 1}.downsample", f"stack.blocks.{stage}.merge"
        return (Rule(f"{there}.reduction.weight", f"{here}.reduce.weight"), *linear(f"{there}.norm", f"{here}.{norm}"))

    return (
        *linear("embeddings.patch_embeddings.projection", "embed.project"),
        *linear("embeddings.norm", "embed.norm"),
        *(rule for stage in range(1, len(c.layers)) for rule in merge(stage)),
        *linear("layernorm", "stack.norm"),
        *linear("classifier", "head.out", outside=True),
    )
