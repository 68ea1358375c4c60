"""What is reported of a run, as plain data (`RunReport`), and the model card that is written from it.

The data: what was trained on what, how it went, how good it is, on which machine.  `report_page.py` makes report.html
of the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import nn

from headway import __version__
from headway.dtype import describe_device
from headway.errors import counted, going_on, path_argument
from headway.figures import Curve, Point
from headway.look.recording import find_attention_sites
from headway.metrics.intervals import Interval
from headway.metrics.scores import MEASURES, Scores, class_rows, score_rows
from headway.recipe import Recipe
from headway.system import describe_cores, describe_processor, describe_python, peak_memory
from headway.tasks.base import Task
from headway.tasks.results import (
    SHOWN_SAMPLES,
    BaselineResult,
    EvalOptions,
    EvalResult,
    NextCommand,
    ReportDetails,
    TracedInput,
    shortened,
)
from headway.training.build import data_size, duration, teacher_line, vocabulary
from headway.training.fold_scores import CrossValidation
from headway.training.loop import RunResult
from headway.training.metrics_log import MetricsLog
from headway.training.plan import Plan
from headway.training.recipe_sources import to_yaml
from headway.training.report_attention import NO_ATTENTION, AttentionExamples, attention_examples, recorded
from headway.training.run_summary import conclusions, first_commands, retrain_command, test_names

MAX_FILES = 20  # names of data files that are listed
MAX_UNSEEN = 500  # records unlike any in training, where the data knows such
UNSEEN = "in ways of writing never seen"
INTERVALS = (
    "In brackets: 95 % intervals, of Clopper and Pearson where a score counts records, else by bootstrap over records."
)

NOT_EVALUATED = "Nothing was held out for validation, so nothing was evaluated during training."

FOLD_SAMPLES = "Each answer is that of a fold's model, which was not trained on the record."

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RunReport:
    """All that is reported of a run.  `kept` are the steps whose weights the model has.

    `details` is None where no data was held out; `unseen` are scores on records unlike any in training, `test` is the
    evaluation on test data; `conclusions` are the verdict and what is to be known of the scores.
    """

    name: str
    task: str
    folder: str
    summary: Facts
    machine: Facts
    curves: Mapping[str, Sequence[Curve]]
    kept: Sequence[int]
    recipe: str
    label_smoothing: bool
    commands: Sequence[NextCommand]
    example: str  # an input to try the model with
    details: ReportDetails | None = None
    unseen: Scores | None = None
    baselines: Sequence[BaselineResult] = ()
    test: EvalResult | None = None
    estimate: CrossValidation | None = None  # whose scores stand in the place of the model's own
    conclusions: Sequence[str] = ()
    attention: AttentionExamples = NO_ATTENTION
    sample_names: tuple[str, str, str] = Task.sample_names
    graded: bool = True
    sampling: Mapping[str, float] = field(default_factory=dict[str, float])  # options for trying the model
    # the 95 % interval of each metric by step, and what these evaluations are of: 40 pairs
    limits: Mapping[str, Mapping[float, Interval]] = field(default_factory=dict[str, dict[float, Interval]])
    counted: str = "held-out data"


def run_report(made: Plan, end: RunResult, log: MetricsLog, model: nn.Module) -> RunReport:
    """Collects what there is to say of a run; its scores are those of its last evaluation."""
    model.eval()
    lines, task, found = log.lines(), made.task.without_augmentation(), end.found
    details = None if found is None else details_of(made, found, model)
    folder = str(made.out)
    example = task.example(made.splits, details.samples if details and task.graded else ())
    return RunReport(
        name=made.splits.name,
        task=task.heading,
        folder=folder,
        summary=summary(made, end, log, model, details),
        machine=machine(made.recipe),
        curves=curves(lines),
        limits=limits_by_step(lines),
        counted=next((f"{one['count']:,} {one['things']}" for one in lines if "things" in one), "held-out data"),
        kept=log.chosen_steps() or [end.step],
        recipe=to_yaml(made.recipe),
        label_smoothing=bool(made.recipe.train.label_smoothing),
        commands=next_commands(type(task), folder, example, find_attention_sites(model)),
        example=example,
        details=details,
        unseen=None if found is None else unseen_scores(made, found, model),
        baselines=() if found is None else found.baselines,
        test=end.test,
        estimate=made.estimate,
        conclusions=conclusions(made, end),
        attention=attention(made, details, model, example),
        sample_names=task.sample_names,
        graded=task.graded,
        sampling=task.sampling,
    )


# ---- evaluation


def unseen_scores(made: Plan, found: EvalResult, model: nn.Module) -> Scores | None:
    """On records unlike any in training, where the data knows such."""
    if made.splits.unseen is None:
        return None
    records, options = list(islice(made.splits.unseen(), MAX_UNSEEN)), EvalOptions(metrics=tuple(found.scores.numbers))
    return made.task.without_augmentation().evaluate(model, records, options).scores


def details_of(made: Plan, found: EvalResult, model: nn.Module) -> ReportDetails:
    if made.estimate is not None:  # nothing is held out from this model
        return ReportDetails(found.scores, found.samples, FOLD_SAMPLES)
    records = made.splits.some_validation(SHOWN_SAMPLES)
    return made.task.without_augmentation().report_details(model, made.encoded.validation, records, found)


def attention(made: Plan, details: ReportDetails | None, model: nn.Module, example: str) -> AttentionExamples:
    """Of held-out inputs; of the one to try the model with, as `headway look` draws it, where none can be drawn."""
    context: object = getattr(made.config, "context", None)
    length = context if isinstance(context, int) else None
    held, tried = details.traced if details else (), [TracedInput(shortened(example), example)]
    recordings = (recorded(made.task, model, inputs, made.architecture, length) for inputs in (held, tried))
    return attention_examples(next(filter(None, recordings), ()), model)


# ---- facts


def summary(made: Plan, end: RunResult, log: MetricsLog, model: nn.Module, details: ReportDetails | None) -> Facts:
    recipe, count = made.recipe, sum(parameter.numel() for parameter in model.parameters())
    preset, start = recipe.model.preset, recipe.model.start
    name = preset or (f"continued from {start}" if made.start else type(model).__name__)
    name = f"{name} on the encoder of {start}" if preset and made.start else name
    batch = (recipe.train.batch or 0) * recipe.train.grad_accumulation
    epochs = end.step * batch / max(1, made.encoded.tokens)
    left_out, vocab, teacher = made.splits.left_out, vocabulary(made), teacher_line(made)
    return (
        ("task", made.splits.description),
        ("data", "; ".join(data_files(made))),
        ("data size", data_size(made)),
        *(() if left_out is None else (("left out", left_out),)),
        ("held out", held_out(made, details)),
        *(() if end.test is None else (("test data", test_data(made, end.test)),)),
        *((("vocabulary", vocab),) if vocab else ()),
        ("model", f"{name} ({made.architecture}), {count:,} parameters"),
        *((("teacher", teacher),) if teacher else ()),
        ("training", f"{end.step:,} steps of about {batch:,} {made.encoded.unit}, {epochs:.1f} epochs"),
        ("weights", end.chosen),
        ("time", time_of(log, made.encoded.unit)),
    )


def data_files(made: Plan) -> Iterator[str]:
    files = made.splits.files
    if made.splits.builtin or not files:
        yield made.splits.name + (", the built-in data set" if made.splits.builtin else "")
    elif made.task.takes_files:  # names of thousands of images say less than that of their folder
        yield f"{made.splits.name}, {counted(len(files), 'file')}"
    else:
        yield from (file.name for file in files[:MAX_FILES])
        if len(files) > MAX_FILES:
            yield f"and {len(files) - MAX_FILES:,} more files"


def held_out(made: Plan, details: ReportDetails | None) -> str:
    if details is None:
        return "nothing, so nothing was evaluated"
    if made.estimate is not None:
        return f"nothing from this model; {made.estimate.title}"
    count = f"{details.scores.count:,} {details.scores.things} evaluated"
    if made.splits.validation_paths:
        names = "; ".join(path.name for path in made.splits.validation_paths)
        return f"validation files of their own: {names} ({count})"
    what = "dates" if made.splits.builtin else "a part of the data"
    return f"{what} not used in training ({count})"


def test_data(made: Plan, found: EvalResult) -> str:
    count = f"{found.scores.count:,} {found.scores.things} evaluated"
    return f"{test_names(made)}, scored once, after training ({count})"


def time_of(log: MetricsLog, unit: str) -> str:
    seconds, tokens = log.total("seconds"), log.total("tokens")
    throughput = f", {tokens / seconds:,.0f} {unit}/s" if seconds else ""
    return f"{duration(seconds)} of steps, evaluations not counted{throughput}"


def machine(recipe: Recipe) -> Facts:
    return (
        ("processor", describe_processor()),
        ("cores", describe_cores()),
        ("threads", str(recipe.train.threads)),
        ("device", describe_device(recipe.device)),
        ("memory", f"{peak_memory() / 2**30:.2f} GiB at most"),
        ("system", f"Python {describe_python()}"),
        ("torch", str(torch.__version__)),
        ("headway", __version__),
    )


def curves(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[Curve]]:
    """The loss, in training and in validation, and each other metric by itself."""
    training = [Point(line["step"], line["loss"]) for line in lines if line.get("loss") is not None]
    checks = [(line["step"], line["valid"]) for line in lines if "valid" in line and "chosen" not in line]
    names = dict.fromkeys(name for _, values in checks for name in values)
    # what is not finite is null in the file
    points = {name: [Point(step, v[name]) for step, v in checks if v.get(name) is not None] for name in names}
    found = {name: Curve("validation", line) for name, line in points.items()}
    loss = [Curve("training", training), *([found.pop("loss")] if "loss" in found else [])]
    return {"loss": loss, **{name: [curve] for name, curve in found.items()}}


def limits_by_step(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[float, Interval]]:
    """The 95 % interval of each metric at each evaluation; earlier versions wrote none."""
    found: dict[str, dict[float, Interval]] = {}
    for line in lines:
        for name, limits in line.get("intervals", {}).items():
            ends = (math.nan if limits[end] is None else limits[end] for end in ("low", "high"))
            found.setdefault(name, {})[line["step"]] = Interval(*ends)
    return found


def next_commands(task: type[Task], folder: str, example: str, sites: Sized = ()) -> list[NextCommand]:
    """What to type next; `sites` are those of the model's attention."""
    quoted = path_argument(folder)
    return [
        *first_commands(task, folder, example, sites),
        task.on_other_data._replace(command=task.on_other_data.command.format(quoted)),
        NextCommand(retrain_command(folder), "train it again: the same data and number of threads give the same bits"),
        NextCommand(going_on(folder), "resume this run, where it was interrupted"),
        NextCommand(f"headway train DATA --from {quoted} --out NEW", "fine-tune this model on other data"),
    ]


