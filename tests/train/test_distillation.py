"""A model that learns from a teacher: the loss is Hinton's, the teacher stays, and a cut run is the whole one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from headway.cli.main import main
from headway.errors import UserError
from headway.loading import load
from headway.ops.losses import distillation_loss
from headway.tasks import distillation
from headway.tasks.distillation import Distillation
from headway.tasks.model_parts import named_classes
from headway.training.api import train
from headway.training.build import batches_of, describe_choices, learner_of
from headway.training.plan import Plan
from headway.training.recipe_sources import check_recipe, read_layers, resolve
from headway.training.resuming import resumed_plan
from headway.training.run import begin
from tests.train.disks import same
from tests.train.runs import STEPS, Trial, data_in, planned

FAST = ("gpt2", "classes")
MORE = ("masked", "spans", "chats", "transformer", "two texts", "tags", "vit", "conformer", "series")
T, WEIGHT = 3.0, 0.3


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with data_in(tmp_path_factory.mktemp("data")):
        yield


def teacher(name: str) -> str:
    """The folder of a model to learn from, wider than those that learn."""
    folder = f"{name} teacher"
    if not Path(folder).exists():
        saved(folder, name, seed="7", **{"model.dim": "24"})
    return folder


def saved(folder: str, name: str, **more: Any) -> str:
    made = planned(name, **more)
    made.as_model(made.build()).save(folder)
    return folder


def taught(name: str, **more: Any) -> Plan:
    """A run that learns from a teacher."""
    own = {"data.tokenizer": "None"} if name == "transformer" else {}
    how = {"train.teacher_temperature": str(T), "train.teacher_weight": str(WEIGHT)}
    return planned(name, **{"train.teacher": teacher(name), **own, **how, **more})


def by_hand(own: Tensor, wanted: Tensor) -> Tensor:
    """T² Σ p (log p − log q)."""
    p, q = (wanted / T).softmax(-1), (own / T).softmax(-1)
    return T * T * (p * (p.log() - q.log())).sum()


def loss_of(made: Plan) -> Distillation:
    assert made.teacher is not None
    found = made.teacher.loss(made.task, made.recipe)
    assert (found.temperature, found.weight) == (T, WEIGHT)
    return found


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    named = dict(model.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {name: one for name, one in zip(named, found, strict=True) if one is not None}  # pyright: ignore[reportUnnecessaryComparison]


@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)])
def test_the_gradient_is_that_of_the_formula(name: str) -> None:
    made = taught(name)
    model, loss, batch = made.build().eval(), loss_of(made), next(batches_of(made)(1, 2))[0]
    found = loss(model, batch)
    own, told = (loss.task.predicted(one, batch) for one in (model, loss.teacher))
    formula = (1 - WEIGHT) * made.task.loss(model, batch) + WEIGHT * by_hand(
        own.head(own.features), told.head(told.features)
    )
    assert_close(found, formula)
    assert_close(gradients(model, found), gradients(model, formula))
    assert len(own.features) == batch.targets


def test_the_logits_are_those_of_the_model() -> None:
    """Of each token that is to be predicted, of each text, and of each word at its first piece."""
    made = taught("gpt2")
    model, loss, batch = made.build().eval(), loss_of(made), next(batches_of(made)(1, 2))[0]
    rows = [torch.cat([one(ids[None])[0] for ids in batch.read.split()]) for one in (model, loss.teacher)]
    wanted = (1 - WEIGHT) * F.cross_entropy(rows[0], batch.wanted, reduction="sum") + WEIGHT * by_hand(*rows)
    assert_close(loss(model, batch), wanted)
    made = taught("tags")
    model, loss, batch = made.build().eval(), loss_of(made), next(batches_of(made)(1, 2))[0]
    rows = [
        torch.cat([one(ids[None])[0] for ids in batch.read.split()])[batch.wanted >= 0] for one in (model, loss.teacher)
    ]
    hard = F.cross_entropy(rows[0], batch.wanted[batch.wanted >= 0], reduction="sum")
    assert_close(loss(model, batch), (1 - WEIGHT) * hard + WEIGHT * by_hand(*rows))


def test_the_loss_by_hand() -> None:
    """p = (¾, ¼) and q = (½, ½): KL = ¾ log 3/2 + ¼ log ½ at any T, since logits are multiplied by it, too."""
    kl = 0.75 * torch.tensor(1.5).log() + 0.25 * torch.tensor(0.5).log()
    for temperature in (1.0, 4.0):
        teacher = temperature * torch.tensor([[3.0, 1.0], [1.0, 3.0]]).log()
        found = distillation_loss(torch.zeros(2, 2), teacher, temperature)
        assert_close(found, 2 * temperature**2 * kl)
    assert distillation_loss(teacher, teacher, 2.0) == 0
    with pytest.raises(UserError, match=r"logits 2×2 of a student and 1×2 of its teacher"):
        distillation_loss(teacher, teacher[:1], 2.0)
    with pytest.raises(UserError, match=r"temperature=0"):
        distillation_loss(teacher, teacher, 0.0)


@pytest.mark.parametrize("name", ["gpt2", "masked", "classes"])
def test_targets_in_parts_give_the_loss_of_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = taught(name)
    model, loss, batch = made.build().eval(), loss_of(made), next(batches_of(made)(1, 2))[0]
    whole = loss(model, batch)
    monkeypatch.setattr(distillation, "MAX_LOGITS", 600)
    parts = loss(model, batch)
    assert_close(parts, whole)
    assert_close(gradients(model, parts), gradients(model, whole))


def test_the_teacher_learns_nothing_and_drops_nothing_out() -> None:
    made = taught("classes")
    assert made.teacher is not None
    teacher = made.teacher.model.model
    before, learner = {name: one.clone() for name, one in teacher.state_dict().items()}, learner_of(made)
    modes = set[bool]()

    def note(part: nn.Module, inputs: Any, out: Tensor) -> None:
        modes.add(part.training or torch.is_grad_enabled())

    teacher.register_forward_hook(note)
    for number, batches in enumerate(batches_of(made)(1, 4), 1):
        learner.learn(number, batches)
    assert modes == {False}
    assert all(torch.equal(before[name], one) for name, one in teacher.state_dict().items())
    assert not any(one.requires_grad or one.grad is not None for one in teacher.parameters())
    assert learner.tensors()["model"].keys() == learner_of(planned("classes")).tensors()["model"].keys()


def test_the_teacher_computes_in_the_precision_of_the_run() -> None:
    made = taught("gpt2", **{"train.dtype": "bf16"})
    assert made.teacher is not None
    learner, seen = learner_of(made), set[torch.dtype]()
    layer = next(part for part in made.teacher.model.model.modules() if type(part) is nn.Linear)

    def note(part: nn.Module, inputs: Any, out: Tensor) -> None:
        seen.add(out.dtype)

    layer.register_forward_hook(note)
    learner.learn(1, next(batches_of(made)(1, 2)))
    assert seen == {torch.bfloat16}


def test_a_new_model_takes_the_tokenizer_and_the_preprocessing(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("transformer", "gpt2", "classes", "vit"):
        made, teacher = taught(name), load(f"{name} teacher")
        setup = made.setup
        for own, theirs in ((setup.tokenizer, teacher.tokenizer), (setup.preprocess, teacher.preprocess)):
            assert str(own and getattr(own, "roles", own)) == str(theirs and getattr(theirs, "roles", theirs))
        if setup.tokenizer is not None and teacher.tokenizer is not None:
            assert setup.tokenizer.backend.to_str() == teacher.tokenizer.backend.to_str()
        assert any("teacher " in line and "T = 3, weight 0.3" in line for line in describe_choices(made))
        assert any("those of the teacher" in line for line in describe_choices(made)) == (setup.tokenizer is not None)


def test_classes_in_another_order_are_those_of_the_data() -> None:
    made = taught("classes")
    model, batch = made.build().eval(), next(batches_of(made)(1, 2))[0]
    expected = loss_of(made)(model, batch)
    turned = load(teacher("classes"))
    with torch.no_grad():
        for one in turned.model.head.out.parameters():  # type: ignore[union-attr]
            one.copy_(one.flip(0))
    replace(turned, extra_config=named_classes(["up", "down"])).save("turned teacher")
    other = taught("classes", **{"train.teacher": "turned teacher"})
    assert_close(loss_of(other)(model, batch), expected)


def test_of_padded_vocabularies_the_words_count_that_both_have() -> None:
    made = taught("gpt2")
    model, loss, batch = made.build().eval(), loss_of(made), next(batches_of(made)(1, 2))[0]
    own, told = (loss.task.predicted(one, batch) for one in (model, loss.teacher))
    padded = told._replace(head=lambda x: F.pad(told.head(x), (0, 5)))  # type: ignore[attr-defined]
    assert_close(loss.soft_loss(own, padded), loss.soft_loss(own, told))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "vit"])
def test_a_run_cut_twice_is_the_run_that_was_not(name: str, memory: Path) -> None:
    whole, cut = Trial(taught(name), memory / "whole"), Trial(taught(name), memory / "cut")
    for trial in (whole, cut):
        trial.folder.mkdir()
    assert whole.run().step == STEPS
    cut.run(7)
    cut.run(13, resume=True)
    cut.made = taught(name)
    cut.run(resume=True)
    assert cut.left()[1] == whole.left()[1]
    assert same(cut.left()[0], whole.left()[0])


def test_a_teacher_that_has_changed_ends_the_run() -> None:
    saved("changing", "gpt2", seed="7")
    begin(taught("gpt2", **{"train.teacher": "changing", "out": "begun"}))
    assert resumed_plan(read_layers({"out": "begun"}, environ={})).recipe.train.teacher == Path("changing")
    saved("changing", "gpt2", seed="8")
    with pytest.raises(UserError, match=r"changing/model.safetensors has changed since this run began"):
        resumed_plan(read_layers({"out": "begun"}, environ={}))


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("classes", {"train.teacher": "gpt2 teacher"}, "gpt2 teacher is no model for this task (text-classification)"),
        ("gpt2", {"train.teacher": "vit teacher"}, "vit teacher is no model for this task (causal-lm)"),
        ("gpt2", {"data.tokenizer": "bpe"}, "data.tokenizer bpe with train.teacher, whose tokenizer the model takes"),
        ("gpt2", {"data.max_length": "200"}, "gpt2 teacher reads 24 tokens, and rows have up to 200"),
        ("gpt2", {"model.from": "words", "model.preset": "None"}, "gpt2 teacher has another tokenizer than the model"),
        ("vit", {"model.from": "large", "model.preset": "None"}, "vit teacher has another preprocessing than"),
        ("classes", {"data.path": ("other.csv",)}, "knows the classes down, up, and the data has down, north"),
        ("several labels", {"train.teacher": "classes teacher"}, "this task (multi-label-classification) give neither"),
        ("clip", {"train.teacher": "vit teacher"}, "this task (image-text-contrastive) give neither words nor classes"),
        ("gpt2", {"train.teacher": "low"}, "low holds int8 weights"),
    ],
)
def test_teachers_that_do_not_fit_are_refused(name: str, more: dict[str, Any], said: str) -> None:
    for one in ("gpt2", "vit", "classes"):
        teacher(one)
    others = {"words": ("gpt2", {"data.tokenizer": "words"}), "large": ("vit", {"model.image": "16"})}
    for folder in others.keys() & {str(value) for value in more.values()}:
        saved(folder, others[folder][0], **others[folder][1])
    if "low" in more.values():
        load("gpt2 teacher", dtype="int8").save("low")
    Path("other.csv").write_text(Path("labels.csv").read_text().replace("up", "north"))
    with pytest.raises(UserError) as caught:
        planned(name, **{"train.teacher": f"{name} teacher", **more})
    assert said in str(caught.value)
    assert not Path("run").exists()


def test_settings_without_a_teacher_are_refused() -> None:
    for name in ("teacher_temperature", "teacher_weight"):
        with pytest.raises(UserError, match=rf"^train.{name} without train.teacher; give train.teacher too"):
            check_recipe(resolve(read_layers({"data.path": "labels.csv", f"train.{name}": "1"}, None, {})))


def test_the_command_refuses_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "labels.csv", "--teacher", teacher("gpt2"), "--out", "nothing"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "error: --teacher gpt2 teacher is no model for this task (text-classification); give one that is" in said
    assert main(["train", "labels.csv", "--teacher", "nowhere", "--out", "nothing"]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err
    assert not Path("nothing").exists()


@pytest.mark.long
def test_a_small_model_learns_more_from_a_teacher_than_from_little_text() -> None:
    """Of the same few texts of a random chain of letters: a teacher that has read many knows its probabilities."""
    draw = np.random.default_rng(3)
    chain = draw.dirichlet(np.full(12, 0.3), 12)

    def text(letters: int) -> str:
        found = [0]
        while len(found) < letters:
            found.append(int(draw.choice(12, p=chain[found[-1]])))
        return "".join(chr(ord("a") + one) for one in found) + "\n"

    for name, count in (("many", 300), ("few", 6), ("held", 40)):
        Path(f"{name}.txt").write_text("".join(text(100) for _ in range(count)))
    shared = {"validation": "held.txt", "preset": "gpt-nano", "heads": 2, "max_length": 32, "batch": 512, "threads": 1}
    shared |= {"dropout": 0.0, "quiet": True, "dtype": "fp32", "lr": 0.01}

    def loss(name: str, **more: Any) -> float:
        train(f"{more.pop('data')}.txt", out=name, **shared, **more)
        return json.loads(Path(name, "scores.json").read_text())["scores"]["loss"]

    wise = loss("wise", data="many", steps=300, dim=32, layers=2)
    alone = loss("alone", data="few", steps=500, dim=32, layers=1)
    with_teacher = loss("taught", data="few", steps=500, dim=32, layers=1, teacher="wise", teacher_weight=1.0)
    assert with_teacher == pytest.approx(wise, abs=0.05)
    assert with_teacher < alone - 0.1  # 1.67 and 1.84
