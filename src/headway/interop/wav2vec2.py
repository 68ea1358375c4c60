"""wav2vec 2.0 in Hugging Face's layout, and what HuBERT and WavLM share with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ConfigMap, Field, Options, written_as
from headway.interop.encoders import architecture, classes, labels, out, top
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.interop.wav2vec2_conformer import FIELDS as CONFORMER
from headway.interop.wav2vec2_conformer import NORMS, POSITIONS, UNUSED, check, waves
from headway.zoo.wav2vec2 import SLOTS, Config

KINDS = {
    "Model": "none",
    "ForCTC": "ctc",
    "ForSequenceClassification": "rows",
    "ForAudioFrameClassification": "tokens",
}
FIELDS = ConfigMap(
    *CONFORMER.without("kernel", "conv_dropout").fields,
    Field("num_conv_pos_embeddings", "kernel", 128),
    Field("num_conv_pos_embedding_groups", "groups", 16),
)
ORDERS = {False: "post", True: "pre"}


def read_config(values: Mapping[str, Any]) -> Config:
    return read(Options(values, "wav2vec2"), "Wav2Vec2")


def read(o: Options, name: str, table: ConfigMap = FIELDS) -> Config:
    known = {f"{name}{kind}": ours for kind, ours in KINDS.items()}
    stands = top(o, known | {f"{name}ForPreTraining": "none"})  # read without what it is trained by
    check(o, stands)
    o.expect(adapter_attn_dim=None)
    if stands == "ctc":
        o.need("vocab_size")
    fields = table.read(o)
    fields["norms"] = NORMS[fields["norms"]]
    order = ORDERS[o.take("do_stable_layer_norm", False)]
    return o.done(Config(**fields, order=order, top=stands, classes=classes(o)))


def write_config(c: Config) -> dict[str, Any]:
    return write(c, "wav2vec2", "Wav2Vec2")


def write(c: Config, family: str, name: str) -> dict[str, Any]:
    if c.buckets and family != "wavlm":
        said = f"there, a {name} has no distances, and this model buckets={c.buckets}"
        raise UserError(said, do=written_as("wavlm"))
    return {
        **architecture(c.top, {f"{name}{kind}": ours for kind, ours in KINDS.items()}, family),
        **FIELDS.write(c),
        "feat_extract_norm": {ours: theirs for theirs, ours in NORMS.items()}[c.norms],
        "do_stable_layer_norm": c.order == "pre",
        "mask_time_prob": 0.0,  # otherwise it has a vector for what is masked in training
        "pad_token_id": 0,
        **labels(c.top, c.classes),
    }


def keymap(c: Config) -> KeyMap:
    return names(c, "wav2vec2.")


def names(c: Config, prefix: str) -> KeyMap:
    tops = {
        "none": (),
        "ctc": out("lm_head", "head"),
        "rows": out("projector", "head.inside") + out("classifier"),
        "tokens": out("classifier"),
    }
    slot = SLOTS[c.order]
    parts = {
        **{f"attention.{part}_proj": f"attn.body.{part}" for part in ("q", "k", "v", "out")},
        "layer_norm": f"attn.{slot}",
        "feed_forward.intermediate_dense": "ffn.body.up",
        "feed_forward.output_dense": "ffn.body.down",
        "final_layer_norm": f"ffn.{slot}",
    }
    spelled = (("parametrizations.weight.original0", "parametrizations.weight.original1"), ("weight_g", "weight_v"))
    places = (
        Rule(f"{POSITIONS}.{theirs}", f"embed.position.{ours}")
        for pair in spelled
        for theirs, ours in zip(pair, "gv", strict=True)
    )
    last = {"after": "embed.after", "before": "stack.norm"}[slot]
    return KeyMap(
        rules=(
            *(rule for rule in waves() if not rule.theirs.startswith("encoder.")),
            *places,
            Rule(f"{POSITIONS}.bias", "embed.position.bias"),
            *linear("encoder.layer_norm", last),
            *linears("encoder.layers.*", "stack.blocks.*", parts),
            *tops[c.top],
        ),
        prefixes=("", prefix) if c.top == "none" else (prefix,),
        ignored=tuple(name for name in UNUSED if not name.startswith(POSITIONS)),
    )
