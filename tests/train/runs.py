"""Whole runs of every family, so small that they take a fraction of a second, and what is compared of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image

from headway.training.build import counted_error_of, evaluator_of, learner_of, limits_of, require
from headway.training.dataset import Batches
from headway.training.interruption import Interruption
from headway.training.learner import Learner, StepResult
from headway.training.loop import Run, RunResult
from headway.training.metrics_log import MetricsLog
from headway.training.plan import Plan, plan
from headway.training.recipe_sources import read_layers
from headway.training.store import Snapshot, Store

NOUNS = ["cat", "dog", "house", "tree", "boat", "bird", "river", "child", "teacher", "moon"]
VERBS = ["sees", "finds", "likes", "leaves", "paints", "hears", "follows", "knows"]
SIGHTS = ["sieht", "findet", "mag", "verlässt", "malt", "hört", "folgt auch", "kennt ja"]


@contextmanager
def data_in(folder: Path) -> Generator[Path]:
    """Within it, the data lies in this folder, which is the current one and has a cache of its own."""
    write_data(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HEADWAY_CACHE", str(folder / "cache"))
        yield folder


def write_data(folder: Path) -> None:
    """Pairs, labelled texts, tagged words and a long text, always the same."""
    draw = random.Random(1)
    sentences = [(draw.choice(NOUNS), draw.choice(VERBS), draw.choice(NOUNS)) for _ in range(120)]
    texts = [f"the {a} {v} the {b}{' today' * draw.randint(0, 2)}" for a, v, b in sentences]
    told = [f"{SIGHTS[VERBS.index(v)]} {b[::-1]} {a[::-1]}." for a, v, b in sentences]
    rows = [f"{text}\t{other}" for text, other in zip(texts, told, strict=True)]
    (folder / "pairs.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    labels = [f'"{text}",{"up" if v < "l" else "down"}' for text, (_, v, _) in zip(texts, sentences, strict=True)]
    (folder / "labels.csv").write_text("text,label\n" + "".join(f"{row}\n" for row in labels), encoding="utf-8")
    tags = [json.dumps({"words": text.split(), "tags": [word[-1] for word in text.split()]}) for text in texts]
    (folder / "tags.jsonl").write_text("".join(f"{row}\n" for row in tags), encoding="utf-8")
    (folder / "text.txt").write_text(". ".join(texts), encoding="utf-8")
    chats = [json.dumps({"prompt": text, "completion": other}) for text, other in zip(texts, told, strict=True)]
    (folder / "chats.jsonl").write_text("".join(f"{row}\n" for row in chats), encoding="utf-8")
    write_composed(folder, sentences)
    write_media(folder)


def write_composed(folder: Path, sentences: Sequence[tuple[str, str, str]]) -> None:
    """Text pairs, scored texts, texts with several labels, and questions, of the same sentences."""
    texts = [f"the {a} {v} the {b}" for a, v, b in sentences]
    said = [f"a {a} {v}" if at % 2 else f"a {b} sleeps" for at, (a, v, b) in enumerate(sentences)]
    rows = [
        f"{text},{other},{'yes' if at % 2 else 'no'}\n"
        for at, (text, other) in enumerate(zip(texts, said, strict=True))
    ]
    (folder / "entailed.csv").write_text("premise,hypothesis,label\n" + "".join(rows), encoding="utf-8")
    rows = [f"{text},{said[at]},{len(text) / 4 + at / 9:.3f}\n" for at, text in enumerate(texts)]
    (folder / "similar.csv").write_text("sentence1,sentence2,score\n" + "".join(rows), encoding="utf-8")
    scores = [f"{text},{len(text) + at / 7:.3f}\n" for at, text in enumerate(texts)]
    (folder / "scores.csv").write_text("text,score\n" + "".join(scores), encoding="utf-8")
    sets = [
        {"text": text, "labels": sorted({a[0], b[0]} - {"m"})} for text, (a, _, b) in zip(texts, sentences, strict=True)
    ]
    asked = [
        {"question": f"who {v}?", "context": text, "answers": [{"text": f"the {a}", "answer_start": 0}] * (at % 5 > 0)}
        for at, (text, (a, v, _)) in enumerate(zip(texts, sentences, strict=True))
    ]
    for name, objects in (("labels.jsonl", sets), ("questions.jsonl", asked)):
        (folder / name).write_text("".join(f"{json.dumps(one)}\n" for one in objects), encoding="utf-8")


def write_media(folder: Path) -> None:
    """Images and sounds of two classes, spoken digits, series and sets, always the same."""
    draw = np.random.default_rng(1)
    for at in range(40):
        kind = ("dark", "light")[at % 2]
        place = folder / "photos" / kind
        place.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 120, (8, 8, 3)) + 120 * (at % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(place / f"{at}.png")
    (folder / "sounds").mkdir(exist_ok=True)
    for at in range(30):
        digits = draw.integers(0, 2, 3)
        tones = [np.sin(np.arange(300 + 40 * (at % 3)) * (0.3 + 0.9 * digit)) for digit in digits]
        name = folder / "sounds" / f"{'_'.join(map(str, digits))}-{at}.wav"
        soundfile.write(name, np.concatenate(tones) * 0.5, 4000)
    write_captions(folder / "told")
    series = [[*(draw.normal(at % 2, 1.0, 6).round(3)), f"c{at % 2}"] for at in range(60)]
    rows = ["a,b,c,d,e,f,label", *(",".join(map(str, row)) for row in series)]
    (folder / "series.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    heaps = [draw.normal(at % 2, 1.0, (1 + at % 4, 2)).round(3).tolist() for at in range(60)]
    moments = [f"{at / 7 % 3:.3f},{np.sin(at / 4) + draw.normal(0, 0.1):.3f}" for at in range(90)]
    (folder / "moments.csv").write_text("\n".join(["ramp,wave", *moments]) + "\n", encoding="utf-8")
    sets = [{"points": heap, "label": f"c{at % 2}"} for at, heap in enumerate(heaps)]
    (folder / "sets.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in sets), encoding="utf-8")
    write_scores(folder, series)


def write_scores(folder: Path, series: Sequence[Sequence[Any]]) -> None:
    """Tables with a number for each image, sound and series: how light, how loud, and how large on average."""
    found = {
        "light.csv": [(file, np.asarray(Image.open(file)).mean()) for file in sorted(folder.glob("photos/*/*.png"))],
        "loud.csv": [
            (file, soundfile.read(file)[0].std() + at / 100)  # no two alike: ranks of ties have no interval
            for at, file in enumerate(sorted(folder.glob("sounds/*.wav")))
        ],
    }
    for name, rows in found.items():
        lines = [f"{file.relative_to(folder).as_posix()},{number:.4f}" for file, number in rows]
        (folder / name).write_text("\n".join(["file,much", *lines]) + "\n", encoding="utf-8")
    lines = [",".join(map(str, [*row[:-1], round(sum(row[:-1]), 3)])) for row in series]
    (folder / "sums.csv").write_text("\n".join(["a,b,c,d,e,f,target", *lines]) + "\n", encoding="utf-8")


def write_captions(folder: Path) -> None:
    """Images of one colour, with two or three captions each, always the same."""
    draw = np.random.default_rng(2)
    folder.mkdir(exist_ok=True)
    lines = list[str]()
    for at in range(40):
        name, colour = ("red", "green", "blue")[at % 3], 3 * [40]
        colour[at % 3] = 220
        Image.fromarray((draw.integers(0, 20, (8, 8, 3)) + colour).astype(np.uint8)).save(folder / f"{at}.png")
        texts = [f"a {name} square", f"there is a {name} one", f"{name}"][: 2 + at % 2]
        lines.append(json.dumps({"image": f"{at}.png", "captions": texts}))
    (folder / "captions.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


SMALL = {"model.dim": "16", "model.heads": "2", "model.layers": "1"}
GATED = {**SMALL, "model.kv_heads": "1", "model.hidden": "16", "model.attention_dropout": "0.1"}
PAIRS = {"data.path": ("pairs.tsv",), "train.batch": "70", "train.dropout": "0.1", "data.tokenizer": "words"}
LABELS = {"data.path": ("labels.csv",), "train.batch": "80", "train.dropout": "0.1"}
IMAGES = {"data.path": ("photos",), "train.batch": "8"}
SWIN = "{kind: Swin, patch: 2, dim: 8, layers: [1, 1], heads: [1, 2], windows: [2, 2]}"
NARROW = {"model.dim": "8", "model.widths": "[8, 16]", "model.layers": "[1, 1]"}
SOUNDS = {"data.path": ("sounds",), "model.preset": "conformer-nano", "model.hidden": "16", "model.channels": "4"}
SOUNDS |= {"model.kernel": "3", "train.batch": "300"}
CAPTIONS = {"data.path": ("told",), "data.tokenizer": "words", "train.batch": "8", "model.image": "8"}
TELLING = {**CAPTIONS, "model.widths": "[8, 8]", "model.dim": "8", "model.hidden": "12", "model.align": "8"}
TOWERS = {"model.patch": "4", "model.image_dim": "16", "model.image_heads": "2", "model.image_layers": "1"}
TEXT = {"data.path": ("text.txt",), "train.batch": "192", "data.max_length": "24"}

FAMILIES: dict[str, dict[str, Any]] = {
    "transformer": {**PAIRS, **SMALL, "model.preset": "transformer-nano", "model.attention_dropout": "0.1"},
    "rnn": {**PAIRS, "model.preset": "rnnsearch-small", "model.dim": "8", "model.hidden": "12", "model.readout": "8"},
    "seq2seq": {**PAIRS, "model.preset": "seq2seq-lstm", "model.dim": "8", "model.hidden": "12", "model.layers": "2"},
    "t5": {**PAIRS, **SMALL, "model.preset": "t5-tiny", "model.head_dim": "8", "model.hidden": "16"},
    "gpt2": {**TEXT, **SMALL, "model.preset": "gpt-nano", "train.dropout": "0.1"},
    "llama": {**TEXT, **GATED, "model.preset": "llama2-7b"},
    "mixtral": {**TEXT, **GATED, "model.preset": "mixtral-8x7b", "model.experts": "4"},
    "masked": {**TEXT, **SMALL, "model.preset": "bert-tiny", "train.dropout": "0.1", "train.batch": "70"},
    "classes": {**LABELS, **SMALL, "model.preset": "bert-tiny"},
    "votes": {**LABELS, **SMALL, "model.preset": "text-classifier-tiny"},
    "vit": {**IMAGES, **SMALL, "model.preset": "vit-nano", "data.augment": "crop,flip,randaugment,erase,mixup,cutmix"},
    "resnet": {
        **IMAGES,
        "model.preset": "resnet-nano",
        "model.widths": "[8, 16]",
        "model.layers": "[1, 1]",
        "model.dim": "8",
    },
    "mae": {**IMAGES, **SMALL, "model.preset": "mae-nano", "model.image": "8", "model.decoder_layers": "1"},
    "simmim": {**IMAGES, **SMALL, "model.preset": "simmim-nano", "data.augment": "crop,flip"},
    "simmim swin": {**IMAGES, "model.preset": "simmim-swin-b", "model.encoder": SWIN, "model.image": "8"},
    "simclr": {**IMAGES, "model.preset": "simclr-nano", "model.image": "8", "model.width": "16"},
    "conformer": {**SOUNDS, **SMALL, "data.label_from": r"(\d)", "data.augment": "speed,noise,gain,specaugment"},
    "speech": {**SOUNDS, **SMALL, "data.task": "speech", "data.label_from": r"(\d_\d_\d)", "model.factor": "2"},
    "captions": {**TELLING, "model.preset": "captioner-small", "train.dropout": "0.1", "data.augment": "crop,flip"},
    "glimpses": {**TELLING, "model.preset": "captioner-small-hard"},
    "described": {**CAPTIONS, **SMALL, "model.preset": "vit-captioner-small", "model.patch": "4"}
    | {"model.decoder_layers": "1", "train.dropout": "0.1"},
    "clip": {**CAPTIONS, **SMALL, **TOWERS, "model.preset": "clip-nano", "model.width": "8", "train.batch": "12"},
    "sets": {**SMALL, "data.path": ("sets.jsonl",), "model.preset": "vectors-small", "train.batch": "40"},
    "forecast": {**SMALL, "data.path": ("moments.csv",), "data.task": "forecast", "train.batch": "16"},
}

# the tasks that no family above stands for
MORE: dict[str, dict[str, Any]] = {
    "dictation": {**SOUNDS, **SMALL, "data.task": "speech", "data.label_from": r"(\d_\d_\d)", "data.objective": "text"}
    | {"model.factor": "2", "model.decoder_layers": "1"},
    "clip over a swin": {**CAPTIONS, **SMALL, "model.preset": "clip-resnet-18", "model.encoder": "swin-nano"}
    | {"model.width": "8", "train.batch": "12"},
    "spans": {**TEXT, **SMALL, "model.preset": "t5-tiny", "model.head_dim": "8", "model.hidden": "16"},
    "tags": {**FAMILIES["classes"], "data.path": ("tags.jsonl",)},
    "two texts": {**FAMILIES["classes"], "data.path": ("entailed.csv",)},
    "numbers": {**FAMILIES["votes"], "data.path": ("scores.csv",)},
    "scored pairs": {**FAMILIES["classes"], "data.path": ("similar.csv",)},
    "several labels": {**FAMILIES["classes"], "data.path": ("labels.jsonl",)},
    "questions": {**FAMILIES["classes"], "data.path": ("questions.jsonl",), "data.max_length": "12"},
    "chats": {**FAMILIES["gpt2"], "data.path": ("chats.jsonl",), "data.max_length": "96"},
    "series": {**FAMILIES["sets"], "data.path": ("series.csv",)},
    "scored images": {**FAMILIES["resnet"], "data.path": ("light.csv",)},
    "scored sounds": {**SOUNDS, **SMALL, "data.path": ("loud.csv",), "data.task": "regression"}
    | {"data.validation_split": "0.4"},  # of six records a resample may be six times the same
    "scored series": {**FAMILIES["sets"], "data.path": ("sums.csv",)},
}

STEPS = 24
PACE = {
    "train.steps": str(STEPS),
    "train.grad_accumulation": "2",
    "train.lr": "0.01",
    "train.ema_decay": "0.8",
    "train.average": "2",
    "train.log_every": "3",
    "train.evaluate_every": "12",
    "train.checkpoint_every": "5",
    "train.threads": "1",
}


def planned(name: str, **more: Any) -> Plan:
    """The plan of a family's run, on the files of `write_data` in this folder."""
    return plan(read_layers({**FAMILIES, **MORE}[name] | {**PACE, "out": "run", **more}, environ={}))


