"""`headway eval`: its numbers are those of a direct computation, however the data is cut, ordered or packed.

Axes:  N tokens   V vocabulary   K classes
"""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from headway import evaluation
from headway.data.builtin import DateSplit, dates
from headway.data.tokenizer import Tokenizer
from headway.generate.beam import Beam
from headway.model import Model
from headway.tasks import language_modelling, seq2seq, text_rows
from headway.tasks.generation import GenerationOptions
from headway.tasks.language_modelling import own_random, runs
from headway.tasks.masked_lm import MaskedLM
from headway.tasks.seq2seq import Seq2Seq
from headway.tasks.span_corruption import SpanCorruption
from headway.tasks.tagging import Tagging
from tests.cli.conftest import Run
from tests.cli.folders import (
    CONTEXT,
    LABELS,
    TAGS,
    documents,
    jsonl,
    marks,
    named_lines,
    pair_lines,
    saved,
    tagged_lines,
    worded_lines,
)

pytestmark = pytest.mark.slow  # whole runs

# ---- what a model writes


def test_pairs_are_measured_as_sacrebleu_measures_the_answers(
    models: dict[str, Model], measured: Run, tmp_path: Path
) -> None:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    lines = worded_lines(models, 14)
    found = measured("pairs", saved(tmp_path / "pairs.tsv", lines), "--task", "translation")
    sources, wanted = zip(*(line.split("\t") for line in lines), strict=True)
    answers = alone(models["pairs"], sources)
    scores = found["scores"]
    assert list(scores) == ["bleu", "chrf", "exact"]
    assert scores["bleu"] == pytest.approx(BLEU().corpus_score(answers, [list(wanted)]).score)
    assert scores["chrf"] == pytest.approx(CHRF().corpus_score(answers, [list(wanted)]).score)
    right = [a == w for a, w in zip(answers, wanted, strict=True)]
    assert scores["exact"] == sum(right) / len(right)
    assert scores["bleu"] > 10
    assert 0 < sum(right) < 14
    assert found["signatures"]["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert found["signatures"]["chrf"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    assert (found["count"], found["task"], found["unit"]) == (14, "translation", "words")
    assert sum(bucket["count"] for bucket in found["by_length"]) == 14


def alone(loaded: Model, sources: Any, **wish: Any) -> list[str]:
    """Each text answered by itself."""
    return [loaded.run(source, GenerationOptions(**wish))["output"] for source in sources]


def test_a_notation_is_measured_by_its_signs(models: dict[str, Model], measured: Run, tmp_path: Path) -> None:
    found = measured("pairs", saved(tmp_path / "pairs.tsv", pair_lines(models, 60)), "--task", "translation")
    assert list(found["scores"]) == ["word_error_rate", "exact"]


def test_a_beam_is_another_way_to_write(models: dict[str, Model], measured: Run, tmp_path: Path) -> None:
    lines = pair_lines(models, 14)
    sources, wanted = zip(*(line.split("\t") for line in lines), strict=True)
    found = measured("pairs", saved(tmp_path / "p.tsv", lines), "--task", "translation", "--beam", "3")
    answers = alone(models["pairs"], sources, decoding=Beam(3))
    assert found["scores"]["exact"] == sum(a == w for a, w in zip(answers, wanted, strict=True)) / 14


def test_parallel_files_are_pairs(models: dict[str, Model], measured: Run, tmp_path: Path) -> None:
    lines = pair_lines(models, 14)
    sides = [list(side) for side in zip(*(line.split("\t") for line in lines), strict=True)]
    left, right = saved(tmp_path / "a.en", sides[0]), saved(tmp_path / "a.de", sides[1])
    one = measured("pairs", saved(tmp_path / "p.tsv", lines), "--task", "translation")
    assert measured("pairs", "--source", left, "--target", right)["scores"] == one["scores"]


def test_the_embedded_dates_are_measured_also_in_unseen_ways(
    measured: Run, monkeypatch: pytest.MonkeyPatch, models: dict[str, Model]
) -> None:
    monkeypatch.setattr(evaluation, "DATES", 12)
    found = measured("spans", "dates")
    pairs = dates(0, 12, part=DateSplit.UNSEEN)
    answers = alone(models["spans"], [source for source, _ in pairs])
    assert (found["count"], found["unseen"]["count"]) == (12, 12)
    assert list(found["scores"]) == ["exact", "character_error_rate"]
    assert found["unseen"]["scores"]["exact"] == sum(a == w for a, (_, w) in zip(answers, pairs, strict=True)) / 12
    assert found["unseen"]["scores"]["character_error_rate"] != found["scores"]["character_error_rate"]


def test_a_prefix_of_training_stands_before_every_source(models: dict[str, Model]) -> None:
    plain = models["pairs"]
    prefixed = replace(plain, extra_config={**plain.extra_config, "prefix": "red big "})
    task = prefixed.task
    assert isinstance(task, Seq2Seq)
    assert task.sources(["cat"]) == [task.tokenizer.encode("red big cat")]
    assert prefixed.predict("cat").output == plain.predict("red big cat").output


# ---- what a model names


def test_classes_are_counted(models: dict[str, Model], measured: Run, tmp_path: Path) -> None:
    lines = named_lines(LABELS, 30)
    found = measured("labels", saved(tmp_path / "labels.tsv", lines))
    pairs = [line.split("\t") for line in lines]
    answers = [models["labels"].run(text)["output"] for text, _ in pairs]
    right = sum(answer == label for answer, (_, label) in zip(answers, pairs, strict=True))
    assert found["scores"]["accuracy"] == right / 30
    assert {label: found["classes"][label]["count"] for label in LABELS} == {
        label: sum(one == label for _, one in pairs) for label in LABELS
    }
    assert 0 < answers.count("good") < 30
    assert (found["count"], found["task"], found["unit"], found["cut"]) == (30, "classification", "words", 0)


def test_tags_are_counted_at_each_word(models: dict[str, Model], measured: Run, tmp_path: Path) -> None:
    lines = tagged_lines(30, longest=5)
    found = measured("tags", saved(tmp_path / "tags.tsv", lines), "--task", "tagging")
    known, model = models["tags"].tokenizer, models["tags"].model
    assert known is not None
    task, right, count = Tagging(known, TAGS), 0, 0
    for text, tags in (line.split("\t") for line in lines):
        [[row, classes]] = task.encode([(text, tags)])
        with torch.no_grad():
            picks = model(torch.tensor([row])).argmax(-1)[0]
        said = [TAGS[pick] for pick, label in zip(picks.tolist(), classes, strict=True) if label]
        right, count = right + sum(map(str.__eq__, said, tags.split())), count + len(said)
    assert found["scores"]["token_accuracy"] == right / count
    assert "span_f1" in found["scores"]
    assert (found["count"], found["cut"]) == (30, 0)


def test_long_texts_are_cut_as_in_training_and_counted(measured: Run, tmp_path: Path) -> None:
    lines = [*named_lines(LABELS, 8), f"{'the cat sat ' * 9}\tgood"]
    assert measured("labels", saved(tmp_path / "labels.tsv", lines))["cut"] == 1
    tags = [*tagged_lines(8, 3), f"{' '.join(['cat'] * 30)}\t{' '.join(['O'] * 30)}"]
    found = measured("tags", saved(tmp_path / "tags.tsv", tags), "--task", "tagging")
    assert found["cut"] == 1
    assert found["classes"]["O"]["count"] < sum(line.count("O") for line in tags)


# ---- how well a model foresees texts


@torch.no_grad()
def plain_losses(model: torch.nn.Module, ids: list[int], context: int) -> Tensor:
    """The cross-entropy of each token but the first, N, window after window."""
    losses = list[Tensor]()
    for at in range(0, len(ids) - 1, context):
        row = torch.tensor([ids[at : at + context + 1]])
        losses.append(F.cross_entropy(model(row[:, :-1])[0], row[0, 1:], reduction="none"))
    return torch.cat(losses).double()


def framed(known: Tokenizer, text: str) -> list[int]:
    return [known.bos or 0, *known.plain(text), known.eos or 0]


def test_perplexity_is_that_of_a_plain_loop(models: dict[str, Model], measured: Run, tmp_path: Path) -> None:
    texts = documents()
    found = measured("causal", jsonl(tmp_path / "texts.jsonl", texts))
    known = models["causal"].tokenizer
    assert known is not None
    losses = [plain_losses(models["causal"].model, framed(known, text), CONTEXT) for text in texts]
    total, tokens = float(torch.cat(losses).sum()), sum(map(len, losses))
    size = sum(len(text.encode()) for text in texts)
    assert tokens == size + len(texts)  # every letter, and the end
    assert found["scores"] == {
        "perplexity": pytest.approx(math.exp(total / tokens), rel=1e-5),
        "byte_perplexity": pytest.approx(math.exp(total / size), rel=1e-5),
        "bits_per_byte": pytest.approx(total / size / math.log(2), rel=1e-5),
        "loss": pytest.approx(total / tokens, rel=1e-5),
    }
    assert (found["count"], found["things"], found["texts"]) == (tokens, "tokens", len(texts))
    assert (found["task"], found["objective"]) == ("language", "causal")
    assert (found["window"], found["unit"]) == (CONTEXT, "tokens")
    assert {one["n"] for one in found["intervals"].values()} == {tokens}
    short = found["by_length"][0]
    inside = [loss for loss in losses if len(loss) <= 16]
    assert (short["last"], short["count"]) == (16, sum(map(len, inside)))
    assert short["scores"]["loss"] == pytest.approx(float(torch.cat(inside).mean()), rel=1e-5)


def test_a_folder_of_files_is_as_many_documents(measured: Run, tmp_path: Path) -> None:
    texts = [text.strip() for text in documents()]
    for at, text in enumerate(texts):
        (tmp_path / f"{at}.txt").write_text(text)
    table = jsonl(tmp_path / "texts.jsonl", texts)
    assert measured("causal", tmp_path)["scores"] == pytest.approx(measured("causal", table)["scores"], rel=1e-6)


def test_masked_words_are_asked_for(models: dict[str, Model], measured: Run, tmp_path: Path) -> None:
    texts = documents()
    found = measured("masked", jsonl(tmp_path / "texts.jsonl", texts))
    known, model = models["masked"].tokenizer, models["masked"].model
    assert known is not None
    task = MaskedLM(known, shown=(1.0, 0.0))
    loss, count, right = 0.0, 0, 0
    for text in texts:
        for row in np.split(np.array(known.plain(text)), range(CONTEXT - 2, 999, CONTEXT - 2)):
            if len(row):
                hidden = task.hidden(row, own_random(row))
                assert (hidden.read[hidden.chosen] == known.mask).all()
                with torch.no_grad():
                    logits = model(torch.tensor(hidden.read)[None])[0, hidden.chosen]
                loss += float(F.cross_entropy(logits, torch.tensor(hidden.wanted), reduction="sum"))
                right += int((logits.argmax(-1).numpy() == hidden.wanted).sum())
                count += len(hidden.wanted)
    assert found["scores"] == {
        "perplexity": pytest.approx(math.exp(loss / count), rel=1e-5),
        "token_accuracy": right / count,
        "loss": pytest.approx(loss / count, rel=1e-5),
    }
    assert found["objective"] == "masked"


def test_spans_are_asked_for_where_a_model_has_marks(models: dict[str, Model], measured: Run, tmp_path: Path) -> None:
    texts = documents()
    found = measured("spans", jsonl(tmp_path / "texts.jsonl", texts))
    known, model = models["spans"].tokenizer, models["spans"].model
    assert known is not None
    task = SpanCorruption(known, known.bos or 0, marks(models["spans"]))
    loss, count = 0.0, 0
    for text in texts:
        row = np.array(known.plain(text))
        assert len(row) < 512
        source, target = (torch.tensor(side) for side in task.corrupted(row, own_random(row)))
        read = torch.cat([torch.tensor([task.start_token]), target[:-1]])
        with torch.no_grad():
            loss += float(F.cross_entropy(model(source[None], read[None])[0], target, reduction="sum"))
        count += len(target)
    assert found["scores"]["loss"] == pytest.approx(loss / count, rel=1e-5)
    assert found["objective"] == "span"


@pytest.mark.parametrize("again", [0, 1])
@pytest.mark.parametrize("cuts", [(), (1,), (3, 4), (5, 10), (2, 2, 9)])
@pytest.mark.parametrize("total", [1, 4, 5, 6, 9, 13, 17])
def test_windows_cover_a_text_however_it_comes(total: int, cuts: tuple[int, ...], again: int) -> None:
    size = 5
    pieces = [part.tolist() for part in np.split(np.arange(total), cuts)]
    found = [row.tolist() for row in runs(pieces, size, again)]
    assert [id for at, row in enumerate(found) for id in row[again if at else 0 :]] == list(range(total))
    assert all(len(row) == size for row in found[:-1])
    assert len(found[-1]) > (again if len(found) > 1 else 0)
    assert all(later[:again] == row[len(row) - again :] for row, later in pairwise(found))


# ---- laws

DATA: dict[str, Callable[[dict[str, Model]], list[str]]] = {
    "pairs": lambda models: worded_lines(models, 14),
    "labels": lambda models: named_lines(LABELS, 30),
    "tags": lambda models: tagged_lines(30),
    "causal": lambda models: [json.dumps({"text": text}) for text in documents()],
    "masked": lambda models: [json.dumps({"text": text}) for text in documents()],
    "spans": lambda models: [json.dumps({"text": text}) for text in documents()],
}
TASK = {"pairs": "translation", "labels": "classification", "tags": "tagging"}
every = pytest.mark.parametrize("name", DATA)


def numbers(found: Any) -> Iterator[tuple[str, float]]:
    """All numbers of a report, by their paths."""
    pairs = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, value in pairs:
        if isinstance(value, int | float):
            yield str(key), value
        yield from ((f"{key}.{path}", number) for path, number in numbers(value))


def same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    assert len(dict(numbers(one))) > 4
    return dict(numbers(one)) == pytest.approx(dict(numbers(two)), rel=1e-5)


def prepared(name: str, models: dict[str, Model], folder: Path) -> tuple[Path, list[str]]:
    path = saved(folder / f"data.{'tsv' if name in TASK else 'jsonl'}", DATA[name](models))
    return path, ["--task", TASK.get(name, "language")]


@every
def test_batches_change_nothing(
    name: str, models: dict[str, Model], measured: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, options = prepared(name, models, tmp_path)
    found = measured(name, path, *options)
    for together, many, tokens in ((1, 1, 1), (3, 5, 40), (7, 11, 100)):
        for answers in (seq2seq, text_rows):
            monkeypatch.setattr(answers, "ANSWERED_TOGETHER", together)
        monkeypatch.setattr(seq2seq, "READ_TOGETHER", many)
        monkeypatch.setattr(language_modelling, "BATCH_TOKENS", tokens)
        assert same(found, measured(name, path, *options))


@every
def test_the_order_of_the_data_changes_nothing(
    name: str, models: dict[str, Model], measured: Run, tmp_path: Path
) -> None:
    path, options = prepared(name, models, tmp_path)
    found = measured(name, path, *options)
    lines = DATA[name](models)
    random.Random(0).shuffle(lines)
    assert same(found, measured(name, saved(path.with_stem("other"), lines), *options))


@every
def test_packed_data_is_read(name: str, models: dict[str, Model], measured: Run, tmp_path: Path) -> None:
    path, options = prepared(name, models, tmp_path)
    packed = tmp_path / f"{path.name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert measured(name, packed, *options)["scores"] == measured(name, path, *options)["scores"]


@pytest.mark.parametrize("name", ["causal", "masked", "labels", "tags"])
def test_folders_of_hugging_face_are_measured_alike(
    name: str, models: dict[str, Model], measured: Run, tmp_path: Path
) -> None:
    models[name].save_hf(tmp_path / "theirs")
    path, options = prepared(name, models, tmp_path)
    assert same(measured(tmp_path / "theirs", path, *options), measured(name, path, *options))
