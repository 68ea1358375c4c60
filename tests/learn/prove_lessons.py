"""Runs every lesson at full size, draws its figures and compares the answers of its questions with those known.

python tests/learn/prove_lessons.py [NAME …]
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from headway.learn.explanation import Question
from headway.learn.lesson import LESSONS, questions, take, write_lesson
from headway.learn.quiz import answer_text, is_right

MAX_SECONDS = 300  # on two cores; asked of the time of processors, since other programs may run beside it
# What the full lessons find: a choice, or a range where the number is measured; None: any answer, it is a time.
Known = str | tuple[float, float] | None
ANSWERS: dict[str, tuple[Known, Known, Known]] = {
    "three-ways": ("recurrent", (5, 5), "attention"),
    "complexity": ("attention", (1.6, 2.1), (32, 32)),
    "bottleneck-by-length": ("attention", (0.2, 0.8), "more"),
    "layer-counts": ((250000, 250000), (34, 34), "attention"),
    "why-scale": ((24, 42), "scaled", "scaled"),
    "masks": ((36, 36), (0.0, 0.3), "full"),
    "heads-at-equal-size": ((1, 1), "1", (0.2, 0.7)),
    "position-kinds": ("no", (4, 4), None),
    "permutation": ((1, 1), "self-attention", "self-attention"),
    "gru-to-attention": ((2, 20), (2, 2), "5 many heads"),
    "pre-and-post-norm": ("pre", None, "pre"),
    "norms-and-ffn": ("rms", (10368, 10368), None),
    "experts": ((15, 17), (3.5, 4.2), "mixture"),
    "bert-or-gpt": ((1, 1), "GPT", "BERT"),
    "training-direction": (None, "anywhere", (0.5, 1.0)),
    "patches-are-convolution": ((196, 196), (147648, 147648), "no"),
    "pixels-to-windows": ((1.9, 2.1), (64, 64), (0.9, 1.0)),
    "receptive-field": ((169, 169), "attention", "yes"),
    "product-or-convolution": ((1, 1), None, None),
    "vit-or-resnet": ("ViT", "ResNet", (0.2, 0.8)),
    "word-vectors": ("animals", "backward", "both"),
    "contextual-embeddings": ("contextual", (0.999, 1.001), "street"),
    "pretrain-and-freeze": ((5, 1000), "fine-tuned", "no"),
    "kinds-of-attention": ("location", "location", (1, 1)),
    "feature-superposition": ((2, 2), None, "0.99"),
    "retrieval-as-attention": ("cats at home", (3.0, 7.0), "dog"),
    "latent-directions": ((42, 43), (2, 16), "below"),
    "not-similarity-search": ((0.9, 1.0), (0.0, 0.2), "no"),
    "encoder-decoder-wiring": ((0, 0), (4, 4), (4, 4)),
    "linear-scores": ("linear", (2, 2), (1, 1)),
}


def fits(question: Question, known: Known) -> bool:
    if known is None:
        return True
    if isinstance(known, str):
        return is_right(question, known)
    return isinstance(question.answer, int | float) and known[0] <= question.answer <= known[1]


def prove(name: str) -> bool:
    """Runs a lesson and prints its time, its answers and whether they are the known ones."""
    start, used = perf_counter(), process_time()
    with TemporaryDirectory() as folder:
        found = take(name, {})
        write_lesson(found, Path(folder))
    took, used, asked = perf_counter() - start, process_time() - used, questions(found)
    good = [fits(question, known) for question, known in zip(asked, ANSWERS[name], strict=True)]
    right = used <= 2 * min(MAX_SECONDS, 60 * LESSONS[name].minutes) and all(good)
    answers = ", ".join(f"{answer_text(q)}{'' if ok else ' (not as known)'}" for q, ok in zip(asked, good, strict=True))
    print(f"{name:24} {took:6.1f} s, {used:6.1f} s of processors  {'ok' if right else 'NOT OK'}  {answers}", flush=True)
    return right


if __name__ == "__main__":
    names = sys.argv[1:] or list(LESSONS)
    begin = perf_counter()
    results = [prove(name) for name in names]
    print(f"{sum(results)} of {len(results)} lessons as known, {(perf_counter() - begin) / 60:.1f} minutes")
    sys.exit(not all(results))
