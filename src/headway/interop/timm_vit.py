"""ViT in timm's layout: config.json names an architecture, and `model_args` what is changed of its sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headway.errors import UserError, listed
from headway.interop.config_reader import NUMBER, SIDE, Arguments, ConfigMap, Field, Options, written_as
from headway.interop.keymap import KeyMap, Rule, linear, qkv
from headway.interop.timm_folder import write_named
from headway.interop.vit import Table
from headway.nn.ffn import ffn_width
from headway.zoo.vit import Config

SIZES = {
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
}
NAME = re.compile(rf"vit_({'|'.join(SIZES)})_patch(\d+)_(gap_)?(\d+)")
EPS = 1e-6  # of every norm; no option tells it
GAP = {"class_token": False, "global_pool": "avg", "fc_norm": False}  # the mean of all patches
POOLS = {"class": {"class_token": True, "global_pool": "token"}, "mean": GAP, "mean, norm": {**GAP, "fc_norm": True}}


FIELDS = ConfigMap(
    Field("img_size", "image", 224, SIDE),
    Field("in_chans", "channels", 3),
    Field("patch_size", "patch", 16, SIDE),
    Field("embed_dim", "dim"),
    Field("depth", "layers"),
    Field("num_heads", "heads"),
)
RATES = ConfigMap(
    Field("proj_drop_rate", "dropout", 0.0, NUMBER),
    Field("attn_drop_rate", "attention_dropout", 0.0, NUMBER),
    Field("drop_path_rate", "depth_dropout", 0.0, NUMBER),
    Field("patch_drop_rate", "patch_dropout", 0.0, NUMBER),
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Arguments({**named(values), **(values.get("model_args") or {})}, "timm's ViT")
    o.expect(no_embed_class=False, drop_rate=0.0)
    o.ignore("pos_drop_rate", "weight_init", "fix_init", "dynamic_img_size", "strict_img_size")
    classes, sizes = o.take("num_classes", 1000), FIELDS.read(o)
    config = Config(
        **sizes,
        classes=classes or Config.classes,
        hidden=int(sizes["dim"] * o.take("mlp_ratio", 4.0)),
        pool=pool(o),
        top="classes" if classes else "none",
        eps=EPS,
        biased=o.take("qkv_bias", True),
        resample="bicubic, smooth",
        **RATES.read(o),
    )
    return o.done(config)


def named(values: Mapping[str, Any]) -> dict[str, Any]:
    """What an architecture's name, and what stands beside it, tell of its sizes."""
    name = str(values.get("architecture"))
    found = NAME.fullmatch(name)
    if found is None:
        allowed = f"vit_SIZE_patch16_224 and the like, of the sizes {listed(SIZES)}"
        raise UserError(f"the architecture {name!r} is not supported for timm's ViT models", allowed=allowed)
    dim, layers, heads = SIZES[found[1]]
    told: Mapping[str, Any] = values.get("pretrained_cfg") or {}
    beside = {key: x for key in ("num_classes", "global_pool") if (x := values.get(key, told.get(key))) is not None}
    image = told["input_size"][1:] if told.get("input_size") else int(found[4])
    sizes = {"embed_dim": dim, "depth": layers, "num_heads": heads, "patch_size": int(found[2]), "img_size": image}
    return {**sizes, **(GAP if found[3] else {}), **beside}


def pool(o: Options) -> str:
    kind, first = o.take("global_pool", "token"), o.take("class_token", True)
    norm = o.take("fc_norm", kind == "avg")
    for ours, asked in POOLS.items():
        if (kind, first, norm) == (asked["global_pool"], asked["class_token"], asked.get("fc_norm", False)):
            return ours
    said = f"global_pool={kind!r} with class_token={first} and fc_norm={norm} is not supported for timm's ViT models"
    raise UserError(said, allowed="'token' with a class token, 'avg' without one")


def write_config(c: Config) -> dict[str, Any]:
    """The base architecture, with all sizes as changes to it."""
    if c.act != "gelu" or c.eps != EPS or c.top == "pooler":
        said = f"timm's ViT models have act='gelu', norms with an ε of {EPS} and no pooler, and this model others"
        raise UserError(said, do=written_as("vit"))
    changes = {
        **FIELDS.write(c),
        "mlp_ratio": ffn_width(c.dim, c.hidden) / c.dim,
        "qkv_bias": c.biased,
        **POOLS[c.pool],
        **RATES.write(c),
    }
    classes, kind = c.classes if c.top == "classes" else 0, str(POOLS[c.pool]["global_pool"])
    return write_named("vit_base_patch16_224", c, c.dim, changes, classes=classes, pool=kind)


def keymap(c: Config) -> KeyMap:
    there, here = "blocks.*", "stack.blocks.*"
    first = ("embed.token.position",) if c.pool == "class" else ()
    return KeyMap(
        rules=(
            *linear("patch_embed.proj", "embed.patches.project"),
            Rule("cls_token", "embed.token.token"),
            Rule("pos_embed", (*first, "embed.position.table"), (Table(c.image // c.patch, len(first)),)),
            *linear(f"{there}.norm1", f"{here}.attn.before"),
            *qkv(f"{there}.attn.qkv.", f"{here}.attn.body"),
            *linear(f"{there}.attn.proj", f"{here}.attn.body.out"),
            *linear(f"{there}.norm2", f"{here}.ffn.before"),
            *linear(f"{there}.mlp.fc1", f"{here}.ffn.body.up"),
            *linear(f"{there}.mlp.fc2", f"{here}.ffn.body.down"),
            *linear("norm", "stack.norm"),
            *linear("fc_norm", "head.norm"),
            *linear("head", "head.out"),
        )
    )
