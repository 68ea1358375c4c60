"""Races between ways to train: contenders take turns, each race in a process of its own.

A process of its own since none should find the memory that another has used; turns since a machine is now faster, now
slower.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import listed
from headway.system import keep_memory
from headway.training.groups import groups
from headway.training.learner import Learner
from headway.training.optimiser import AdamW, Constant, Optimiser

ROUNDS, SECONDS = 3, 60  # of a race: at least so many rounds, and more while it took less time

Batches = list[tuple[Callable[[], object], int]]  # a step and its real tokens


def raced(races: Mapping[str, Callable[[], dict[str, Batches]]]) -> dict[str, dict[str, float]]:
    """The speeds in each race that the command names, or else in all of them."""
    names = sys.argv[1:] or list(races)
    if unknown := [name for name in names if name not in races]:
        sys.exit(f"error: no race {listed(unknown)}; allowed: {listed(races)}")
    if len(names) == 1:
        return {names[0]: race(races[names[0]])}
    return {name: elsewhere(name)[name] for name in names}


def elsewhere(name: str) -> dict[str, Any]:
    """What this command prints for one race."""
    command = [sys.executable, sys.argv[0], name]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def race(prepare: Callable[[], dict[str, Batches]]) -> dict[str, float]:
    """Real tokens per CPU second of each contender, the median of rounds; a first one warms up."""
    keep_memory()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    contenders = prepare()
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    begun, rounds = time.process_time(), 0
    while rounds <= ROUNDS or time.process_time() - begun < SECONDS:
        for name, steps in contenders.items():
            start = time.process_time()
            for step, _ in steps:
                step()
            speeds[name].append(sum(tokens for _, tokens in steps) / (time.process_time() - start))
        rounds += 1
    return {name: median(found[1:]) for name, found in speeds.items()}


class Peer:
    """Another library's model, trained in the common way."""

    def __init__(self, model: nn.Module):
        self.model = model.train()
        self.optimiser = torch.optim.AdamW(model.parameters(), fused=True)

    def step(self, loss: Callable[[], Tensor], tokens: int) -> tuple[Callable[[], object], int]:
        def step() -> None:
            self.optimiser.zero_grad()
            loss().backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimiser.step()

        return step, tokens


def learner_of(model: nn.Module, loss: Callable[[nn.Module, Any], Tensor]) -> Learner:
    return Learner(model, loss, Optimiser(AdamW(), groups(model)), Constant(), seed=0)


def our_step(learner: Learner, batch: Any) -> tuple[Callable[[], object], int]:
    numbers: Iterator[int] = iter(range(1, 10**9))
    return lambda: learner.learn(next(numbers), [batch]), batch.tokens
