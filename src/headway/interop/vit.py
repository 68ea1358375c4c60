"""ViT in Hugging Face's layout.

Its files spell the parts of a block as they were called before its release 5, its models in memory as they are called
since; both are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, cat

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, NUMBER, SIDE, ConfigMap, Field, Options, written_as
from headway.interop.encoders import architecture, classes, labels
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.nn.ffn import ffn_width
from headway.zoo.deit import Config as DeiT
from headway.zoo.mae import Config as Mae
from headway.zoo.vit import Config

# what the configs of ViT and of its masked autoencoder call the same
FIELDS = ConfigMap(
    Field("image_size", "image", 224, SIDE),
    Field("num_channels", "channels", 3),
    Field("patch_size", "patch", 16, SIDE),
    Field("hidden_size", "dim", 768),
    Field("num_hidden_layers", "layers", 12),
    Field("num_attention_heads", "heads", 12),
    Field("intermediate_size", "hidden", 3072),
    Field("hidden_act", "act", "gelu", ACTIVATION),
    Field("layer_norm_eps", "eps", 1e-12),
    Field("qkv_bias", "biased", True),
    Field("hidden_dropout_prob", "dropout", 0.0, NUMBER),
    Field("attention_probs_dropout_prob", "attention_dropout", 0.0, NUMBER),
)
ARCHITECTURES = {"ViTModel": "pooler", "ViTForImageClassification": "classes"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "vit")
    stands = ARCHITECTURES[o.architecture(*ARCHITECTURES)]
    fields = FIELDS.read(o)
    o.expect(pooler_act="tanh", pooler_output_size=fields["dim"])
    o.ignore("encoder_stride")  # of masked images
    return o.done(Config(**fields, top=stands, classes=classes(o) if stands == "classes" else Config.classes))


def write_config(c: Config) -> dict[str, Any]:
    if c.pool != "class":
        said = f"a ViT has a class token there, and this one pool={c.pool!r}"
        raise UserError(said, do=written_as("timm_vit"))
    return {
        **architecture(c.top, ARCHITECTURES, "vit"),
        **write_sizes(c),
        "encoder_stride": c.patch,
        **labels("rows" if c.top == "classes" else c.top, c.classes),
    }


def write_sizes(c: Config | DeiT | Mae) -> dict[str, Any]:
    return {**FIELDS.write(c), "intermediate_size": ffn_width(c.dim, c.hidden)}


def settle(c: Config, names: Collection[str]) -> Config:
    """Files of the bare model may lack the pooler."""
    pooled = any(name.endswith("pooler.dense.weight") for name in names)
    return replace(c, top="none") if c.top == "pooler" and not pooled else c


def keymap(c: Config) -> KeyMap:
    heads = {
        "none": (),
        "pooler": linear("pooler.dense", "head.pooler.inside"),
        "classes": linear("classifier", "head.out", outside=True),
    }
    return KeyMap(
        rules=(*encoder_rules(c), *heads[c.top]),
        prefixes=("vit.",) if c.top == "classes" else ("", "vit."),
        ignored=("pooler.dense.weight", "pooler.dense.bias"),
    )


def encoder_rules(c: Config | Mae, there: str = "", here: str = "") -> tuple[Rule, ...]:
    places = f"{here}embed.token.position", f"{here}embed.position.table"
    return (
        *linear(f"{there}embeddings.patch_embeddings.projection", f"{here}embed.patches.project"),
        Rule(f"{there}embeddings.cls_token", f"{here}embed.token.token"),
        Rule(f"{there}embeddings.position_embeddings", places, (Table(c.image // c.patch),)),
        *linears(f"{there}encoder.layer.*", f"{here}stack.blocks.*", BLOCK),
        *linears(f"{there}layers.*", f"{here}stack.blocks.*", NEW_BLOCK),
        *linear(f"{there}layernorm", f"{here}stack.norm"),
    )


BLOCK = {
    "layernorm_before": "attn.before",
    "attention.attention.query": "attn.body.q",
    "attention.attention.key": "attn.body.k",
    "attention.attention.value": "attn.body.v",
    "attention.output.dense": "attn.body.out",
    "layernorm_after": "ffn.before",
    "intermediate.dense": "ffn.body.up",
    "output.dense": "ffn.body.down",
}
NEW_BLOCK = {
    "layernorm_before": "attn.before",
    "attention.q_proj": "attn.body.q",
    "attention.k_proj": "attn.body.k",
    "attention.v_proj": "attn.body.v",
    "attention.o_proj": "attn.body.out",
    "layernorm_after": "ffn.before",
    "mlp.fc1": "ffn.body.up",
    "mlp.fc2": "ffn.body.down",
}


@dataclass(frozen=True)
class Table:
    """Positions of all tokens there, 1 T C; here those of the `first` ones, if they are apart, and of a grid.

    The grid is square, or has so many `cols`.
    """

    side: int
    first: int = 1
    cols: int | None = None

    @property
    def grid(self) -> tuple[int, int]:
        return self.side, self.cols or self.side

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        [table] = tensors
        rows, cols = self.grid
        if table.shape[1] != self.first + rows * cols:
            allowed = f"{self.first + rows * cols}, for {rows}×{cols} patches"
            raise UserError(f"a table has {table.shape[1]} positions", allowed=f"{allowed}, as the config says")
        first, grid = table.tensor_split([self.first], 1)
        return [*[first][: self.first], grid[0].unflatten(0, self.grid)]

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        *first, grid = tensors
        return [cat([*first, grid.flatten(0, 1)[None]], 1)]
