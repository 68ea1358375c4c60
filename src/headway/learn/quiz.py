"""The quiz: an explanation that asks before each marked step, checks the answer and ends with a score."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from headway.figures import Plot
from headway.learn.explanation import Explanation, ExplanationStep, Question, cell_text
from headway.learn.rendering import in_page, text_of_step, wrapped


@dataclass(frozen=True)
class QuizScore:
    right: int
    asked: int


def quiz(found: Explanation, answers: Iterable[str], say: Callable[[str], None]) -> QuizScore:
    """Tells an explanation step by step and asks before some; `answers` are lines of a terminal or a file.

    Where the lines end, what is left is shown, and its questions count as not answered.
    """
    say(wrapped(found.summary))
    return ask_through(found.steps, answers, say)


def ask_through(
    steps: Iterable[ExplanationStep],
    answers: Iterable[str],
    say: Callable[[str], None],
    figure_note: Callable[[int, Plot], str] = in_page,
) -> QuizScore:
    """The steps of a quiz, each computed when its turn comes."""
    lines, right, asked = iter(answers), 0, 0
    for number, step in enumerate(steps, 1):
        if step.question is not None:
            asked += 1
            say(f"\n{wrapped(f'Question {asked}: {asking(step.question)}')}")
            given = next(lines, None)
            fits = given is not None and is_right(step.question, given)
            right += fits
            said = "right" if fits else "no answer" if given is None else "not right"
            say(f"{said}: {answer_text(step.question)}")
        say(f"\n{text_of_step(number, step, figure_note)}")
    say(f"\nScore: {right} of {asked}")
    return QuizScore(right, asked)


def asking(question: Question) -> str:
    choices = "".join(f"\n  {at}. {choice}" for at, choice in enumerate(question.choices, 1))
    return f"{question.text}{choices}" if choices else f"{question.text} (± {question.tolerance:g})"


def answer_text(question: Question) -> str:
    return question.answer if isinstance(question.answer, str) else cell_text(question.answer, ".6g")


def is_right(question: Question, given: str) -> bool:
    """Whether an answer is within the tolerance, or names the choice, by its text or its number."""
    given = given.strip()
    if isinstance(question.answer, str):
        numbers = {str(at): choice for at, choice in enumerate(question.choices, 1)}
        return numbers.get(given.rstrip(".)"), given).casefold() == question.answer.casefold()
    number = read_number(given)
    return number is not None and abs(number - question.answer) <= question.tolerance


def read_number(text: str) -> float | None:
    """0.5, 0,5, 1/2, 5e-1 and 9 834 496 as numbers; None: it is none."""
    try:
        return float(Fraction(text.replace(" ", "").replace("_", "").replace(",", ".")))
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
