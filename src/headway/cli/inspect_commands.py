"""`headway inspect`, as the command line declares it: parse, call `headway.inspect`, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from headway import inspect as library
from headway.cli.options import (
    DATA_OPTIONS,
    MODEL_OPTIONS,
    RESULT_OPTIONS,
    DataOptions,
    DataPath,
    ModelOptions,
    ModelPath,
    ResultOptions,
)
from headway.errors import UserError

if TYPE_CHECKING:
    from headway.inspect.sparse_autoencoder import SAEStep

SPARSITIES = (0.0, 0.7, 0.9, 0.99)

inspect = App(
    name="inspect",
    help="Numbers about a model: attention heads, ablation, rollout, linear probes, neighbours, steering, CKA, SAE.",
)


@inspect.command
def heads(
    model: ModelPath,
    text: str | None = None,
    /,
    *,
    file: DataPath | None = None,
    by: str | None = None,
    common: ModelOptions = MODEL_OPTIONS,
) -> int:
    """Attention statistics of each head for one input: entropy, distance, special, previous, duplicate, induction.

    Parameters
    ----------
    model
        A model folder.
    text
        A text; or the name of a file, for a model of images or sounds.
    file
        Read the text from this file instead, for long texts.
    by
        Sort by one of these statistics, largest first.
    """
    return common.show(lambda: library.heads(common.loader(model), given(text, file), by=by))


@inspect.command
def importance(
    model: ModelPath,
    data: DataPath,
    /,
    *,
    options: DataOptions = DATA_OPTIONS,
    how: str = "off",
    most: int = 500,
    common: ModelOptions = MODEL_OPTIONS,
) -> int:
    """Head importance by ablation: evaluate a model on data with each head switched off, one after the other.

    Parameters
    ----------
    model
        A model folder.
    data
        A file or folder, as for headway eval.
    how
        Edit of a head: off, uniform (uniform attention), or only (all other heads of its site are off).
    most
        Maximum number of records.
    """
    return common.show(
        lambda: library.importance(
            common.loader(model),
            data,
            **vars(options),
            how=how,
            most=most,
            callback=print_heads,
            named=f"the model in {model}",
        )
    )


@inspect.command
def rollout(
    model: ModelPath,
    text: str | None = None,
    /,
    *,
    file: DataPath | None = None,
    gradient: str | None = None,
    row: int | None = None,
    common: ModelOptions = MODEL_OPTIONS,
) -> int:
    """Attention rollout through all layers, from the position of the output back to the input.

    Of an encoder-decoder, from the output tokens across to the source.

    Parameters
    ----------
    model
        A model folder.
    text
        A text; or the name of a file, for a model of images or sounds.
    file
        Read the text from this file instead.
    gradient
        A class or a token: weight attention by the gradient of its score (gradient-weighted rollout).
    row
        Index of the token to start from, of a decoder one of its input tokens; where the output is read unless given.
    """
    return common.show(lambda: library.rollout(common.loader(model), given(text, file), gradient=gradient, row=row))


@inspect.command
def probe(
    model: ModelPath,
    data: DataPath,
    /,
    *,
    options: DataOptions = DATA_OPTIONS,
    most: int = 2000,
    ridge: float | None = None,
    common: ModelOptions = MODEL_OPTIONS,
) -> int:
    """Fit a linear probe to each layer: how well does a linear classifier predict classes from it?

    Parameters
    ----------
    model
        A model folder.
    data
        Labelled texts, images, sounds or numbers, as for headway train; the classes need not be those of the model.
        All windows of a sound that is longer than a Whisper reads at once are used.
    most
        Maximum number of samples; a fifth of them is held out.
    ridge
        Weight of the L2 penalty; chosen for each layer on a part of the training samples unless given.
    """
    return common.show(lambda: library.probe(common.loader(model), data, **vars(options), most=most, ridge=ridge))


@inspect.command
def neighbours(
    model: ModelPath,
    /,
    *words: str,
    among: DataPath | None = None,
    count: int = 10,
    common: ModelOptions = MODEL_OPTIONS,
) -> int:
    """Nearest neighbours in embedding space: tokens nearest to a word, or lines of a file nearest to a text.

    Parameters
    ----------
    model
        A model folder.
    words
        Words; with --among texts, or names of files for a model of images or sounds.
    among
        A file whose lines are compared with them, by the embeddings of whole texts; or a folder of images or sounds.
    count
        Number of neighbours.
    """
    return common.show(lambda: library.neighbours(common.loader(model), words, among=among, count=count))


@inspect.command
def direction(
    model: ModelPath,
    first: DataPath,
    second: DataPath,
    /,
    *,
    move: str | None = None,
    by: float = 1.0,
    layer: str | None = None,
    most: int | None = None,
    common: ModelOptions = MODEL_OPTIONS,
) -> int:
    """Find the direction between two groups of samples in each layer, and steer the model along it.

    Parameters
    ----------
    model
        A model folder.
    first
        A file with a sample on each line: a text, or the name of an image or sound; or a folder of these.
    second
        The samples of the other group.
    move
        A text, or file, to answer while the hidden states are moved towards the first group.
    by
        Distance: 1 is the whole way from the mean of the second group to that of the first.
    layer
        The layer to steer; the one that separates the groups best unless given.
    most
        Maximum number of samples of each group; all unless given.
    """

    def compute() -> library.Result:
        steering = None if move is None else library.Steering(move, by, layer)
        return library.direction(common.loader(model), first, second, move=steering, most=most)

    return common.show(compute)


@inspect.command
def cka(
    model: ModelPath,
    other: ModelPath | None = None,
    /,
    *,
    data: DataPath,
    most: int = 500,
    common: ModelOptions = MODEL_OPTIONS,
) -> int:
    """Similarity of all layers of a model with each other, or with those of another model, by linear CKA.

    Parameters
    ----------
    model
        A model folder.
    other
        Another model folder, of a model that reads the same kind of samples.
    data
        A file with a sample on each line, a table, or a folder of images or sounds.
    most
        Maximum number of samples.
    """
    second = None if other is None else common.loader(other)
    return common.show(lambda: library.cka(common.loader(model), second, data, most=most))


@inspect.command
def superposition(
    *,
    features: int = 5,
    hidden: int = 2,
    sparsity: Annotated[tuple[float, ...], Parameter(consume_multiple=True)] = SPARSITIES,
    decay: float = 0.9,
    steps: int = 2000,
    seed: int = 0,
    common: ResultOptions = RESULT_OPTIONS,
) -> int:
    """Train toy models that represent more features than dimensions, the more of them the sparser they are.

    x′ = relu(Wᵀ W x + b) is trained for each sparsity (Elhage et al. 2022).

    Parameters
    ----------
    features
        Number of features.
    hidden
        Number of hidden dimensions.
    sparsity
        Probability that a feature is absent, from 0 up to, but not, 1; one or more.
    decay
        Importance of each feature, relative to the previous one.
    steps
        Training steps.
    seed
        Random seed.
    """
    return common.show(lambda: library.superposition(features, hidden, sparsity, decay=decay, steps=steps, seed=seed))


@inspect.command(name=("sae", "dictionary"))
def sae(
    model: ModelPath,
    /,
    *data: DataPath,
    site: str,
    atoms: int = 512,
    top: int | None = None,
    l1: float | None = None,
    steps: int = 2000,
    vectors: int = 50_000,
    seed: int = 0,
    options: DataOptions = DATA_OPTIONS,
    out: Path | None = None,
    common: ModelOptions = MODEL_OPTIONS,
) -> int:
    """Train a sparse autoencoder (SAE, dictionary learning) on the activations of a site, and list its features.

    Held-out rows say how much of the variance it explains, and how much the loss of
    the model increases when the activations are replaced by their reconstructions.

    Parameters
    ----------
    model
        A model folder, of headway's or of Hugging Face's layout.
    data
        Files or folders of what the model reads, as for headway eval, or dates, the embedded data set.  Images and
        sounds need no labels; with captions or transcripts the loss of the model is measured.
    site
        The site, as in 3.out or decoder.1.cross.heads, or a pattern that matches one site.
    atoms
        Number of features (atoms of the dictionary).
    top
        Active features for each vector; 16 unless --l1 is given.
    l1
        Weight of an L1 penalty, as in 0.1, instead of --top.
    steps
        Training steps.
    vectors
        About how many activation vectors to collect.
    seed
        Random seed.
    out
        A new folder to write the SAE into.
    """

    def compute() -> library.Result:
        from headway.system import keep_memory

        keep_memory()
        return library.sae(
            common.loader(model),
            data,
            site,
            **vars(options),
            atoms=atoms,
            top=top,
            l1=l1,
            steps=steps,
            seed=seed,
            vectors=vectors,
            out=out,
            callback=(lambda step: None) if common.json else print_step,
            named=f"the model in {model}",
        )

    return common.show(compute)


def given(text: str | None, file: DataPath | None) -> str:
    """The input of a model: as typed, or the contents of a file; - is standard input."""
    if (text is None) == (file is None):
        raise UserError(
            "one input is needed", do='give a text, as in headway inspect heads MODEL "text", or --file FILE'
        )
    if file is None:
        return sys.stdin.read() if text == "-" else str(text)
    from headway.data.text_lines import check_file

    check_file(file)
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8: byte {error.start + 1}", do="save it as UTF-8") from None


def print_heads(done: int, total: int) -> None:
    """Progress of an ablation, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{done} of {total} heads", end="\n" if done == total else "", file=sys.stderr, flush=True)


def print_step(step: SAEStep) -> None:
    """Progress of the training of an SAE."""
    line = f"step {step.step:,}: explained variance {step.explained:.3f}, {step.active:.1f} active features"
    dead = f", {step.dead:,} dead" + (" and resampled" if step.revived else "") if step.dead else ""
    print(line + dead, file=sys.stderr, flush=True)
