"""Training on text that is larger than memory: python bench/large_text.py [MEGABYTES] [FILES] [STEPS] [OPTIONS…]

Writes a folder of synthetic text, trains on it by `headway train` in a process of its own, and prints the time and the
peak memory of that process.  500 MB take minutes, 10,000 MB an hour of one core.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WORDS, LINE, PARAGRAPH = 50_000, 12, 10_000  # different words, words of a line, lines that are made at once


def write(folder: Path, megabytes: int, files: int) -> int:
    """Words of a Zipf distribution, as syllables; the bytes that were written."""
    chance = np.random.default_rng(0)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "en", "is")]
    words = ["".join(chance.choice(syllables, size)) for size in chance.integers(1, 5, WORDS)]
    spelled = [word + end for end in (" ", ".\n") for word in words]  # within a line, and at its end
    letters, sizes = np.frombuffer("".join(spelled).encode(), np.uint8), np.array([len(one) for one in spelled])
    starts = np.cumsum(sizes) - sizes

    def paragraph() -> bytes:
        ranks = np.minimum(chance.zipf(1.2, (PARAGRAPH, LINE)), WORDS) - 1
        ranks[:, -1] += WORDS
        which = ranks.ravel()
        ends = np.cumsum(sizes[which])
        return letters[np.repeat(starts[which] - ends + sizes[which], sizes[which]) + np.arange(ends[-1])].tobytes()

    total = 0
    for number in range(files):
        with (folder / f"{number:05}.txt").open("wb") as out:
            while total < megabytes * 10**6 * (number + 1) / files:
                total += out.write(paragraph())
    return total


def main() -> None:
    megabytes, files, steps = (int(word) for word in [*sys.argv[1:4], *("500", "20", "20")[len(sys.argv[1:4]) :]])
    with tempfile.TemporaryDirectory(prefix="headway-large-") as place:
        text, out = Path(place, "text"), Path(place, "run")
        text.mkdir()
        size = write(text, megabytes, files)
        command = [sys.executable, "-m", "headway", "train", str(text), "--out", str(out), "--preset", "gpt-nano"]
        command += [
            "--train.steps",
            str(steps),
            "--train.evaluate-every",
            str(steps),
            "--data.max-length",
            "128",
            "--data.validation-split",
            "0.0005",
            *sys.argv[4:],
        ]
        print(" ".join(command), flush=True)
        start = time.monotonic()
        done = subprocess.run(command, check=False)
        seconds = time.monotonic() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"exit code {done.returncode}; {size:,} bytes in {files} files; {seconds:,.0f} s; peak {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
