"""Configs of BERT and its like: read, mended by the tensors, written; what we would not compute is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from headway import Context, UserError
from headway.interop.registry import family
from headway.zoo.bert import Config
from headway.zoo.deberta import Config as Deberta
from tests.interop import cases_bert, cases_more
from tests.interop.cases_bert import SIZES, model
from tests.interop.parity import Case, answer, load, ragged, shaken

CASES = [*cases_bert.CASES, *(case for case in cases_more.CASES if case.name.startswith(("deberta,", "longformer")))]


def config(model_type: str, architecture: str, **options: Any) -> dict[str, Any]:
    return {"model_type": model_type, "architectures": [architecture], **SIZES, **options}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
@torch.no_grad()
def test_what_is_written_makes_the_same_model_there(case: Case) -> None:
    import transformers

    theirs = shaken(case.make()).eval()
    told: dict[str, Any] = theirs.config.to_dict()
    known = family(told["model_type"])
    ours = known.settle(known.read_config(told), theirs.state_dict())
    assert ours == known.read_config(told)
    written = known.write_config(ours)
    assert known.read_config(written) == ours
    kind = getattr(transformers, written["architectures"][0])
    again = kind._from_config(kind.config_class.from_dict(written)).eval()
    names = known.keymap(ours)
    missing, unknown = again.load_state_dict(names.save(names.load(theirs.state_dict())), strict=False)
    assert not unknown
    ties = ("predictions.decoder", "lm_head.decoder", "vocab_projector")
    assert set(missing) <= {name for name in again.state_dict() if any(tie in name for tie in ties)}
    ids, real = ragged(SIZES["vocab_size"])
    assert_close(*(answer(m(input_ids=ids, attention_mask=real.long())) for m in (again, theirs)))


@pytest.mark.parametrize(
    ("model_type", "architecture", "options", "said"),
    [
        ("bert", "BertModel", {"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ("bert", "BertModel", {"is_decoder": True}, "is_decoder=True"),
        ("bert", "BertModel", {"add_cross_attention": True}, "add_cross_attention=True"),
        ("bert", "BertModel", {"hidden_act": "mish"}, "hidden_act='mish'"),
        ("bert", "BertModel", {"pruned_heads": {"0": [1]}}, "pruned_heads="),
        ("bert", "BertForMaskedLM", {"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ("bert", "BertForMultipleChoice", {}, "'BertForMultipleChoice' is not supported"),
        ("bert", "BertLMHeadModel", {}, "'BertLMHeadModel' is not supported"),
        ("roberta", "RobertaForCausalLM", {}, "'RobertaForCausalLM' is not supported"),
        ("roberta", "RobertaForMaskedLM", {"hidden_act": "relu"}, "hidden_act='relu'"),
        ("xlm-roberta", "XLMRobertaForCausalLM", {}, "'XLMRobertaForCausalLM' is not supported for xlm-roberta"),
        ("xlm-roberta", "XLMRobertaModel", {"position_embedding_type": "relative_key"}, "position_embedding_type="),
        ("camembert", "CamembertForMultipleChoice", {}, "'CamembertForMultipleChoice' is not supported for camembert"),
        ("camembert", "CamembertForMaskedLM", {"hidden_act": "relu"}, "hidden_act='relu'"),
        ("distilbert", "DistilBertForMultipleChoice", {}, "'DistilBertForMultipleChoice' is not supported"),
        ("distilbert", "DistilBertModel", {"layer_norm_eps": 1e-5}, "not known here: intermediate_size=24, layer_norm"),
        ("deberta", "DebertaModel", {"pos_att_type": "c2p"}, "pos_att_type='c2p' is not supported for deberta"),
        ("deberta", "DebertaModel", {"talking_head": True}, "talking_head=True is not supported for deberta"),
        ("longformer", "LongformerForQuestionAnswering", {}, "'LongformerForQuestionAnswering' is not supported"),
        ("longformer", "LongformerModel", {"attention_window": 5}, "attention_window=5 in config.json"),
        ("longformer", "LongformerModel", {"attention_window": [4, 4]}, "an even number of 2 or more, or 3 of them"),
        ("albert", "AlbertModel", {"gap_size": 2}, "gap_size=2"),
        ("albert", "AlbertModel", {"position_embedding_type": "relative_key_query"}, "position_embedding_type="),
    ],
)
def test_what_we_would_not_compute_is_refused(
    model_type: str, architecture: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        family(model_type).read_config(config(model_type, architecture, **options))


def test_groups_must_divide_the_layers() -> None:
    known = family("albert")
    with pytest.raises(UserError, match="groups=2 does not divide layers=3; allowed: groups of 1, 3"):
        known.build(known.read_config(config("albert", "AlbertModel", num_hidden_groups=2)))


def test_positions_say_which_family_is_written() -> None:
    bert, roberta = family("bert"), family("roberta")
    with pytest.raises(UserError, match="write it as a roberta model"):
        bert.write_config(roberta.read_config(config("roberta", "RobertaModel")))
    with pytest.raises(UserError, match="write it as a bert model"):
        roberta.write_config(bert.read_config(config("bert", "BertModel")))
    with pytest.raises(UserError, match="write it as a bert model"):
        family("distilbert").write_config(bert.read_config(config("bert", "BertModel")))
    with pytest.raises(UserError, match="no top 'pair' there"):
        roberta.write_config(Config(first=2, top="pair"))


def test_windows_that_the_other_library_cannot_compute_are_not_written() -> None:
    known = family("longformer")
    found = known.read_config(config("longformer", "LongformerModel", attention_window=[4, 2, 4]))
    assert found.window == (2, 1, 2)
    with pytest.raises(UserError, match="see 2 tokens or more on each side, and here 1"):
        known.write_config(found)


def test_distances_say_which_deberta_is_written() -> None:
    first, second = family("deberta"), family("deberta-v2")
    with pytest.raises(UserError, match="write it as a deberta model"):
        second.write_config(Deberta(distances="own"))
    assert first.write_config(Deberta(distances="own"))["model_type"] == "deberta"
    assert first.write_config(Deberta()) == second.write_config(Deberta())


def test_old_names_of_norms_are_read() -> None:
    theirs = shaken(model("BertForMaskedLM"))
    known = family("bert")
    names = known.keymap(known.read_config(theirs.config.to_dict()))
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): x
        for name, x in theirs.state_dict().items()
    }
    assert any("gamma" in name for name in old)
    assert_close(names.load(old), names.load(theirs.state_dict()), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("told", "held", "top"),
    [
        ("BertModel", "BertModel", "pooler"),
        ("BertModel", "BertForTokenClassification", "none"),
        ("BertForMaskedLM", "BertForPreTraining", "pretraining"),
        (None, "BertForMaskedLM", "words"),
        (None, "BertForPreTraining", "pretraining"),
        ("RobertaModel", "RobertaForSequenceClassification", "none"),
        ("XLMRobertaModel", "XLMRobertaForMaskedLM", "words"),
        (None, "CamembertForMaskedLM", "words"),
        (None, "RobertaForMaskedLM", "words"),
        ("AlbertForMaskedLM", "AlbertForPreTraining", "pretraining"),
        ("AlbertModel", "AlbertForMaskedLM", "words"),
    ],
)
def test_tensors_mend_what_the_config_tells_of_heads(told: str | None, held: str, top: str) -> None:
    theirs = shaken(model(held))
    values = {**theirs.config.to_dict(), "architectures": told and [told]}
    known = family(values["model_type"])
    tensors = {name: x for name, x in theirs.state_dict().items() if not name.startswith(("classifier", "qa_outputs"))}
    found = known.settle(known.read_config(values), tensors)
    assert found.top == top
    load(known.build(found), known.keymap(found).load(tensors))


def test_sentence_pairs_stand_beside_the_words() -> None:
    theirs = shaken(model("BertForPreTraining")).eval()
    known = family("bert")
    told = known.read_config(theirs.config.to_dict())
    ours: Any = known.build(told).eval()
    load(ours, known.keymap(told).load(theirs.state_dict()))
    ids, real = ragged(SIZES["vocab_size"])
    ctx = Context(keep=real[:, None])
    out = theirs(input_ids=ids, attention_mask=real.long())
    assert_close(ours.head.pair(ours.features(ids, ctx), ctx), out.seq_relationship_logits)


def test_rates_come_back() -> None:
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3, "classifier_dropout": 0.4}
    for name in ("bert", "roberta", "xlm-roberta", "camembert"):
        known = family(name)
        written = known.write_config(known.read_config({"model_type": name, **rates}))
        assert {rate: written[rate] for rate in rates} == rates
    albert = {**rates, "classifier_dropout_prob": 0.4}
    del albert["classifier_dropout"]
    written = family("albert").write_config(family("albert").read_config(albert))
    assert {rate: written[rate] for rate in albert} == albert


def test_rates_are_used_where_they_are_told() -> None:
    known = family("bert")
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3, "classifier_dropout": 0.4}
    made: Any = known.build(known.read_config(config("bert", "BertForSequenceClassification", **rates)))
    block = made.stack.blocks[0]
    assert (block.attn.body.dropout, block.attn.drop.p, made.head.drop.p) == (0.3, 0.2, 0.4)
