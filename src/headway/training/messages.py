"""What `headway train` says before a run and after it, in lines of 80 columns."""

from __future__ import annotations

import shlex

import torch

from headway.data.text_lines import counted
from headway.files import going_on
from headway.training.build import some
from headway.training.calibrate import StepTiming
from headway.training.fine_tuning import describe_reuse
from headway.training.loop import RunResult
from headway.training.plan import Plan


def describe_plan(made: Plan, timing: StepTiming | None) -> str:
    """Each choice with the option that changes it."""
    recipe, train = made.recipe, made.recipe.train
    steps, batch = some(train.steps), some(train.batch) * train.grad_accumulation
    epochs = steps * batch / max(1, made.encoded.tokens)
    lines = [
        ("task", task_line(made), "--task"),
        *tokenizer_line(made),
        ("model", model_line(made), "--from" if made.start else "--preset"),
        *reuse_line(made),
        ("device", f"{recipe.device}, {train.threads} {'thread' if train.threads == 1 else 'threads'}", "--device"),
        ("batch", f"{batch:,} {made.encoded.unit}", "--train.batch"),
        ("length", f"{steps:,} steps, {epochs:.1f} epochs", "--train.steps, --minutes"),
    ]
    if timing is not None:
        evaluations = -(-steps // some(train.evaluate_every)) + 1
        lines.append(("time", f"about {duration(timing.seconds(steps, evaluations))}", "--minutes"))
        lines.append(("memory", f"about {timing.memory / 2**30:.1f} GiB", "--train.batch"))
    lines.append(("folder", str(recipe.out), "--out"))
    left = made.splits.left_out
    skipped = [] if left is None else [f"--skip-bad: {left}"]
    return "\n".join(
        [made.splits.description, *skipped, *(f"  {name:7} {value:44} {option}" for name, value, option in lines)]
    )


def task_line(made: Plan) -> str:
    objective = f", {made.recipe.data.objective}" if made.recipe.data.objective else ""
    return f"{made.task.kind}{objective}: {data_size(made)}"


def data_size(made: Plan) -> str:
    """How much there is to learn from."""
    prepared = made.encoded
    rows, tokens = counted(prepared.rows, "row"), f"{prepared.tokens:,} {prepared.unit}"
    return tokens if prepared.rows == prepared.tokens else f"{rows}, {tokens}"


def tokenizer_line(made: Plan) -> list[tuple[str, str, str]]:
    """The line about words, where there are any."""
    data = made.recipe.data
    sides = [words for words in (made.setup.tokenizer, made.setup.target_tokenizer) if words]
    if not sides:
        return []
    if made.start:
        told = f"{sides[0].vocab:,}, those of the model"
    elif sides[0] is sides[-1]:
        told = f"{data.tokenizer}, {sides[0].vocab:,}"
    else:
        told = f"{data.tokenizer}, {sides[0].vocab:,} → {data.target_tokenizer}, {sides[1].vocab:,}"
    return [("words", told, "--data.tokenizer")]


def model_line(made: Plan) -> str:
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in made.shape().parameters())
    start = made.recipe.model.start
    name = start.name if start else made.recipe.model.preset or made.architecture
    return f"{name}, {count:,} parameters"


def reuse_line(made: Plan) -> list[tuple[str, str, str]]:
    """What is taken over from the model that the run goes on from."""
    with torch.device("meta"):
        found = made.reused(made.shape())
    start = made.recipe.model.start
    return [] if found is None or start is None else [("reuses", describe_reuse(found, start.name), "--freeze encoder")]


def describe_end(made: Plan, end: RunResult) -> str:
    """What came out, and the next commands to type."""
    if end.signal is not None:
        return f"\ninterrupted at step {end.step}, and saved; go on with\n\n  {going_on(made.out)}"
    folder = shlex.quote(str(made.recipe.out))
    found = [] if end.found is None else [", ".join(f"{name} {value:.4f}" for name, value in end.found.values.items())]
    example = made.task.example(made.splits, end.found.samples if end.found else ())
    found_next = made.task.next_commands(folder, shlex.quote(example))
    nexts = [*(one.command for one in found_next), f"open {folder}/report.html"]
    return "\n".join(["", f"done: the weights are {end.chosen}", *found, "", "next", *(f"  {line}" for line in nexts)])


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
