"""What of a recording belongs to no site, as JSON: input, outcome, effects of edits, lens and module tree."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from math import isfinite
from os.path import isfile
from pathlib import Path
from typing import Any

from headway.look.head_edits import HeadEffect
from headway.look.module_flow import FlowNode
from headway.look.output_lens import OutputLens
from headway.look.recording import Recording
from headway.tasks.tracing import InputSeries, ItemAxis, Outcome

STEP_BYTES, ALTERNATIVE_BYTES = 50, 25  # about, of a step and of an alternative token
MAX_SERIES_NUMBERS = 50_000
MAX_OUTCOME_BYTES, MAX_EFFECTS_BYTES = 1_000_000, 400_000  # for the steps of an outcome, and of all edited ones

Json = dict[str, Any]


def run_to_json(recording: Recording) -> Json:
    """All that belongs to no site."""
    forced, picture, sound = recording.followed_text, recording.picture, recording.sound
    series = recording.run.series
    return {
        "title": recording.title,
        "architecture": recording.architecture,
        "parameters": recording.parameters,
        "input": input_label(recording),
        "written": written_steps(recording),
        "prefix": list(recording.run.prefix),
        "follows": None if forced is None else {"by": forced.by, "text": forced.text},
        "picture": picture
        and {"src": data_url("image/png", picture.png), "width": picture.width, "height": picture.height},
        "sound": sound
        and {
            "src": data_url("audio/wav", sound.wav),
            "seconds": sound.seconds,
            "spectrogram": data_url("image/png", sound.spectrogram),
        },
        "series": None if series is None else series_to_json(series),
    }


def series_to_json(series: InputSeries) -> Json | None:
    """None for one of so many numbers that a page would be full of them."""
    if len(series.rows) * len(series.columns) > MAX_SERIES_NUMBERS:
        return None
    return {"columns": list(series.columns), "rows": [[json_number(value) for value in row] for row in series.rows]}


def written_steps(recording: Recording) -> int:
    """How many of the outcome's steps, at its end, are tokens that were written: a prompt is only read."""
    forced = recording.run.forced_text
    return 0 if forced is None else min(len(forced.pieces), len(recording.outcome.steps))


def input_label(recording: Recording) -> str:
    """The text; or the name of a file without its folders, which are private where a page is shared."""
    numbers = any(isinstance(site.columns, ItemAxis) for site in recording.sites.values()) and isfile(recording.input)
    if recording.picture is None and recording.sound is None and not numbers:
        return recording.input
    path = Path(recording.input)
    return f"{path.parent.name}/{path.name}" if path.parent.is_file() else path.name  # one of many in a file


def outcome_to_json(outcome: Outcome) -> Json:
    return truncated_outcome(outcome, alternatives_per_step(len(outcome.steps), MAX_OUTCOME_BYTES))


def effects_to_json(effects: Sequence[HeadEffect]) -> list[Json]:
    """Edited outcomes, with as many of their steps as there is room for: there may be thousands."""
    most = alternatives_per_step(sum(len(effect.outcome.steps) for effect in effects), MAX_EFFECTS_BYTES)
    return [
        {"site": one.site, "head": one.head, "how": one.how, "outcome": truncated_outcome(one.outcome, most)}
        for one in effects
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


def lens_to_json(lens: OutputLens) -> Json:
    """Of each step and layer [likeliest with their probabilities, that of what was said, its rank], and logit parts."""
    steps = [
        [[[[label, json_number(p)] for label, p in one.top], json_number(one.said), one.rank] for one in step]
        for step in lens.choices
    ]
    parts = lens.parts and {
        "names": [list(name) for name in lens.parts.names],
        "values": [[round(value, 4) for value in step] for step in lens.parts.values],
        "total": [round(value, 4) for value in lens.parts.total],
    }
    return {"first": lens.first, "layers": list(lens.layers), "steps": steps, "parts": parts}


def flow_to_json(node: FlowNode) -> Json:
    """A module and those in it; what does not apply is left out."""
    found: Json = {"name": node.name, "path": node.path, "kind": node.kind, "parameters": node.parameters}
    sizes = {"size": node.size, "before": node.before, "added": node.added}
    found |= {name: json_number(value) for name, value in sizes.items() if value is not None}
    found |= {"site": node.site} if node.site else {}
    found |= {"calls": node.calls} if node.calls > 1 else {}
    found |= {"shape": list(node.shape)} if node.shape else {}
    return found | ({"children": [flow_to_json(child) for child in node.children]} if node.children else {})


def data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{b64encode(data).decode('ascii')}"


def json_number(value: float) -> float | None:
    """A number with six digits; JSON has none that is not finite."""
    return float(f"{value:.6g}") if isfinite(value) else None
