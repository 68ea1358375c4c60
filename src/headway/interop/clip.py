"""CLIP in Hugging Face's layout: the whole of both towers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, NUMBER, ConfigMap, Field, Options
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.interop.vit import Table
from headway.nn.ffn import ffn_width
from headway.zoo.clip import Config

ARCHITECTURE = "CLIPModel"
OLD_END = 2  # files before August 2023 say this of every tokenizer, and mean the largest id of a text


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
    Field("hidden_size", "image_dim", 768),
    Field("num_hidden_layers", "image_layers", 12),
    Field("num_attention_heads", "image_heads", 12),
    Field("intermediate_size", "image_hidden", 3072),
    *SHARED,
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "clip")
    o.architecture(ARCHITECTURE)
    o.ignore("logit_scale_init_value", "text_config_dict", "vision_config_dict")
    text, image = (Options(o.take(f"{name}_config", dict[str, Any]()), f"clip {name}") for name in ("text", "vision"))
    texts, images = TEXT.read(text), IMAGE.read(image)
    (act, dropout), (image_act, image_dropout) = ((x["act"], x["attention_dropout"]) for x in (texts, images))
    if (act, dropout) != (image_act, image_dropout):
        said = f"towers of {act} and {image_act}, dropout {dropout} and {image_dropout}, are not supported"
        raise UserError(said, allowed="the same activation and dropout in both towers")
    for tower in (text, image):
        tower.expect(layer_norm_eps=1e-5, dropout=0.0)
        tower.ignore("projection_dim")  # the whole model's is meant
    image.expect(num_channels=3)
    vocab = text.take("vocab_size", 49_408)
    config = Config(
        **texts | images,
        vocab=vocab,
        end=end(text.take("eos_token_id", 49_407), vocab),
        image=image.side("image_size", 224),
        patch=image.side("patch_size", 32),
        width=o.take("projection_dim", 512),
    )
    for options in (text, image, o):
        options.done(config)
    return config


def end(given: int | list[int], vocab: int) -> int:
    """The token that ends a text; the tokenizer's last, where an old file leaves it open."""
    one = given if isinstance(given, int) else given[0]
    return vocab - 1 if one == OLD_END else one


def write_config(c: Config) -> dict[str, Any]:
    if c.end == OLD_END:
        said = f"end={OLD_END} means there the largest id of each text"
        raise UserError(said, do="use to=headway")
    both = {"layer_norm_eps": 1e-5, "projection_dim": c.width}
    return {
        "model_type": "clip",
        "architectures": [ARCHITECTURE],
        "projection_dim": c.width,
        "text_config": {
            "model_type": "clip_text_model",
            "vocab_size": c.vocab,
            "bos_token_id": None,  # else that library takes the published tokenizer's
            "pad_token_id": None,
            "eos_token_id": c.end,
            **TEXT.write(c),
            "intermediate_size": ffn_width(c.dim, c.hidden),
            **both,
        },
        "vision_config": {
            "model_type": "clip_vision_model",
            "image_size": c.image,
            "patch_size": c.patch,
            "num_channels": 3,
            **IMAGE.write(c),
            "intermediate_size": ffn_width(c.image_dim, c.image_hidden),
            **both,
        },
    }


def keymap(c: Config) -> KeyMap:
    places = ("image.embed.token.position", "image.embed.position.table")
    table = (Within(1), Table(c.image // c.patch))
    return KeyMap(
        rules=(
            Rule("logit_scale", "log_scale"),
            Rule("text_model.embeddings.token_embedding.weight", "text.embed.token.weight"),
            Rule("text_model.embeddings.position_embedding.weight", "text.embed.position.table.weight"),
            *linears("text_model.encoder.layers.*", "text.stack.blocks.*", BLOCK),
            *linear("text_model.final_layer_norm", "text.stack.norm"),
            Rule("text_projection.weight", "text.head.out.weight"),
            Rule("vision_model.embeddings.class_embedding", "image.embed.token.token", (Within(2),)),
            Rule("vision_model.embeddings.patch_embedding.weight", "image.embed.patches.project.weight"),
            Rule("vision_model.embeddings.position_embedding.weight", places, table),
            *linear("vision_model.pre_layrnorm", "image.embed.norm"),
            *linears("vision_model.encoder.layers.*", "image.stack.blocks.*", BLOCK),
            *linear("vision_model.post_layernorm", "image.head.norm"),
            Rule("visual_projection.weight", "image.head.out.weight"),
        ),
        ignored=("text_model.embeddings.position_ids", "vision_model.embeddings.position_ids"),
    )


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
