"""`headway eval` measures what `headway run --lines` writes: the same numbers by reference libraries, task by task."""

from __future__ import annotations

import io
import json
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import soundfile
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.preprocessing import MultiLabelBinarizer
from torch import nn

from headway.cli.main import main
from headway.loading import load
from headway.metrics import captions
from headway.tasks.generation import GenerationOptions
from headway.tasks.registry import TASKS
from headway.training.plan import Plan
from tests.tasks.test_predict_media import whisper_folder
from tests.train.runs import FAMILIES, MORE, data_in, planned

pytestmark = pytest.mark.slow

# families whose answers can be typed in line by line and compared with the data
WRITING = ("transformer", "rnn", "seq2seq", "t5", "dictation", "captions", "glimpses", "described")
ANSWERED = (*WRITING, "speech", "classes", "votes", "tags", "vit", "resnet", "conformer", "sets", "series", "two texts")
SCORED = ("numbers", "scored pairs", "scored images", "scored sounds", "scored series")
STRUCTURED = (*SCORED, "several labels", "questions")  # whose answers are no text
MATCHED = ("clip", "clip over a swin")
# tasks whose scores are no function of what `run` answers, and why
UNANSWERED = {
    "causal-lm": "the loss of every token, not of a continuation",
    "chat-lm": "the loss of the tokens of answers, not of an answer",
    "preference-lm": "which of two answers is likelier, not an answer",
    "masked-lm": "the loss of tokens that are masked at random",
    "span-corruption": "the loss of spans that are masked at random",
    "masked-image": "the error of patches, and `run` gives a vector",
    "simclr": "two views of an image, and `run` gives a vector",
    "media-embedding": "`eval` has nothing to compare a vector with",
    "text-embedding": "`eval` has nothing to compare a vector with",
}
UNANSWERED_FAMILIES = ("gpt2", "llama", "mixtral", "chats", "masked", "spans", "mae", "simmim", "simmim swin", "simclr")


def test_every_family_is_here() -> None:
    assert sorted((*ANSWERED, *STRUCTURED, *MATCHED, "forecast", *UNANSWERED_FAMILIES)) == sorted({**FAMILIES, **MORE})


def test_every_task_is_here() -> None:
    """A new task is compared below, or says why its scores cannot be."""
    compared = {planned(name).task.name for name in (*ANSWERED, *STRUCTURED, *MATCHED, "forecast")} | {"whisper"}
    assert compared | set(UNANSWERED) == set(TASKS)
    assert not compared & set(UNANSWERED)


def error_rate(answers: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """As jiwer counts: the edits of all answers, by the length of all references."""

    def edits(one: Sequence[str], other: Sequence[str]) -> int:
        @cache
        def least(i: int, j: int) -> int:
            if i == 0 or j == 0:
                return i + j
            same = least(i - 1, j - 1) + (one[i - 1] != other[j - 1])
            return min(same, least(i - 1, j) + 1, least(i, j - 1) + 1)

        return least(len(one), len(other))

    return sum(map(edits, answers, references)) / sum(map(len, references))


def split(texts: Sequence[str]) -> list[list[str]]:
    return [text.split() for text in texts]


REFERENCE: dict[str, Callable[[list[str], list[str]], float]] = {
    "bleu": lambda a, r: sacrebleu.corpus_bleu(a, [r]).score,
    "chrf": lambda a, r: sacrebleu.corpus_chrf(a, [r]).score,
    "exact": lambda a, r: float(accuracy_score(r, a)),
    "accuracy": lambda a, r: float(accuracy_score(r, a)),
    "f1": lambda a, r: float(f1_score(r, a, average="macro")),
    "token_accuracy": lambda a, r: float(accuracy_score([*chain(*split(r))], [*chain(*split(a))])),
    "word_error_rate": lambda a, r: error_rate(split(a), split(r)),
    "character_error_rate": error_rate,
}


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("data")) as folder:
        yield folder


