"""The mutation proof: for each law a deliberate defect, planted in memory, that must turn it red.

`python tests/laws/mutants.py [WORD …]` first sees every law green, then plants each defect (or those whose law
contains a WORD) and reports how many were killed, and how.  `make proof` runs it; `test_mutants.py` sees that no law
is without a defect.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent.parent))

from tests.laws.defects import grids, images, operator, parts, sequences  # noqa: E402

MISPLANTED = {"NameError", "TypeError", "AttributeError", "ImportError"}  # the defect itself is broken: no proof
MUTANTS = [*operator.MUTANTS, *parts.MUTANTS, *sequences.MUTANTS, *grids.MUTANTS, *images.MUTANTS]


def laws() -> list[str]:
    """Every test in this folder's law files, as file::test."""
    found = (line for file in sorted(FOLDER.glob("test_*.py")) for line in tests_in(file))
    return [law for law in found if not law.startswith("test_mutants.py")]


def tests_in(file: Path) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [f"{file.name}::{line[4:].partition('(')[0]}" for line in lines if line.startswith("def test_")]


class Failures:
    """A pytest plugin that remembers how tests failed."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def pytest_exception_interact(self, call: pytest.CallInfo[None]) -> None:
        self.kinds.append("" if call.excinfo is None else call.excinfo.typename)


def failure(law: str) -> str | None:
    """The kind of error by which a law fails as things are now, or None where all of its tests pass."""
    torch._dynamo.reset()
    failures = Failures()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "--hypothesis-seed=0"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = pytest.main([*options, str(FOLDER / law)], plugins=[failures])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{law} could not be run: {code!r}")
    return None if code == pytest.ExitCode.OK else failures.kinds[0]


def main(words: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.law for word in words)]
    broken = [law for law in sorted({mutant.law for mutant in chosen}) if failure(law)]
    if broken:
        print("red without any defect:", *broken, sep="\n  ")
        return 1
    killed = 0
    for mutant in chosen:
        with mutant.planted():
            kind = failure(mutant.law)
        dead = kind is not None and kind not in MISPLANTED
        killed += dead
        how = "SURVIVED" if kind is None else f"killed by {kind}" if dead else f"MISPLANTED, {kind}"
        print(f"{mutant.law.partition('::')[2]}: {mutant.defect}: {how}", flush=True)
    print(f"{killed} of {len(chosen)} killed")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
