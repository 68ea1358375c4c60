"""What `headway train` says before a run and after it, in lines of 80 columns."""

from __future__ import annotations

import shlex

import torch

from headway.app.training.assemble import some
from headway.app.training.calibrate import Pulse
from headway.app.training.plan import Plan
from headway.app.training.reuse import told
from headway.data.sources import counted
from headway.tasks.hidden import HiddenPatches
from headway.tasks.views import TwoViews
from headway.train.loop import End


def told_plan(made: Plan, pulse: Pulse | None) -> str:
    """Each choice with the option that changes it."""
    recipe, train = made.recipe, made.recipe.train
    steps, batch = some(train.steps), some(train.batch) * train.accumulate
    epochs = steps * batch / max(1, made.prepared.tokens)
    lines = [
        ("task", task_told(made), "--task"),
        *words_told(made),
        ("model", model_told(made), "--from" if made.start else "--preset"),
        *reuse_told(made),
        ("device", f"{recipe.device}, {train.threads} {'thread' if train.threads == 1 else 'threads'}", "--device"),
        ("batch", f"{batch:,} {made.prepared.unit}", "--train.batch"),
        ("length", f"{steps:,} steps, {epochs:.1f} epochs", "--train.steps, --minutes"),
    ]
    if pulse is not None:
        evaluations = -(-steps // some(train.evaluate_every)) + 1
        lines.append(("time", f"about {spent(pulse.seconds(steps, evaluations))}", "--minutes"))
        lines.append(("memory", f"about {pulse.memory / 2**30:.1f} GiB", "--train.batch"))
    lines.append(("folder", str(recipe.out), "--out"))
    left = made.material.left_out
    skipped = [] if left is None else [f"--skip-bad: {left}"]
    return "\n".join(
        [made.material.why, *skipped, *(f"  {name:7} {value:44} {option}" for name, value, option in lines)]
    )


def task_told(made: Plan) -> str:
    objective = f", {made.recipe.data.objective}" if made.recipe.data.objective else ""
    return f"{made.material.kind.value}{objective}: {size_told(made)}"


def size_told(made: Plan) -> str:
    """How much there is to learn from."""
    prepared = made.prepared
    rows, tokens = counted(prepared.rows, "row"), f"{prepared.tokens:,} {prepared.unit}"
    return tokens if prepared.rows == prepared.tokens else f"{rows}, {tokens}"


def words_told(made: Plan) -> list[tuple[str, str, str]]:
    """The line about words, where there are any."""
    data = made.recipe.data
    sides = [words for words in (made.ready.reader, made.ready.writer) if words]
    if not sides:
        return []
    if made.start:
        told = f"{sides[0].vocab:,}, those of the model"
    elif sides[0] is sides[-1]:
        told = f"{data.tokenizer}, {sides[0].vocab:,}"
    else:
        told = f"{data.tokenizer}, {sides[0].vocab:,} → {data.target_tokenizer}, {sides[1].vocab:,}"
    return [("words", told, "--data.tokenizer")]


def model_told(made: Plan) -> str:
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in made.shape().parameters())
    name = made.recipe.model.preset if made.recipe.model.start is None else made.recipe.model.start.name
    return f"{name}, {count:,} parameters"


def reuse_told(made: Plan) -> list[tuple[str, str, str]]:
    """What is taken over from the model that the run goes on from."""
    with torch.device("meta"):
        found = made.taken(made.shape())
    start = made.recipe.model.start
    return [] if found is None or start is None else [("reuses", told(found, start.name), "--freeze encoder")]


def told_end(made: Plan, end: End) -> str:
    """What came out, and the next commands to type."""
    folder = shlex.quote(str(made.recipe.out))
    found = [] if end.found is None else [", ".join(f"{name} {value:.4f}" for name, value in end.found.values.items())]
    usual = "image.png" if made.prepared.unit == "images" else "text"
    said = end.found.samples[0].source if end.found and end.found.samples else usual
    sample = made.example or said
    measured = f"headway eval {folder} DATA"
    if isinstance(made.ready.task, HiddenPatches | TwoViews):
        measured = f"headway train DATA --from {folder} --freeze encoder"  # by what its encoder is good for
    nexts = [f"headway run {folder} {shlex.quote(sample)}", measured, f"open {folder}/report.html"]
    return "\n".join(["", f"done: the weights are {end.chosen}", *found, "", "next", *(f"  {line}" for line in nexts)])


def spent(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
