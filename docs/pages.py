"""The pages of models, tasks, lectures and the Python interface: `python docs/pages.py` writes them into docs.

What they say is read from the code (docstrings, configs, presets, the registries of tasks and families) and from the
tables of README.md, PARITY.md and RESULTS.md, so that nothing is written twice.
"""

from __future__ import annotations

import inspect
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields
from functools import cache
from importlib import import_module
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import yaml
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel

import headway
from headway.data.tokenizer import Tokenizer
from headway.interop.registry import FAMILIES
from headway.learn.shown_commands import LessonCommand
from headway.learn.statements import Lecture, Statement, errata, lectures, sections, statements
from headway.nn.image_words import Illustrated
from headway.tasks.base import task_class
from headway.tasks.registry import TASKS
from headway.tasks.results import ContinuesText
from headway.zoo.build import Architecture, architecture, on_meta
from headway.zoo.presets import PRESETS, preset

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
Row = list[str]
CONFIG_NOTE = (
    "Sizes are options of `headway train`, as `--model.dim 128`, and keywords of `headway.build`; the vocabulary and "
    "the classes of a run are those of its data."
)


def main() -> None:
    for path, text in pages():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def pages() -> Iterator[tuple[Path, str]]:
    """Each generated page and its text."""
    models = readme_table("model")
    for row in models:
        yield DOCS / "models" / f"{quoted(row[0])[-1]}.md", model_page(row)
    names = index("Models", [(row[0], quoted(row[0])[-1]) for row in models])
    yield DOCS / "models" / "README.md", joined([names, *section("Families", families_table(), FAMILIES_NOTE)])
    for name in TASKS:
        yield DOCS / "tasks" / f"{name}.md", task_page(name)
    summaries = [(f"`{name}`: {summary(task_class(name))}", name) for name in TASKS]
    yield DOCS / "tasks" / "README.md", index("Tasks", summaries)
    yield DOCS / "API.md", api_page()
    yield DOCS / "LECTURES.md", lectures_page()


def index(title: str, entries: Sequence[tuple[str, str]]) -> str:
    return joined([f"# {title}", "\n".join(f"- [{name}]({name}.md) — {text}" for text, name in entries)])


# ---- models


def model_page(row: Row) -> str:
    """The page of a row of README's table of models."""
    title, tasks, types, written = row
    name = quoted(title)[-1]
    made = architecture(name)
    sections = [f"# {title.rpartition(' (')[0]}", doc(made), f"Source: {source(made)}."]
    sections += section("Presets", presets_table(name))
    sections += section("Config", config_table(made), CONFIG_NOTE)
    sections += section("Train for", bullets(f"[`{task}`](../tasks/{task}.md)" for task in quoted(tasks)))
    sections += section("Hugging Face and timm", formats(quoted(types), written))
    sections += section("Parity", parity_table(quoted(types)), "The largest relative differences from the reference.")
    sections += section("Results", results_table(lambda recipe: architecture_of(recipe) == name))
    return joined([*sections, "## Look closer", commands(name)])


FAMILIES_NOTE = (
    "By the `model_type` of Hugging Face's config.json; those that begin with `timm_`, and `mvitv2`, are folders of "
    "timm. Read and write are told by the file of a family below `interop`, train by the tasks that take its "
    "architecture, and serve by what the server answers for them. Parity is the largest relative difference from the "
    "reference over logits, hidden states, attention maps and gradients of all cases in [PARITY.md](../PARITY.md), "
    "and – where it is tested elsewhere."
)


def families_table() -> str:
    """What can be done with each family that is read."""
    rows = list[Row]()
    for one, name in sorted(FAMILIES.items()):
        there = import_module(f"headway.interop.{one.replace('-', '_')}")
        marks = ["yes" if hasattr(there, word) else "–" for word in ("read_config", "write_config")]
        trained = ", ".join(f"`{task}`" for task in TASKS if name in task_class(task).architectures)
        cells = [f"[{name}]({name}.md)", *marks, trained or "–", endpoints(name), largest_difference(one)]
        rows.append([f"`{one}`", *cells])
    return table(["family", "model", "read", "write", "train", "serve", "parity"], rows)


@cache
def endpoints(name: str) -> str:
    """What the server answers for models of an architecture, by the tasks that are theirs."""
    tasks = [task for task in TASKS if name in task_class(task).architectures] or [answering(name)]
    continues = any(issubclass(task_class(task), ContinuesText) for task in tasks)
    continues = continues or isinstance(on_meta(architecture(name).Config()), Illustrated)
    found = ["/v1/completions", "/v1/chat/completions"] if continues else []
    found += ["/v1/audio/transcriptions"] if any(TASKS[task].data == "SPEECH" for task in tasks) else []
    return ", ".join(f"`{one}`" for one in [*found, "/api/predict"])