def score_tables(report: RunReport) -> Iterator[tuple[str, list[list[str]]]]:
    """Scores on held-out data and on test data, with what they are of.

    They are those of all, by length, of what is unlike anything in training, and of simple methods.
    """
    if report.details is not None:
        found, others = report.details.scores, {} if report.unseen is None else {UNSEEN: report.unseen}
        caption = f"On {found.count:,} held-out {found.things} that were not used in training"
        if report.estimate is not None:
            caption, others = report.estimate.title, report.estimate.rows
        yield caption, score_rows(found, others | by_baselines(report.baselines))
    if report.test is not None:
        found = report.test.scores
        caption = f"On {found.count:,} {found.things} of the test data, scored once, after training"
        yield caption, score_rows(found, by_baselines(report.test.baselines))


def by_baselines(baselines: Sequence[BaselineResult]) -> dict[str, Scores]:
    return {f"by {one.name}": one.scores for one in baselines}


FILES = (
    ("config.json", "architecture and sizes"),
    ("model.safetensors", "weights"),
    ("tokenizer.json", "tokenizer, where it reads text (that of the target in `target/`, where it is another)"),
    ("preprocessor_config.json", "preprocessing, where it reads images, sounds or numbers"),
    ("recipe.yaml", "every setting of the run"),
    ("data.json", "hashes of the data"),
    ("metrics.jsonl, times.jsonl", "metrics and durations of the run"),
    ("scores.json", "the final scores with their intervals, beside those of simple methods"),
    ("report.html", "all of this with curves, samples and attention"),
    ("checkpoints/", "state to resume from; not needed to use the model"),
    ("folds/", "after a cross-validation, the model of each fold; not needed to use the model"),
)


