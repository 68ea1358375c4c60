"""The commands that need no training data: presets, running and converting models, explanations, this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.options import Heads, Unsafe
from headway.cli.writing_options import Writing
from headway.errors import UserError

if TYPE_CHECKING:
    from headway.model import Model
    from headway.tasks.generation import GenerationOptions

LINES = 32  # texts at a time
WRITING = Writing()


def list_presets(*, json: bool = False) -> None:
    """List the presets: architectures at their published sizes.

    Parameters
    ----------
    json
        Print them as JSON, with every size.
    """
    from headway.cli.preset_tables import list_presets

    print(list_presets(json))


def cost(preset: str, /, *, batch: int = 1, length: int | None = None, json: bool = False) -> None:
    """Show the parameters, FLOPs and memory of a preset, layer by layer.

    Parameters
    ----------
    preset
        One of headway list.
    batch
        Batch size.
    length
        Sequence length in tokens; by default the model's context length.
    json
        Print the numbers as JSON, and nothing else.
    """
    from headway.cli.preset_tables import cost

    print(cost(preset, batch=batch, length=length, json=json))


def run(
    model: Path,
    /,
    *texts: str,
    lines: bool = False,
    embed: bool = False,
    json: bool = False,
    heads: Heads = None,
    unsafe: Unsafe = False,
    writing: Writing = WRITING,
) -> None:
    """Run a model on texts or files: continue, translate, fill masks, classify, caption, transcribe or embed.

    Parameters
    ----------
    model
        A model folder, in headway's or Hugging Face's layout.
    texts
        Inputs: texts; or files, for a model of images, sounds or tables of numbers.  For CLIP, an image and then
        candidate texts.
    lines
        Run on each line of standard input.
    embed
        Print the embedding of each input instead.
    json
        Print each prediction as a line of JSON.
    """
    writing.check()
    if lines == bool(texts):
        raise UserError(
            "headway run needs something to answer",
            do='give a text or a file, as in headway run MODEL "text", or --lines to read them',
        )
    loaded, options = prepared(model, writing, heads, unsafe)
    task = loaded.task
    for batch in line_batches() if lines else [texts]:
        found = task.embeddings(loaded.model, batch) if embed else task.predict(loaded.model, batch, options)
        for one in found:
            print(dumps(one.to_dict(), ensure_ascii=False) if json else one.to_text(), flush=True)


def generate(
    model: Path, text: str, /, *, heads: Heads = None, unsafe: Unsafe = False, writing: Writing = WRITING
) -> None:
    """Generate text with a model, and print it as it is generated.

    Parameters
    ----------
    model
        The folder of a model that generates text.
    text
        The prompt, or the source text.
    """
    from headway.tasks.base import StreamsText

    writing.check()
    loaded, options = prepared(model, writing, heads, unsafe)
    if not isinstance(loaded.task, StreamsText):
        raise UserError(f"the model in {model} does not write from texts", do=f'try headway run {model} "{text}"')
    if writing.beam is not None:  # the best answer is known in the end
        print(loaded.predict(text, options).to_text())
        return
    for piece in loaded.stream(text, options):
        print(piece, end="", flush=True)
    print()


def prepared(model: Path, writing: Writing, heads: int | None, unsafe: bool) -> tuple[Model, GenerationOptions]:
    """A model and how it writes."""
    from headway.model import load

    loaded = load(model, heads=heads, unsafe=unsafe)
    draft = None if writing.draft is None else load(writing.draft, unsafe=unsafe)
    return loaded, loaded.generation_options(**writing.arguments(), draft=draft)


def line_batches() -> Iterable[list[str]]:
    from headway.data.order import batched

    return batched((line.rstrip("\n") for line in sys.stdin), LINES)


def convert(source: Path, target: Path, /, *, to: str = "headway", heads: Heads = None, unsafe: Unsafe = False) -> None:
    """Convert a model folder to another layout, and check the result numerically.

    Parameters
    ----------
    source
        The folder to read, in either layout.
    target
        The folder to write: new, or empty.
    to
        The layout to write: headway or hf (Hugging Face's).
    """
    from headway.conversion import convert

    print(convert(source, target, to, heads=heads, unsafe=unsafe).to_text())


def explain(topic: str, /, *, json: bool = False, source: bool = False) -> None:
    """Work through a formula step by step, with its numbers.

    Parameters
    ----------
    topic
        The topic: attention.
    json
        Print the numbers as JSON, and nothing else.
    source
        Print where the code of the formula is, as file:line.
    """
    from headway.learn.explain import explain, source_of

    if source:
        place = source_of(topic)
        print(dumps({"source": place}) if json else place)
        return
    found = explain(topic)
    print(dumps(found.to_dict()) if json else found.to_text())


def doctor(*, json: bool = False) -> None:
    """Check this machine: versions, cores, memory, disk, optional packages and speed, with a fix for each problem.

    Parameters
    ----------
    json
        Print the findings as JSON, and nothing else.
    """
    from headway.doctor import doctor

    found = doctor()
    print(dumps(found.to_dict(), indent=1, ensure_ascii=False) if json else found.to_text())
