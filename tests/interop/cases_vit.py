"""ViT and its masked autoencoder, with the options that their configs name."""

from __future__ import annotations

from typing import Any

from tests.interop.parity import Case, Kind

SIZES = {
    "image_size": 12,
    "patch_size": 4,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
}
DINO = {"mlp_ratio": 2, "layerscale_value": 0.7}
BARE = {"query_bias": False, "value_bias": False}
UNSCALED = {"use_relative_position_bias": True, "layer_scale_init_value": 0.0}
DECODER = {
    "decoder_hidden_size": 8,
    "decoder_num_hidden_layers": 2,
    "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 20,
}


def case(name: str, architecture: str, kind: Kind = Kind.IMAGE, **options: Any) -> Case:
    def make() -> Any:
        import transformers

        known = getattr(transformers, architecture)
        sizes = {**SIZES, **options}
        if "mlp_ratio" in sizes:
            del sizes["intermediate_size"]
        config = known.config_class(**sizes, architectures=[architecture])
        return known._from_config(config, attn_implementation="eager")

    return Case(name, make, kind)


CASES = [
    case("vit", "ViTModel"),
    case("vit, classes", "ViTForImageClassification", num_labels=5),
    case(
        "vit, one channel, no biases", "ViTForImageClassification", num_channels=1, qkv_bias=False, layer_norm_eps=1e-3
    ),
    case("vit, patches of a pixel, ReLU", "ViTForImageClassification", image_size=4, patch_size=1, hidden_act="relu"),
    case("vit_mae", "ViTMAEForPreTraining", Kind.PATCHES, **DECODER),
    case("vit_mae, normalised", "ViTMAEForPreTraining", Kind.PATCHES, norm_pix_loss=True, mask_ratio=0.5, **DECODER),
    case("dinov2", "Dinov2Model", **DINO),
    case("dinov2, classes, gated", "Dinov2ForImageClassification", **DINO, num_labels=5, use_swiglu_ffn=True),
    case("dinov2, one channel, no biases", "Dinov2Model", **DINO, num_channels=1, qkv_bias=False, hidden_act="relu"),
    case("dinov2_with_registers", "Dinov2WithRegistersModel", **DINO, num_register_tokens=2),
    case("dinov2_with_registers, classes", "Dinov2WithRegistersForImageClassification", **DINO, num_labels=5),
    case("dinov3_vit", "DINOv3ViTModel", num_register_tokens=2, layerscale_value=0.7),
    case(
        "dinov3_vit, gated, no biases", "DINOv3ViTModel", **BARE, use_gated_mlp=True, hidden_act="silu", num_channels=1
    ),
    case("deit", "DeiTModel"),
    case("deit, one head", "DeiTForImageClassification", num_labels=5, qkv_bias=False),
    case("deit, two heads", "DeiTForImageClassificationWithTeacher", num_labels=5, num_channels=1),
    case("beit", "BeitModel", use_shared_relative_position_bias=True, use_mask_token=True),
    case("beit, classes", "BeitForImageClassification", use_relative_position_bias=True, num_labels=5),
    case("beit, the class token, unscaled", "BeitForImageClassification", use_mean_pooling=False, **UNSCALED),
    case("dinov3_vit, biased keys, no registers", "DINOv3ViTModel", key_bias=True, rope_theta=50.0),
]
