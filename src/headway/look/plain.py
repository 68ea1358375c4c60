"""A recording as plain data, fit for JSON: all that a page is told besides the maps."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.look.attended import Attended
from headway.look.axis import Axis, Cells, Frames
from headway.look.detail import Detail
from headway.look.effects import Effect
from headway.look.outcome import Outcome

PARTS = ("x", "q", "k", "v", "out", "bias", "additive")  # of a detail, in the order of their bytes
FLOAT16 = 65504.0  # the largest
STEP, RIVAL = 50, 25  # bytes of a step and of a likely word, about
STEPS, EDITED = 1_000_000, 400_000  # bytes for the steps of an outcome, and for those of all edited ones
ROLLED = "rollout."  # how the names of rollouts begin

Plain = dict[str, Any]


def plain_run(attended: Attended) -> Plain:
    """What belongs to no site."""
    return {
        "title": attended.title,
        "architecture": attended.architecture,
        "parameters": attended.parameters,
        "input": named_input(attended),
        "outcome": plain_outcome(attended.outcome),
        "follows": plain_follows(attended),
        "picture": plain_picture(attended),
        "sound": plain_sound(attended),
    }


def named_input(attended: Attended) -> str:
    """A text; or the name of a file without its folders, which are nobody's business where a page is passed on."""
    if attended.picture is None and attended.sound is None:
        return attended.input
    path = Path(attended.input)
    return f"{path.parent.name}/{path.name}" if path.parent.is_file() else path.name  # one of many in a file


def plain_follows(attended: Attended) -> Plain | None:
    """Whose words were read, and which."""
    said = attended.follows
    return None if said is None else {"by": said.by, "text": said.text}


def plain_outcome(outcome: Outcome) -> Plain:
    return shortened(outcome, rivals(len(outcome.steps), STEPS))


def plain_effects(effects: Sequence[Effect]) -> list[Plain]:
    """Edited outcomes, their steps as far as there is room: there may be thousands."""
    most = rivals(sum(len(effect.outcome.steps) for effect in effects), EDITED)
    return [
        {"site": effect.site, "head": effect.head, "how": effect.how, "outcome": shortened(effect.outcome, most)}
        for effect in effects
    ]


def rivals(steps: int, room: int) -> int | None:
    """How many likely words can be told of each of so many steps in so many bytes; None: not even the steps."""
    return next((most for most in (10, 5, 3, 1) if steps * (STEP + most * RIVAL) <= room), None)


def shortened(outcome: Outcome, most: int | None) -> Plain:
    steps = [
        {
            "at": step.at,
            "said": step.said,
            "logprob": number(step.logprob),
            "top": [[label, number(chance)] for label, chance in step.top[:most]],
        }
        for step in (outcome.steps if most is not None else ())
    ]
    return {"kind": outcome.kind, "text": outcome.text, "total": number(outcome.total), "steps": steps}


def plain_picture(attended: Attended) -> Plain | None:
    picture = attended.picture
    if picture is None:
        return None
    return {"src": url("image/png", picture.png), "width": picture.width, "height": picture.height}


def plain_sound(attended: Attended) -> Plain | None:
    sound = attended.sound
    if sound is None:
        return None
    drawn = url("image/png", sound.spectrogram)
    return {"src": url("audio/wav", sound.wav), "seconds": sound.seconds, "spectrogram": drawn}


def plain_axis(axis: Axis) -> Plain:
    """An axis, without the labels that the page can make by itself."""
    plain: Plain = {"kind": axis.kind, "count": len(axis), "special": list(axis.special)}
    match axis:
        case Cells():
            return plain | {"grid": list(axis.grid), "first": axis.first, "labels": list(axis.labels[: axis.first])}
        case Frames():
            return plain | {"seconds": axis.seconds}
        case _:
            return plain | {"labels": list(axis.labels)}


def plain_detail(detail: Detail, id: str, parts: Sequence[str] = PARTS) -> Plain:
    """How the parts of a detail follow each other in the piece `id`."""
    found = {name: getattr(detail, name) if name in parts else None for name in PARTS}
    shapes = {name: None if part is None else list(part.shape) for name, part in found.items()}
    return {"blob": id, "score": detail.score, "scale": number(detail.scale), "layout": shapes}


def halves(detail: Detail, parts: Sequence[str] = PARTS) -> bytes:
    """These parts of a detail as float16, one after the other."""
    found = [getattr(detail, name) for name in PARTS if name in parts]
    return b"".join(half(part).numpy().tobytes() for part in found if part is not None)


def half(part: Tensor) -> Tensor:
    """As float16: what is too large for it is cut, and only hidden keys stay −∞."""
    part = part.detach().float().cpu()
    return torch.where(part == -torch.inf, part, part.nan_to_num(0).clamp(-FLOAT16, FLOAT16)).half()


def label_of(name: str) -> str:
    """A site's name for people, who count from 1: decoder.1.cross is decoder 2 · cross."""
    if name.startswith(ROLLED):
        return f"rollout to {label_of(name.removeprefix(ROLLED))}"
    words = list[str]()
    for part in name.split("."):
        word, _, turn = part.partition("@")
        if not word.isdecimal():
            words.append(word)
        elif words:
            words[-1] += f" {int(word) + 1}"
        else:
            words.append(f"layer {int(word) + 1}")
        words[-1] += f", turn {int(turn) + 1}" if turn else ""
    return " · ".join(words)


def url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{b64encode(data).decode('ascii')}"


def numbers(values: Iterable[float]) -> list[float | None]:
    return [number(value) for value in values]


def number(value: float) -> float | None:
    """A number in as many digits as anybody reads; JSON has none that is not finite."""
    return float(f"{value:.6g}") if isfinite(value) else None
