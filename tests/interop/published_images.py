"""What the config.json of published models of images and sounds says, of each family one; written from memory."""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {"torch_dtype": "float32", "transformers_version": "4.56.0", "initializer_range": 0.02}
LABELS: dict[str, Any] = {
    "id2label": {str(at): f"LABEL_{at}" for at in range(1000)},
    "label2id": {f"LABEL_{at}": at for at in range(1000)},
}
VIT = {
    "attention_probs_dropout_prob": 0.0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": 768,
    "image_size": 224,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "num_hidden_layers": 12,
    "patch_size": 16,
}
BEIT = {
    **VIT,
    "auxiliary_channels": 256,
    "auxiliary_concat_input": False,
    "auxiliary_loss_weight": 0.4,
    "auxiliary_num_convs": 1,
    "drop_path_rate": 0.1,
    "layer_scale_init_value": 0.1,
    "model_type": "beit",
    "out_indices": [3, 5, 7, 11],
    "pool_scales": [1, 2, 3, 6],
    "semantic_loss_ignore_index": 255,
    "use_absolute_position_embeddings": False,
    "use_auxiliary_head": True,
    "use_mean_pooling": True,
    "vocab_size": 8192,
}
DINOV3 = {
    "apply_layernorm": True,
    "architectures": ["DINOv3ViTModel"],
    "attention_dropout": 0.0,
    "drop_path_rate": 0.0,
    "image_size": 224,
    "key_bias": False,
    "layer_norm_eps": 1e-05,
    "layerscale_value": 1.0,
    "mlp_bias": True,
    "model_type": "dinov3_vit",
    "num_channels": 3,
    "num_register_tokens": 4,
    "patch_size": 16,
    "pos_embed_jitter": None,
    "pos_embed_rescale": 2.0,
    "pos_embed_shift": None,
    "proj_bias": True,
    "reshape_hidden_states": True,
    "rope_theta": 100.0,
    "stage_names": ["stem", *(f"stage{at}" for at in range(1, 13))],
}
CONVNEXT = {
    "depths": [3, 3, 9, 3],
    "drop_path_rate": 0.0,
    "hidden_act": "gelu",
    "hidden_sizes": [96, 192, 384, 768],
    "image_size": 224,
    "layer_norm_eps": 1e-12,
    "num_channels": 3,
    "num_stages": 4,
    "patch_size": 4,
    **LABELS,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "dinov3-vits16-pretrain-lvd1689m": {
        **DINOV3,
        "hidden_act": "gelu",
        "hidden_size": 384,
        "intermediate_size": 1536,
        "num_attention_heads": 6,
        "num_hidden_layers": 12,
        "query_bias": True,
        "use_gated_mlp": False,
        "value_bias": True,
    },
    "dinov3-vit7b16-pretrain-lvd1689m": {
        **DINOV3,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_hidden_layers": 40,
        "query_bias": False,
        "stage_names": ["stem", *(f"stage{at}" for at in range(1, 41))],
        "use_gated_mlp": True,
        "value_bias": False,
    },
    "deit-base-distilled-patch16-224": {
        **VIT,
        **LABELS,
        "architectures": ["DeiTForImageClassificationWithTeacher"],
        "model_type": "deit",
    },
    "beit-base-patch16-224-pt22k-ft22k": {
        **BEIT,
        **LABELS,
        "architectures": ["BeitForImageClassification"],
        "use_mask_token": False,
        "use_relative_position_bias": True,
        "use_shared_relative_position_bias": False,
    },
    "beit-base-patch16-224, bare": {
        **BEIT,
        "architectures": ["BeitModel"],
        "use_mask_token": True,
        "use_relative_position_bias": False,
        "use_shared_relative_position_bias": True,
    },
    "convnext-tiny-224": {
        **CONVNEXT,
        "architectures": ["ConvNextForImageClassification"],
        "layer_scale_init_value": 1e-06,
        "model_type": "convnext",
    },
    "convnextv2-tiny-1k-224": {
        **CONVNEXT,
        "architectures": ["ConvNextV2ForImageClassification"],
        "model_type": "convnextv2",
    },
}
