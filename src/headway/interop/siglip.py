"""SigLIP in Hugging Face's layout: both towers, and what its tower of images has in common with a file of its own.

SigLIP 2 of a fixed size is published as this family; that of any size (NaFlex) is another, `siglip2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.clip import BLOCK, Within
from headway.interop.config_reader import ACTIVATION, NUMBER, ConfigMap, Field, Options
from headway.interop.keymap import KeyMap, Row, Rule, linear, linears, qkv
from headway.interop.vit import Table
from headway.nn.ffn import ffn_width
from headway.zoo.siglip import Config

ARCHITECTURE = "SiglipModel"
GEMMA, GEMMA_PAD = 256_000, 0  # SigLIP 2 has Gemma's tokenizer, and its config does not say how that fills
SHARED = (
    Field("hidden_act", "act", "gelu_pytorch_tanh", ACTIVATION),
    Field("layer_norm_eps", "eps", 1e-6),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
)
SIZES = (
    Field("hidden_size", "dim", 768),
    Field("num_hidden_layers", "layers", 12),
    Field("num_attention_heads", "heads", 12),
    Field("intermediate_size", "hidden", 3072),
    *SHARED,
)
TEXT = ConfigMap(Field("vocab_size", "vocab", 32_000), Field("max_position_embeddings", "context", 64), *SIZES)
IMAGE = ConfigMap(*SIZES)
# in a config of both towers
OF_BOTH = ConfigMap(*(field if field in SHARED else replace(field, ours=f"image_{field.ours}") for field in SIZES))


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "siglip")
    o.architecture(ARCHITECTURE)
    text, image = (Options(o.take(f"{name}_config", dict[str, Any]()), f"siglip {name}") for name in ("text", "vision"))
    texts, images = TEXT.read(text), OF_BOTH.read(image) | read_image(image)
    for field in SHARED:
        if texts[field.ours] != images[field.ours]:
            said = f"towers with {field.theirs}={texts[field.ours]!r} and {images[field.ours]!r} are not supported"
            raise UserError(said, allowed="the same in both towers")
    text.require("projection_size", images["image_dim"], default=texts["dim"])
    pad = text.take("pad_token_id", GEMMA_PAD if texts["vocab"] == GEMMA else 1)
    for options in (text, image):
        options.ignore("vision_use_head")  # true wherever it stands
        options.done(None)
    return o.done(Config(**texts | images, pad=pad))


def read_image(o: Options) -> dict[str, Any]:
    o.expect(num_channels=3, vision_use_head=True)
    return {"image": o.side("image_size", 224), "patch": o.side("patch_size", 16)}


def write_config(c: Config) -> dict[str, Any]:
    image = {field.theirs: field.form.save(getattr(c, field.ours)) for field in OF_BOTH.fields}
    image |= {"intermediate_size": ffn_width(c.image_dim, c.image_hidden)}
    text = {**TEXT.write(c), "intermediate_size": ffn_width(c.dim, c.hidden), "projection_size": c.image_dim}
    return {
        "model_type": "siglip",
        "architectures": [ARCHITECTURE],
        "text_config": {"model_type": "siglip_text_model", **text, "pad_token_id": c.pad},
        "vision_config": write_image(c.image, c.patch) | image,
    }


def write_image(image: int, patch: int) -> dict[str, Any]:
    return {"model_type": "siglip_vision_model", "image_size": image, "patch_size": patch, "num_channels": 3}


def keymap(c: Config) -> KeyMap:
    there, here = "text_model.", "text."
    return KeyMap(
        rules=(
            Rule("logit_scale", "log_scale", (Row(),)),
            Rule("logit_bias", "bias", (Row(),)),
            Rule(f"{there}embeddings.token_embedding.weight", f"{here}embed.token.weight"),
            Rule(f"{there}embeddings.position_embedding.weight", f"{here}embed.position.table.weight"),
            *linears(f"{there}encoder.layers.*", f"{here}stack.blocks.*", BLOCK),
            *linear(f"{there}final_layer_norm", f"{here}stack.norm"),
            *linear(f"{there}head", f"{here}head.out"),
            *image_rules(c.image // c.patch, "vision_model.", "image."),
        ),
        ignored=tuple(f"{side}_model.embeddings.position_ids" for side in ("text", "vision")),
    )


def image_rules(side: int, there: str, here: str) -> tuple[Rule, ...]:
    """`side` is that of the grid of patches."""
    table = (Within(1), Table(side, first=0))
    return (
        *linear(f"{there}embeddings.patch_embedding", f"{here}embed.patches.project"),
        Rule(f"{there}embeddings.position_embedding.weight", f"{here}embed.position.table", table),
        *linears(f"{there}encoder.layers.*", f"{here}stack.blocks.*", BLOCK),
        *linear(f"{there}post_layernorm", f"{here}stack.norm"),
        Rule(f"{there}head.probe", f"{here}head.pool.query"),
        *qkv(f"{there}head.attention.in_proj_", f"{here}head.pool.attention"),
        *linear(f"{there}head.attention.out_proj", f"{here}head.pool.attention.out"),
        *linear(f"{there}head.layernorm", f"{here}head.inside.before"),
        *linear(f"{there}head.mlp.fc1", f"{here}head.inside.body.up"),
        *linear(f"{there}head.mlp.fc2", f"{here}head.inside.body.down"),
    )
