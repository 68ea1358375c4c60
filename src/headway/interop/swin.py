"""Swin in Hugging Face's layout.

It merges at the end of a stage, we at the beginning of the next.  Its files spell the parts of a block as they were
called before its release 5, its models in memory as they are called since; both are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, LIST, NUMBER, SIDE, ConfigMap, Field, Options, written_as
from headway.interop.encoders import classes, labels
from headway.interop.keymap import KeyMap, Rule, linear
from headway.zoo.swin import Config

CLASSIFIER, BARE = "SwinForImageClassification", "SwinModel"
BLOCK = "stack.blocks.*.stack.blocks.*"  # ours
ATTENTION = f"{BLOCK}.attn.body.attention"


# what the configs of Swin and Swin-V2 call the same
FIELDS = ConfigMap(
    Field("image_size", "image", 224, SIDE),
    Field("num_channels", "channels", 3),
    Field("patch_size", "patch", 4, SIDE),
    Field("embed_dim", "dim", 96),
    Field("depths", "layers", (2, 2, 6, 2), LIST),
    Field("num_heads", "heads", (3, 6, 12, 24), LIST),
    Field("mlp_ratio", "ratio", 4.0, NUMBER),
    Field("hidden_act", "act", "gelu", ACTIVATION),
    Field("attention_probs_dropout_prob", "attention_dropout", 0.0, NUMBER),
    Field("drop_path_rate", "depth_dropout", 0.1, NUMBER),
)
FIXED = {"qkv_bias": True, "use_absolute_embeddings": False, "layer_norm_eps": 1e-5, "hidden_dropout_prob": 0.0}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "swin")
    sizes = read_sizes(o, CLASSIFIER, BARE)
    windows = (o.side("window_size", 7),) * len(sizes["layers"])
    return o.done(Config(**sizes, windows=windows))


def read_sizes(o: Options, classifier: str, bare: str) -> dict[str, Any]:
    """The fields that Swin and Swin-V2 both have."""
    classified = o.architecture(classifier, bare) == classifier
    o.expect(**FIXED, path_norm=True)
    o.ignore("num_layers", "hidden_size", "encoder_stride")  # told by the others, or of masked images
    o.ignore("out_features", "out_indices", "_out_features", "_out_indices", "stage_names")
    return {**FIELDS.read(o), "classes": classes(o) if classified else 0}


def write_config(c: Config) -> dict[str, Any]:
    if len(set(c.windows)) != 1:
        said = f"windows={c.windows} differ from stage to stage, and there is one window_size there"
        raise UserError(said, do=written_as("timm_swin"))
    return {"model_type": "swin", **write_sizes(c, CLASSIFIER, BARE), "window_size": c.windows[0]}


def write_sizes(c: Config, classifier: str, bare: str) -> dict[str, Any]:
    return {
        "architectures": [classifier if c.classes else bare],
        **FIELDS.write(c),
        **FIXED,
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