def model_card(report: RunReport) -> str:
    """The whole card."""
    facts = dict(report.summary)
    blocks = [
        f"# {escaped(report.name)}: {report.task}",
        f"A model for {report.task}: {escaped(facts['model'])}, trained with headway on {escaped(facts['data'])}.",
        "## Use",
        *usage(report),
        "## Scores",
        *scores(report),
        "## Data and training",
        bullets(report.summary),
        "Trained on:",
        bullets(report.machine),
        "The same recipe, data and number of threads give the same weights, bit for bit:",
        fenced(retrain_command(report.folder), "sh"),
        "## Limits",
        limits(report),
        "## Files",
        table(["file", "content"], FILES, escape=False),
    ]
    return "\n\n".join(blocks) + "\n"


def usage(report: RunReport) -> Iterator[str]:
    yield fenced(report.commands[0].command, "sh")
    lines = ["import headway", "", f"model = headway.load({report.folder!r})"]
    options = "".join(f", {name}={value:g}" for name, value in report.sampling.items())
    yield fenced("\n".join([*lines, f"print(model.predict({report.example!r}{options}).to_text())"]), "python")


def scores(report: RunReport) -> Iterator[str]:
    if report.details is None:
        yield NOT_EVALUATED
    tables = list(score_tables(report))
    for caption, (heads, *rows) in tables:
        yield f"{caption}:"
        yield table(heads, rows)
    if tables:
        yield INTERVALS
    found = None if report.details is None else report.details.scores
    if found is not None and found.classes is not None:
        heads, *rows = class_rows(found.classes)
        yield "The most frequent classes:"
        yield table(heads, rows)
    if report.conclusions:
        yield "\n".join(f"- {escaped(line)}" for line in report.conclusions)
    if found is not None and found.signatures:
        yield "\n".join(f"- {MEASURES[name].title}: `{signature}`" for name, signature in found.signatures.items())