def answering(name: str) -> str:
    """The task of a model that is run and not trained."""
    config = architecture(name).Config()
    about = {"architecture": name, "config": config, "model": on_meta(config), "extra_config": {}, "preprocess": None}
    words = Tokenizer(Backend(WordLevel({}, "")))
    parts: Any = SimpleNamespace(**about, tokenizer=words, target_tokenizer=None)
    return next(task for task in TASKS if task_class(task).from_model(parts) is not None)


def largest_difference(model_type: str) -> str:
    _, *rows = markdown_rows((DOCS / "PARITY.md").read_text(encoding="utf-8"), "family")
    found = [cell for row in rows if row[0].split(",")[0] == model_type for cell in row[1:-1] if cell != "–"]
    return max(found, key=float, default="–")


def presets_table(name: str) -> str:
    rows = [
        [f"`{one}`", f"{parameters(one):,}", ", ".join(f"{key} {value}" for key, value in chosen.sizes.items())]
        for one, chosen in PRESETS.items()
        if chosen.architecture == name
    ]
    return table(["preset", "parameters", "sizes"], rows)


@cache
def parameters(name: str) -> int:
    return sum(one.numel() for one in on_meta(name).parameters())


def config_table(made: Architecture) -> str:
    """The fields of a config with the comments that stand beside them in the source."""
    notes = comments(made.Config)
    rows = [
        [f"`{one.name}`", f"`{default(one)}`", "; ".join(filter(None, [MEANINGS.get(one.name), notes.get(one.name)]))]
        for one in fields(made.Config)
    ]
    return table(["field", "default", "meaning"], rows)


def default(field: Any) -> str:
    return "(required)" if field.default is MISSING else repr(field.default)


def comments(config: type) -> dict[str, str]:
    """The comment at the end of the line of each field."""
    found = dict[str, str]()
    tokens = list(tokenize.generate_tokens(StringIO(inspect.getsource(config)).readline))
    for token, following in pairwise(tokens):
        line = token.line.strip()
        if (
            token.type == tokenize.COMMENT
            and (name := re.match(r"(\w+):", line))
            and following.type == tokenize.NEWLINE
        ):
            found[name[1]] = token.string.removeprefix("#").strip()
    return found


def formats(types: Sequence[str], written: str) -> str:
    if not types:
        return ""
    back = "A model that was read is written back as the same type." if written == "yes" else ""
    return f"Reads folders whose `model_type` is {', '.join(f'`{one}`' for one in types)}. {back}".strip()


def parity_table(types: Sequence[str]) -> str:
    head, *rows = markdown_rows((DOCS / "PARITY.md").read_text(encoding="utf-8"), "family")
    return table(head, [row for row in rows if row[0].split(",")[0] in types])


def commands(name: str) -> str:
    known = [one for one, chosen in PRESETS.items() if chosen.architecture == name]
    lines = [f"headway {words} {known[0]}" for words in ("cost", "explain shapes", "explain block")] if known else []
    return (
        f"```sh\n{chr(10).join(lines)}\n```" if lines else "This architecture has no preset: build it from its config."
    )


# fields that mean the same in every architecture
MEANINGS = {
    "vocab": "tokens of the vocabulary",
    "context": "tokens of the longest input",
    "dim": "width of a token's vector",
    "layers": "blocks; of stages, those of each",
    "heads": "attention heads; of stages, those of each",
    "kv_heads": "heads of keys and values (grouped-query attention)",
    "head_dim": "width of a head",
    "hidden": "width inside the feed-forward layers",
    "decoder_layers": "blocks of the decoder",
    "decoder_heads": "attention heads of the decoder",
    "decoder_hidden": "width inside the decoder's feed-forward layers",
    "act": "activation of the feed-forward layers",
    "eps": "ε of the norms",
    "dropout": "rate of dropout of sublayers and embeddings",
    "attention_dropout": "rate of dropout of attention weights",
    "channels": "channels of an image",
    "image": "pixels of an image's side",
    "patch": "pixels of a patch's side",
    "window": "tokens, or cells of a side, that attention reaches",
    "classes": "classes of the head",
    "experts": "experts of a mixture",
    "tied": "which embeddings and outputs share their weights",
    "top": "the head",
    "pool": "how tokens become one vector",
    "cell": "the recurrent unit",
    "mels": "mel bands of a spectrogram",
}


