"""Keeping freed memory is a matter of glibc alone; elsewhere nothing happens."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from headway import system as memory

BUFFERS = """
import resource, sys
from headway.system import keep_memory
if sys.argv[1] == "kept":
    assert keep_memory()
buffers = [bytearray(33 * 2**20) for _ in range(2)]
del buffers
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
buffers = [bytearray(33 * 2**20) for _ in range(2)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_pages_are_used_again() -> None:
    """Two buffers of 33 MB have 16,896 pages: gotten anew, or not."""
    pages = {how: pages_of(how) for how in ("kept", "returned")}
    assert pages["kept"] < 1000
    assert pages["returned"] > 10_000


def pages_of(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", BUFFERS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())  # as with musl: no glibc's names
    assert memory.keep_memory() is False
    for system in ("darwin", "win32"):
        monkeypatch.setattr(memory.sys, "platform", system)
        assert memory.keep_memory() is False
