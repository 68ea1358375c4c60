"""The teacher of a run, `train.teacher`: a trained model whose probabilities another learns (`tasks/distillation.py`).

A model that has no tokenizer or preprocessing of its own takes the teacher's.  A teacher that reads its inputs
otherwise, or that knows other classes, is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from headway.dtype import INT8
from headway.errors import UserError, listed
from headway.generate.request import generation_settings
from headway.generate.session import context_of
from headway.loading import load
from headway.model import Model
from headway.nn.trunk import Trunk, device_of, tensors_of
from headway.recipe import Recipe
from headway.tasks.base import Task
from headway.tasks.distillation import Distillation, PredictsTargets
from headway.tasks.model_parts import class_list
from headway.tasks.text_tasks import given

TEMPERATURE, WEIGHT = 2.0, 0.5


@dataclass(frozen=True, eq=False)
class Teacher:
    """A loaded model, in the folder `name`, which will not learn."""

    name: Path
    model: Model

    @classmethod
    def of(cls, recipe: Recipe) -> Teacher | None:
        """That of a recipe, if it has one."""
        name = recipe.train.teacher
        found = None if name is None else load(name)
        if name is None or found is None:
            return None
        if found.dtype == INT8:
            said = f"train.teacher {name} holds int8 weights, which compute in no precision of training"
            raise UserError(said, do="give the model that it was converted from")
        found.model.eval().requires_grad_(False)
        return cls(name, found)

    @property
    def settings(self) -> Mapping[str, Any]:
        """What it writes with, which a new model takes over: the ids of special tokens, and lengths."""
        return generation_settings(self.model.extra_config)

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in tensors_of(self.model.model).values())

    def lent(self, recipe: Recipe, start: Model | None) -> Model:
        """What a task is made from: the model that a run goes on from, or how the teacher reads its inputs."""
        if start is not None and (start.tokenizer is not None or start.preprocess is not None):
            return start
        if self.model.tokenizer is not None and recipe.data.tokenizer is not None:
            said = f"data.tokenizer {recipe.data.tokenizer} with train.teacher, whose tokenizer the model takes"
            raise UserError(said, do="leave data.tokenizer out")
        lent = self.model if start is None else start
        own = (self.model.tokenizer, self.model.target_tokenizer, self.model.preprocess)
        lent = replace(lent, tokenizer=own[0], target_tokenizer=own[1], preprocess=own[2])
        return replace(lent, extra_config=self.settings) if start is None else lent

    def loss(self, task: Task, recipe: Recipe) -> Distillation:
        """The loss of a task with this teacher, which reads what the task reads and knows the same classes."""
        assert isinstance(task, PredictsTargets)
        own = type(task).from_model(self.model)
        if own is None:
            raise UserError(f"train.teacher {self.name} is no model for this task ({task.name})", do="give one that is")
        for what, meaning in task.input_encoding.items():
            if own.input_encoding[what] != meaning:
                do = "leave model.from out, so that the model takes the teacher's, or give another teacher"
                raise UserError(f"train.teacher {self.name} has another {what} than the model", do=do)
        classes, known = (class_list(one.extra_config()) for one in (task, own))
        if sorted(classes) != sorted(known):
            names = f"the classes {listed(known, 6)}, and the data has {listed(classes, 6)}"
            do = "give a teacher that was trained on these classes"
            raise UserError(f"train.teacher {self.name} knows {names}", do=do)
        order, where = None, device_of(self.model.model)
        if classes != known:
            order = torch.tensor([known.index(one) for one in classes], device=where)
        temperature, weight = self.choices(recipe).values()
        return Distillation(task, self.model.model, temperature, weight, order)

    def choices(self, recipe: Recipe) -> dict[str, float]:
        """The settings of the loss, as given or as usual."""
        train = recipe.train
        return {
            "train.teacher_temperature": given(train.teacher_temperature, TEMPERATURE),
            "train.teacher_weight": given(train.teacher_weight, WEIGHT),
        }

    def check_length(self, longest: int) -> None:
        """Refuses rows of more tokens than the teacher has positions."""
        trunks = (part for part in self.model.model.modules() if isinstance(part, Trunk))
        context = min((room for trunk in trunks if (room := context_of(trunk)) is not None), default=longest)
        if self.model.tokenizer is not None and context < longest:
            said = f"train.teacher {self.name} reads {context:,} tokens, and rows have up to {longest:,}"
            raise UserError(said, do=f"give data.max_length {context}")


def check_task(task: type[Task]) -> None:
    """Refuses a teacher for a task that has nothing to learn from one."""
    if not issubclass(task, PredictsTargets):
        said = f"train.teacher: models for this task ({task.name}) give neither words nor classes logits to learn from"
        raise UserError(said, do="leave out train.teacher")
