"""A recording as JSON: all that a page shows besides the maps."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.look.detail import Detail
from headway.look.head_effects import HeadEffect
from headway.look.recording import Recording
from headway.tasks.axes import Axis, FrameAxis, GridAxis
from headway.tasks.outcome import Outcome

PARTS = ("x", "q", "k", "v", "out", "bias", "additive")  # of a detail, in the order of their bytes
FLOAT16_MAX = 65504.0
STEP_BYTES, ALTERNATIVE_BYTES = 50, 25  # about, of a step and of an alternative token
MAX_OUTCOME_BYTES, MAX_EFFECTS_BYTES = 1_000_000, 400_000  # for the steps of an outcome, and of all edited ones
ROLLOUT_PREFIX = "rollout."

Json = dict[str, Any]


def run_to_json(recording: Recording) -> Json:
    """All that belongs to no site."""
    forced, picture, sound = recording.followed_text, recording.picture, recording.sound
    return {
        "title": recording.title,
        "architecture": recording.architecture,
        "parameters": recording.parameters,
        "input": input_label(recording),
        "outcome": outcome_to_json(recording.outcome),
        "follows": None if forced is None else {"by": forced.by, "text": forced.text},
        "picture": picture
        and {"src": data_url("image/png", picture.png), "width": picture.width, "height": picture.height},
        "sound": sound
        and {
            "src": data_url("audio/wav", sound.wav),
            "seconds": sound.seconds,
            "spectrogram": data_url("image/png", sound.spectrogram),
        },
    }


def input_label(recording: Recording) -> str:
    """The text; or the name of a file without its folders, which are private where a page is shared."""
    if recording.picture is None and recording.sound is None:
        return recording.input
    path = Path(recording.input)
    return f"{path.parent.name}/{path.name}" if path.parent.is_file() else path.name  # one of many in a file


def outcome_to_json(outcome: Outcome) -> Json:
    return truncated_outcome(outcome, alternatives_per_step(len(outcome.steps), MAX_OUTCOME_BYTES))


def effects_to_json(effects: Sequence[HeadEffect]) -> list[Json]:
    """Edited outcomes, with as many of their steps as there is room for: there may be thousands."""
    most = alternatives_per_step(sum(len(effect.outcome.steps) for effect in effects), MAX_EFFECTS_BYTES)
    return [
        {
            "site": effect.site,
            "head": effect.head,
            "how": effect.how,
            "outcome": truncated_outcome(effect.outcome, most),
        }
        for effect in effects
    ]


def alternatives_per_step(steps: int, room: int) -> int | None:
    """How many alternatives of each step fit into `room` bytes; None if not even the steps fit."""
    return next((most for most in (10, 5, 3, 1) if steps * (STEP_BYTES + most * ALTERNATIVE_BYTES) <= room), None)


def truncated_outcome(outcome: Outcome, most: int | None) -> Json:
    steps = [
        {
            "at": step.at,
            "said": step.said,
            "logprob": json_number(step.logprob),
            "top": [[label, json_number(probability)] for label, probability in step.top[:most]],
        }
        for step in (outcome.steps if most is not None else ())
    ]
    return {"kind": outcome.kind, "text": outcome.text, "total": json_number(outcome.total), "steps": steps}


def axis_to_json(axis: Axis) -> Json:
    """An axis, without the labels that the page can derive."""
    common: Json = {"kind": axis.kind, "count": len(axis), "special": list(axis.special)}
    match axis:
        case GridAxis():
            return common | {"grid": list(axis.grid), "first": axis.first, "labels": list(axis.labels[: axis.first])}
        case FrameAxis():
            return common | {"seconds": axis.seconds}
        case _:
            return common | {"labels": list(axis.labels)}


def detail_to_json(detail: Detail, id: str, parts: Sequence[str] = PARTS) -> Json:
    """The layout of the parts of a detail in the blob `id`."""
    found = {name: getattr(detail, name) if name in parts else None for name in PARTS}
    shapes = {name: None if part is None else list(part.shape) for name, part in found.items()}
    return {"blob": id, "score": detail.score, "scale": json_number(detail.scale), "layout": shapes}


def detail_bytes(detail: Detail, parts: Sequence[str] = PARTS) -> bytes:
    """These parts of a detail as float16, one after the other."""
    found = [getattr(detail, name) for name in PARTS if name in parts]
    return b"".join(to_float16(part).numpy().tobytes() for part in found if part is not None)


def to_float16(part: Tensor) -> Tensor:
    """As float16: values are clamped to its range, and only hidden keys stay −∞."""
    part = part.detach().float().cpu()
    return torch.where(part == -torch.inf, part, part.nan_to_num(0).clamp(-FLOAT16_MAX, FLOAT16_MAX)).half()


def site_label(name: str) -> str:
    """A site's name for people, who count from 1: decoder.1.cross is decoder 2 · cross."""
    if name.startswith(ROLLOUT_PREFIX):
        return f"rollout to {site_label(name.removeprefix(ROLLOUT_PREFIX))}"
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


def data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{b64encode(data).decode('ascii')}"


def json_numbers(values: Iterable[float]) -> list[float | None]:
    return [json_number(value) for value in values]


def json_number(value: float) -> float | None:
    """A number with six digits; JSON has none that is not finite."""
    return float(f"{value:.6g}") if isfinite(value) else None