# ---- tasks


def task_page(name: str) -> str:
    task, entry = task_class(name), TASKS[name]
    sections = [f"# {name}", doc(task), f"Source: {source(inspect.getmodule(task))}."]
    data = [row for row in readme_table("your data") if entry.word and learns_from(row, name)]
    sections += section("Data and command", table(["your data", "one record", "command"], data))
    known = {quoted(row[0])[-1]: row[0] for row in readme_table("model")}
    sections += section(
        "Architectures",
        bullets(f"[{known[one].rpartition(' (')[0]}](../models/{one}.md)" for one in task.architectures),
    )
    sections += section("Default presets, by size", bullets(f"`{one}`" for one in task.presets_by_size))
    sections += section("Results", results_table(lambda recipe: task_of(recipe) == name))
    return joined(sections)


def learns_from(row: Row, name: str) -> bool:
    """Whether README's row of data has a command that trains for a task, by its kind of data and its objective."""
    entry, (first, *variants) = TASKS[name], quoted(row[2])
    able = [one for one, other in TASKS.items() if other.data == entry.data and task_class(one).architectures]
    is_usual = "--objective" not in first and name in able[:1]
    named = [command.split()[-1] for command in (first, *variants) if "--objective" in first or command != first]
    return KINDS[row[0]] == entry.data and (is_usual or entry.objective in named)


# the member of DataKind that each row of README's table of data is of
KINDS = {
    **dict.fromkeys(("pairs of texts", "two parallel files", "none yet"), "PAIRS"),
    **dict.fromkeys(("words with a tag each", "the same as CoNLL"), "TAGS"),
    **dict.fromkeys(("images by folder", "images and a table", "images without labels"), "IMAGES"),
    "texts with a label": "LABELS",
    "two texts with a label": "PAIR_LABELS",
    "two texts with a number": "PAIR_SCORES",
    "texts with a number": "SCORES",
    "texts with several labels": "LABEL_SETS",
    "questions on contexts": "ANSWERS",
    "texts": "TEXTS",
    "conversations": "CONVERSATIONS",
    "preferences": "PREFERENCES",
    "images with captions": "CAPTIONS",
    "sounds": "SOUNDS",
    "speech": "SPEECH",
    "series of numbers": "SERIES",
    "sets of vectors": "SETS",
    "images with a number": "SCORED_IMAGES",
    "sounds with a number": "SCORED_SOUNDS",
    "series of numbers, one to be predicted": "SCORED_SERIES",
    "numbers over time": "ROWS",
}


# ---- results of recipes


def results_table(is_wanted: Callable[[dict[str, Any]], bool]) -> str:
    """The lines of RESULTS.md whose recipe is wanted."""
    head, *rows = markdown_rows((DOCS / "RESULTS.md").read_text(encoding="utf-8"), "proof")
    return table(head, [row for row in rows if any(is_wanted(recipe) for recipe in recipes(row[-1]))])


def recipes(command: str) -> Iterator[dict[str, Any]]:
    for path in re.findall(r"--config (recipes/[\w-]+\.yaml)", command):
        yield yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def architecture_of(recipe: dict[str, Any]) -> str:
    name = recipe.get("model", {}).get("preset")
    return preset(name).architecture if name else ""


def task_of(recipe: dict[str, Any]) -> str:
    """The task that learns with the architecture of a recipe and its objective."""
    objective, made = recipe.get("data", {}).get("objective"), architecture_of(recipe)
    able = [name for name in TASKS if made in task_class(name).architectures]
    asked = [name for name in able if TASKS[name].objective == objective]
    return next(iter(asked or able), "")


# ---- lectures


LECTURES = """\
What five lectures on attention and transformers say, in our words, section by section: the commands that show each
statement, its lesson, the code behind it, and an erratum where the lecture slips. The command below the title of a
section shows it in a terminal; with `--out FOLDER` it builds a page that loads nothing and has every output, computed
when it is built. `make site` builds all {pages} of them.

[COVERAGE.md](COVERAGE.md) has the same {rows} statements as tables, with what cannot be shown here and why, and
[LESSONS.md](LESSONS.md) all lessons."""


def lectures_page() -> str:
    """Every section of the lectures, to be read where nothing can be run."""
    told = LECTURES.format(pages=len(sections()), rows=len(list(statements())))
    contents = list[str]()
    for one in lectures():
        contents.append(f"- {one.name}: {one.title}")
        contents += [
            f"  - [{section.title}](#{anchor(f'{section.name}: {section.title}')})" for section in one.sections
        ]
    return joined(
        ["# Lectures", told, "\n".join(contents), *(part for one in lectures() for part in lecture_part(one))]
    )


