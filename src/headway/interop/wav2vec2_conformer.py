"""Wav2Vec2-Conformer in Hugging Face's layout, with relative positions.

There a convolution sees the padding behind a shorter clip, and the norm over time counts it; here neither does, so a
clip is heard in a batch as by itself.  Without padding both agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, LIST, ConfigMap, Field, Options
from headway.interop.encoders import architecture, classes, labels, out, top
from headway.interop.keymap import KeyMap, Rule, batch_norm, linear, linears
from headway.zoo.wav2vec2_conformer import Config

FAMILY = "wav2vec2-conformer"
ARCHITECTURES = {
    "Wav2Vec2ConformerModel": "none",
    "Wav2Vec2ConformerForCTC": "ctc",
    "Wav2Vec2ConformerForSequenceClassification": "rows",
    "Wav2Vec2ConformerForAudioFrameClassification": "tokens",
}
PRETRAINING = {"Wav2Vec2ConformerForPreTraining": "none"}  # read, without what it is trained by
NORMS = {"layer": "all", "group": "first"}


FIELDS = ConfigMap(
    Field("vocab_size", "vocab", Config.vocab),
    Field("hidden_size", "dim", 768),
    Field("num_hidden_layers", "layers", 12),
    Field("num_attention_heads", "heads", 12),
    Field("intermediate_size", "hidden", 3072),
    Field("conv_depthwise_kernel_size", "kernel", 31),
    Field("hidden_act", "act", "gelu", ACTIVATION),
    Field("conv_dim", "channels", (512,) * 7, LIST),
    Field("conv_kernel", "kernels", (10, 3, 3, 3, 3, 2, 2), LIST),
    Field("conv_stride", "strides", (5, 2, 2, 2, 2, 2, 2), LIST),
    Field("feat_extract_norm", "norms", "group"),
    Field("conv_bias", "biased", False),
    Field("classifier_proj_size", "width", 256),
    Field("hidden_dropout", "dropout", 0.1),
    Field("attention_dropout", "attention_dropout", 0.1),
    Field("activation_dropout", "act_dropout", 0.1),
    Field("conformer_conv_dropout", "conv_dropout", 0.1),
    Field("feat_proj_dropout", "wave_dropout", 0.0),
    Field("final_dropout", "class_dropout", 0.1),
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, FAMILY)
    stands = top(o, ARCHITECTURES | PRETRAINING)
    check(o, stands)
    if stands == "ctc":
        o.need("vocab_size")
    fields = FIELDS.read(o)
    fields["norms"] = NORMS[fields["norms"]]
    return o.done(Config(**fields, top=stands, classes=classes(o)))


def check(o: Options, top: str) -> None:
    """Refuses what we would not compute; leaves what changes training, or belongs to other heads, or repeats."""
    o.expect(position_embeddings_type="relative", feat_extract_activation="gelu", layer_norm_eps=1e-5)
    o.expect(add_adapter=False, use_weighted_layer_sum=False)
    o.require("feat_extract_norm", *NORMS, default="group")
    if top == "ctc":
        o.expect(pad_token_id=0)  # the blank
    o.ignore("num_feat_extract_layers", "output_hidden_size", "max_source_positions", "rotary_embedding_base")
    o.ignore("num_conv_pos_embeddings", "num_conv_pos_embedding_groups")  # made there, and never called
    o.ignore("layerdrop", "apply_spec_augment", "ctc_loss_reduction", "ctc_zero_infinity", "feat_quantizer_dropout")
    o.ignore(*(f"mask_{axis}_{what}" for axis in ("time", "feature") for what in ("prob", "length", "min_masks")))
    o.ignore("mask_channel_length", "mask_channel_min_space", "mask_channel_other", "mask_channel_prob")
    o.ignore("mask_channel_selection", "mask_time_min_space", "mask_time_other", "mask_time_selection")
    o.ignore("num_codevectors_per_group", "num_codevector_groups", "codevector_dim", "proj_codevector_dim")
    o.ignore("contrastive_logits_temperature", "num_negatives", "diversity_loss_weight")
    o.ignore("tdnn_dim", "tdnn_kernel", "tdnn_dilation", "xvector_output_dim")
    o.ignore("adapter_kernel_size", "adapter_stride", "num_adapter_layers")


def write_config(c: Config) -> dict[str, Any]:
    return {
        **architecture(c.top, ARCHITECTURES, FAMILY),
        **FIELDS.write(c),
        "feat_extract_norm": {ours: theirs for theirs, ours in NORMS.items()}[c.norms],
        "mask_time_prob": 0.0,  # otherwise it has a vector for what is masked in training
        "pad_token_id": 0,
        **labels(c.top, c.classes),
    }


@dataclass(frozen=True)
class Pointwise:
    """A matrix stored as a convolution over one frame."""

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        if any(x.dim() != 3 or x.shape[2] != 1 for x in tensors):
            raise UserError(f"a convolution over one frame is {tuple(tensors[0].shape)}", allowed="out × in × 1")
        return [x.squeeze(2) for x in tensors]

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x[..., None] for x in tensors]


def keymap(c: Config) -> KeyMap:
    tops = {
        "none": (),
        "ctc": out("lm_head", "head"),
        "rows": out("projector", "head.inside") + out("classifier"),
        "tokens": out("classifier"),
    }
    prefix = "wav2vec2_conformer."
    return KeyMap(
        rules=(*waves(), *block("encoder.layers.*", "stack.blocks.*"), *tops[c.top]),
        prefixes=("", prefix) if c.top == "none" else (prefix,),
        ignored=UNUSED,
    )


def waves() -> tuple[Rule, ...]:
    return (
        *linear("feature_extractor.conv_layers.*.conv", "embed.convs.*"),
        *linear("feature_extractor.conv_layers.*.layer_norm", "embed.norms.*"),
        *linear("feature_projection.layer_norm", "embed.norm"),
        *linear("feature_projection.projection", "embed.project"),
        *linear("encoder.layer_norm", "stack.norm"),
    )


def block(there: str, here: str) -> tuple[Rule, ...]:
    distances, conv = f"{here}.attn.body.logit_bias", f"{here}.conv.body"
    return (
        *feed_forward(f"{there}.ffn1", f"{here}.ffn_in"),
        *linear(f"{there}.self_attn_layer_norm", f"{here}.attn.before"),
        *linears(there, here, {f"self_attn.linear_{part}": f"attn.body.{part}" for part in ("q", "k", "v", "out")}),
        Rule(f"{there}.self_attn.linear_pos.weight", f"{distances}.place.weight"),
        Rule(f"{there}.self_attn.pos_bias_u", f"{distances}.u"),
        Rule(f"{there}.self_attn.pos_bias_v", f"{distances}.v"),
        *linear(f"{there}.conv_module.layer_norm", f"{here}.conv.before"),
        Rule(f"{there}.conv_module.pointwise_conv1.weight", f"{conv}.expand.weight", (Pointwise(),)),
        Rule(f"{there}.conv_module.depthwise_conv.weight", f"{conv}.depthwise.weight"),
        *batch_norm(f"{there}.conv_module.batch_norm", f"{conv}.norm"),
        Rule(f"{there}.conv_module.pointwise_conv2.weight", f"{conv}.out.weight", (Pointwise(),)),
        *feed_forward(f"{there}.ffn2", f"{here}.ffn_out"),
        *linear(f"{there}.final_layer_norm", f"{here}.ffn_out.after"),
    )


def feed_forward(there: str, here: str) -> tuple[Rule, ...]:
    return (
        *linear(f"{there}_layer_norm", f"{here}.before"),
        *linear(f"{there}.intermediate_dense", f"{here}.body.up"),
        *linear(f"{there}.output_dense", f"{here}.body.down"),
    )


POSITIONS = "encoder.pos_conv_embed.conv"  # made there, and never called
UNUSED = (
    "masked_spec_embed",
    f"{POSITIONS}.bias",
    *(f"{POSITIONS}.{part}" for part in ("weight_g", "weight_v")),
    *(f"{POSITIONS}.parametrizations.weight.{part}" for part in ("original0", "original1")),
    "quantizer.codevectors",
    *(
        f"{part}.{what}"
        for part in ("quantizer.weight_proj", "project_hid", "project_q")
        for what in ("weight", "bias")
    ),
)
