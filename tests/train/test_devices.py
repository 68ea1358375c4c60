"""Every family on a second device: what it learns, and what its models answer, is what the CPU computes.

The device is simulated (`tests/simulated_device.py`): a tensor that is made on the CPU in the middle of a call raises.
Dropout is off, since its random numbers belong to a device.  Other kernels may be chosen for tensors of another type,
so numbers are equal within `CLOSE`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.generate import session
from headway.generate.beam import Beam
from headway.generate.sampling import RandomSampler
from headway.look.html_page import RecordingView
from headway.look.recording import find_attention_sites
from headway.nn.trunk import device_of
from headway.tasks import base, batches, continuation
from headway.tasks.base import Task
from headway.tasks.batches import to_device
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.language_modelling import LanguageModelling
from headway.tasks.results import BaselineData
from headway.tasks.tracing import TraceOptions
from headway.training import learner
from headway.training.build import evaluator_of, learner_of, require
from headway.training.learner import Learner
from headway.training.plan import Plan, plan
from headway.training.recipe_sources import read_layers
from tests.simulated_device import moved, simulated_device
from tests.train.runs import FAMILIES, MORE, data_in, planned
from tests.train.runs import PACE as RUN_PACE

CLOSE = 1e-5
STEPS = 2
# with a large epsilon, Adam does not make updates of the noise in gradients that are 0
PACE = {"train.dropout": "0", "train.lr": "0.1", "train.eps": "1"}
NO_DROPOUT = {"model.attention_dropout": "0.0", "model.act_dropout": "0.0"}
WAYS = {
    "greedy": GREEDY_OPTIONS,
    "beam": GenerationOptions(Beam(3), max_new_tokens=6),
    "sampled": GenerationOptions(RandomSampler(temperature=0.9, top_k=20, seed=3), max_new_tokens=6),
}


# families whose predictions hardly differ yet: their last digits decide; the predictions themselves are compared
UNSTEADY, CORRELATIONS = ("scored pairs", "scored sounds"), ("pearson", "spearman")
BASE = "chats"  # the family of the model that these go on from
STARTED: dict[str, dict[str, Any]] = {
    "low rank": {"data.path": ("chats.jsonl",), "model.lora": "rank=2,alpha=4"},
    "taught, lengths of rows": {"data.path": ("chats.jsonl",), "train.teacher": "base", "model.lora": "2,dora=true"},
    "preferences": {"data.path": ("preferred.jsonl",)},
}


@pytest.fixture(scope="module", autouse=True)
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("devices")) as folder:
        pairs = [json.loads(line) for line in Path("chats.jsonl").read_text(encoding="utf-8").splitlines()]
        rows = [{"prompt": one["prompt"], "chosen": one["completion"], "rejected": one["prompt"]} for one in pairs]
        Path("preferred.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        base = planned(BASE)
        base.as_model(base.build()).save("base")
        yield folder


def planned_here(name: str, **more: Any) -> Plan:
    """The plan of a family, or of what goes on from a model of one."""
    if name not in STARTED:
        return planned(name, **more)
    data = {"train.batch": "192", "data.max_length": "96", "model.from": "base", "out": "run"}
    return plan(read_layers({**data, **RUN_PACE, **STARTED[name], **more}, environ={}))


@dataclass
class Family:
    """The plan of a family, and its learner after two updates."""

    made: Plan
    learner: Learner
    found: dict[str, Any]

    @property
    def model(self) -> nn.Module:
        return self.learner.model.eval()


def learned(made: Plan, model: nn.Module) -> Family:
    """Two updates of two batches each, with an EMA."""
    with patch.object(Plan, "build", lambda _: model):
        learner = learner_of(made)
    steps = made.encoded.batches(require(made.recipe.train.batch), 2).between(1, 1 + STEPS, 0)
    updates = [learner.learn(step, batches) for step, batches in enumerate(steps, 1)]
    assert not any(update.skipped for update in updates)
    numbers = {f"{kind} {one.step}": getattr(one, kind) for one in updates for kind in ("loss", "norm")}
    return Family(made, learner, numbers)


@lru_cache
def families(name: str) -> tuple[Family, Family]:
    """A family on the CPU, and on the simulated device."""
    config = planned_here(name, **PACE).config
    off = {option: zero for option, zero in NO_DROPOUT.items() if hasattr(config, option.removeprefix("model."))}
    made = planned_here(name, **PACE, **off)
    here, there = made.build(), made.build()
    with simulated_device():
        other = learned(made, moved(there))
    return learned(made, here), other


def assert_same(name: str, answer: Callable[[Family], Any]) -> None:
    """An answer of a family that has learned is the same on both devices."""
    here, other = families(name)
    expected = answer(here)
    with simulated_device() as device:
        assert device_of(other.model) == device
        found = answer(other)
    assert_close(found, expected, name)


def assert_close(found: Any, expected: Any, place: str = "") -> None:
    """Values of any depth are equal: numbers within `CLOSE`, all else exactly."""
    if isinstance(expected, Tensor):
        assert_close(found.detach().cpu().flatten().tolist(), expected.detach().flatten().tolist(), place)
    elif isinstance(expected, dict):
        assert list(found) == list(expected), place
        for name, one in expected.items():
            if not (place.startswith(UNSTEADY) and name in CORRELATIONS):
                assert_close(found[name], one, f"{place}.{name}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), place
        for at, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_close(one, other, f"{place}[{at}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=CLOSE, abs=CLOSE, nan_ok=True), place
    else:
        assert found == expected, place


def training(family: Family) -> dict[str, Any]:
    average = family.learner.average
    assert average is not None
    return {**family.found, "average": average.kept}


def validation(family: Family) -> dict[str, Any]:
    evaluate = evaluator_of(family.made)
    assert evaluate is not None
    return evaluate(family.model).to_dict()


def evaluation(family: Family) -> list[Any]:
    """On records, as `headway eval` does it; then what a report shows besides, and simple methods."""
    made, model, task = family.made, family.model, family.made.task.without_augmentation()
    records = list(islice(made.splits.validation(), 6))
    if not records:  # of one long stream, the end is held out, which is no record
        records = list(made.splits.train())
    if isinstance(task, LanguageModelling):
        task = replace(task, max_length=16)  # pyright: ignore[reportCallIssue, reportArgumentType]
    found = task.evaluate(model, records)
    batches = made.encoded.validation
    details = task.report_details(model, batches, records, found)
    some = next(made.encoded.batches(require(made.recipe.train.batch), 1).between(1, 2, 0))
    data = BaselineData(records, some, records, batches)
    simple = [(one.name, one.scores.numbers) for one in task.baselines(model, data, found)]
    return [found.to_dict(), details.scores.numbers, len(details.samples), simple]


def answers(family: Family, options: GenerationOptions) -> list[Any]:
    task = family.made.task
    return [one.to_dict() for one in task.predict(family.model, inputs_of(task, family.made), options)]


def inputs_of(task: Task, made: Plan) -> list[str]:
    """Inputs of more than one length, of which some are packed."""
    sample = task.sample_input(Path(), 16)
    if task.asks_together:
        return [sample, "a red square", "red"]
    if task.noun == "numbers":
        return [record.handed[0] for record in islice(made.splits.train(), 3)]
    return [sample, *([record.name for record in made.splits.some(2)] if task.takes_files else [])]


def embeddings(family: Family) -> Tensor:
    task = family.made.task
    try:
        return task.embed(family.model, inputs_of(task, family.made)[:1])
    except UserError:
        pytest.skip("gives no vectors")


def recorded(family: Family) -> dict[str, Any]:
    """Every attention map of an input, and what came out; and the page of `headway look`, which must be made."""
    task = family.made.task
    if not find_attention_sites(family.model):
        pytest.skip("has no attention")
    [input, *_], options = inputs_of(task, family.made), TraceOptions(4, 16)
    view = RecordingView.of_input(task, family.model, input, options, title="", architecture="")
    assert "<html" in view.page()
    weights = {name: site.map.full() for name, site in view.sites.items()}
    return {"weights": weights, "text": view.outcome.text, "score": view.outcome.total}


ALL = pytest.mark.parametrize("name", [*FAMILIES, *MORE, *STARTED])


@pytest.mark.long
@ALL
def test_training_is_the_same(name: str) -> None:
    assert_same(name, training)


@pytest.mark.long
@ALL
def test_validation_is_the_same(name: str) -> None:
    assert_same(name, validation)


@pytest.mark.long
@ALL
def test_evaluation_is_the_same(name: str) -> None:
    assert_same(name, evaluation)


@pytest.mark.long
@ALL
@pytest.mark.parametrize("way", WAYS)
def test_answers_are_the_same(name: str, way: str) -> None:
    assert_same(name, partial(answers, options=WAYS[way]))


@pytest.mark.long
@ALL
def test_vectors_are_the_same(name: str) -> None:
    assert_same(name, embeddings)


@pytest.mark.long
@ALL
def test_recordings_are_the_same(name: str) -> None:
    assert_same(name, recorded)


# ---- what turns these red: a tensor that stays on the CPU where it is used


def kept_here(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given, **named: to_device(function(*given, **named), torch.device("cpu"))


DEFECTS: dict[str, tuple[Any, str, Callable[[Family], Any]]] = {
    "a step": (learner, "to_device", lambda one: learned(one.made, one.model)),
    "the loss of validation": (base, "to_device", validation),
    "an embedding": (batches, "to_device", embeddings),
    "prompts": (session, "device_of", partial(answers, options=GREEDY_OPTIONS)),
    "a trace": (continuation, "device_of", recorded),
}


@pytest.mark.slow
@pytest.mark.parametrize("place", DEFECTS)
def test_what_stays_on_the_cpu_is_found(place: str) -> None:
    owner, name, answer = DEFECTS[place]
    planted = (lambda model: torch.device("cpu")) if name == "device_of" else kept_here(getattr(owner, name))
    _, family = families("gpt2")
    with simulated_device(), patch.object(owner, name, planted), pytest.raises(RuntimeError, match="both devices"):
        answer(family)
