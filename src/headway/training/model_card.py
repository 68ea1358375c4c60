"""README.md of a model folder: the model's card, with the numbers that were measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from headway.metrics.scores import MEASURES
from headway.training.report import RunReport, retrain_command, score_rows

FILES = (
    ("config.json", "architecture and sizes"),
    ("model.safetensors", "weights"),
    ("tokenizer.json", "tokenizer, where it reads text (that of the target in `target/`, where it is another)"),
    ("preprocessor_config.json", "preprocessing, where it reads images, sounds or numbers"),
    ("recipe.yaml", "every setting of the run"),
    ("data.json", "hashes of the data"),
    ("metrics.jsonl, times.jsonl", "metrics and durations of the run"),
    ("report.html", "all of this with curves, samples and attention"),
    ("checkpoints/", "state to resume from; not needed to use the model"),
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
    yield fenced("\n".join([*lines, f"print(model.predict({report.example!r}).to_text())"]), "python")


def scores(report: RunReport) -> Iterator[str]:
    if report.details is None:
        yield "Nothing was held out, so nothing was evaluated."
        return
    found = report.details.scores
    yield f"On {found.count:,} held-out {found.things} that were not used in training:"
    heads, *rows = score_rows(found, report.unseen)
    yield table(heads, rows)
    if found.signatures:
        yield "\n".join(f"- {MEASURES[name].title}: `{signature}`" for name, signature in found.signatures.items())


def limits(report: RunReport) -> str:
    """What nobody should expect of it."""
    size = escaped(dict(report.summary)["data size"])
    evaluated = "Its scores are those of held-out data from the same source; expect lower ones on other data."
    lines = [
        f"It was trained on {size} and on nothing else: inputs of another kind, language, size or length are answered "
        "badly, and without any sign of doubt.",
        "Errors, bias and private information in the data may show in its answers; they were not looked for.",
        "It has not been evaluated at all." if report.details is None else evaluated,
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
