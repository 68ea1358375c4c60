"""BERT and its like, with each head and the options that their configs name."""

from __future__ import annotations

from typing import Any

from tests.interop.parity import Case, Kind

SIZES = {
    "vocab_size": 99,
    "max_position_embeddings": 32,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
}
DISTILLED = {
    "vocab_size": 99,
    "max_position_embeddings": 32,
    "dim": 16,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 24,
}
GROUPED = {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2}


def case(name: str, architecture: str, **options: Any) -> Case:
    return Case(name, lambda: model(architecture, **options), Kind.ENCODER)


def model(architecture: str, **options: Any) -> Any:
    import transformers

    kind = getattr(transformers, architecture)
    config = kind.config_class(**{**SIZES, **options}, architectures=[architecture])
    return kind._from_config(config, attn_implementation="eager")


def distilbert(name: str, architecture: str, **options: Any) -> Case:
    def make() -> Any:
        import transformers

        kind = getattr(transformers, architecture)
        config = transformers.DistilBertConfig(**{**DISTILLED, **options}, architectures=[architecture])
        return kind._from_config(config, attn_implementation="eager")

    return Case(name, make, Kind.ENCODER)


CASES = [
    case("bert", "BertModel"),
    case("bert, masked words", "BertForMaskedLM"),
    case("bert, masked words, other options", "BertForMaskedLM", hidden_act="gelu_new", layer_norm_eps=1e-3),
    case("bert, pre-training", "BertForPreTraining", type_vocab_size=3),
    case("bert, sentence pairs", "BertForNextSentencePrediction"),
    case("bert, classes of rows", "BertForSequenceClassification", num_labels=5),
    case("bert, classes of rows, ReLU", "BertForSequenceClassification", num_labels=1, hidden_act="relu"),
    case("bert, classes of tokens", "BertForTokenClassification", num_labels=7, hidden_act="silu"),
    case("bert, answer spans", "BertForQuestionAnswering"),
    case("roberta", "RobertaModel", type_vocab_size=1),
    case("roberta, masked words", "RobertaForMaskedLM", type_vocab_size=1, layer_norm_eps=1e-5),
    case("roberta, another padding", "RobertaForMaskedLM", pad_token_id=3),
    case("roberta, classes of rows", "RobertaForSequenceClassification", num_labels=3, hidden_act="relu"),
    case("roberta, classes of tokens", "RobertaForTokenClassification", num_labels=4),
    case("roberta, answer spans", "RobertaForQuestionAnswering"),
    case("xlm-roberta", "XLMRobertaModel", type_vocab_size=1),
    case("xlm-roberta, masked words", "XLMRobertaForMaskedLM", type_vocab_size=1, layer_norm_eps=1e-5),
    case("xlm-roberta, classes of rows", "XLMRobertaForSequenceClassification", num_labels=3),
    case("camembert", "CamembertModel", type_vocab_size=1),
    case("camembert, masked words", "CamembertForMaskedLM", type_vocab_size=1, layer_norm_eps=1e-5),
    case("camembert, classes of tokens", "CamembertForTokenClassification", num_labels=3),
    distilbert("distilbert", "DistilBertModel"),
    distilbert("distilbert, masked words", "DistilBertForMaskedLM", activation="relu"),
    distilbert("distilbert, classes of rows", "DistilBertForSequenceClassification", num_labels=3),
    distilbert("distilbert, classes of tokens", "DistilBertForTokenClassification", num_labels=4),
    distilbert("distilbert, answer spans, sines", "DistilBertForQuestionAnswering", sinusoidal_pos_embds=True),
    case("albert", "AlbertModel", embedding_size=8),
    case("albert, masked words", "AlbertForMaskedLM", embedding_size=8),
    case("albert, masked words, ReLU, groups", "AlbertForMaskedLM", embedding_size=8, hidden_act="relu", **GROUPED),
    case("albert, pre-training", "AlbertForPreTraining", embedding_size=20),
    case("albert, classes of rows", "AlbertForSequenceClassification", embedding_size=8, num_labels=3),
    case("albert, classes of tokens, groups", "AlbertForTokenClassification", embedding_size=8, num_hidden_groups=3),
    case("albert, answer spans", "AlbertForQuestionAnswering", embedding_size=8),
]
