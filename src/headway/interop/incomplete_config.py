"""What a config.json of Hugging Face's layout leaves out and the folder shows: `model_type` and `architectures`.

Files of the first years have neither.  A class in `architectures` belongs to one model_type; else a tensor tells, where
only models of that type have one of its name.  The head is the first whose tensors are those of the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from headway.errors import UserError
from headway.interop.registry import CLASSES, Family, family, model_type_of
from headway.interop.weights import aliases, check_names, model_for

# a tensor that models of one type have; those of Llama are in models that compute otherwise, too
TENSORS = {
    "gpt2": r"(transformer\.)?h\.0\.attn\.c_attn\.weight",
    "bert": r"bert\.embeddings\.word_embeddings\.weight",
    "roberta": r"roberta\.embeddings\.word_embeddings\.weight",
    "distilbert": r"(distilbert\.)?transformer\.layer\.0\.attention\.q_lin\.weight",
    "albert": r"(albert\.)?encoder\.albert_layer_groups\.0\.albert_layers\.0\.attention\.query\.weight",
    "t5": r"encoder\.block\.0\.layer\.0\.SelfAttention\.q\.weight",
    "bart": r"(model\.)?encoder\.layernorm_embedding\.weight",
}
# of a bare encoder; RoBERTa has one segment
BARE, SEGMENTS = "encoder.layer.0.attention.self.query.weight", "embeddings.token_type_embeddings.weight"
ROWS, TOKENS = "ForSequenceClassification", "ForTokenClassification"
# how the names of classes end; of two heads whose tensors have the same names, the first is taken
HEADS = (
    *(ROWS, TOKENS, "ForQuestionAnswering", "ForImageClassification", "ForCTC"),
    *("ForPreTraining", "ForMaskedLM", "ForNextSentencePrediction"),
    *(
        "ForConditionalGeneration",
        "MTModel",
        "ForCausalLM",
        "LMHeadModel",
        "EncoderModel",
        "ModelWithProjection",
        "Model",
    ),
)


def completed(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A config.json with its model_type and architectures, and a note about each that it did not have."""
    found, notes = dict(values), list[str]()
    if "model_type" not in values:
        found["model_type"] = model_type_of(values) or type_by_tensors(tensors)
        notes.append(f"config.json has no model_type; it is taken to be {found['model_type']!r}")
    if not values.get("architectures") and (head := head_by_tensors(found, tensors)):
        found["architectures"] = [head]
        notes.append(f"config.json has no architectures; its tensors are those of a {head}")
    return found, tuple(notes)


def type_by_tensors(tensors: Mapping[str, Tensor]) -> str:
    for model_type, pattern in TENSORS.items():
        if any(re.fullmatch(pattern, name) for name in tensors):
            return model_type
    if BARE in tensors and SEGMENTS in tensors:
        return "bert" if len(tensors[SEGMENTS]) > 1 else "roberta"
    said = "config.json does not say what model it is of, and neither do the names of its tensors"
    raise UserError(said, do='add its model_type to the file, as in "model_type": "llama"')


def head_by_tensors(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str | None:
    """The class of transformers' with these tensors; None where there is none here, which loading will tell."""
    known = family(values["model_type"])
    first = next(name for name, model_type in CLASSES.items() if model_type == values["model_type"])
    heads = (TOKENS, *HEADS) if tags(values.get("id2label")) else HEADS
    return next((found for head in heads if (found := fitting(known, values, first + head, tensors))), None)


def fitting(known: Family, values: Mapping[str, Any], name: str, tensors: Mapping[str, Tensor]) -> str | None:
    """The class as which a model of the class `name` would be written, if it has these tensors."""
    try:
        config = known.settle(known.read_config({**values, "architectures": [name]}), tensors)
        check_names(aliases(model_for(config, tensors)), known.keymap(config).load(tensors))
        return known.write_config(config)["architectures"][0]
    except UserError:
        return None


def tags(labels: Any) -> bool:
    """Whether names of classes are those of tokens: B-PER, I-PER."""
    names = labels.values() if isinstance(labels, Mapping) else ()
    return any(isinstance(name, str) and name.startswith(("B-", "I-")) for name in names)
