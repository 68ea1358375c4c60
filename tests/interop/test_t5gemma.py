"""T5Gemma: folders both ways, its tokens in both places, and what it writes; what is not computed is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers
from torch.testing import assert_close

from headway import UserError
from headway.interop.registry import family
from headway.loading import load
from headway.zoo import gemma, t5gemma
from tests.interop.cases_more import CASES, SIDE
from tests.interop.folders import both_ways
from tests.interop.parity import Case, ragged

transformers: Any = pytest.importorskip("transformers")
OWN = [case for case in CASES if case.name.startswith("t5gemma")]
GIVEN = {
    "model_type": "t5gemma",
    "architectures": ["T5GemmaForConditionalGeneration"],
    "encoder": SIDE,
    "decoder": {**SIDE, "is_decoder": True},
}


@pytest.mark.parametrize("case", OWN, ids=str)
def test_folders_go_both_ways(case: Case, tmp_path: Path) -> None:
    again, loaded, own = both_ways(case, tmp_path)
    ids, _ = ragged(80)
    assert_close(own.model(ids, ids), loaded.model(ids, ids), rtol=0, atol=0)
    assert_close(loaded.model(ids, ids), again(input_ids=ids, decoder_input_ids=ids).logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_what_is_written_is_what_is_written_there(tmp_path: Path) -> None:
    """Greedily, from the decoder's first token on, by the folder there and by the one that is written here."""
    theirs = OWN[1].make().eval()
    for parameter in theirs.parameters():
        parameter.normal_(std=0.5)
    theirs.save_pretrained(tmp_path / "there")
    backend = Backend(
        models.WordLevel({"<pad>": 0, "<eos>": 1, "<bos>": 2, **{f"w{i}": i for i in range(3, 80)}}, "w3")
    )
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(tmp_path / "there")
    loaded = load(tmp_path / "there")
    loaded.save_hf(tmp_path / "here")
    text = "w5 w17 w9 w40 w41"
    said = loaded.predict(text, max_new_tokens=8).output
    for folder in ("there", "here"):
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / folder).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / folder)
        ids = model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=8, do_sample=False)
        assert int(ids[0, 0]) == 2
        assert tokenizer.decode(ids[0], skip_special_tokens=True) == said
    written = json.loads((tmp_path / "here" / "config.json").read_text())
    assert written["decoder"]["bos_token_id"] == written["encoder"]["bos_token_id"] == 2


def test_tokens_stand_in_the_decoders_config_too() -> None:
    known = family("t5gemma")
    tokens = {"bos_token_id": 2, "eos_token_id": [1, 107], "pad_token_id": 0}
    assert known.read_settings({**GIVEN, "decoder": {**SIDE, **tokens}}) == tokens
    written = known.write_settings({**GIVEN, **tokens, "decoder_start_token_id": 5})
    assert {name: written["encoder"][name] for name in tokens} == tokens
    assert written["decoder"]["bos_token_id"] == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"is_encoder_decoder": False}, "is_encoder_decoder=False"),
        (
            {"architectures": ["T5GemmaForSequenceClassification"]},
            "'T5GemmaForSequenceClassification' is not supported",
        ),
        ({"architectures": ["T5GemmaEncoderModel"]}, "'T5GemmaEncoderModel' is not supported"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ({"decoder": {**SIDE, "is_decoder": True, "vocab_size": 81}}, "an encoder of 80 words and a decoder of 81"),
        ({"encoder": {**SIDE, "hidden_activation": "relu"}}, "hidden_activation='relu' is not supported for t5gemma"),
        ({"encoder": {**SIDE, "attention_bias": True}}, "attention_bias=True is not supported for t5gemma encoder"),
        ({"decoder": {**SIDE, "attention_chunk_size": 4}}, "t5gemma decoder model sets what is not known here"),
    ],
    ids=str,
)
def test_what_is_not_computed_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        family("t5gemma").read_config({**GIVEN, **options})


def test_a_decoder_that_is_no_gemma_2_is_not_written() -> None:
    with pytest.raises(UserError, match="a T5Gemma's decoder has no qk_norm, and this model True"):
        family("t5gemma").write_config(t5gemma.Config(decoder=gemma.Config(qk_norm=True)))
