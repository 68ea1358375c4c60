"""Measures a suite: contenders in processes of their own take turns, so that a busy machine is busy for all of them.

The first round of each case warms up and gives the answers that are compared; it is not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from headway.bench.benchmark import CaseResult, Measured, SuiteResult, Timing
from headway.bench.limits import AVX2_ONLY, LIMITS, TURNS, commit, machine, merge_limits, processor_flags
from headway.bench.peers import PEERS, TRANSFORMERS
from headway.bench.suite import Case, Contender, Suite
from headway.bench.worker import CONVERT, WRITE
from headway.console import phase

ONE_THREAD = ("OMP", "MKL", "OPENBLAS", "RAYON", "NUMEXPR")
QUIET = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


class ContenderError(Exception):
    """A contender's process ended; the text is the last line of what it printed."""


class ContenderProcess:
    """The process of a contender, or of what it needs."""

    def __init__(
        self,
        suite: str,
        name: str,
        folder: Path,
        sizes: Mapping[str, int],
        threads: int,
        variables: Mapping[str, str],
    ):
        self.log = folder / f"{name.replace('/', ' ').replace(':', ' ')}.log"
        command = [sys.executable, "-m", "headway.bench.worker", suite, name, str(folder), json.dumps(dict(sizes))]
        own = {f"{library}_NUM_THREADS": str(threads) for library in ONE_THREAD}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **QUIET, **variables, **own},
                process_group=0,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, SIGKILL)  # with what it has started
        self.process.communicate()

    def ready(self) -> None:
        """Waits until it is prepared."""
        self.answer()

    def run(self, case: str) -> Timing:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{case}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.failed() from None
        return Timing(**self.answer())

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise self.failed()
        return json.loads(line)

    def finish(self) -> None:
        """Waits for a process that answers nothing."""
        if self.process.wait() != 0:
            raise self.failed()

    def failed(self) -> ContenderError:
        self.process.wait()
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return ContenderError(lines[-1][:200] if lines else f"it ended with code {self.process.returncode}")


@dataclass(frozen=True)
class Race:
    """A suite that is being measured, in a folder; `failures` are the last words of contenders that ended early."""

    suite: Suite
    folder: Path
    sizes: Mapping[str, int]
    threads: int
    stack: ExitStack
    variables: Mapping[str, str]  # of the environment of each process
    failures: dict[str, str] = field(default_factory=dict[str, str])

    def start(self, contender: str, suite: str | None = None) -> ContenderProcess:
        """A process that ends with the race."""
        process = ContenderProcess(
            suite or self.suite.name, contender, self.folder, self.sizes, self.threads, self.variables
        )
        return self.stack.enter_context(process)

    def prepare(self, contenders: Iterable[Contender]) -> dict[str, ContenderProcess]:
        """The contenders' processes, one after the other, ready to run."""
        running = dict[str, ContenderProcess]()
        for one in contenders:
            with phase(f"{self.suite.name}: preparing {one.name}"):
                try:
                    if one.convert is not None:
                        self.start(f"{CONVERT}{one.name}").finish()
                    process = self.start(one.name)
                    process.ready()
                    running[one.name] = process
                except ContenderError as error:
                    self.failures[one.name] = str(error)
        return running

    def measure(self, case: Case, running: Mapping[str, ContenderProcess], rounds: int) -> CaseResult:
        suite = self.suite
        runs = {
            one.name: partial(running[one.name].run, case.name)
            for one in suite.contenders
            if one.name in running and (one.cases is None or case.name in one.cases)
        }
        with phase(f"{suite.name}: {case.name}"):
            timings = interleave(runs, rounds, self.failures)
        own = next(one.name for one in suite.contenders if one.peer is None)
        reference = timings[own][0].answer if own in timings else None

        def agreement(one: Contender) -> float | None:
            if not reference or not one.same_weights:
                return None
            return suite.comparison.measure(reference, timings[one.name][0].answer)

        entered = [one for one in suite.contenders if one.name in timings]
        measured = [Measured.of(one, timings[one.name], agreement(one), wall_clock=suite.wall_clock) for one in entered]
        return CaseResult.of(case, measured)


def measure(
    suite: Suite, *, peers: bool, rounds: int, threads: int, tiny: bool, avx2: bool, command: str
) -> SuiteResult:
    """Runs a suite: headway and, where it is installed, transformers; with `peers`, every installed peer.

    With `avx2`, wider vectors are not used; peers that cannot be held to it do not run.
    """
    sizes = suite.tiny if tiny else suite.sizes
    entered, missing = chosen(suite.contenders, peers, avx2)
    load, turns = os.getloadavg()[0], iter(TURNS)
    with TemporaryDirectory(prefix="headway-bench-") as name, ExitStack() as stack:
        race = Race(suite, Path(name), sizes, threads, stack, AVX2_ONLY if avx2 else {})
        with phase(f"{suite.name}: writing weights and inputs"):
            race.start(WRITE).finish()
        machine_process = race.start(LIMITS.contenders[0].name, LIMITS.name)
        machine_process.ready()
        running = race.prepare(entered)
        cases, limits = list[CaseResult](), [machine_process.run(next(turns)).answer]
        for case in suite.cases(sizes):
            cases.append(race.measure(case, running, rounds))
            limits.append(machine_process.run(next(turns)).answer)
    return SuiteResult(
        name=suite.name,
        title=suite.title,
        cases=tuple(cases),
        comparison=suite.comparison.name,
        least=suite.comparison.least,
        memory=suite.memory,
        notes=suite.notes,
        missing=missing,
        failures=race.failures,
        limits=merge_limits(*limits),
        machine=machine(threads, avx2),
        versions={peer.name: peer.version for peer in PEERS if peer.installed},
        load=(load, os.getloadavg()[0]),
        rounds=rounds,
        tiny=tiny,
        command=command,
        commit=commit(),
    )


def chosen(contenders: Iterable[Contender], peers: bool, avx2: bool = False) -> tuple[list[Contender], dict[str, str]]:
    """The contenders that run, and the commands that install the others by their names."""
    flags = processor_flags(avx2)
    able = [one for one in contenders if not one.cpu or flags.intersection(one.cpu)]
    able = [one for one in able if not avx2 or one.peer is None or one.peer.held]
    wanted = [one for one in able if one.peer is None or peers or one.peer.name == TRANSFORMERS.name]
    lacking = [one for one in wanted if one.peer is not None and not one.peer.installed]
    missing = {one.peer.name: one.peer.command for one in lacking if one.peer is not None}
    return [one for one in wanted if one not in lacking], missing


def interleave(
    runs: Mapping[str, Callable[[], Timing]], rounds: int, failures: dict[str, str]
) -> dict[str, list[Timing]]:
    """The timings of each contender, one of each in turn; the first warms up.  One that fails is left out."""
    found: dict[str, list[Timing]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name in [name for name in found if name not in failures]:
            try:
                found[name].append(runs[name]())
            except ContenderError as error:
                failures[name] = str(error)
    return {name: timings for name, timings in found.items() if name not in failures}