class Silent:
    """Whoever watches a run and says nothing."""

    def on_step(self, update: StepResult, seconds: float) -> None: ...
    def on_log(self, line: Mapping[str, Any]) -> None: ...
    def on_evaluate(self, step: int, found: Any, best: bool) -> None: ...
    def on_save(self, step: int) -> None: ...
    def on_message(self, sentence: str) -> None: ...


class Noted(list[Any]):
    """The batches of a step, and what they were made of: epoch, number and rows of each."""

    places: list[tuple[int, int, list[int]]]


class NotedBatches(Batches):
    """Batches that say which rows they hold, also when another process made them."""

    def __getitem__(self, step: int) -> Noted:
        noted = Noted(super().__getitem__(step))
        noted.places = [(place.epoch, place.batch, place.rows.tolist()) for place in self.steps.at(step - 1)]
        return noted


@dataclass
class Trial:
    """A run in a folder, in which every step is noted; `seen` goes on when a run is resumed."""

    made: Plan
    folder: Path
    workers: int = 0
    seen: list[tuple[int, list[tuple[int, int, list[int]]]]] = field(default_factory=list)

    def run(self, cut: int | None = None, *, resume: bool = False) -> RunResult:
        """All parts built anew; interrupted after step `cut`."""
        interruption, learner = Interruption(), learner_of(self.made)
        self.watch(learner, interruption, cut)
        run = Run(
            learner,
            self.batches(),
            limits_of(self.made.recipe),
            self.store,
            MetricsLog(self.folder),
            [Silent()],
            evaluator_of(self.made),
            counted_error=counted_error_of(self.made),
        )
        if resume:
            run.resume()
        return run.run(interruption)

    def watch(self, learner: Learner, interruption: Interruption, cut: int | None) -> None:
        learn = learner.learn

        def noted(step: int, batches: Noted) -> StepResult:
            self.seen.append((step, batches.places))
            if step == cut:
                interruption.asked = 15
            return learn(step, batches)

        learner.learn = noted  # type: ignore[method-assign]

    def batches(self) -> Callable[[int, int], Iterator[list[Any]]]:
        train = self.made.recipe.train
        plain = self.made.encoded.batches(require(train.batch), train.grad_accumulation)
        noted = NotedBatches(plain.task, plain.examples, plain.steps, plain.seed)
        return lambda first, last: noted.between(first, last, self.workers)

    @property
    def store(self) -> Store:
        return Store(self.folder / "checkpoints", keep=self.made.recipe.train.keep_last)

    def left(self) -> tuple[Snapshot, bytes]:
        """The last checkpoint and the metrics."""
        found = self.store.latest()
        assert found is not None
        assert found[1] == []
        return found[0], (self.folder / "metrics.jsonl").read_bytes()
