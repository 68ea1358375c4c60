"""XLNet: hidden tokens are transformers' query stream, and whole folders with their tokenizer, both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from headway import Context, UserError
from headway.data.order import random_for
from headway.interop.registry import family
from headway.loading import load
from headway.nn.context import EMPTY, PackedLengths
from headway.tasks.masked_lm import MaskedLM
from headway.tasks.text_pairs import TextPairClassification
from tests.data.test_tokenizer_parity import xlnet as tokenizer_folder
from tests.interop.cases_more import CASES, SEGMENTED, model
from tests.interop.folders import both_ways
from tests.interop.parity import Case, gradients, pull, ragged, shaken
from tests.interop.parity import load as fill
from tests.interop.test_task_heads import PAIRS, joined, ours

transformers: Any = pytest.importorskip("transformers")
close = {"atol": 1e-5, "rtol": 1e-5}


def test_hidden_tokens_are_the_query_stream() -> None:
    """The same words as of transformers, where no token sees the ones to be predicted; gradients, of the mask's too."""
    theirs = shaken(model("XLNetLMHeadModel", SEGMENTED)).eval()
    known = family("xlnet")
    config = known.read_config(theirs.config.to_dict())
    names, made = known.keymap(config), known.build(config).eval()
    fill(made, names.load(theirs.state_dict()))
    ids, _ = ragged(40)
    segments = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2]).expand(2, -1)
    at = torch.tensor([[1, 4, 6], [0, 5, 7]])  # of each row, in order
    hidden = torch.zeros_like(ids, dtype=torch.bool).scatter(1, at, True)
    unseen = hidden[:, None].expand(-1, ids.shape[1], -1).float()
    targets = torch.nn.functional.one_hot(at, ids.shape[1]).float()
    expected = theirs(ids, token_type_ids=segments, perm_mask=unseen, target_mapping=targets).logits  # B 3 V
    found = made(ids, EMPTY, segments, hidden)[hidden].view_as(expected)
    assert_close(found, expected, **close)
    (expected * pull(expected)).sum().backward()
    (found * pull(found)).sum().backward()
    assert theirs.transformer.mask_emb.grad.abs().max() > 0
    assert gradients(theirs, made, names) < 1e-5
    rows = PackedLengths.of((9, 9))
    read, *marks = map(rows.pack, (ids, segments, hidden))
    packed = made(read, Context(rows=rows), *marks)
    assert_close(packed[0][hidden.flatten()].view_as(expected), expected, **close)


@pytest.mark.parametrize("case", [case for case in CASES if case.name.startswith("xlnet")], ids=str)
def test_folders_go_both_ways(case: Case, tmp_path: Path) -> None:
    _, loaded, own = both_ways(case, tmp_path)
    ids, _ = ragged(40)
    assert_close(own.model(ids), loaded.model(ids), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attn_type": "uni"}, "attn_type='uni'"),
        ({"bi_data": True}, "bi_data=True"),
        ({"clamp_len": 8}, "clamp_len=8"),
        ({"d_head": 7}, "d_head=7"),
        ({"summary_type": "first"}, "summary_type='first'"),
        ({"architectures": ["XLNetForQuestionAnsweringSimple"]}, "'XLNetForQuestionAnsweringSimple' is not supported"),
        ({"architectures": ["XLNetForMultipleChoice"]}, "'XLNetForMultipleChoice' is not supported"),
        ({"head_dim": 7}, "not known here: head_dim=7"),
    ],
    ids=str,
)
def test_what_is_not_computed_is_refused(options: dict[str, Any], message: str) -> None:
    usual = {"model_type": "xlnet", "architectures": ["XLNetForSequenceClassification"], **SEGMENTED}
    with pytest.raises(UserError, match=message):
        family("xlnet").read_config({**usual, **options})


def test_a_matrix_of_other_heads_is_refused() -> None:
    theirs = model("XLNetModel", SEGMENTED)
    config = family("xlnet").read_config({**theirs.config.to_dict(), "n_head": 5, "d_head": 4})
    with pytest.raises(UserError, match=r"a matrix of attention is \(20, 4, 5\); allowed: width × 5"):
        family("xlnet").keymap(config).load(theirs.state_dict())


def test_texts_and_pairs_are_classified_as_there(tmp_path: Path) -> None:
    """Of several lengths at once, padded on the left there and packed here; and from the folder that is written."""
    tokenizer_folder(tmp_path / "there")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "there")
    sizes = {**SEGMENTED, "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    theirs = shaken(model("XLNetForSequenceClassification", {**sizes, "num_labels": 3})).eval()
    theirs.save_pretrained(tmp_path / "there")
    loaded = load(tmp_path / "there")
    loaded.save_hf(tmp_path / "here")
    written = transformers.AutoTokenizer.from_pretrained(tmp_path / "here")
    again = type(theirs).from_pretrained(tmp_path / "here").eval()
    told = {"return_tensors": "pt", "return_token_type_ids": True}  # which the folder that is written asks for
    texts = [first for first, _ in PAIRS]
    firsts, seconds = zip(*PAIRS, strict=True)
    pairs = TextPairClassification(loaded.tokenizer, loaded.task.labels)
    with torch.inference_mode():
        for given, task, read in (
            (texts, loaded.task, (texts,)),
            (joined(PAIRS), pairs, (list(firsts), list(seconds))),
        ):
            found = ours(task, loaded.model, given)
            assert_close(found, theirs(**tokenizer(*read, padding=True, **told)).logits, **close)
            assert_close(found, again(**written(*read, padding=True, return_tensors="pt")).logits, **close)
    both = tokenizer(*PAIRS[0], return_token_type_ids=True)["token_type_ids"]
    assert both[-1] == 2
    assert written(*PAIRS[0])["token_type_ids"] == both


def test_masks_are_filled_and_taught(tmp_path: Path) -> None:
    """What a mask stands for is transformers' query stream too; a step of training reads the same tokens."""
    tokenizer_folder(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    sizes = {**SEGMENTED, "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    theirs = shaken(model("XLNetLMHeadModel", sizes)).eval()
    theirs.save_pretrained(tmp_path)
    loaded = load(tmp_path)
    assert isinstance(loaded.task, MaskedLM)
    told = tokenizer("the <mask> sat on the <mask>", return_tensors="pt", return_token_type_ids=True)
    at = (told.input_ids[0] == tokenizer.mask_token_id).nonzero().flatten()
    unseen = (told.input_ids == tokenizer.mask_token_id)[:, None].expand(-1, told.input_ids.shape[1], -1).float()
    targets = torch.nn.functional.one_hot(at[None], told.input_ids.shape[1]).float()
    with torch.inference_mode():
        expected = theirs(**told, perm_mask=unseen, target_mapping=targets).logits[0].softmax(-1)
    found = loaded.predict("the <mask> sat on the <mask>")
    for masks, row in zip(found.masks, expected, strict=True):
        assert_close([one.probability for one in masks], row.topk(len(masks)).values.tolist(), **close)
    row = np.array(loaded.tokenizer.plain("the cat sat on the mat"))
    batch = loaded.task.collate([(row,)], random_for("masks"))
    assert batch.read.ids[0, -2:].tolist() == [tokenizer.sep_token_id, tokenizer.cls_token_id]
    assert batch.read.segments is not None
    assert batch.read.segments[0, -1] == 2
    assert batch.read.ids[0, batch.chosen].eq(tokenizer.mask_token_id).any()
    loaded.task.loss(loaded.model, batch).backward()
    assert loaded.model.embed.hidden.grad.abs().max() > 0
