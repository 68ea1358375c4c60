"""The run: step after step, looked at now and then, saved so that it can go on from any point as if nothing happened.

What a step reads and draws is a function of its number alone, so a run is told by its checkpoint: the tensors that
change, and `Progress`.  Everything here is decided by numbers that a resumed run sees again; the clock decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from headway.errors import UserError
from headway.train.average import fill, mean_tensors
from headway.train.journal import Journal
from headway.train.learner import Learner, Update
from headway.train.signals import Interruption
from headway.train.store import Snapshot, Store

BAD = 3  # steps in a row that are not finite, after which a run ends


@dataclass(frozen=True)
class Pace:
    """How long, and how often things are done: all in steps.  `best` is how many of the best checkpoints are kept."""

    steps: int
    log_every: int
    evaluate_every: int
    checkpoint_every: int
    patience: int | None = None  # evaluations without a better score
    best: int = 1
    average: int = 1  # of the best checkpoints, whose weights' mean is tried as the result


class Sample(NamedTuple):
    """An answer, and what it should have been."""

    source: str
    answer: str
    wanted: str


@dataclass(frozen=True)
class Examined:
    """What an evaluation found: its numbers by name, the one that decides, the higher the better, and some answers."""

    values: Mapping[str, float]
    score: float
    samples: Sequence[Sample] = ()


@dataclass(frozen=True)
class Progress:
    """Where a run stands, besides its tensors."""

    step: int = 0
    journal: int = 0  # bytes
    loss: float = 0.0  # sums since the last line
    targets: int = 0
    skipped: int = 0
    bad: int = 0  # steps in a row that were not finite
    waited: int = 0  # evaluations since the best
    ranking: tuple[tuple[int, float], ...] = ()  # steps and scores, best first

    @staticmethod
    def of(state: Mapping[str, Any]) -> Progress:
        ranking = tuple((step, score) for step, score in state["ranking"])  # JSON has lists only
        return replace(Progress(**state), ranking=ranking)


class Watcher(Protocol):
    """Whoever is told how a run goes."""

    def stepped(self, update: Update, seconds: float) -> None: ...
    def logged(self, line: Mapping[str, Any]) -> None: ...
    def evaluated(self, step: int, found: Examined, best: bool) -> None: ...
    def saved(self, step: int) -> None: ...
    def said(self, sentence: str) -> None: ...


@dataclass(frozen=True)
class End:
    """How a run ended: `signal` is what interrupted it, `chosen` says which weights the model has now."""

    step: int
    signal: int | None
    chosen: str
    found: Examined | None


@dataclass
class Run:
    """A run of training.  `batches(first, last)` gives those of each step; `examine` evaluates the model as it is."""

    learner: Learner
    batches: Callable[[int, int], Iterator[Sequence[Any]]]
    pace: Pace
    store: Store
    journal: Journal
    watcher: Watcher
    examine: Callable[[nn.Module], Examined] | None = None
    progress: Progress = field(default_factory=Progress)
    saved: int | None = None  # the step of the checkpoint that is as the run is

    def resume(self) -> list[str]:
        """Goes back to the newest checkpoint that is whole, or to the beginning; what there is to say about it."""
        found = self.store.latest()
        if found is None:
            self.journal.cut(0)
            return ["no checkpoint was written yet, so the run starts from the beginning"]
        snapshot, said = found
        self.learner.restore(snapshot.tensors)
        self.progress, self.saved = Progress.of(snapshot.state), snapshot.step
        return [*said, *self.journal.cut(self.progress.journal), f"resumed at step {snapshot.step}"]

    def run(self, interruption: Interruption) -> End:
        """Trains until the steps are done, the score stops rising, or somebody interrupts."""
        if interruption.asked is None and not self.done():
            self.go_on(interruption)
        if self.done():
            return self.finish()
        if self.saved != self.progress.step:
            self.save()
        return End(self.progress.step, interruption.asked, "as they were when interrupted", None)

    def go_on(self, interruption: Interruption) -> None:
        clock = perf_counter()
        for batches in self.batches(self.progress.step + 1, self.pace.steps + 1):
            self.advance(self.learner.learn(self.progress.step + 1, batches), clock)
            if interruption.asked is not None or self.done():
                return
            clock = perf_counter()

    def done(self) -> bool:
        tired = self.pace.patience is not None and self.progress.waited >= self.pace.patience
        return tired or self.progress.step >= self.pace.steps

    def advance(self, update: Update, clock: float) -> None:
        """Takes note of a step, and does what is due after it."""
        step, pace, now = update.step, self.pace, self.progress
        bad = now.bad + 1 if update.skipped else 0
        sums = {"skipped": now.skipped + 1} if update.skipped else added(now, update)
        self.progress = replace(now, step=step, bad=bad, **sums)
        self.watcher.stepped(update, perf_counter() - clock)
        last = step == pace.steps
        if step % pace.log_every == 0 or last or bad == BAD:
            self.log(update)
        if bad == BAD:
            said = f"the loss or its gradient was not finite in {BAD} steps in a row, the last of them {step}"
            raise UserError(said, do="start anew with a lower --train.rate or a longer --train.warmup")
        good = self.examine is not None and (step % pace.evaluate_every == 0 or last) and self.evaluate()
        if good or step % pace.checkpoint_every == 0 or last:
            self.save()

    def log(self, update: Update) -> None:
        now = self.progress
        loss = now.loss / now.targets if now.targets else None
        line = {"step": update.step, "loss": loss, "targets": now.targets, "rate": update.rate, "norm": update.norm}
        if now.skipped:
            line["skipped"] = now.skipped
        self.journal.tell(**line)
        self.watcher.logged(line)
        self.progress = replace(now, loss=0.0, targets=0, skipped=0)

    def evaluate(self) -> bool:
        """Scores the weights as they are, and tells whether they are among the best; of equals the later are."""
        found, step, before = self.examined(), self.progress.step, self.progress.ranking
        self.journal.tell(step=step, valid=dict(found.values), score=found.score)
        scored = [(step, found.score)] if math.isfinite(found.score) else []
        ranking = sorted([*before, *scored], key=lambda one: (-one[1], -one[0]))[
            : max(self.pace.best, self.pace.average)
        ]
        better = bool(scored) and (not before or found.score > before[0][1])
        self.progress = replace(self.progress, ranking=tuple(ranking), waited=0 if better else self.progress.waited + 1)
        self.watcher.evaluated(step, found, better)
        return any(step == kept for kept, _ in ranking)

    def examined(self) -> Examined:
        assert self.examine is not None
        self.learner.model.eval()
        if self.learner.average is None:
            return self.examine(self.learner.model)
        with self.learner.average.applied(self.learner.model):
            return self.examine(self.learner.model)

    def save(self) -> None:
        step = self.progress.step
        self.progress = replace(self.progress, journal=self.journal.length())
        protect = {kept for kept, _ in self.progress.ranking}
        self.store.save(Snapshot(step, self.learner.tensors(), asdict(self.progress)), protect=protect)
        self.saved = step
        self.watcher.saved(step)

    def finish(self) -> End:
        """Gives the model the weights that did best: of one checkpoint, or the mean of several."""
        step, best = self.progress.step, self.best()
        self.learner.model.eval()
        if not best or self.examine is None:
            fill(self.learner.model, self.useful(self.learner.tensors()))
            return End(step, None, f"those of step {step}", None)
        first = next(iter(best))
        found, steps = self.tried([best[first]]), [first]
        if len(best) > 1:
            mean = self.tried(list(best.values()))
            if mean.score > found.score:
                found, steps = mean, sorted(best)
            else:
                fill(self.learner.model, best[first])
        named = ", ".join(map(str, steps))
        chosen = f"those of step {named}" if len(steps) == 1 else f"the mean of those of steps {named}"
        self.journal.tell(step=step, chosen=steps, valid=dict(found.values), score=found.score)
        return End(step, None, chosen, found)

    def best(self) -> dict[int, Mapping[str, Tensor]]:
        """The weights of the best checkpoints that are whole, by step, best first: as many as are to be averaged."""
        found: dict[int, Mapping[str, Tensor]] = {}
        for step, _ in self.progress.ranking:
            if len(found) < self.pace.average:
                try:
                    found[step] = self.useful(self.store.load(step).tensors)
                except UserError as error:
                    self.watcher.said(f"{error}; it cannot be chosen")
        return found

    def tried(self, weights: Sequence[Mapping[str, Tensor]]) -> Examined:
        """The score of the mean of some weights, which the model has from now on."""
        assert self.examine is not None
        fill(self.learner.model, weights[0] if len(weights) == 1 else mean_tensors(weights))
        return self.examine(self.learner.model)

    def useful(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
        """The weights that a checkpoint is evaluated with: their average over time, where that is kept."""
        return tensors.get("average", tensors["model"]) if self.learner.average is not None else tensors["model"]


def added(now: Progress, update: Update) -> dict[str, Any]:
    return {"loss": now.loss + update.loss, "targets": now.targets + update.targets}
