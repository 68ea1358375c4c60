"""`make bench`: time and memory, as tables.  Each figure is measured in a process of its own.

Absolute times mean little on a shared machine; the growth from row to row is what the tables are for.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from math import log2
from pathlib import Path
from typing import Any

HEADS, HEAD_DIM = 8, 64
LENGTHS = (4_096, 16_384, 65_536)


def main() -> None:
    start_up()
    speed()
    training()
    memory()
    summary()
    pages()


def start_up() -> None:
    """CPU seconds until a command has answered; importing torch alone takes about two."""
    print("| command | CPU s |\n| --- | ---: |")
    for words in ("--help", "exlpain", "explain attention"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "headway", *words.split()], capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"| headway {words} | {spent:.2f} |", flush=True)


def speed() -> None:
    print("\nAgainst transformers on the same weights, one thread, CPU seconds; a ratio above 1 is in our favour.\n")
    print("| work | transformers | headway | ratio |\n| --- | ---: | ---: | ---: |")
    found = printed("speed.py")
    for work, times in found["against transformers"].items():
        print(f"| {work} | {times['theirs s']:.2f} | {times['ours s']:.2f} | {times['ratio']:.2f} |", flush=True)
    told = ", ".join(f"{ms:.1f} ms after {before}" for before, ms in found["a token after"].items())
    print(f"\nOne more token of GPT-2's shape: {told} others (the cache alone is 74 kB a token).", flush=True)


def training() -> None:
    print("\nTraining: real tokens, or images, a CPU second, one thread, AdamW; ratios to the first of each.\n")
    print("| work | contender | a second | ratio |\n| --- | --- | ---: | ---: |")
    for work, speeds in {**printed("training.py"), **printed("vision.py")}.items():
        first = next(iter(speeds.values()))
        for name, count in speeds.items():
            print(f"| {work} | {name} | {count:,.4g} | {count / first:.2f} |", flush=True)


def printed(file: str, *words: str) -> dict[str, Any]:
    """What a program beside this one prints, read as JSON."""
    command = [sys.executable, str(Path(__file__).with_name(file)), *words]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def memory() -> None:
    print(f"\nCausal self-attention, forward, {HEADS} heads of {HEAD_DIM}, float32: memory beyond the inputs.")
    print("'growth' is the factor for each doubling of the length (2 is linear, 4 quadratic).\n")
    print("| length | forward MiB | growth | s | read whole map MiB | growth | s | matrix stored MiB |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    before: dict[str, tuple[int, float]] = {}
    for length in LENGTHS:
        cells = [f"{length:,}"]
        for job in ("forward", "read"):
            done = printed("memory.py", job, str(length))
            cells += [f"{done['MiB']:.0f}", growth(before.get(job), length, done["MiB"]), f"{done['seconds']:.1f}"]
            before[job] = length, done["MiB"]
        stored = HEADS * length * length * 4 / 2**20
        print(f"| {' | '.join([*cells, f'{stored:,.0f}'])} |", flush=True)


def summary() -> None:
    print("\nheadway inspect heads on one text, 4 layers of 4 heads: all the memory that the command held.\n")
    print("| tokens | MiB | CPU s |\n| ---: | ---: | ---: |")
    for tokens in (4_096, 32_768):
        done = printed("heads.py", str(tokens))
        print(f"| {tokens:,} | {done['MiB']:,.0f} | {done['CPU s']:.0f} |", flush=True)


def pages() -> None:
    print("\nThe page of headway look, 144 heads, in Chromium: another head, of the same site and of another one.\n")
    found = printed("page.py")
    if not found:
        print("not measured: there is no browser; make browser installs it")
        return
    print("| tokens | MB | ready ms | switch, median ms | worst | other site, median ms | worst |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for tokens, one in found.items():
        switches = [one[where][which] for where in ("same site", "other site") for which in ("median", "worst")]
        told = (f"{milliseconds:.0f}" for milliseconds in (one["ready ms"], *switches))
        print(f"| {tokens} | {one['MB']:.2f} | {' | '.join(told)} |", flush=True)


def growth(before: tuple[int, float] | None, length: int, mebibytes: float) -> str:
    if before is None:
        return "–"
    return f"{(mebibytes / before[1]) ** (1 / log2(length / before[0])):.2f}×"


if __name__ == "__main__":
    main()
