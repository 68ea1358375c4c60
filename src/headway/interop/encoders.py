"""What the configs and tensors of BERT and its like have in common in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headway.errors import UserError, listed
from headway.interop.config_reader import ACTIVATION, ConfigMap, Field, Options
from headway.interop.keymap import Rule, linear
from headway.nn.ffn import ffn_width
from headway.zoo.albert import Config as Albert
from headway.zoo.bert import Config as Bert
from headway.zoo.longformer import Config as Longformer

# what the configs of BERT and ALBERT call the same, with BERT's defaults
FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 30_522),
    Field("hidden_size", "dim", 768),
    Field("num_hidden_layers", "layers", 12),
    Field("num_attention_heads", "heads", 12),
    Field("intermediate_size", "hidden", 3072),
    Field("type_vocab_size", "segments", 2),
    Field("hidden_act", "act", "gelu", ACTIVATION),
    Field("layer_norm_eps", "eps", 1e-12),
    Field("hidden_dropout_prob", "dropout", 0.1),
    Field("attention_probs_dropout_prob", "attention_dropout", 0.1),
)
WORDS, CLASSES = ("words", "pretraining"), ("rows", "rows, relu", "tokens", "spans")


def top(o: Options, known: Mapping[str, str]) -> str:
    """What stands on top: `architectures` says it; where it is silent, the first of the known."""
    given = o.architecture(*known)
    if known[given] in WORDS:
        o.expect(tie_word_embeddings=True)
    return known[given]


def settled(top: str, names: Collection[str], *, words: str, pooler: str, pair: str | None = None) -> str:
    """A top mended by the tensors that are there: more heads than `architectures` tells of, or no pooler.

    Files whose config tells of masked words alone often hold the head of sentence pairs too, and files of the bare
    encoder may hold masked words, or lack the pooler.
    """

    def given(part: str | None) -> bool:
        return part is not None and any(name.endswith(part) for name in names)

    if top in ("pooler", "words") and given(words):
        return "pretraining" if given(pair) else "words"
    return "none" if top == "pooler" and not given(pooler) else top


def classes(o: Options) -> int:
    return o.take("num_labels", len(o.take("id2label", {})) or 2)


def plain_encoder(o: Options) -> None:
    """Refuses what would not be an encoder with learned positions; leaves what changes training, or nothing."""
    o.expect(is_decoder=False, add_cross_attention=False, position_embedding_type="absolute", pruned_heads={})
    o.ignore("tie_word_embeddings", "_num_labels", "name", "sentence_transformers")
    o.ignore("sbert_ce_default_activation_function")


def architecture(top: str, known: Mapping[str, str], family: str) -> dict[str, Any]:
    names = {ours: theirs for theirs, ours in known.items()} | {"none": next(iter(known))}
    if top not in names:
        raise UserError(f"{family} models have no top {top!r} there", allowed=listed(names, 10))
    return {"model_type": family, "architectures": [names[top]]}


def write_common(c: Bert | Albert | Longformer) -> dict[str, Any]:
    """The sizes and rates that both layouts call the same."""
    sizes = {**FIELDS.write(c), "intermediate_size": ffn_width(c.dim, c.hidden)}
    return {**sizes, "tie_word_embeddings": True, **labels(c.top, c.classes)}


def labels(top: str, count: int) -> dict[str, Any]:
    names = [f"LABEL_{i}" for i in range(count)] if top in CLASSES else []
    if not names:
        return {}
    return {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}


def out(theirs: str, ours: str = "head.out") -> tuple[Rule, ...]:
    """A layer of a head, whose name there stands without the encoder's prefix."""
    return linear(theirs, ours, outside=True)


def norm(theirs: str, ours: str, *, outside: bool = False) -> tuple[Rule, ...]:
    """A layer norm; files of the first years call its parameters gamma and beta, and are read alike."""
    old = (("gamma", "weight"), ("beta", "bias"))
    return (
        *linear(theirs, ours, outside=outside),
        *(Rule(f"{theirs}.{then}", f"{ours}.{now}", outside=outside) for then, now in old),
    )
