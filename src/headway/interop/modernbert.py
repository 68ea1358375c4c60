"""ModernBERT in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, NUMBER, ConfigMap, Field, Form, Options
from headway.interop.encoders import architecture, classes, labels, out, top
from headway.interop.keymap import KeyMap, Rule, Split
from headway.interop.llama import WHOLE, WINDOWED, local_layers
from headway.interop.rotary import read_two_frequencies
from headway.ops.rotary import UNSCALED
from headway.zoo.modernbert import Config

ARCHITECTURES = {
    "ModernBertModel": "none",
    "ModernBertForMaskedLM": "words",
    "ModernBertForSequenceClassification": "rows",
    "ModernBertForTokenClassification": "tokens",
}


def half(o: Options, name: str, default: int) -> int:
    """The tokens on each side of a window that is told whole."""
    return o.take(name, default) // 2


def twice(radius: int) -> int:
    return 2 * radius


FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 50_368),
    Field("max_position_embeddings", "context", 8192),
    Field("hidden_size", "dim", 768),
    Field("num_hidden_layers", "layers", 22),
    Field("num_attention_heads", "heads", 12),
    Field("intermediate_size", "hidden", 1152),
    Field("hidden_activation", "act", "gelu", ACTIVATION),
    Field("norm_eps", "eps", 1e-5),
    Field("local_attention", "window", 128, Form(half, twice)),
    Field("mlp_dropout", "dropout", 0.0, NUMBER),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
    Field("embedding_dropout", "embed_dropout", 0.0, NUMBER),
    Field("classifier_dropout", "class_dropout", 0.0, NUMBER),
)
POOLS = {"cls": "class", "mean": "mean"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "modernbert")
    o.expect(norm_bias=False, attention_bias=False, mlp_bias=False, classifier_bias=False, decoder_bias=True)
    o.expect(classifier_activation="gelu")
    o.ignore("deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index", "initializer_cutoff_factor")
    o.ignore("tie_word_embeddings", "layer_norm_eps", "position_embedding_type", "reference_compile")
    o.ignore("repad_logits_with_grad", "sliding_window")
    fields = FIELDS.read(o)
    bases = {"base": o.number("global_rope_theta", 160_000.0), "local_base": o.number("local_rope_theta", 10_000.0)}
    o.expect(rope_scaling=None)
    both = read_two_frequencies(o, fields["context"], **bases)
    every = max(o.take("global_attn_every_n_layers", 3), 1)
    usual = [WINDOWED if layer % every else WHOLE for layer in range(fields["layers"])]
    found = local_layers(o, usual, fields["window"])
    layers = found.get("local_layers", ()) if found["window"] is not None else ()
    local = tuple(range(fields["layers"])) if layers is None else layers
    stands = top(o, ARCHITECTURES)
    o.require("classifier_pooling", *POOLS, default="cls")
    pool = POOLS[o.take("classifier_pooling", "cls")]
    return o.done(Config(**fields, **both._asdict(), local_layers=local, top=stands, classes=classes(o), pool=pool))


def write_config(c: Config) -> dict[str, Any]:
    if c.rotary.scaling != UNSCALED or c.local_rotary.scaling != UNSCALED:
        raise UserError("there, a ModernBERT has no scaling of its frequencies", do="keep it in headway's own layout")
    return {
        **architecture(c.top, ARCHITECTURES, "modernbert"),
        **FIELDS.write(c),
        "global_rope_theta": c.rotary.base,
        "local_rope_theta": c.local_rotary.base,
        "rope_parameters": {
            WHOLE: {"rope_type": "default", "rope_theta": c.rotary.base},
            WINDOWED: {"rope_type": "default", "rope_theta": c.local_rotary.base},
        },
        "layer_types": [WINDOWED if layer in c.local_layers else WHOLE for layer in range(c.layers)],
        "classifier_pooling": next(theirs for theirs, ours in POOLS.items() if ours == c.pool),
        "tie_word_embeddings": True,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), None),
        **labels(c.top, c.classes),
    }


def settle(c: Config, names: Collection[str]) -> Config:
    """A file of the bare encoder may hold masked words."""
    return replace(c, top="words") if c.top == "none" and "decoder.bias" in names else c


def keymap(c: Config) -> KeyMap:
    def dense(*ours: str) -> tuple[Rule, ...]:
        pairs = zip(("dense", "norm"), ours, strict=True)
        return tuple(Rule(f"head.{theirs}.weight", f"head.{name}.weight", outside=True) for theirs, name in pairs)

    there, here = "layers.*", "stack.blocks.*"
    tops = {
        "none": (),
        "words": (*dense("dense", "norm"), Rule("decoder.bias", "head.words.bias", outside=True)),
        "rows": dense("inside.0", "inside.1") + out("classifier"),
        "tokens": dense("inside.0", "inside.1") + out("classifier"),
    }
    qkv = tuple(f"{here}.attn.body.{part}.weight" for part in "qkv")
    return KeyMap(
        rules=(
            Rule("embeddings.tok_embeddings.weight", "embed.token.weight"),
            Rule("embeddings.norm.weight", "embed.norm.weight"),
            Rule(f"{there}.attn_norm.weight", f"{here}.attn.before.weight"),
            Rule(f"{there}.attn.Wqkv.weight", qkv, (Split(3),)),
            Rule(f"{there}.attn.Wo.weight", f"{here}.attn.body.out.weight"),
            Rule(f"{there}.mlp_norm.weight", f"{here}.ffn.before.weight"),
            Rule(f"{there}.mlp.Wi.weight", (f"{here}.ffn.body.gate.weight", f"{here}.ffn.body.up.weight"), (Split(2),)),
            Rule(f"{there}.mlp.Wo.weight", f"{here}.ffn.body.down.weight"),
            Rule("final_norm.weight", "stack.norm.weight"),
            *tops[c.top],
        ),
        prefixes=("", "model.") if c.top == "none" else ("model.",),
        ties={"decoder.weight": "embeddings.tok_embeddings.weight"},
    )
