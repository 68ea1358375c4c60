"""What `headway train` says before a run and after it, in lines of 80 columns."""

from __future__ import annotations

import shlex

import torch

from headway.app.training.assemble import some
from headway.app.training.calibrate import Pulse
from headway.app.training.plan import Plan
from headway.data.kinds import Kind
from headway.data.sources import counted
from headway.train.loop import End


def told_plan(made: Plan, pulse: Pulse | None) -> str:
    """Each choice with the option that changes it."""
    recipe, train = made.recipe, made.recipe.train
    steps, batch = some(train.steps), some(train.batch) * train.accumulate
    epochs = steps * batch / max(1, made.prepared.tokens)
    lines = [
        ("task", task_told(made), "--task"),
        ("words", words_told(made), "--data.tokenizer"),
        ("model", model_told(made), "--from" if made.start else "--preset"),
        ("device", f"{recipe.device}, {train.threads} {'thread' if train.threads == 1 else 'threads'}", "--device"),
        ("batch", f"{batch:,} tokens", "--train.batch"),
        ("length", f"{steps:,} steps, {epochs:.1f} epochs", "--train.steps, --minutes"),
    ]
    if pulse is not None:
        evaluations = -(-steps // some(train.evaluate_every)) + 1
        lines.append(("time", f"about {spent(pulse.seconds(steps, evaluations))}", "--minutes"))
        lines.append(("memory", f"about {pulse.memory / 2**30:.1f} GiB", "--train.batch"))
    lines.append(("folder", str(recipe.out), "--out"))
    skipped = [] if made.material.skipped is None else [f"--skip-bad: {made.material.skipped}"]
    return "\n".join(
        [made.material.why, *skipped, *(f"  {name:7} {value:44} {option}" for name, value, option in lines)]
    )


def task_told(made: Plan) -> str:
    objective = f", {made.recipe.data.objective}" if made.material.kind is Kind.TEXTS else ""
    rows = counted(made.prepared.rows, "row")
    return f"{made.material.kind.value}{objective}: {rows}, {made.prepared.tokens:,} tokens"


def words_told(made: Plan) -> str:
    ready, data = made.ready, made.recipe.data
    if made.start:
        return f"{ready.reader.vocab:,}, those of the model"
    if ready.reader is ready.writer:
        return f"{data.tokenizer}, {ready.reader.vocab:,}"
    return f"{data.tokenizer}, {ready.reader.vocab:,} → {data.target_tokenizer}, {ready.writer.vocab:,}"


def model_told(made: Plan) -> str:
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in made.shape().parameters())
    name = made.recipe.model.preset if made.recipe.model.start is None else made.recipe.model.start.name
    return f"{name}, {count:,} parameters"


def told_end(made: Plan, end: End) -> str:
    """What came out, and the next commands to type."""
    folder = shlex.quote(str(made.recipe.out))
    found = [] if end.found is None else [", ".join(f"{name} {value:.4f}" for name, value in end.found.values.items())]
    sample = end.found.samples[0].source if end.found and end.found.samples else "text"
    nexts = [f"headway run {folder} {shlex.quote(sample)}", f"headway eval {folder} DATA", f"open {folder}/report.html"]
    return "\n".join(["", f"done: the weights are {end.chosen}", *found, "", "next", *(f"  {line}" for line in nexts)])


def spent(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