def limits(report: RunReport) -> str:
    """What nobody should expect of it."""
    size = escaped(dict(report.summary)["data size"])
    evaluated = "Its scores are those of held-out data from the same source; expect lower ones on other data."
    if report.estimate is not None:
        evaluated = (
            "Its scores are an estimate by models that were trained on parts of its data; expect lower ones on others."
        )
    lines = [
        f"It was trained on {size} and on nothing else: inputs of another kind, language, size or length are answered "
        "badly, and without any sign of doubt.",
        "Errors, bias and private information in the data may show in its answers; they were not looked for.",
        "It has not been evaluated at all." if report.details is None and report.test is None else evaluated,
    ]
    return "\n".join(f"- {line}" for line in lines)


def bullets(facts: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"- {name}: {escaped(value)}" for name, value in facts)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, escape: bool = True) -> str:
    lines = [[escaped(cell) if escape else cell for cell in line] for line in (heads, *rows)]
    lines.insert(1, ["---", *["---:" if escape else "---"] * (len(heads) - 1)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fenced(code: str, language: str) -> str:
    """Code between fences that do not occur in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", code)), default=0))
    return f"{fence}{language}\n{code}\n{fence}"


def escaped(text: str) -> str:
    """A text on one line, without Markdown and HTML."""
    whole = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]<>|~#&$])", r"\\\1", whole.encode("utf-8", "replace").decode("utf-8"))
