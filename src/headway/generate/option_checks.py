"""What options of decoding may be, alone and together: checked without torch, so that a command can refuse at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

from headway.errors import UserError


def check_decoding_options(
    *,
    max_new_tokens: int | None = None,
    stop: str | Sequence[str] = (),
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    seed: int = 0,
    beam: int | None = None,
    length_penalty: float | None = None,
    best: int | None = None,
    patient: bool = False,
    draft: object | None = None,
    lookup: bool = False,
) -> None:
    """Refuses options, by the names that `predict` and the command have for them."""
    searching = {"length_penalty": length_penalty, "best": best, "patient": patient or None}
    if max_new_tokens is not None and max_new_tokens < 1:
        raise UserError(f"max_new_tokens= is {max_new_tokens}", allowed="1 or more")
    if draft is not None and lookup:
        raise UserError("draft= and lookup= both guess what comes next", do="give one of them")
    if beam is None and (named := [name for name, value in searching.items() if value is not None]):
        raise UserError(f"{named[0]}= is for beams", do="give beam= too, such as 4")
    if beam is not None:
        if beam < 1:
            raise UserError(f"beam= is {beam}", allowed="1 beam or more")
        if any(option is not None for option in (temperature, top_k, top_p, min_p)):
            raise UserError("beam= searches and does not draw", do="give beam=, or temperature= and its like")
        if repetition_penalty != 1.0:
            raise UserError("beam= has no repetition_penalty=", do="leave one of them out")
        if draft is not None or lookup:
            raise UserError("beam= follows many answers and cannot guess ahead", do="leave draft= and lookup= out")
        check_best(beam, 1 if best is None else best)
    check_sampling(1.0 if temperature is None else temperature, top_k, top_p, min_p, repetition_penalty)


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
