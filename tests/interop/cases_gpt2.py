"""GPT-2, with the options its configs name."""

from __future__ import annotations

from typing import Any

from tests.interop.parity import Case, Kind

SIZES = {"vocab_size": 99, "n_positions": 32, "n_embd": 16, "n_layer": 3, "n_head": 4}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2}


def gpt2(**options: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel._from_config(GPT2Config(**SIZES | SPECIAL | options), attn_implementation="eager")


def classifier(**options: Any) -> Any:
    from transformers import GPT2Config, GPT2ForSequenceClassification

    names = {"architectures": ["GPT2ForSequenceClassification"], "pad_token_id": 0, "num_labels": 3}
    config = GPT2Config(**SIZES | SPECIAL | names | options)
    return GPT2ForSequenceClassification._from_config(config, attn_implementation="eager")


CASES = [
    Case("gpt2", gpt2, Kind.DECODER),
    Case("gpt2, ReLU and other sizes", lambda: gpt2(n_inner=40, activation_function="relu"), Kind.DECODER),
    Case("gpt2, untied", lambda: gpt2(tie_word_embeddings=False), Kind.DECODER),
    Case("gpt2, another ε", lambda: gpt2(layer_norm_epsilon=1e-3), Kind.DECODER),
    Case("gpt2, classes of rows", classifier, Kind.DECODER),
]
