"""The run: step after step, looked at now and then, saved so that it can go on from any point as if nothing happened.

What a step reads and draws is a function of its number alone, so a run is told by its checkpoint: the tensors that
change, and `Progress`.  Everything here is decided by numbers that a resumed run sees again; the clock decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from headway.errors import UserError
from headway.train.average import mean_tensors
from headway.train.journal import Journal
from headway.train.learner import Learner, Update, fill
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

    def resume(self) -> list[str]:
        """Goes back to the newest checkpoint that is whole; what is said about others, if anything."""
        found = self.store.latest()
        if found is None:
            raise UserError("there is no checkpoint to resume from", do="start without --resume")
        snapshot, said = found
        self.learner.restore(snapshot.tensors)
        self.progress = Progress.of(snapshot.state)
        self.journal.cut(self.progress.journal)
        return said

    def run(self) -> End:
        """Trains until the steps are done, the score stops rising, or somebody interrupts."""
        with Interruption() as interruption:
            clock = perf_counter()
            for batches in self.batches(self.progress.step + 1, self.pace.steps + 1):
                self.advance(self.learner.learn(self.progress.step + 1, batches), clock)
                clock = perf_counter()
                if interruption.asked is not None or self.tired():
                    break
            if interruption.asked is not None and self.progress.step < self.pace.steps:
                self.save()
                return End(self.progress.step, interruption.asked, "as they were when interrupted", None)
            return self.finish()

    def advance(self, update: Update, clock: float) -> None:
        """Takes note of a step, and does what is due after it."""
        step, pace = update.step, self.pace
        bad = self.progress.bad + 1 if update.skipped else 0
        if bad == BAD:
            said = f"the loss or its gradient was not finite in {BAD} steps in a row, the last of them {step}"
            raise UserError(said, do="lower --train.rate, raise --train.warmup, or look at the data with headway check")
        now = self.progress
        sums = {"skipped": now.skipped + 1} if update.skipped else added(now, update)
        self.progress = replace(now, step=step, bad=bad, **sums)
        self.watcher.stepped(update, perf_counter() - clock)
        last = step == pace.steps
        if step % pace.log_every == 0 or last:
            self.log(update)
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
        """Scores the weights as they are, and tells whether they are among the best."""
        found, step = self.examined(), self.progress.step
        self.journal.tell(step=step, valid=dict(found.values), score=found.score)
        before = self.progress.ranking
        ranking = sorted([*before, (step, found.score)], key=lambda one: (-one[1], -one[0]))[: self.ranked()]
        best = ranking[0][0] == step
        self.progress = replace(self.progress, ranking=tuple(ranking), waited=0 if best else self.progress.waited + 1)
        self.watcher.evaluated(step, found, best)
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
        self.store.save(Snapshot(step, self.learner.tensors(), asdict(self.progress)), protect=self.protected())
        self.watcher.saved(step)

    def protected(self) -> set[int]:
        return {step for step, _ in self.progress.ranking}

    def ranked(self) -> int:
        return max(self.pace.best, self.pace.average)

    def tired(self) -> bool:
        return self.pace.patience is not None and self.progress.waited >= self.pace.patience

    def finish(self) -> End:
        """Gives the model the weights that did best: of one checkpoint, or the mean of several."""
        step, ranking = self.progress.step, self.progress.ranking
        self.learner.model.eval()
        if not ranking or self.examine is None:
            fill(self.learner.model, self.useful(self.learner.tensors()))
            return End(step, None, f"those of step {step}", None)
        tries = [[ranking[0][0]]]
        if self.pace.average > 1 and len(ranking) > 1:
            tries.append(sorted(step for step, _ in ranking[: self.pace.average]))
        found = [(self.tried(steps), steps) for steps in tries]
        best, steps = max(found, key=lambda one: one[0].score)
        if steps != tries[-1]:
            self.tried(steps)
        named = ", ".join(map(str, steps))
        chosen = f"those of step {named}" if len(steps) == 1 else f"the mean of those of steps {named}"
        self.journal.tell(step=step, chosen=steps, valid=dict(best.values), score=best.score)
        return End(step, None, chosen, best)

    def tried(self, steps: list[int]) -> Examined:
        """The score of the mean of some checkpoints' weights, which the model has from now on."""
        assert self.examine is not None
        weights = [self.useful(self.store.load(step).tensors) for step in steps]
        fill(self.learner.model, weights[0] if len(weights) == 1 else mean_tensors(weights))
        return self.examine(self.learner.model)

    def useful(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
        """The weights that a checkpoint is evaluated with: their average over time, where that is kept."""
        return tensors.get("average", tensors["model"]) if self.learner.average is not None else tensors["model"]


def added(now: Progress, update: Update) -> dict[str, Any]:
    return {"loss": now.loss + update.loss, "targets": now.targets + update.targets}