def lecture_part(one: Lecture) -> Iterator[str]:
    yield f"## {one.name}: {one.title}"
    for section in one.sections:
        yield f"### {section.name}: {section.title}"
        yield f"`headway lecture {section.name}`"
        yield "\n".join(map(statement_item, section.statements))


def statement_item(row: Statement) -> str:
    lessons = [one for one in row.commands if isinstance(one, LessonCommand)]
    lines = [f"- **{row.id}** {row.says}"]
    if row.reason:
        lines.append(f"*{row.standing}*: {row.reason}")
    lines += [f"`{one.line}`" for one in row.commands if one not in lessons]
    lines += [f"lesson [{one.name}](LESSONS.md): `{one.line}`" for one in lessons]
    if row.code:
        lines.append("code " + ", ".join(map(code_link, row.code)))
    if row.erratum is not None:
        found = errata()[row.erratum]
        lines.append(f"**Erratum.** {found.said} {found.right}")
    return "\n  - ".join(lines)


def code_link(where: str) -> str:
    """A link to the file of a `module:name` below headway."""
    module = where.partition(":")[0].replace(".", "/")
    path = next(one for one in (f"{module}.py", f"{module}/__init__.py") if (ROOT / "src/headway" / one).is_file())
    return f"[`{where}`](../src/headway/{path})"


def anchor(title: str) -> str:
    """The fragment of a heading, as GitHub names it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


# ---- Python


def api_page() -> str:
    """Public names of the package, with signatures and docstrings: functions, then modules and classes."""
    sections = ["# Python interface", doc(headway)]
    for name in sorted(headway.__all__, key=lambda name: not inspect.isfunction(getattr(headway, name))):
        found = getattr(headway, name)
        if inspect.ismodule(found):
            sections += [f"## `headway.{name}`", doc(found)]
            for inner in public_names(found):
                sections += described(getattr(found, inner), f"{name}.{inner}", "###")
        elif found.__name__ == name:  # other names are those of earlier versions
            sections += described(found, name, "##")
    return joined(sections)


def public_names(module: ModuleType) -> list[str]:
    """What a module offers: the names of `__all__`, or the functions and classes that it defines."""
    own = [name for name, one in vars(module).items() if getattr(one, "__module__", "") == module.__name__]
    return getattr(module, "__all__", [name for name in own if not name.startswith("_")])


def described(found: Any, name: str, heading: str) -> Iterator[str]:
    """A heading, the signature and the docstring, and of a class those of its methods that have one."""
    yield f"{heading} `headway.{name}`"
    yield code(found, name)
    yield doc(found)
    for method in vars(found).values() if inspect.isclass(found) else ():
        if inspect.isfunction(method) and not method.__name__.startswith("_") and method.__doc__:
            yield code(method, f"{name}.{method.__name__}")
            yield doc(method)


def code(found: Any, name: str) -> str:
    """The signature of a function or a class."""
    told = re.sub(r"= <.*? at 0x[0-9a-f]+>", "= …", str(inspect.signature(found)))  # an object that has no text
    plain = re.sub(r"(: |-> )'([^']*)'", r"\1\2", told.replace("(self, ", "(").replace("(self)", "()"))
    return f"```python\n{name}{plain}\n```"


def doc(found: Any) -> str:
    return inspect.cleandoc(found.__doc__ or "")


# ---- Markdown


def readme_table(first: str) -> list[Row]:
    return markdown_rows((ROOT / "README.md").read_text(encoding="utf-8"), first)[1:]


def markdown_rows(text: str, first: str) -> list[Row]:
    """The header and the rows of the table whose first column is named so."""
    body = text[text.index(f"\n| {first} |") + 1 :].split("\n\n")[0]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in body.splitlines()]
    return [cells[0], *cells[2:]]


def table(head: Row, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def section(title: str, body: str, note: str = "") -> list[str]:
    """A section, unless there is nothing to say."""
    return [f"## {title}", *([note] if note else []), body] if body else []


def bullets(items: Iterator[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def summary(found: Any) -> str:
    return doc(found).split("\n")[0]


def source(module: Any) -> str:
    path = Path(inspect.getsourcefile(module) or "").relative_to(ROOT)
    return f"[{path}](../../{path})"


def joined(sections: Sequence[str]) -> str:
    return "\n\n".join(section for section in sections if section) + "\n"


if __name__ == "__main__":
    main()
