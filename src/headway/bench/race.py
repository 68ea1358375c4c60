"""Measures a suite: contenders in processes of their own take turns, so that a busy machine is busy for all of them.

The first round of each case warms up and gives the answers that are compared; it is not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from headway.bench.benchmark import CaseResult, Measured, SuiteResult, Timing
from headway.bench.limits import AFTER, BEFORE, LIMITS, machine, merge_limits, processor_flags
from headway.bench.peers import PEERS, TRANSFORMERS
from headway.bench.suite import Contender, Suite
from headway.bench.worker import CONVERT, WRITE
from headway.progress import phase

ROUNDS = 5
ONE_THREAD = ("OMP", "MKL", "OPENBLAS", "RAYON", "NUMEXPR")
QUIET = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


class ContenderError(Exception):
    """A contender's process ended; the text is the last line of what it printed."""


class ContenderProcess:
    """The process of a contender, or of what it needs."""

    def __init__(self, suite: str, name: str, folder: Path, sizes: Mapping[str, int], threads: int):
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
                env={**os.environ, **QUIET, **own},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
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


def measure(suite: Suite, *, peers: bool, rounds: int, threads: int, tiny: bool, command: str) -> SuiteResult:
    """Runs a suite: headway and, where it is installed, transformers; with `peers`, every installed peer."""
    sizes = suite.tiny if tiny else suite.sizes
    entered, missing = chosen(suite.contenders, peers)
    load = os.getloadavg()[0]
    with TemporaryDirectory(prefix="headway-bench-") as name, ExitStack() as stack:
        folder, failures = Path(name), dict[str, str]()

        def start(contender: str) -> ContenderProcess:
            return stack.enter_context(ContenderProcess(suite.name, contender, folder, sizes, threads))

        with phase(f"{suite.name}: writing weights and inputs"):
            start(WRITE).finish()
        limits = start_limits(stack, folder, threads)
        running = dict[str, ContenderProcess]()
        for contender in entered:
            with phase(f"{suite.name}: preparing {contender.name}"):
                try:
                    if contender.convert is not None:
                        start(f"{CONVERT}{contender.name}").finish()
                    running[contender.name] = start(contender.name)
                    running[contender.name].ready()
                except ContenderError as error:
                    failures[contender.name] = str(error)
                    running.pop(contender.name, None)
        cases, answers = list[CaseResult](), dict[tuple[str, str], Any]()
        before = limits.run(BEFORE)
        for case in suite.cases(sizes):
            fits = {one.name: one for one in entered if one.cases is None or case.name in one.cases}
            with phase(f"{suite.name}: {case.name}"):
                timings = interleave(
                    {name: (lambda c=case.name, p=running[name]: p.run(c)) for name in fits if name in running},
                    rounds,
                    failures,
                )
            for name, found in timings.items():
                answers[case.name, name] = found[0].answer
            reference = next((answers.get((case.name, one.name)) for one in suite.contenders if one.peer is None), None)
            measured = [
                Measured.of(
                    fits[name],
                    timings[name],
                    agreement=suite.comparison.measure(reference, answers[case.name, name])
                    if reference and fits[name].same_weights
                    else None,
                )
                for name in timings
            ]
            cases.append(CaseResult.of(case, measured))
        after = limits.run(AFTER)
    return SuiteResult(
        name=suite.name,
        title=suite.title,
        cases=tuple(cases),
        comparison=suite.comparison.name,
        least=suite.comparison.least,
        memory=suite.memory,
        notes=suite.notes,
        missing=missing,
        failures=failures,
        limits=merge_limits(before.answer, after.answer),
        machine=machine(threads),
        versions={peer.name: peer.version for peer in PEERS if peer.installed},
        load=(load, os.getloadavg()[0]),
        rounds=rounds,
        tiny=tiny,
        command=command,
    )


def start_limits(stack: ExitStack, folder: Path, threads: int) -> ContenderProcess:
    process = stack.enter_context(ContenderProcess(LIMITS.name, LIMITS.contenders[0].name, folder, {}, threads))
    process.ready()
    return process


def chosen(contenders: Iterable[Contender], peers: bool) -> tuple[list[Contender], dict[str, str]]:
    """The contenders that run, and the commands that install the others by their names."""
    flags = processor_flags()
    able = [one for one in contenders if not one.cpu or flags.intersection(one.cpu)]
    wanted = [one for one in able if one.peer is None or peers or one.peer is TRANSFORMERS]
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
