"""CLIP in Hugging Face's layout: both towers, and what each has in common with a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, NUMBER, ConfigMap, Field, Options
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.interop.vit import Table
from headway.nn.ffn import ffn_width
from headway.zoo.build import config_like
from headway.zoo.clip import Config
from headway.zoo.clip_image import Config as Image
from headway.zoo.clip_text import Config as Text

ARCHITECTURE = "CLIPModel"
OLD_END = 2  # files before August 2023 say this of every tokenizer, and mean the largest id of a text


# what one tower alone does not read; those with `_dict` nobody
OF_PAIRS = ("logit_scale_init_value", "text_config", "vision_config", "text_config_dict", "vision_config_dict")
SHARED = (
    Field("hidden_act", "act", "quick_gelu", ACTIVATION),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
)
TEXT = ConfigMap(
    Field("max_position_embeddings", "context", 77),
    Field("hidden_size", "dim", 512),
    Field("num_hidden_layers", "layers", 12),
    Field("num_attention_heads", "heads", 8),
    Field("intermediate_size", "hidden", 2048),
    *SHARED,
)
IMAGE = ConfigMap(
    Field("hidden_size", "dim", 768),
    Field("num_hidden_layers", "layers", 12),
    Field("num_attention_heads", "heads", 12),
    Field("intermediate_size", "hidden", 3072),
    *SHARED,
)
# in a config of both towers
OF_BOTH = ConfigMap(
    *(field if field in SHARED else replace(field, ours=f"image_{field.ours}") for field in IMAGE.fields)
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "clip")
    o.architecture(ARCHITECTURE)
    o.ignore(*OF_PAIRS)
    text, image = (Options(o.take(f"{name}_config", dict[str, Any]()), f"clip {name}") for name in ("text", "vision"))
    texts, images = read_text(text), OF_BOTH.read(image) | read_image(image)
    (act, dropout), (image_act, image_dropout) = ((x["act"], x["attention_dropout"]) for x in (texts, images))
    if (act, dropout) != (image_act, image_dropout):
        said = f"towers of {act} and {image_act}, dropout {dropout} and {image_dropout}, are not supported"
        raise UserError(said, allowed="the same activation and dropout in both towers")
    for tower in (text, image):
        tower.ignore("projection_dim")  # the whole model's is meant
    config = Config(**texts | images, width=o.take("projection_dim", 512))
    for options in (text, image, o):
        options.done(config)
    return config


def read_text(o: Options) -> dict[str, Any]:
    """The fields of a tower of texts."""
    o.expect(layer_norm_eps=1e-5, dropout=0.0)
    vocab = o.take("vocab_size", 49_408)
    return {**TEXT.read(o), "vocab": vocab, "end": end(o.take("eos_token_id", 49_407), vocab)}


def read_image(o: Options) -> dict[str, Any]:
    """The fields of a tower of images that are called the same beside one of texts."""
    o.expect(layer_norm_eps=1e-5, dropout=0.0, num_channels=3)
    return {"image": o.side("image_size", 224), "patch": o.side("patch_size", 32)}


def read_width(o: Options, bare: str, projected: str) -> int | None:
    """The width of a tower's own projection, if its class has one."""
    o.ignore(*OF_PAIRS)
    width = o.take("projection_dim", 512)
    return width if o.architecture(bare, projected) == projected else None


def end(given: int | list[int], vocab: int) -> int:
    """The token that ends a text; the tokenizer's last, where an old file leaves it open."""
    one = given if isinstance(given, int) else given[0]
    return vocab - 1 if one == OLD_END else one


def write_config(c: Config) -> dict[str, Any]:
    image = config_like(Image, c, dim=c.image_dim, layers=c.image_layers, heads=c.image_heads, hidden=c.image_hidden)
    return {
        "model_type": "clip",
        "architectures": [ARCHITECTURE],
        "projection_dim": c.width,
        "text_config": write_text(config_like(Text, c)),
        "vision_config": write_image(image),
    }


def write_text(c: Text) -> dict[str, Any]:
    if c.end == OLD_END:
        said = f"end={OLD_END} means there the largest id of each text"
        raise UserError(said, do="use to=headway")
    return {
        "model_type": "clip_text_model",
        "vocab_size": c.vocab,
        "bos_token_id": None,  # else that library takes the published tokenizer's
        "pad_token_id": None,
        "eos_token_id": c.end,
        **TEXT.write(c),
        "intermediate_size": ffn_width(c.dim, c.hidden),
        **written(c.width),
    }


def write_image(c: Image) -> dict[str, Any]:
    return {
        "model_type": "clip_vision_model",
        "image_size": c.image,
        "patch_size": c.patch,
        "num_channels": 3,
        **IMAGE.write(c),
        "intermediate_size": ffn_width(c.dim, c.hidden),
        **written(c.width),
    }


def written(width: int | None) -> dict[str, Any]:
    return {"layer_norm_eps": 1e-5, **({} if width is None else {"projection_dim": width})}


def keymap(c: Config) -> KeyMap:
    return KeyMap(
        rules=(
            Rule("logit_scale", "log_scale"),
            *text_rules("text_model.", "text."),
            TEXT_WIDTH,
            *image_rules(c.image // c.patch, "vision_model.", "image."),
            IMAGE_WIDTH,
        ),
        ignored=tuple(f"{side}_model.{POSITIONS}" for side in ("text", "vision")),
    )


def text_rules(there: str, here: str) -> tuple[Rule, ...]:
    return (
        Rule(f"{there}embeddings.token_embedding.weight", f"{here}embed.token.weight"),
        Rule(f"{there}embeddings.position_embedding.weight", f"{here}embed.position.table.weight"),
        *linears(f"{there}encoder.layers.*", f"{here}stack.blocks.*", BLOCK),
        *linear(f"{there}final_layer_norm", f"{here}stack.norm"),
    )


def image_rules(side: int, there: str, here: str) -> tuple[Rule, ...]:
    """`side` is that of the grid of patches."""
    places = (f"{here}embed.token.position", f"{here}embed.position.table")
    return (
        Rule(f"{there}embeddings.class_embedding", f"{here}embed.token.token", (Within(2),)),
        Rule(f"{there}embeddings.patch_embedding.weight", f"{here}embed.patches.project.weight"),
        Rule(f"{there}embeddings.position_embedding.weight", places, (Within(1), Table(side))),
        *linear(f"{there}pre_layrnorm", f"{here}embed.norm"),
        *linears(f"{there}encoder.layers.*", f"{here}stack.blocks.*", BLOCK),
        *linear(f"{there}post_layernorm", f"{here}head.norm"),
    )


POSITIONS = "embeddings.position_ids"  # 0, 1, 2 …, which old files hold
TEXT_WIDTH = Rule("text_projection.weight", "text.head.out.weight")
IMAGE_WIDTH = Rule("visual_projection.weight", "image.head.out.weight")


BLOCK = {
    "self_attn.q_proj": "attn.body.q",
    "self_attn.k_proj": "attn.body.k",
    "self_attn.v_proj": "attn.body.v",
    "self_attn.out_proj": "attn.body.out",
    "layer_norm1": "attn.before",
    "mlp.fc1": "ffn.body.up",
    "mlp.fc2": "ffn.body.down",
    "layer_norm2": "ffn.before",
}


@dataclass(frozen=True)
class Within:
    """A tensor there, here within so many axes of one: C → 1 1 C."""

    axes: int

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x[(None,) * self.axes] for x in tensors]

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x[(0,) * self.axes] for x in tensors]
