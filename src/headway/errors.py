"""Layer 0: the one error that talks to a person, and what it advises, spelled as it can be typed."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from difflib import get_close_matches
from errno import EACCES, EADDRINUSE
from pathlib import Path
from typing import ClassVar

MAX_ALLOWED = 50  # characters of a list that a sentence has room for before its advice


class UserError(ValueError):
    """A mistake that a person can mend, told in one sentence.

    `said` is what was given and why it cannot be; `allowed` is what may be given; `meant` is the nearest right
    name; `do` is the next thing to try.  A long list of what is allowed comes last: `advice` is all before it.
    """

    code: ClassVar[int] = 2  # with which a command ends

    def __init__(self, said: str, *, allowed: str | None = None, meant: str | None = None, do: str | None = None):
        asked = f"did you mean {meant!r}?" if meant else None
        choices = f"allowed: {allowed}" if allowed else None
        long_list = choices if allowed and len(allowed) > MAX_ALLOWED else None
        self.advice = "; ".join(part for part in (said, None if long_list else choices, do, asked) if part)
        behind = " " if self.advice.endswith("?") else "; "
        super().__init__(f"{self.advice}{behind}{long_list}" if long_list else self.advice)
        self.said, self.allowed, self.meant, self.do, self.long_list = said, allowed, meant, do, long_list


class LostProcessError(UserError):
    """Another process of the same run is gone: no mistake, so a run may be started again."""

    code = 1


def nearest(word: str, names: Iterable[str], likeness: float = 0.6) -> str | None:
    """The name that `word` was probably meant to be, or None where none is as like it, of 1."""
    found = get_close_matches(word, list(names), n=1, cutoff=likeness)
    return found[0] if found else None


def listed(names: Iterable[str], most: int = 8) -> str:
    """Names for a sentence: the first `most` of them, and how many more there are."""
    names = list(names)
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def counted(number: float, noun: str) -> str:
    """1 line, 2 lines, 0.5 minutes"""
    said = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{said} {noun}" if number == 1 else f"{said} {noun}s"


def argument(text: str) -> str:
    """A text as it is typed behind all options of a command; one that begins with a dash is no option."""
    return f"-- {shlex.quote(text)}" if text.startswith("-") else shlex.quote(text)


def path_argument(path: Path | str) -> str:
    """A path as it is typed anywhere in a command; one that begins with a dash is no option."""
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))


def going_on(folder: Path | str) -> str:
    """The command that goes on with the training of a folder."""
    return f"headway train --out {path_argument(folder)} --resume"


def no_model(place: Path) -> UserError:
    """What is said where a model is asked for and there is none."""
    said = "is not a folder" if place.exists() else "does not exist"
    return UserError(f"{place} {said}", allowed="a folder with config.json and model.safetensors, or a .gguf file")


@contextmanager
def malformed(place: str) -> Generator[None]:
    """Where a file holds what no check has foreseen, one sentence names the file; the mistake is kept as its cause."""
    try:
        yield
    except UserError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UserError(f"{place} cannot be understood: {type(error).__name__} {error!s:.100}") from error


@contextmanager
def port_errors(port: int) -> Generator[None]:
    """A port that cannot be bound is told with what to do."""
    if not 0 <= port <= 65535:
        raise UserError(f"port={port}", allowed="1 to 65535, or 0 for any that is free")
    try:
        yield
    except OSError as error:
        if error.errno not in (EADDRINUSE, EACCES):
            raise
        why = "in use" if error.errno == EADDRINUSE else "not permitted"
        raise UserError(
            f"port {port} is {why}", do="give another, as in port=8766, or 0 for any that is free"
        ) from None
