"""Configs of encoder–decoders both ways, and folders that `transformers` writes and reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from headway.errors import UserError
from headway.interop.registry import family
from headway.zoo import bart, marian, t5
from tests.interop.cases_seq2seq import CASES
from tests.interop.parity import Case, Kind, difference, load, ragged, shaken

CONFIGS = {
    "t5": [
        t5.Config(decoder_layers=6),
        t5.Config(decoder_layers=0),
        *(t5.Config(decoder_layers=2, ffn=ffn, act=act) for ffn in t5.FFNS for act in ("gelu", "gelu_tanh", "silu")),
        t5.Config(decoder_layers=6, ffn="gated", act="gelu_tanh", tied=False, buckets=8, longest=20),
    ],
    "mt5": [
        t5.Config(decoder_layers=6, ffn="gated", act="gelu_tanh", tied=False),
        t5.Config(decoder_layers=0, tied=False),
    ],
    "bart": [
        bart.Config(),
        bart.Config(scaled=True, act="relu", decoder_layers=3, decoder_heads=8),
        bart.Config(tied=False, dropout=0.2, attention_dropout=0.3, act_dropout=0.4),
    ],
    "marian": [
        marian.Config(),
        marian.Config(source_vocab=90, vocab=80, shared=False, scaled=False),
        marian.Config(source_vocab=90, vocab=80, shared=False, tied=False, attention_dropout=0.3, act_dropout=0.4),
    ],
}


@pytest.mark.parametrize(("name", "config"), [(name, c) for name, configs in CONFIGS.items() for c in configs])
def test_a_config_reads_as_it_was_written(name: str, config: Any) -> None:
    known = family(name)
    assert known.read_config(known.write_config(config)) == config


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case.kind is Kind.SEQ2SEQ], ids=str)
def test_what_is_written_is_read_by_the_other_library(case: Case, tmp_path: Path) -> None:
    theirs = shaken(case.make()).eval()
    known = family(theirs.config.model_type)
    config = known.read_config(theirs.config.to_dict())
    ours, names = known.build(config), known.keymap(config)
    load(ours, names.load(theirs.state_dict()))
    (tmp_path / "config.json").write_text(json.dumps(known.write_config(config)))
    save_file(names.save(dict(ours.named_parameters())), tmp_path / "model.safetensors", {"format": "pt"})
    again = type(theirs).from_pretrained(tmp_path, attn_implementation="eager").eval()
    (source, real), (target, _) = ragged(99), ragged(99, seed=1)
    given = {"input_ids": source, "attention_mask": real.long(), "decoder_input_ids": target}
    assert difference(again(**given).logits, theirs(**given).logits) == 0


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_the_other_library_writes_is_read(case: Case, tmp_path: Path) -> None:
    theirs = shaken(case.make()).eval()
    theirs.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    known = family(values["model_type"])
    config = known.read_config(values)
    stored = load_file(tmp_path / "model.safetensors")
    load(known.build(config), known.keymap(config).load(stored))


def test_an_encoder_is_read_from_the_weights_of_a_whole_t5() -> None:
    whole = shaken(CASES[0].make())
    known = family("t5")
    config = known.read_config(whole.config.to_dict() | {"architectures": ["T5EncoderModel"]})
    load(known.build(config), known.keymap(config).load(whole.state_dict()))


def test_a_missing_bias_of_the_output_is_zero() -> None:
    whole = next(case for case in CASES if case.name == "bart").make()
    stored = {name: x for name, x in whole.model.state_dict().items() if "embed_tokens" not in name}
    known = family("bart")
    found = known.keymap(known.read_config(whole.config.to_dict())).load(stored)
    assert torch.equal(found["decoder.head.bias"], torch.zeros(99))


@pytest.mark.parametrize(
    ("name", "option", "said"),
    [
        ("t5", {"feed_forward_proj": "gated-tanhshrink"}, "feed_forward_proj='gated-tanhshrink' is not supported"),
        ("t5", {"quantization_config": {"bits": 4}}, "not known here: quantization_config="),
        ("t5", {"architectures": ["T5ForTokenClassification"]}, "'T5ForTokenClassification' is not supported for t5"),
        ("bart", {"is_decoder": True}, "is_decoder=True is not supported for bart"),
        ("bart", {"normalize_before": True}, "normalize_before=True is not supported for bart"),
        ("mt5", {"feed_forward_proj": "tanh"}, "feed_forward_proj='tanh' is not supported for mt5"),
        (
            "mt5",
            {"architectures": ["MT5ForTokenClassification"]},
            "'MT5ForTokenClassification' is not supported for mt5",
        ),
        ("bart", {"static_position_embeddings": True}, "static_position_embeddings=True is not supported for bart"),
        ("marian", {"activation_function": "tanh"}, "activation_function='tanh' is not supported for marian"),
        ("marian", {"normalize_embedding": True}, "normalize_embedding=True is not supported for marian"),
    ],
)
def test_what_would_compute_something_else_is_refused(name: str, option: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        family(name).read_config({"model_type": name} | option)


SUMMARY = {"summarization": {"prefix": "summarize: "}}
OLD = {
    "bart": {"add_bias_logits": False, "normalize_embedding": True, "extra_pos_embeddings": 2, "num_hidden_layers": 12},
    "marian": {"add_bias_logits": True, "normalize_embedding": False, "static_position_embeddings": True},
    "t5": {"n_positions": 512, "output_past": True, "task_specific_params": SUMMARY},
}


@pytest.mark.parametrize("name", OLD)
def test_options_of_the_first_files_are_known(name: str) -> None:
    known = family(name)
    assert known.read_config({"model_type": name} | OLD[name]) == known.read_config({"model_type": name})


@pytest.mark.parametrize("name", ["bart, untied", "marian, untied"])
def test_both_sides_may_be_stored_as_one_table(name: str) -> None:
    """As version 4 of the other library writes it, where only the output is a table of its own."""
    whole = shaken(next(case for case in CASES if case.name == name).make())
    stored = {key: x for key, x in whole.state_dict().items() if "embed_tokens" not in key}
    known = family(whole.config.model_type)
    found = known.keymap(known.read_config(whole.config.to_dict())).load(stored)
    assert torch.equal(found["encoder.embed.token.weight"], stored["model.shared.weight"])
    assert torch.equal(found["decoder.embed.token.weight"], stored["model.shared.weight"])
    assert torch.equal(found["decoder.head.weight"], stored["lm_head.weight"])


def test_the_output_of_an_mt5_is_its_own_whatever_is_told_of_ties() -> None:
    known = family("mt5")
    assert known.read_config({"tie_word_embeddings": True}) == known.read_config({"tie_word_embeddings": False})
    with pytest.raises(UserError, match="an mT5 has an output of its own, and this model the table of words"):
        known.write_config(t5.Config())
