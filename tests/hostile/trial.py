"""Commands on hostile files, in children with limits: ten seconds of processor time and a gibibyte each.

One child tries many cases, each with an alarm of its own on the processor's time, so that a table of hundreds takes
seconds; where a child dies, the case that it died of is told, and another child goes on with the next.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from headway.cli.main import main
from headway.system import held_memory

CPU_SECONDS, MEMORY = 10, 2**30
WAITING_SECONDS = 600  # for a pipe that nobody writes to: however busy the machine is, nothing else takes as long
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")


@dataclass(frozen=True)
class Case:
    """A command, and what is done to its folder before."""

    name: str
    words: tuple[str, ...]
    prepare: Callable[[Path], object]
    base: Path | None = None  # a folder that is copied first

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Outcome:
    code: int | None  # None: the process died
    err: str
    written: tuple[str, ...] = ()  # files that were opened for writing, or made, outside of `work/out`
    executed: tuple[str, ...] = ()  # what ran other programs
    made: tuple[str, ...] = ()  # what is in `work/out`


def try_all(cases: list[Case], folder: Path) -> dict[str, Outcome]:
    """What each command says and does, by the name of its case."""
    found, left = dict[str, Outcome](), list(cases)
    results = folder / "results.jsonl"
    while left:
        results.write_text("")
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            try:
                limit()
                with results.open("a", encoding="utf-8") as out:
                    for case in left:
                        out.write(json.dumps([case.name, *tried(case, folder)]) + "\n")
                        out.flush()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        for line in results.read_text(encoding="utf-8").splitlines():
            name, code, err, *lists = json.loads(line)
            found[name] = Outcome(code, err, *map(tuple, lists))
        left = [case for case in left if case.name not in found]
        if left:
            dead = left.pop(0)
            found[dead.name] = Outcome(None, f"the process died: {os.waitstatus_to_exitcode(status)}")
    return found


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (held_memory()[0] + MEMORY, resource.RLIM_INFINITY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.addaudithook(audit)


watched: dict[str, list[str]] = {"written": [], "executed": []}


def audit(event: str, args: tuple[Any, ...]) -> None:
    if (
        event == "open"
        and isinstance(args[0], str)
        and isinstance(args[2], int)
        and args[2] & (os.O_WRONLY | os.O_RDWR)
    ):
        watched["written"].append(os.path.realpath(args[0]))
    if event in FORBIDDEN:
        watched["executed"].append(f"{event} {args!r:.80}")


def tried(case: Case, folder: Path) -> tuple[int, str, list[str], list[str], list[str]]:
    """One command in a fresh folder, `work`, with a temporary folder beside it, which must be empty afterwards."""
    work, temporary = folder / "work", folder / "tmp"
    for place in (work, temporary):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
    if case.base is not None:
        shutil.copytree(case.base, work / "m", symlinks=True)
    os.chdir(work)
    case.prepare(work)
    tempfile.tempdir, os.environ["TMPDIR"] = str(temporary), str(temporary)
    # real files, since a command whose disk is full redirects them
    out, err = (folder / name for name in ("out.txt", "err.txt"))
    with out.open("w") as first, err.open("w") as second:
        code, written = commanded(case, folder, first, second)
    executed = list(watched["executed"])
    return code, err.read_text(encoding="utf-8", errors="replace"), written, executed, sorted(listing(work / "out"))


def commanded(case: Case, folder: Path, out: TextIO, err: TextIO) -> tuple[int, list[str]]:
    """The exit code of a command, and what it wrote where it should not."""
    before = listing(folder)
    watched["written"].clear()
    watched["executed"].clear()
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.alarm(WAITING_SECONDS)
    code = 99
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(case.words)
    except BaseException:
        traceback.print_exc(file=err)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.alarm(0)
    inside = str((folder / "work" / "out").resolve()), os.devnull
    scratch = str((folder / "tmp").resolve())  # in which nothing may be left, as the listing says
    written = {name for name in watched["written"] if not name.startswith((*inside, scratch))}
    written |= {name for name in listing(folder) - before if not name.startswith(inside)}
    return code, sorted(written)


def listing(folder: Path) -> set[str]:
    """All names below a folder; torch's own cache is not ours to remove."""
    return {str(path) for path in folder.rglob("*") if "torchinductor" not in str(path)}


def check(outcome: Outcome, name: str) -> None:
    """One sentence, perhaps with a tip or after a note; nothing written elsewhere, nothing run."""
    lines = outcome.err.splitlines()
    assert outcome.code in (1, 2), (name, outcome.code, outcome.err[-2000:])
    told = [line for line in lines if not line.startswith(("  tip: ", "  allowed: ", "note: "))]
    assert len(told) == 1, (name, outcome.err)
    assert told[0].startswith("error: "), (name, outcome.err)
    assert not outcome.written, (name, outcome.written)
    assert not outcome.executed, (name, outcome.executed)


def json_edit(file: str, *path: str | int, value: object) -> Callable[[Path], None]:
    """Sets one value in a JSON file of the copied model."""

    def edit(work: Path) -> None:
        place = work / "m" / file
        values = json.loads(place.read_text(encoding="utf-8"))
        inner = values
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        place.write_text(json.dumps(values), encoding="utf-8")

    return edit
