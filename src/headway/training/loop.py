"""The training loop: steps, evaluations and checkpoints, resumable at any point with identical results.

The batches and random numbers of a step depend on its number alone, so a checkpoint (tensors and `RunState`) defines
the rest of the run.  All decisions depend on numbers that a resumed run sees again, never on the clock, but for the
length of a run that was given minutes, which is recorded (`Recount`).

Where several processes train, each of them runs this loop.  They share the work of an evaluation, and what follows
from it is what process 0 tells the others, its `RunState`; process 0 alone logs, and it or all of them write
checkpoints (`saving.py`, `sharded.py`).  A signal for one of them is one for all, after the same step.

After Ctrl-C or SIGTERM the loop finishes its step, saves and exits (`interruption.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any, Protocol

from torch import Tensor, nn

from headway.console import phase
from headway.distributed.sharing import sharing
from headway.distributed.world import ALONE, World
from headway.errors import UserError, malformed
from headway.metrics.scores import plain_limits
from headway.nn.low_rank import learned_tensors
from headway.tasks.results import EvalResult
from headway.training.interruption import Interruption
from headway.training.learner import Learner, StepResult, fill, mean_tensors
from headway.training.metrics_log import MetricsLog
from headway.training.optimiser import Schedule
from headway.training.saving import BackgroundSaver, Saver
from headway.training.sharded import ShardedSaver
from headway.training.store import Snapshot, Store

COUNTED = "those that were counted in the data"
MAX_BAD_STEPS = 3  # consecutive steps that are not finite, after which a run ends


@dataclass(frozen=True)
class RunLimits:
    """Length of a run and intervals, in steps.  `best` is the number of best checkpoints that are kept."""

    steps: int
    log_every: int
    evaluate_every: int
    checkpoint_every: int
    patience: int | None = None  # early stopping: evaluations without a better score
    best: int = 1
    average: int = 1  # best checkpoints whose mean weights are tried as the result


@dataclass(frozen=True)
class RunState:
    """State of a run besides its tensors, as a checkpoint stores it."""

    step: int = 0
    journal: int = 0  # bytes of metrics.jsonl
    loss: float = 0.0  # sums since the last line of metrics
    targets: int = 0
    skipped: int = 0
    bad: int = 0  # consecutive steps that were not finite
    waited: int = 0  # evaluations since the best one
    ranking: tuple[tuple[int, float], ...] = ()  # steps and scores, best first
    first: float | None = None  # the loss that others must be below, where the first weights were counted

    @staticmethod
    def of(state: Mapping[str, Any]) -> RunState:
        ranking = tuple((step, score) for step, score in state["ranking"])  # JSON has lists only
        return replace(RunState(**state), ranking=ranking)


class Callback(Protocol):
    """Receives the events of a run; each method may be left out."""

    def on_step(self, result: StepResult, seconds: float) -> None: ...
    def on_log(self, line: Mapping[str, Any]) -> None: ...
    def on_evaluate(self, step: int, found: EvalResult, best: bool) -> None: ...
    def on_save(self, step: int) -> None: ...
    def on_message(self, sentence: str) -> None: ...
    def on_steps(self, steps: int) -> None: ...
    def on_last_step(self) -> None: ...


@dataclass(frozen=True)
class Recount:
    """Sets the length of a run anew after `step` steps, by the seconds of those that this process has timed.

    `decide` records its decision before it returns it; a schedule agrees with the one before, up to this step.
    """

    step: int
    decide: Callable[[Sequence[float]], tuple[RunLimits, Schedule]]


@dataclass(frozen=True)
class RunResult:
    """How a run ended: `signal` is what interrupted it, `chosen` describes the weights that the model has now.

    These are `counted` where those that were counted in the data have been kept.  `test` is how good they are on test
    data, with the number of `leaks`: test records whose source training has too.
    """

    step: int
    signal: int | None
    chosen: str
    found: EvalResult | None
    counted: bool = False
    test: EvalResult | None = None
    leaks: int = 0


@dataclass
class Run:
    """A training run.  `batches(first, last)` yields the batches of each step; `evaluator` scores the model."""

    learner: Learner
    batches: Callable[[int, int], Iterator[Sequence[Any]]]
    limits: RunLimits
    store: Store
    metrics_log: MetricsLog
    callbacks: Sequence[object] = ()  # with methods of `Callback`
    evaluator: Callable[[nn.Module], EvalResult] | None = None
    final_evaluator: Callable[[nn.Module], EvalResult] | None = None  # of the weights that were chosen, on more records
    state: RunState = field(default_factory=RunState)
    saved_step: int | None = None  # of the checkpoint that equals the current state
    recount: Recount | None = None
    # of first weights that were counted, which are good already and evaluated too: the standard error of their loss
    counted_error: Callable[[nn.Module], float] | None = None
    clock: Callable[[], float] = perf_counter
    world: World = ALONE
    seconds: list[float] = field(default_factory=list[float])  # of each step up to the recount
    saver: Saver = field(init=False)

    def __post_init__(self) -> None:
        kind = ShardedSaver if self.learner.engine.splits_parameters else BackgroundSaver
        self.saver = kind(self.store, self.world)

    def resume(self) -> list[str]:
        """Restores the latest complete checkpoint, or starts over; messages about it."""
        found = self.store.latest() if self.world.first else None
        snapshot, said = found or (Snapshot(0, {}, asdict(self.state)), [])
        if not self.world.highest(found is not None):
            if self.world.first:
                self.metrics_log.truncate(0)
            return ["no checkpoint was written yet, so the run starts from the beginning"]
        with malformed(f"the checkpoint of step {snapshot.step}"):
            self.learner.restore(snapshot.tensors)
            self.state = RunState.of(snapshot.state)
        self.share_run_state()
        self.saved_step = self.state.step
        truncated = self.metrics_log.truncate(self.state.journal) if self.world.first else []
        return [*said, *truncated, f"resumed at step {self.state.step}"]

    def share_run_state(self) -> None:
        """Gives all processes the state of process 0."""
        self.state = RunState.of(json.loads(self.world.told(json.dumps(asdict(self.state)))))

    def wanted(self, interruption: Interruption) -> bool:
        """Whether a signal for any of the processes has asked for the end; one that comes meanwhile waits a step."""
        asked = self.world.highest(interruption.asked or 0)
        interruption.asked = asked or interruption.asked
        return asked > 0

    def notify(self, event: str, *values: object) -> None:
        """Calls the method of that name of each callback that has one."""
        for callback in self.callbacks:
            if method := getattr(callback, event, None):
                method(*values)

    def run(self, interruption: Interruption) -> RunResult:
        """Trains until the last step, early stopping or an interruption; nothing is left to be written then."""
        with self.saver:
            return self.run_to_end(interruption)

    def run_to_end(self, interruption: Interruption) -> RunResult:
        if self.counted_error is not None and self.evaluator is not None and self.state == RunState():
            self.evaluate()
            self.save()
        while not self.wanted(interruption) and not self.done():
            self.train(interruption)
        if self.done():
            return self.finish()
        if self.saved_step != self.state.step:
            self.save()
        self.tell_written(wait=True)
        return RunResult(self.state.step, interruption.asked, "as they were when interrupted", None)

    def train(self, interruption: Interruption) -> None:
        """Takes steps until the end, an interruption, or another number of steps."""
        limits, clock = self.limits, self.clock()
        self.tell_written(wait=True)  # processes that prepare batches begin while no thread writes
        for batches in self.batches(self.state.step + 1, limits.steps + 1):
            self.advance(self.learner.learn(self.state.step + 1, batches), clock)
            if self.wanted(interruption) or self.done() or self.limits is not limits:
                return
            clock = self.clock()

    def done(self) -> bool:
        stopped_early = self.limits.patience is not None and self.state.waited >= self.limits.patience
        return stopped_early or self.state.step >= self.limits.steps

    def advance(self, result: StepResult, clock: float) -> None:
        """Records a step, and logs, evaluates and saves when due."""
        step, now = result.step, self.state
        if result.skipped:
            bad = now.bad if result.overflowed else now.bad + 1
            self.state = replace(now, step=step, bad=bad, skipped=now.skipped + 1)
        else:
            sums = {"loss": now.loss + result.loss, "targets": now.targets + result.targets}
            self.state = replace(now, step=step, bad=0, **sums)
        bad = self.state.bad
        seconds = self.clock() - clock
        self.notify("on_step", result, seconds)
        if self.recount is not None and step <= self.recount.step:
            self.seconds.append(seconds)
            if step == self.recount.step:
                self.set_length(*self.recount.decide(self.seconds))
        limits = self.limits
        last = step == limits.steps
        if step % limits.log_every == 0 or last or bad == MAX_BAD_STEPS:
            self.log(result)
        if bad == MAX_BAD_STEPS:
            said = f"the loss or its gradient was not finite in {MAX_BAD_STEPS} steps in a row, the last of them {step}"
            raise UserError(said, do="start anew with a lower train.lr or a longer train.warmup_steps")
        good = self.evaluator is not None and (step % limits.evaluate_every == 0 or last) and self.evaluate()
        self.tell_written(wait=False)
        if good or step % limits.checkpoint_every == 0 or last:
            self.save()

    def set_length(self, limits: RunLimits, schedule: Schedule) -> None:
        if limits != self.limits:
            said = f"step {self.state.step}: {limits.steps:,} steps fill the time, not {self.limits.steps:,} as planned"
            self.limits, self.learner.schedule = limits, schedule
            self.notify("on_steps", limits.steps)
            self.notify("on_message", said)

    def log(self, result: StepResult) -> None:
        now = self.state
        loss = now.loss / now.targets if now.targets else None
        line = {"step": result.step, "loss": loss, "targets": now.targets, "rate": result.lr, "norm": result.norm}
        if now.skipped:
            line["skipped"] = now.skipped
        if self.world.first:
            self.metrics_log.append(**line)
        self.notify("on_log", line)
        self.state = replace(now, loss=0.0, targets=0, skipped=0)

    def evaluate(self) -> bool:
        """Evaluates the current weights; whether they are among the best.  Of equal scores the later ranks higher."""
        with self.evaluating():
            self.rank_weights()
        self.learner.engine.release()
        self.share_run_state()
        return any(step == self.state.step for step, _ in self.state.ranking)

    @contextmanager
    def evaluating(self) -> Generator[None]:
        """Within it the model that is evaluated has the current weights, and all processes evaluate it together."""
        self.learner.engine.gather()
        model = self.learner.whole_model.eval()
        average = self.learner.average
        with sharing(self.world), nullcontext() if average is None else average.applied(model):
            yield

    def rank_weights(self) -> None:
        assert self.evaluator is not None
        found, step, before = self.evaluator(self.learner.whole_model), self.state.step, self.state.ranking
        score = self.score(found)
        of = {"count": found.scores.count, "things": found.scores.things, "intervals": plain_limits(found.scores)}
        if self.world.first:
            self.metrics_log.append(step=step, valid=dict(found.values), score=score, **of)
        first = self.loss_to_beat(found) if step == 0 else self.state.first
        able = step == 0 or first is None or -score < first
        scored = [(step, score)] if math.isfinite(score) and able else []
        ranking = sorted([*before, *scored], key=lambda one: (-one[1], -one[0]))
        ranking = ranking[: max(self.limits.best, self.limits.average)]
        better = bool(scored) and (not before or score > before[0][1])
        waited = 0 if better else self.state.waited + 1
        self.state = replace(self.state, ranking=tuple(ranking), waited=waited, first=first)
        self.notify("on_evaluate", step, found, better)

    def score(self, found: EvalResult) -> float:
        """What ranks weights, the higher the better.

        Where the first were counted, it is the loss, which training changes steadily, and answers to few records by
        chance; and only weights whose loss is lower by more than its standard error are ranked beside the first.
        """
        return -found.loss if self.counted_error is not None and found.loss is not None else found.score

    def loss_to_beat(self, found: EvalResult) -> float | None:
        """The loss of the first weights less its standard error, where they were counted; none is below 0."""
        if self.counted_error is None or found.loss is None:
            return None
        return max(0.0, found.loss - self.counted_error(self.learner.whole_model))

    def save(self) -> None:
        self.tell_written(wait=True)
        step, tensors = self.state.step, self.saver.tensors(self.learner)
        if self.world.first:
            self.state = replace(self.state, journal=self.metrics_log.length())
        protect = {kept for kept, _ in self.state.ranking}
        self.saver.save(Snapshot(step, tensors, asdict(self.state)), protect)
        self.saved_step = step

    def tell_written(self, *, wait: bool) -> None:
        """Tells callbacks of checkpoints that are there now."""
        for step in self.saver.written(wait=wait):
            self.notify("on_save", step)

    def finish(self) -> RunResult:
        """Gives the model that is evaluated the best weights: of one checkpoint, or the mean of several."""
        self.tell_written(wait=True)
        self.notify("on_last_step")
        with phase("evaluating the best weights"), sharing(self.world):
            return self.chosen_result()

    def chosen_result(self) -> RunResult:
        step, best = self.state.step, self.best_weights()
        steps: list[int] = json.loads(self.world.told(json.dumps(list(best))))  # best first
        final = self.final_evaluator or self.evaluator
        if not steps or final is None:
            self.use_current()
            found = None if final is None else final(self.learner.whole_model.eval())
            counted = step == 0 and self.counted_error is not None
            return RunResult(step, None, COUNTED if counted else f"those of step {step}", found, counted)
        chosen = steps[:1]
        if len(steps) > 1 and self.evaluate_mean(best, chosen) < self.evaluate_mean(best, steps):
            chosen = sorted(steps)
        self.use(best, chosen)
        found = final(self.learner.whole_model)
        named = ", ".join(map(str, chosen))
        said = f"those of step {named}" if len(chosen) == 1 else f"the mean of those of steps {named}"
        counted = chosen == [0]
        said = COUNTED if counted else said
        if self.world.first:
            self.metrics_log.append(step=step, chosen=chosen, valid=dict(found.values), score=self.score(found))
        return RunResult(step, None, said, found, counted)

    def best_weights(self) -> dict[int, Mapping[str, Tensor]]:
        """The weights of the best complete checkpoints by step, best first: as many as are to be averaged.

        Process 0 reads them.
        """
        found: dict[int, Mapping[str, Tensor]] = {}
        for step, _ in self.state.ranking if self.world.first else ():
            if len(found) < self.limits.average:
                try:
                    found[step] = self.evaluated_weights(self.store.load(step).tensors)
                except UserError as error:
                    self.notify("on_message", f"{error}; it cannot be chosen")
        return found

    def evaluate_mean(self, best: Mapping[int, Mapping[str, Tensor]], steps: Sequence[int]) -> float:
        """Gives the model the mean of the weights of some steps; their score, by which process 0 decides."""
        assert self.evaluator is not None
        self.use(best, steps)
        score = self.score(self.evaluator(self.learner.whole_model))
        return json.loads(self.world.told(json.dumps(score)))

    def use(self, best: Mapping[int, Mapping[str, Tensor]], steps: Sequence[int]) -> None:
        """Gives the model that is evaluated the weights of a step, or the mean of several, in all processes."""
        self.learner.engine.gather()
        model, weights = self.learner.whole_model.eval(), [best[step] for step in steps if self.world.first]
        if self.world.first:
            fill(model, weights[0] if len(weights) == 1 else mean_tensors(weights))
        self.world.send([tensor.detach() for tensor in learned_tensors(model).values()])

    def use_current(self) -> None:
        """Gives the model that is evaluated the weights after the last step: their EMA, if there is one."""
        self.learner.engine.gather()
        if self.learner.average is not None:
            fill(self.learner.whole_model, self.learner.average.kept)

    def evaluated_weights(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
        """The weights that a checkpoint is evaluated with: the EMA, if there is one."""
        return tensors.get("average", tensors["model"]) if self.learner.average is not None else tensors["model"]
