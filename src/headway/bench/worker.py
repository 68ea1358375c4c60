"""The process of one contender: it is prepared once, and then runs cases as often as it is told to.

    python -m headway.bench.worker SUITE CONTENDER FOLDER SIZES THREADS

Each line of standard input is the name of a case, and each line of standard output the JSON of a `Timing`.  CPU time is
that of all threads and of child processes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TextIO

from headway.bench.limits import LIMITS
from headway.bench.measurement import timed
from headway.bench.suite import Suite, Workspace
from headway.bench.suites import SUITES

CONVERT = "convert:"  # before the name of a contender whose files are to be written
WRITE = "write"  # in place of a contender: the suite's own files


def main(suite: str, contender: str, folder: str, sizes: str, threads: str) -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is none of the answers
    work = Workspace(Path(folder), json.loads(sizes), int(threads))
    serve({**SUITES, LIMITS.name: LIMITS}[suite], contender, work, sys.stdin, out)


def serve(suite: Suite, name: str, work: Workspace, lines: TextIO, out: TextIO) -> None:
    if name == WRITE:
        suite.write(work)
        return
    if name.startswith(CONVERT):
        convert = suite.contender(name.removeprefix(CONVERT)).convert
        assert convert is not None
        convert(work)
        return
    cases = {case.name: case for case in suite.cases(work.sizes)}
    run = suite.contender(name).prepare(work)
    print(json.dumps({}), file=out, flush=True)
    answered = set[str]()
    for line in lines:
        case = cases[line.strip()]
        found = timed(run, case)
        if case.name in answered:
            del found["answer"]
        answered.add(case.name)
        print(json.dumps(found), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
