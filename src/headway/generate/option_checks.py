"""The options of decoding, and what they may be together: without torch, so that a command can refuse at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from headway.errors import UserError


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """Options by name, as `predict` and the command take them: any option of sampling asks to sample.

    `beam` searches with so many beams and keeps the `best` answers; a `patient` search ends when no open beam can win.
    `draft` is a smaller model that proposes tokens, and `lookup` proposes what followed the same tokens before.
    `source_language` and `target_language` are those of a translator that knows several, as its tokenizer spells them.
    `prompt` is what a model that reads an image and words is asked about each image.
    """

    max_new_tokens: int | None = None
    stop: str | Sequence[str] = ()
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int = 0
    beam: int | None = None
    length_penalty: float | None = None
    best: int | None = None
    patient: bool = False
    draft: Any = None
    lookup: bool = False
    source_language: str | None = None
    target_language: str | None = None
    prompt: str | None = None

    @property
    def samples(self) -> bool:
        return any(option is not None for option in (self.temperature, self.top_k, self.top_p, self.min_p))

    def __post_init__(self) -> None:
        searching = {"length_penalty": self.length_penalty, "best": self.best, "patient": self.patient or None}
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise UserError(f"max_new_tokens= is {self.max_new_tokens}", allowed="1 or more")
        if self.draft is not None and self.lookup:
            raise UserError("draft= and lookup= both guess what comes next", do="give one of them")
        if self.beam is None and (named := [name for name, value in searching.items() if value is not None]):
            raise UserError(f"{named[0]}= is for beams", do="give beam= too, such as 4")
        if self.beam is not None:
            self.check_beam(self.beam)
        heat = 1.0 if self.temperature is None else self.temperature
        check_sampling(heat, self.top_k, self.top_p, self.min_p, self.repetition_penalty)

    def check_beam(self, width: int) -> None:
        if width < 1:
            raise UserError(f"beam= is {width}", allowed="1 beam or more")
        if self.samples:
            raise UserError("beam= searches and does not draw", do="give beam=, or temperature= and its like")
        if self.repetition_penalty != 1.0:
            raise UserError("beam= has no repetition_penalty=", do="leave one of them out")
        if self.draft is not None or self.lookup:
            raise UserError("beam= follows many answers and cannot guess ahead", do="leave draft= and lookup= out")
        check_best(width, 1 if self.best is None else self.best)


def check_best(width: int, best: int) -> None:
    """Of a beam so wide, so many are kept."""
    if not 1 <= best <= width:
        said = f"best={best} of a beam of {width}"
        raise UserError(said, allowed=f"the best 1 to {width}", do="widen the beam to see more")


def check_sampling(
    temperature: float, top_k: int | None, top_p: float | None, min_p: float | None, repetition_penalty: float
) -> None:
    check_repetition(repetition_penalty)
    if not 0.0 <= temperature < inf:
        raise UserError(f"temperature={temperature:g}", allowed="0 or more; 0 takes the likeliest token")
    if top_k is not None and top_k < 1:
        raise UserError(f"top_k={top_k}", allowed="1 or more", do="leave it out to keep all tokens")
    for name, share in (("top_p", top_p), ("min_p", min_p)):
        if share is not None and not 0.0 < share <= 1.0:
            raise UserError(f"{name}={share:g}", allowed="above 0, up to 1", do="leave it out to keep all tokens")


def check_repetition(penalty: float) -> None:
    if not (penalty > 0.0 and isfinite(penalty)):
        raise UserError(f"repetition_penalty={penalty:g}", allowed="a number above 0; 1 changes nothing")
