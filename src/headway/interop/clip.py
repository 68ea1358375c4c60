"""CLIP in Hugging Face's layout: the whole of both towers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headway.errors import UserError
from headway.interop.config_reader import SPELLED, Options
from headway.interop.keymap import KeyMap, Rule, linear
from headway.interop.swin import side
from headway.interop.vit import Table
from headway.zoo.clip import Config

ARCHITECTURE = "CLIPModel"
OLD_END = 2  # files before August 2023 say this of every tokenizer, and mean the largest id of a text


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "clip")
    o.architecture(ARCHITECTURE)
    o.ignore("logit_scale_init_value", "text_config_dict", "vision_config_dict")
    text, image = (Options(o.take(f"{name}_config", dict[str, Any]()), f"clip {name}") for name in ("text", "vision"))
    act, image_act = (tower.activation("hidden_act", "quick_gelu") for tower in (text, image))
    dropout, image_dropout = (float(tower.take("attention_dropout", 0.0)) for tower in (text, image))
    if (act, dropout) != (image_act, image_dropout):
        said = f"towers of {act} and {image_act}, dropout {dropout} and {image_dropout}, are not supported"
        raise UserError(said, allowed="the same activation and dropout in both towers")
    for tower in (text, image):
        tower.require("layer_norm_eps", 1e-5, default=1e-5)
        tower.require("dropout", 0.0, default=0.0)
        tower.ignore("projection_dim")  # the whole model's is meant
    image.require("num_channels", 3, default=3)
    vocab = text.take("vocab_size", 49_408)
    config = Config(
        vocab=vocab,
        end=end(text.take("eos_token_id", 49_407), vocab),
        context=text.take("max_position_embeddings", 77),
        dim=text.take("hidden_size", 512),
        layers=text.take("num_hidden_layers", 12),
        heads=text.take("num_attention_heads", 8),
        hidden=text.take("intermediate_size", 2048),
        image=side(image, "image_size", 224),
        patch=side(image, "patch_size", 32),
        image_dim=image.take("hidden_size", 768),
        image_layers=image.take("num_hidden_layers", 12),
        image_heads=image.take("num_attention_heads", 12),
        image_hidden=image.take("intermediate_size", 3072),
        width=o.take("projection_dim", 512),
        act=act,
        attention_dropout=dropout,
    )
    for options in (text, image, o):
        options.done()
    return config


def end(given: int | list[int], vocab: int) -> int:
    """The token that ends a text; the tokenizer's last, where an old file leaves it open."""
    one = given if isinstance(given, int) else given[0]
    return vocab - 1 if one == OLD_END else one


def write_config(c: Config) -> dict[str, Any]:
    if c.end == OLD_END:
        said = f"end={OLD_END} means there the largest id of each text"
        raise UserError(said, do="use to=headway")
    both = {
        "hidden_act": SPELLED[c.act],
        "attention_dropout": c.attention_dropout,
        "layer_norm_eps": 1e-5,
        "projection_dim": c.width,
    }
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
            "max_position_embeddings": c.context,
            "hidden_size": c.dim,
            "num_hidden_layers": c.layers,
            "num_attention_heads": c.heads,
            "intermediate_size": 4 * c.dim if c.hidden is None else c.hidden,
            **both,
        },
        "vision_config": {
            "model_type": "clip_vision_model",
            "image_size": c.image,
            "patch_size": c.patch,
            "num_channels": 3,
            "hidden_size": c.image_dim,
            "num_hidden_layers": c.image_layers,
            "num_attention_heads": c.image_heads,
            "intermediate_size": 4 * c.image_dim if c.image_hidden is None else c.image_hidden,
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
            *blocks("text_model", "text"),
            *linear("text_model.final_layer_norm", "text.stack.norm"),
            Rule("text_projection.weight", "text.head.out.weight"),
            Rule("vision_model.embeddings.class_embedding", "image.embed.token.token", (Within(2),)),
            Rule("vision_model.embeddings.patch_embedding.weight", "image.embed.patches.project.weight"),
            Rule("vision_model.embeddings.position_embedding.weight", places, table),
            *linear("vision_model.pre_layrnorm", "image.embed.norm"),
            *blocks("vision_model", "image"),
            *linear("vision_model.post_layernorm", "image.head.norm"),
            Rule("visual_projection.weight", "image.head.out.weight"),
        ),
        ignored=("text_model.embeddings.position_ids", "vision_model.embeddings.position_ids"),
    )


def blocks(theirs: str, ours: str) -> tuple[Rule, ...]:
    there, here = f"{theirs}.encoder.layers.*", f"{ours}.stack.blocks.*"
    return (
        *linear(f"{there}.self_attn.q_proj", f"{here}.attn.body.q"),
        *linear(f"{there}.self_attn.k_proj", f"{here}.attn.body.k"),
        *linear(f"{there}.self_attn.v_proj", f"{here}.attn.body.v"),
        *linear(f"{there}.self_attn.out_proj", f"{here}.attn.body.out"),
        *linear(f"{there}.layer_norm1", f"{here}.attn.before"),
        *linear(f"{there}.mlp.fc1", f"{here}.ffn.body.up"),
        *linear(f"{there}.mlp.fc2", f"{here}.ffn.body.down"),
        *linear(f"{there}.layer_norm2", f"{here}.ffn.before"),
    )


@dataclass(frozen=True)
class Within:
    """A tensor there, here within so many axes of one: C → 1 1 C."""

    axes: int

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x[(None,) * self.axes] for x in tensors]

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x[(0,) * self.axes] for x in tensors]
