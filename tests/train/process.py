"""What one of several processes does for `test_processes.py`: steps of many runs, noted by process 0."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headway.distributed import world as world_module
from headway.distributed.world import ALONE, World, joined
from headway.errors import UserError
from headway.training.build import batches_of, learner_of, share_of
from headway.training.plan import Plan
from tests.train.runs import planned

STEPS = 3
NO_DROPOUT = {"train.dropout": "0", "train.grad_accumulation": "1"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "uneven": ("transformer", {**NO_DROPOUT, "model.attention_dropout": "0"}),
    "stream": ("gpt2", NO_DROPOUT),
    "experts": ("mixtral", {"train.grad_accumulation": "3", "train.dropout": "None", "model.attention_dropout": "0"}),
    "labels": ("classes", NO_DROPOUT),
    "dropout, whole batches": ("transformer", {"train.grad_accumulation": "4"}),
    "masks, whole batches": ("masked", {"train.grad_accumulation": "4"}),
    "batch norm, whole batches": ("resnet", {"train.grad_accumulation": "4", "data.augment": ""}),
    "contrastive, whole batches": ("clip", {"train.grad_accumulation": "4", "train.batch": "6"}),
    "split accumulation": ("gpt2", {**NO_DROPOUT, "train.grad_accumulation": "3"}),
}


def steps_of(name: str, world: World = ALONE) -> list[list[float]]:
    """Loss, targets, tokens and norm of the gradient in each step, and a sum over the weights after it."""
    made = in_case(name, world)
    learner, found = learner_of(made, world), list[list[float]]()
    for number, batches in enumerate(batches_of(made)(1, 1 + STEPS), 1):
        step = learner.learn(number, batches)
        weights = sum(parameter.double().abs().sum().item() for parameter in learner.model.parameters())
        found.append([step.loss / step.targets, step.targets, step.tokens, step.norm, weights])
    return found


def in_case(name: str, world: World) -> Plan:
    family, more = CASES[name]
    made = planned(family, **more, **{"train.ema_decay": "0"})
    return replace(made, share=share_of(made, world))
