"""`headway inspect`, as the command line declares it: numbers for people who would rather read them."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from cyclopts import App

from headway.app import cli_dictionary
from headway.app.cli_options import COMMON, Common
from headway.errors import UserError

inspect = App(name="inspect", help="Numbers about a model: heads, importance, rollout, probes, neighbours, directions.")
inspect.command(cli_dictionary.superposition)
inspect.command(cli_dictionary.dictionary)


@inspect.command(name="heads")
def show_heads(
    model: Path,
    text: str | None = None,
    /,
    *,
    file: Path | None = None,
    by: str | None = None,
    common: Common = COMMON,
) -> int:
    """Say what each head does with one input: entropy, distance, special tokens, previous, duplicate, induction.

    Parameters
    ----------
    model
        A model folder.
    text
        A text; or the name of a file, for a model of images or sounds.
    file
        Read the text from this file instead, as for long texts.
    by
        Sort by one of these numbers, the largest first.
    """
    from headway.app.inspect.heads import heads

    return common.look(model, lambda: heads(given(text, file), by))


@inspect.command
def importance(
    model: Path,
    data: Path,
    /,
    *,
    task: str | None = None,
    columns: str | None = None,
    how: str = "off",
    most: int = 500,
    common: Common = COMMON,
) -> int:
    """Measure a model on data with each head switched off, one after the other.

    Parameters
    ----------
    model
        A model folder.
    data
        A file or folder, as for headway eval.
    task
        What the data is for, as for headway eval; recognised unless given.
    columns
        Names or numbers of the columns to use, as in en,de; recognised unless given.
    how
        What is done to a head: off, uniform (it looks everywhere alike), or only (the others of its site are off).
    most
        Records at most.
    """
    from headway.app.inspect.importance import importance

    return common.look(model, lambda: importance(model, data, task=task, columns=columns, how=how, most=most))


@inspect.command
def rollout(
    model: Path,
    text: str | None = None,
    /,
    *,
    file: Path | None = None,
    gradient: str | None = None,
    row: int | None = None,
    common: Common = COMMON,
) -> int:
    """Follow attention through all layers, from where the answer is read back to the input.

    With an encoder and a decoder, from what is written across to what was read.

    Parameters
    ----------
    model
        A model folder.
    text
        A text; or the name of a file, for a model of images or sounds.
    file
        Read the text from this file instead.
    gradient
        A class or a token: follow only what speaks for it (gradient-weighted rollout).
    row
        The token to follow back from, where there is a decoder one of those it reads; where the answer is read unless
        given.
    """
    from headway.app.inspect.rollout import follow

    return common.look(model, lambda: follow(given(text, file), gradient, row))


@inspect.command
def probe(
    model: Path,
    data: Path,
    /,
    *,
    task: str | None = None,
    columns: str | None = None,
    label_from: str | None = None,
    most: int = 2000,
    ridge: float | None = None,
    common: Common = COMMON,
) -> int:
    """Fit a linear classifier to each layer: how well can classes be read off it?

    Parameters
    ----------
    model
        A model folder.
    data
        Labelled texts, images, sounds or numbers, as for headway train; the classes need not be the model's own.
        Of a sound that is longer than a Whisper hears at once, all windows count.
    task
        What the data is for; recognised unless given.
    columns
        Names or numbers of the columns to use, as in text,label; recognised unless given.
    label_from
        A pattern that finds the class in names of images or sounds.
    most
        Samples at most, four fifths of which are learned from.
    ridge
        How much large weights cost; chosen for each layer on a part of what is learned from unless given.
    """
    from headway.app.inspect.probe import probe

    options = {"task": task, "columns": columns, "label_from": label_from}
    return common.look(model, lambda: probe(data, **options, most=most, ridge=ridge))


@inspect.command
def neighbours(model: Path, /, *words: str, among: Path | None = None, count: int = 10, common: Common = COMMON) -> int:
    """Name the tokens nearest to a word in the space of embeddings, or the lines of a file nearest to a text.

    Parameters
    ----------
    model
        A model folder.
    words
        Words; with --among texts, or names of files for a model of images or sounds.
    among
        A file whose lines are compared with them, by the model's vectors of whole texts.
    count
        How many neighbours.
    """
    from headway.app.inspect.neighbours import neighbours

    return common.look(model, lambda: neighbours(words, among, count))


@inspect.command
def direction(
    model: Path,
    first: Path,
    second: Path,
    /,
    *,
    move: str | None = None,
    by: float = 1.0,
    layer: str | None = None,
    most: int | None = None,
    common: Common = COMMON,
) -> int:
    """Find the direction between two groups of samples in each layer, and move the model along it.

    Parameters
    ----------
    model
        A model folder.
    first
        A file with a sample on each line: a text, or the name of an image or sound; or a folder of these.
    second
        The samples of the other group.
    move
        A text, or file, to answer while the stream of vectors is moved towards the first group.
    by
        How far: 1 is the whole way from the mean of the second group to that of the first.
    layer
        After which layer; that which tells the groups best apart unless given.
    most
        Samples of each group at most; all unless given.
    """
    from headway.app.inspect.direction import Move, direction

    wish = None if move is None else Move(move, by, layer)
    return common.look(model, lambda: direction(first, second, wish, most))


@inspect.command
def cka(model: Path, other: Path | None = None, /, *, data: Path, most: int = 500, common: Common = COMMON) -> int:
    """Compare all layers of a model with each other, or with those of another model, by linear CKA.

    Parameters
    ----------
    model
        A model folder.
    other
        Another model folder, which reads the same kind of samples.
    data
        A file with a sample on each line, a table, or a folder of images or sounds.
    most
        Samples at most.
    """
    from headway.app.inspect.cka import cka

    load_other = None if other is None else partial(common.load, other)
    return common.look(model, lambda: cka(data, most, load_other))


def given(text: str | None, file: Path | None) -> str:
    """What a model is to read: as it was typed, or what a file holds; - is standard input."""
    if (text is None) == (file is None):
        raise UserError(
            "one input is needed", do='give a text, as in headway inspect heads MODEL "text", or --file FILE'
        )
    if file is None:
        return sys.stdin.read() if text == "-" else str(text)
    from headway.data.lines import check_file

    check_file(file)
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8: byte {error.start + 1}", do="save it as UTF-8") from None
