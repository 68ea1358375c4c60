"""Which task learns from data: as asked, as a model does that was asked for, or as usual for the kind of data."""

from __future__ import annotations

from headway.data.splits import DataSplits
from headway.errors import UserError, listed
from headway.model import Model
from headway.recipe import Recipe
from headway.tasks.base import Task, task_class, tasks_for
from headway.tasks.registry import TASKS
from headway.training.groups import describe_task
from headway.zoo.build import architecture_of
from headway.zoo.encoders import encoder_config
from headway.zoo.presets import PRESETS, preset


def choose_task(recipe: Recipe, splits: DataSplits, start: Model | None, config: object | None) -> type[Task]:
    """How the data is learned from: as asked, or as the model does that was asked for, or as usual for its kind."""
    if start is not None:
        inner = encoder_config(start.config).architecture
        task = task_for(recipe, splits, inner)
        # what the whole model alone can learn, as a CLIP captions
        return task if inner in task.architectures else task_for(recipe, splits, start.architecture)
    if config is not None:
        return task_for(recipe, splits, architecture_of(config))
    return task_for(recipe, splits, preset(recipe.model.preset).architecture if recipe.model.preset else None)


def task_for(recipe: Recipe, splits: DataSplits, architecture: str | None) -> type[Task]:
    """The task for data of a kind, an objective and an architecture."""
    if recipe.data.task in TASKS and recipe.data.objective is None:
        return task_class(recipe.data.task)
    tasks = [task for task in tasks_for(splits.kind) if task.architectures]
    objective = recipe.data.objective
    if objective is None:
        return next((task for task in tasks if architecture in task.architectures), tasks[0])
    found = next((task for task in tasks if task.objective == objective), None)
    if found is None:
        known = [task.objective for task in tasks if task.objective]
        said = f"data.objective {objective} has no meaning for {tasks[0].kind}"
        raise UserError(said, allowed=listed(known) if known else None, do=None if known else "leave it out")
    return found


def check_suited(name: str, architecture: str, task: type[Task]) -> None:
    if architecture not in task.architectures:
        names = [other for other, one in PRESETS.items() if one.architecture in task.architectures]
        raise UserError(f"{name} cannot learn this task ({describe_task(task)})", allowed=listed(names, 6))
