"""README.md of a model folder: the model's card, with the numbers that were measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from headway.app.report.outcome import Outcome, commands, score_table
from headway.tasks.scores import MEASURES

FILES = (
    ("config.json", "the architecture and its sizes"),
    ("model.safetensors", "the weights"),
    ("tokenizer.json", "the words, where it has any (those of what is written in `target/`, where these are others)"),
    ("preprocessor_config.json", "how images, sounds or numbers are made fit for it, where it reads such"),
    ("recipe.yaml", "every choice of the run"),
    ("data.json", "what the data was, by its hash"),
    ("metrics.jsonl, times.jsonl", "the numbers of the run, and the clock's"),
    ("report.html", "all of this with curves, samples and attention"),
    ("checkpoints/", "where the run can be resumed; not needed to use the model"),
)


def card(outcome: Outcome) -> str:
    """The whole card."""
    blocks = [
        f"# {plain(outcome.name)}: {outcome.task}",
        what(outcome),
        "## Use",
        *use(outcome),
        "## Scores",
        *scores(outcome),
        "## Data and training",
        listed(outcome.summary),
        "Trained on:",
        listed(outcome.machine),
        "The same recipe, data and number of threads give the same weights, bit for bit:",
        fenced(commands(outcome)[2][0], "sh"),
        "## Limits",
        limits(outcome),
        "## Files",
        table(["file", "holds"], FILES, escape=False),
    ]
    return "\n\n".join(blocks) + "\n"


def what(outcome: Outcome) -> str:
    facts = dict(outcome.summary)
    return f"A model for {outcome.task}: {plain(facts['model'])}, trained with headway on {plain(facts['data'])}."


def use(outcome: Outcome) -> Iterator[str]:
    yield fenced(commands(outcome)[0][0], "sh")
    lines = ["import headway", "", f"model = headway.load({outcome.folder!r})"]
    yield fenced("\n".join([*lines, f'print(model.run({outcome.said!r})["output"])']), "python")


def scores(outcome: Outcome) -> Iterator[str]:
    found = outcome.final.scores
    if found is None:
        yield "Nothing was held out, so nothing was measured."
        return
    yield f"On {found.count:,} held-out {found.things} that training has not seen:"
    heads, *rows = score_table(found, outcome.final.unseen)
    yield table(heads, rows)
    if found.signatures:
        yield "\n".join(f"- {MEASURES[name].title}: `{signature}`" for name, signature in found.signatures.items())


def limits(outcome: Outcome) -> str:
    """What nobody should expect of it."""
    facts = dict(outcome.summary)
    lines = [
        f"It has learned from {plain(facts['size of the data'])} and knows nothing else: what is of another kind, "
        "language, size or length is answered badly, and with no sign of doubt.",
        "What is wrong, unfair or private in the data may show in its answers; nobody has looked for that.",
    ]
    if outcome.final.scores is None:
        lines.append("It has not been measured at all.")
    else:
        lines.append("Its scores are those of held-out data from the same source, which is kinder than the world is.")
    return "\n".join(f"- {line}" for line in lines)


def listed(facts: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"- {name}: {plain(value)}" for name, value in facts)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, escape: bool = True) -> str:
    told = [[plain(cell) if escape else cell for cell in line] for line in (heads, *rows)]
    told.insert(1, ["---", *["---:" if escape else "---"] * (len(heads) - 1)])
    return "\n".join(f"| {' | '.join(line)} |" for line in told)


def fenced(code: str, language: str) -> str:
    """Code between fences that it does not hold itself."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", code)), default=0))
    return f"{fence}{language}\n{code}\n{fence}"


def plain(text: str) -> str:
    """A text that stays one line, and in which Markdown and HTML see nothing of theirs."""
    whole = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]<>|~#&$])", r"\\\1", whole.encode("utf-8", "replace").decode("utf-8"))
