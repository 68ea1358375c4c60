"""Runs every lesson at full size, draws its figures and compares the answers of its questions with those known.

python tests/learn/prove_lessons.py [NAME …]
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from headway.learn.explanation import Question
from headway.learn.lesson import LESSONS, questions, take, write_lesson
from headway.learn.quiz import answer_text, is_right

MAX_SECONDS = 300
# What the full lessons find: a choice, or a range where the number is measured; None: any answer, it is a time.
Known = str | tuple[float, float] | None
ANSWERS: dict[str, tuple[Known, Known, Known]] = {
    "why-scale": ((24, 40), "scaled", "scaled"),
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
    start = perf_counter()
    with TemporaryDirectory() as folder:
        found = take(name, {})
        write_lesson(found, Path(folder))
    took, asked = perf_counter() - start, questions(found)
    good = [fits(question, known) for question, known in zip(asked, ANSWERS[name], strict=True)]
    right = took <= min(MAX_SECONDS, 60 * LESSONS[name].minutes) and all(good)
    answers = ", ".join(f"{answer_text(q)}{'' if ok else ' (not as known)'}" for q, ok in zip(asked, good, strict=True))
    print(f"{name:24} {took:6.1f} s  {'ok' if right else 'NOT OK'}  {answers}", flush=True)
    return right


if __name__ == "__main__":
    names = sys.argv[1:] or list(LESSONS)
    begin = perf_counter()
    results = [prove(name) for name in names]
    print(f"{sum(results)} of {len(results)} lessons as known, {(perf_counter() - begin) / 60:.1f} minutes")
    sys.exit(not all(results))