class Command:
    """`headway`, with what it prints, and lines on its standard input."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch):
        self.capsys, self.patch = capsys, patch

    def __call__(self, *words: str, lines: Sequence[str] = ()) -> tuple[str, str]:
        self.patch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        self.capsys.readouterr()
        code = main(words)
        out, err = self.capsys.readouterr()
        assert code == 0, err
        return out, err


@pytest.fixture
def headway(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)


def compare(headway: Command, folder: str, data: list[str], lines: list[str], wanted: list[list[str]]) -> Any:
    """The scores of `eval` are those of what `run` writes, whichever of its two formats is read."""
    found = json.loads(headway("eval", folder, *data, "--json")[0])
    told, err = headway("run", folder, "--lines", "--json", lines=lines)
    outputs = [json.loads(line)["output"] for line in told.splitlines()]
    answers = [one if isinstance(one, str) else " ".join(tag for _, tag in one) for one in outputs]
    assert found["count"] == len(answers) == len(wanted)
    if "cider" in found["scores"]:
        names, scores = ["cider", *(f"bleu_{n}" for n in range(1, 5))], found["scores"]
        expected = dict(zip(names, [captions.cider(answers, wanted), *captions.bleu(answers, wanted)], strict=True))
    else:
        scores = found["scores"]
        expected = {name: REFERENCE[name](answers, [one for [one] in wanted]) for name in scores}
    assert scores == pytest.approx(expected, rel=1e-9)
    return found, answers, err


def varied(made: Plan, inputs: list[str]) -> nn.Module:
    """A model with weights so large, and drawn so, that it does not answer all inputs alike."""
    model = made.build().eval()
    for seed in range(30):
        torch.manual_seed(seed)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.6)
        found = list(made.task.predict(model, inputs, GenerationOptions(max_new_tokens=3)))
        if len({json.dumps({**one.to_dict(), "input": "", "probabilities": {}, "score": 0}) for one in found}) > 1:
            return model
    raise AssertionError("every model answers all inputs alike")


@pytest.mark.parametrize("name", ANSWERED)
def test_eval_measures_what_run_writes(name: str, headway: Command) -> None:
    made = planned(name)
    known = [*made.splits.train(), *made.splits.validation()]
    lines = [record.name for record in known]
    model = varied(made, lines[:12])
    made.as_model(model).save(folder := f"model {name}")
    recipe = made.recipe.data
    data = [*recipe.path, "--task", made.task.kind, *(["--label-from", recipe.label_from] if recipe.label_from else [])]
    found, answers, err = compare(headway, folder, data, lines, [list(record.fields[1:]) for record in known])
    assert len(set(answers)) > 1
    if name in WRITING:
        limit = load(folder).extra_config["max_new_tokens"]
        targets = [text for record in made.splits.train() for text in record.fields[1:]]
        tokenizer = made.setup.target_tokenizer
        assert tokenizer is not None
        assert limit == max(map(len, tokenizer.encode_batch(targets))) == found["max_new_tokens"]
        assert f"stopped at the limit of {limit} tokens" in err
        shorter = json.loads(headway("eval", folder, *data, "--json", "--max-new-tokens", "2")[0])
        assert shorter["max_new_tokens"] == 2
        assert shorter["scores"] != found["scores"]
        assert headway("run", folder, lines[0], "--max-new-tokens", "2")[1] == ""  # as it was asked to
    else:
        assert err == ""


def number_scores(answers: list[float], wanted: list[str]) -> dict[str, float]:
    known = list(map(float, wanted))
    return {
        "rmse": float(root_mean_squared_error(known, answers)),
        "mae": float(mean_absolute_error(known, answers)),
        "r2": float(r2_score(known, answers)),
        "pearson": float(pearsonr(known, answers).statistic),
        "spearman": float(spearmanr(known, answers).statistic),
    }


def label_scores(answers: list[list[str]], wanted: list[str]) -> dict[str, float]:
    right = [[label for label in text.split("|") if label] for text in wanted]
    known = MultiLabelBinarizer().fit([*right, *answers])
    a, r = known.transform(answers), known.transform(right)
    averages = {"micro_f1": "micro", "f1": "macro"}
    found = {name: float(f1_score(r, a, average=average, zero_division=0)) for name, average in averages.items()}
    return {**found, "exact": float(accuracy_score(r, a))}


def squad_scores(answers: list[str], wanted: list[str]) -> dict[str, float]:
    """The rules of SQuAD 2.0's evaluation script."""

    def normal(text: str) -> str:
        plain = "".join(sign for sign in text.lower() if sign not in set(string.punctuation))
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", plain).split())

    def f1(answer: str, right: str) -> float:
        a, r = normal(answer).split(), normal(right).split()
        same = sum((Counter(a) & Counter(r)).values())
        if not a or not r:
            return float(a == r)
        return 0.0 if same == 0 else 2 * (same / len(a)) * (same / len(r)) / (same / len(a) + same / len(r))

    rights = [[one["text"] for one in json.loads(text)] or [""] for text in wanted]
    pairs = list(zip(answers, rights, strict=True))
    return {
        "answer_f1": sum(max(f1(a, one) for one in several) for a, several in pairs) / len(pairs),
        "exact_match": sum(any(normal(a) == normal(one) for one in several) for a, several in pairs) / len(pairs),
    }


