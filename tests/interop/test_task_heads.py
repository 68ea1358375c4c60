"""Heads of transformers for pairs, numbers, several labels and answers: the same logits and answers from a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, processors
from torch.testing import assert_close

from headway.data.composed import PAIR
from headway.data.order import random_for
from headway.loading import load
from headway.tasks.batches import PackedBatch
from headway.tasks.multi_label import MultiLabelClassification
from headway.tasks.question_answering import MAX_ANSWER_TOKENS, QuestionAnswering, span_logits
from headway.tasks.text_pairs import TextPairClassification
from headway.tasks.text_regression import TextPairRegression, TextRegression
from tests.tasks.test_structured import TASKS as STRUCTURED
from tests.tasks.test_structured import model_of

transformers: Any = pytest.importorskip("transformers")
WORDS = "the a cat dog sat ran on mat who where what is in rome river old young lives and all day ? .".split()  # noqa: SIM905
VOCAB = {word: at for at, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
PAIRS = [
    ("the cat sat on the mat", "a dog ran"),
    ("the cat sat on the mat and the old dog ran all day in the river", "the cat lives"),
    ("a cat", "the young dog lives in rome and the old dog lives on the river . the cat sat ."),
    ("where is the cat ?", "the cat is in rome ."),
]


def words() -> Any:
    backend = Backend(models.WordLevel(VOCAB, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, mask_token="[MASK]", model_input_names=inputs, **names
    )


def saved(folder: Path, name: str, **config: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    made = transformers.BertConfig(vocab_size=len(VOCAB), max_position_embeddings=64, **sizes, **config)
    model, tokenizer = getattr(transformers, name)(made).eval(), words()
    with torch.no_grad():  # the usual first weights of a head are so small that every answer is the same
        for parameter in (*model.bert.embeddings.parameters(), *list(model.parameters())[-2:]):
            parameter.mul_(20).add_(0.05)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


@torch.inference_mode()
def theirs(model: Any, tokenizer: Any, pairs: list[tuple[str, str]], **options: Any) -> list[torch.Tensor]:
    return [model(**tokenizer(*pair, return_tensors="pt", **options)).logits[0] for pair in pairs]


@torch.inference_mode()
def ours(task: Any, model: Any, texts: list[str]) -> torch.Tensor:
    return PackedBatch.of_texts(model, task.input_rows(texts), task.tokenizer).output(model)


def joined(pairs: list[tuple[str, str]]) -> list[str]:
    return [PAIR.join(pair) for pair in pairs]


def test_pairs_are_read_by_the_template_and_cut_alike(tmp_path: Path) -> None:
    model, tokenizer = saved(tmp_path, "BertForSequenceClassification", num_labels=3)
    loaded = load(tmp_path)
    for longest in (64, 17, 12, 8, 5):
        task = TextPairClassification(loaded.tokenizer, loaded.task.labels, max_length=longest)
        cut = {"truncation": "longest_first", "max_length": longest}
        told = [tokenizer(*pair, **cut) for pair in PAIRS]
        rows = task.input_rows(joined(PAIRS))
        assert [row.ids for row in rows] == [one["input_ids"] for one in told]
        segments = [[int(at >= row.second) for at in range(len(row.ids))] for row in rows]
        assert segments == [one["token_type_ids"] for one in told]
        found = ours(task, loaded.model, joined(PAIRS))
        assert_close(found, torch.stack(theirs(model, tokenizer, PAIRS, **cut)), atol=1e-5, rtol=1e-5)


def test_a_pair_is_answered_as_its_logits_say(tmp_path: Path) -> None:
    names = {0: "entailment", 1: "neutral", 2: "contradiction"}
    model, tokenizer = saved(tmp_path, "BertForSequenceClassification", id2label=names)
    loaded = load(tmp_path)
    found = loaded.predict(joined(PAIRS))  # whether it is for single texts, no config says
    wanted = [names[int(row.argmax())] for row in theirs(model, tokenizer, PAIRS)]
    assert [one.output for one in found] == wanted
    with_tabs = load(tmp_path, task=TextPairClassification).predict(["\t".join(pair) for pair in PAIRS])
    assert [one.probabilities for one in with_tabs] == [one.probabilities for one in found]


def test_a_single_output_is_a_number(tmp_path: Path) -> None:
    model, tokenizer = saved(tmp_path, "BertForSequenceClassification", num_labels=1, problem_type="regression")
    loaded = load(tmp_path)
    assert type(loaded.task) is TextRegression
    texts = [first for first, _ in PAIRS]
    with torch.inference_mode():
        wanted = [float(model(**tokenizer(text, return_tensors="pt")).logits) for text in texts]
    assert_close([one.output for one in loaded.predict(texts)], wanted, atol=1e-5, rtol=1e-5)
    pairs = TextPairRegression.from_model(loaded)
    assert pairs is not None
    assert_close(
        ours(pairs, loaded.model, joined(PAIRS)), torch.stack(theirs(model, tokenizer, PAIRS)), atol=1e-5, rtol=1e-5
    )


def test_several_labels_each_for_itself(tmp_path: Path) -> None:
    names = {0: "sport", 1: "money", 2: "food", 3: "love"}
    kind = "multi_label_classification"
    model, tokenizer = saved(tmp_path, "BertForSequenceClassification", id2label=names, problem_type=kind)
    loaded = load(tmp_path)
    assert type(loaded.task) is MultiLabelClassification
    texts = [first for first, _ in PAIRS]
    found = loaded.predict(texts)
    with torch.inference_mode():
        batch = tokenizer(texts, return_tensors="pt", padding=True)
        wanted = model(**batch, labels=(targets := torch.eye(4)))
    assert_close(torch.tensor([list(one.probabilities.values()) for one in found]), wanted.logits.sigmoid())
    assert {len(one.output) for one in found} != {0}
    assert [set(one.output) for one in found] == [{names[k] for k in range(4) if row[k] > 0} for row in wanted.logits]
    fields = [(text, names[int(row.argmax())]) for text, row in zip(texts, targets, strict=True)]
    rows = [tuple(map(np.array, row)) for row in loaded.task.encode(fields)]
    batch = loaded.task.collate(rows, random_for("unused"))
    assert_close(loaded.task.loss(loaded.model, batch) / batch.targets, wanted.loss)  # the same mean


def spans_by_definition(model: Any, tokenizer: Any, question: str, context: str, longest: int, stride: int) -> tuple:
    """The best span of all windows: as BERT's authors decode, on transformers' own windows, offsets and logits."""
    options = {"truncation": "only_second", "max_length": longest, "stride": stride, "padding": True}
    told = tokenizer(question, context, return_overflowing_tokens=True, return_offsets_mapping=True, **options)
    best, nothing = (-float("inf"), 0, 0), float("inf")
    for at in range(len(told["input_ids"])):
        names = ("input_ids", "token_type_ids", "attention_mask")
        with torch.inference_mode():
            found = model(**{name: torch.tensor([told[name][at]]) for name in names})
        begins, ends = found.start_logits[0].double(), found.end_logits[0].double()
        nothing = min(nothing, float(begins[0] + ends[0]))
        inside = [place for place, text in enumerate(told.sequence_ids(at)) if text == 1]
        for first in inside:
            for last in [place for place in inside if first <= place < first + MAX_ANSWER_TOKENS]:
                offsets = told["offset_mapping"][at]
                best = max(best, (float(begins[first] + ends[last]), -offsets[first][0], offsets[last][1]))
    return best[0] - nothing, -best[1], best[2], len(told["input_ids"])


@pytest.mark.parametrize("name", ["pairs", "scored pairs", "answers"])
def test_a_pair_is_read_there_as_here(name: str, tmp_path: Path) -> None:
    """A folder that is written here has a tokenizer that tells transformers of segments."""
    made, pair = model_of(name), ("the cat sat on the mat", "a dog ran")
    made.save_hf(tmp_path)
    heads = {"answers": transformers.AutoModelForQuestionAnswering}
    model = heads.get(name, transformers.AutoModelForSequenceClassification).from_pretrained(tmp_path).eval()
    told = transformers.AutoTokenizer.from_pretrained(tmp_path)(*pair, return_tensors="pt")
    assert set(told["token_type_ids"].flatten().tolist()) == {0, 1}
    with torch.inference_mode():
        found = model(**told)
    if name == "answers":
        [[window]] = STRUCTURED[name].reader.windows([pair])
        assert window.ids == told["input_ids"][0].tolist()
        read = PackedBatch.of([np.array(window.ids)], [window.second])
        logits = span_logits(made.model, read)[0].T
        assert_close(logits.detach(), torch.cat([found.start_logits, found.end_logits]), atol=1e-5, rtol=1e-5)
    else:
        assert_close(ours(STRUCTURED[name], made.model, [PAIR.join(pair)]), found.logits, atol=1e-5, rtol=1e-5)


LONG = "the cat sat on the mat and the old dog ran in rome . the young dog lives on the river . a cat is in the river ."
QUESTIONS = [("where is the dog ?", LONG), ("who sat ?", "The  CAT sat."), ("what is on the mat ?", f"{LONG} {LONG}")]


@pytest.mark.parametrize(("longest", "stride"), [(64, 16), (20, 6)])
def test_answers_are_those_of_their_logits(
    tmp_path: Path, longest: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.tasks.question_answering.STRIDE", stride)
    model, tokenizer = saved(tmp_path, "BertForQuestionAnswering")
    loaded = load(tmp_path)
    assert loaded.task.name == "question-answering"
    task = QuestionAnswering(loaded.tokenizer, answerable=True, max_length=longest)
    found = list(task.predict(loaded.model, joined(QUESTIONS)))
    for (question, context), one in zip(QUESTIONS, found, strict=True):
        score, begin, end, windows = spans_by_definition(model, tokenizer, question, context, longest, stride)
        assert len(next(task.reader.windows([(question, context)]))) == windows
        assert_close(one.score, score, atol=1e-4, rtol=1e-5)
        assert (one.start, one.end, one.output) == (begin, end, context[begin:end])
    careful = QuestionAnswering(loaded.tokenizer, answerable=False, max_length=longest)
    said = [one.output for one in careful.predict(loaded.model, joined(QUESTIONS))]
    assert said == [one.output if one.score > 0 else "" for one in found]


def test_the_loss_of_spans_is_theirs(tmp_path: Path) -> None:
    model, tokenizer = saved(tmp_path, "BertForQuestionAnswering")
    loaded = load(tmp_path)
    question, context = QUESTIONS[0]
    begin = context.index("in rome")
    [row] = loaded.task.encode([(f"{question}{PAIR}{context}", f'[{{"text": "in rome", "answer_start": {begin}}}]')])
    batch = loaded.task.collate([tuple(map(np.array, row))], random_for("unused"))
    told = tokenizer(question, context, return_tensors="pt")
    first, last = told.char_to_token(0, begin, 1), told.char_to_token(0, begin + len("in rome") - 1, 1)
    assert batch.wanted.tolist() == [[first, last]]
    with torch.inference_mode():
        wanted = model(**told, start_positions=torch.tensor([first]), end_positions=torch.tensor([last])).loss
        assert_close(loaded.task.loss(loaded.model, batch), wanted)
