"""The contract of tasks: each implements all of it, says the same in code and registry, and is named nowhere else."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from headway.data.kinds import DataKind
from headway.errors import UserError
from headway.loading import load
from headway.model import Model
from headway.tasks.base import RecordTask, StreamTask, Task, task_class, task_of, tasks_for
from headway.tasks.registry import DATA_WORDS, TASKS, data_kind
from headway.zoo.build import ARCHITECTURES
from headway.zoo.presets import PRESETS
from tests.cli.folders import FOLDERS

METHODS = ("from_model", "collate", "loss", "predict", "evaluate", "validate", "trace")
SOURCES = Path(inspect.getfile(Task)).parents[1]
every = pytest.mark.parametrize("name", TASKS)

# files that may say such a word: it is an architecture's name there, or a word for data that a task shares
ALLOWED = {  # names of architectures, and of what a model folder holds
    "zoo": {"ctc", "seq2seq", "simclr", "whisper"},
    "interop": {"ctc", "whisper"},
    "bench": {"causal_lm", "masked_lm", "seq2seq"},  # what a suite trains, and makes its batches of
    "model.py": {"whisper"},
    "data/tokenizer_files.py": {"whisper"},
    "training/bottleneck.py": {"seq2seq"},
    "training/dataset.py": {"seq2seq"},  # as an example, in an error
}


@every
def test_a_task_implements_the_contract(name: str) -> None:
    task = task_class(name)
    assert issubclass(task, Task)
    assert not inspect.isabstract(task)
    missing = [method for method in METHODS if getattr(task, method, None) is getattr(Task, method)]
    assert missing == []
    assert issubclass(task, RecordTask | StreamTask) or task.data_kind is None or not task.presets_by_size
    if issubclass(task, RecordTask):
        assert callable(task.encode)
        assert isinstance(task.columns, int)
    if issubclass(task, StreamTask):
        assert callable(task.document)


@every
def test_a_task_says_what_it_is(name: str) -> None:
    task, entry = task_class(name), TASKS[name]
    assert (task.name, task.kind, task.objective) == (name, entry.word, entry.objective)
    assert (task.goal, task.needs_labels) == (entry.goal or "embeddings", not entry.unlabelled)
    for said in (task.goal, task.does, task.target):
        assert said
        assert said == said.strip()
    assert len(task.sample_names) == 3
    assert ("" if task.data_kind is None else task.data_kind.name) == entry.data
    assert set(task.architectures) <= set(ARCHITECTURES)
    assert set(task.presets_by_size) <= set(PRESETS)


def test_names_are_unique() -> None:
    classes = [task.__name__ for task in tasks_for(None)]
    assert len(set(classes)) == len(classes)
    assert len({task.name for task in tasks_for(None)}) == len(TASKS)
    learned = [(task.kind, task.objective) for task in tasks_for(None) if task.presets_by_size]
    assert len(set(learned)) == len(learned)
    assert {data_kind(word) for word in DATA_WORDS} == set(DataKind)


def test_a_task_that_nobody_knows_is_told() -> None:
    with pytest.raises(UserError, match=r"no task 'seq2sec'.*did you mean 'seq2seq'"):
        task_class("seq2sec")


@pytest.mark.parametrize("name", [None, "seq2seq", "ctc", "none of ours"])
def test_a_model_of_no_known_kind_is_an_error(name: str | None) -> None:
    """Never a default score: neither answers nor an evaluation."""
    strange = Model(nn.Linear(2, 2), None, "strange", task_name=name)
    with pytest.raises(UserError, match="there is no way to run a Linear"):
        task_of(strange, name)
    for ask in (lambda: strange.predict("a"), lambda: strange.evaluate([("a", "b")]), lambda: strange.attend("a")):
        with pytest.raises(UserError, match="there is no way to run a Linear"):
            ask()


PURPOSES = {
    "pairs": "seq2seq",
    "narrow": "seq2seq",
    "spans": "seq2seq",
    "causal": "causal-lm",
    "masked": "masked-lm",
    "labels": "text-classification",
    "tags": "tagging",
    "vectors": "text-embedding",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_a_model_is_recognised_by_its_head(name: str) -> None:
    """And what it is asked is answered one by one, or not at all."""
    made = FOLDERS[name]()
    assert made.task.name == PURPOSES[name]
    assert made.predict([]) == []
    text = "the [MASK] sat" if name == "masked" else "the cat sat"
    one, [alone] = made.predict(text), made.predict([text])
    assert one.to_dict() == alone.to_dict()
    assert one.to_dict()["input"] == text
    assert one.to_text()


@pytest.mark.slow
def test_the_folder_names_its_task(tmp_path: Path) -> None:
    """An encoder–decoder with sentinels is for pairs or for texts: its folder says which."""
    made = FOLDERS["spans"]()
    for name in ("span-corruption", "seq2seq"):
        replace(made, task_name=name).save(tmp_path / name)
        assert load(tmp_path / name).task.name == name


class Mentions(ast.NodeVisitor):
    """The tasks that a file names: by class, by module, or by name as a text."""

    def __init__(self) -> None:
        self.classes = {task.__name__ for task in tasks_for(None)}
        self.modules = {entry.path.partition(":")[0] for entry in TASKS.values()}
        self.found = set[str]()

    def visit_Name(self, node: ast.Name) -> None:
        self.found |= {node.id} & self.classes

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.found |= {node.attr} & self.classes
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        package, _, module = (node.module or "").rpartition(".")
        names = {alias.name for alias in node.names}
        if package == "headway.tasks" and module in self.modules:
            self.found |= {module, *names & self.classes}
        if node.module == "headway.tasks":
            self.found |= names & self.modules

    def visit_Constant(self, node: ast.Constant) -> None:
        self.found |= {node.value} & set(TASKS) if isinstance(node.value, str) else set()


def mentioned(tree: ast.AST) -> set[str]:
    found = Mentions()
    found.visit(tree)
    return found.found


@pytest.mark.slow
def test_no_file_outside_tasks_names_one() -> None:
    found = dict[str, set[str]]()
    for file in sorted(SOURCES.rglob("*.py")):
        place = file.relative_to(SOURCES).as_posix()
        allowed = ALLOWED.get(place) or ALLOWED.get(place.partition("/")[0]) or set()
        names = mentioned(ast.parse(file.read_text(encoding="utf-8"))) - allowed
        if names and not place.startswith("tasks/"):
            found[place] = names
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(task, Seq2Seq)",
        "isinstance(task, seq2seq.Seq2Seq)",
        "from headway.tasks.forecasting import Forecasting",
        "from headway.tasks import ctc_speech",
        'task.name == "causal-lm"',
    ],
)
def test_a_mention_is_found(text: str) -> None:
    assert mentioned(ast.parse(text))


def test_every_row_of_a_batch_may_be_alone(tmp_path: Path) -> None:
    """Texts of any length, an empty one among them, are answered as one by one."""
    texts = ["the cat sat on the mat", "", "a dog"]
    for name in ("labels", "tags", "vectors"):
        made = FOLDERS[name]()
        for together, text in zip(made.predict(texts), texts, strict=True):
            close(together.to_dict(), made.predict(text).to_dict())


def close(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            close(one[key], other[key])
    elif isinstance(one, list) and one and isinstance(one[0], float):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other))
    elif isinstance(one, float):
        assert one == pytest.approx(other, abs=1e-5)
    else:
        assert one == other