STRUCTURED_SCORES: dict[str, Callable[[list[Any], list[str]], dict[str, float]]] = {
    **dict.fromkeys(SCORED, number_scores),
    "several labels": label_scores,
    "questions": squad_scores,
}


@pytest.mark.parametrize("name", STRUCTURED)
def test_eval_measures_numbers_labels_and_spans(name: str, headway: Command) -> None:
    made = planned(name)
    known = [*made.splits.train(), *made.splits.validation()]
    lines = [record.name for record in known]
    made.as_model(varied(made, lines[:12])).save(folder := f"model {name}")
    data = [*made.recipe.data.path, "--task", made.task.kind]
    found = json.loads(headway("eval", folder, *data, "--json")[0])
    told = headway("run", folder, "--lines", "--json", lines=lines)[0].splitlines()
    outputs = [json.loads(line)["output"] for line in told]
    assert found["count"] == len(outputs) == len(known)
    assert len(set(map(json.dumps, outputs))) > 1
    expected = STRUCTURED_SCORES[name](outputs, [record.fields[1] for record in known])
    assert found["scores"] == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.long
@pytest.mark.parametrize("name", MATCHED)
def test_eval_ranks_texts_as_run_does(name: str, headway: Command) -> None:
    """Of an image among all texts; an image among all images is nothing that `run` is asked for."""
    made = planned(name)
    known = [*made.splits.train(), *made.splits.validation()]
    made.as_model(made.build().eval()).save(folder := f"model {name}")
    found = json.loads(headway("eval", folder, *made.recipe.data.path, "--task", "captions", "--json")[0])["scores"]
    texts = [text for record in known for text in record.fields[1:]]
    ranks = list[int]()
    for record in known:
        told = json.loads(headway("run", folder, record.name, *texts, "--json")[0])["probabilities"]
        best = max(told[text] for text in record.fields[1:])
        others = [text for other in known if other is not record for text in other.fields[1:]]
        ranks.append(sum(told[text] >= best for text in others))  # one that is as near comes first
    for k in (1, 5, 10):
        assert found[f"texts_{k}"] == pytest.approx(sum(rank < k for rank in ranks) / len(ranks), rel=1e-9)


def test_eval_measures_what_run_foresees(headway: Command) -> None:
    """Every row after those before it, in the units of its column."""
    made = planned("forecast")
    made.as_model(made.build().eval()).save("model forecast")
    [file] = made.recipe.data.path
    head, *rows = Path(file).read_text().splitlines()[:13]
    Path("few.csv").write_text("\n".join([head, *rows]) + "\n")
    found = json.loads(headway("eval", "model forecast", "few.csv", "--json")[0])
    foreseen = list[list[float]]()
    for at in range(1, len(rows)):
        Path("before.csv").write_text("\n".join([head, *rows[:at]]) + "\n")
        told = json.loads(headway("run", "model forecast", "before.csv", "--max-new-tokens", "1", "--json")[0])
        foreseen += told["output"]
    names = head.split(",")
    came = [
        [float(dict(zip(names, row.split(","), strict=True))[name]) for name in found["columns"]] for row in rows[1:]
    ]
    errors = mean_absolute_error(came, foreseen, multioutput="raw_values")
    assert [one["error"] for one in found["columns"].values()] == pytest.approx(errors, rel=1e-5)
    assert found["count"] == len(came)


def test_eval_measures_what_a_whisper_writes(headway: Command, place: Path) -> None:
    whisper_folder(place / "ear")
    (place / "said").mkdir()
    draw, lines = np.random.default_rng(0), list[str]()
    for at in range(6):
        lines.append(f"said/{'abc' * at}x-{at}.wav")
        soundfile.write(lines[-1], draw.normal(0, 0.1, 800 + 300 * at), 8000)
    wanted = [[Path(line).stem.split("-")[0]] for line in lines]
    _, answers, _ = compare(headway, "ear", ["said", "--task", "speech", "--label-from", r"([a-z]+)-"], lines, wanted)
    assert len(set(answers)) > 1
