"""Wav2Vec2-Conformer, with each head, both kinds of norms over the waveform, and the options that its config names."""

from __future__ import annotations

from typing import Any

import torch

from tests.interop.parity import Case, Kind

SIZES = {
    "vocab_size": 9,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "conv_dim": (6, 5, 7),
    "conv_kernel": (5, 3, 2),
    "conv_stride": (3, 2, 1),
    "conv_depthwise_kernel_size": 5,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 6,
}
LAYERED = {"feat_extract_norm": "layer", "conv_bias": True, "hidden_act": "swish"}  # as the published ones

DISTANT = {"num_buckets": 8, "max_bucket_distance": 9}


def case(name: str, architecture: str, **options: Any) -> Case:
    return Case(name, lambda: model(architecture, **options), Kind.WAVES)


def model(architecture: str, **options: Any) -> Any:
    import transformers

    kind = getattr(transformers, architecture)
    config = kind.config_class(**{**SIZES, **options}, architectures=[architecture])
    made = kind._from_config(config, attn_implementation="eager")
    for name, buffer in made.named_buffers():  # the statistics of a fresh norm would hide that they were lost
        if name.endswith(("running_mean", "running_var")):
            buffer += torch.rand_like(buffer)
    return made


CASES = [
    case("wav2vec2-conformer", "Wav2Vec2ConformerModel"),
    case("wav2vec2-conformer, CTC", "Wav2Vec2ConformerForCTC", **LAYERED),
    case("wav2vec2-conformer, CTC, group norm", "Wav2Vec2ConformerForCTC", hidden_act="relu"),
    case("wav2vec2-conformer, classes of clips", "Wav2Vec2ConformerForSequenceClassification", num_labels=5),
    case("wav2vec2-conformer, classes of tokens", "Wav2Vec2ConformerForAudioFrameClassification", **LAYERED),
    case("wav2vec2", "Wav2Vec2Model"),
    case("wav2vec2, CTC", "Wav2Vec2ForCTC", hidden_act="relu"),
    case(
        "wav2vec2, CTC, norms before", "Wav2Vec2ForCTC", **LAYERED, do_stable_layer_norm=True, num_conv_pos_embeddings=3
    ),
    case("wav2vec2, classes of clips", "Wav2Vec2ForSequenceClassification", num_labels=5),
    case("wavlm", "WavLMModel", **DISTANT),
    case("wavlm, CTC, pre-norm", "WavLMForCTC", **DISTANT, **LAYERED, do_stable_layer_norm=True),
    case("wavlm, classes of clips", "WavLMForSequenceClassification", **DISTANT, num_labels=5),
    case("hubert", "HubertModel", **LAYERED, do_stable_layer_norm=True),
    case("hubert, CTC", "HubertForCTC"),
]
