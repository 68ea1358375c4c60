"""`headway inspect superposition` and `headway inspect dictionary`, as the command line declares them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headway.app.cli_options import COMMON, TELLING, Common, Telling

SPARSITIES = (0.0, 0.7, 0.9, 0.99)


def superposition(
    *,
    features: int = 5,
    hidden: int = 2,
    sparsity: Annotated[tuple[float, ...], Parameter(consume_multiple=True)] = SPARSITIES,
    decay: float = 0.9,
    steps: int = 2000,
    seed: int = 0,
    telling: Telling = TELLING,
) -> int:
    """Watch a toy model pack more features than it has dimensions, the more of them the rarer they are.

    x′ = relu(Wᵀ W x + b) is learned for each sparsity (Elhage et al. 2022).

    Parameters
    ----------
    features
        How many features there are.
    hidden
        Dimensions that they are squeezed through.
    sparsity
        How likely a feature is to be absent, from 0 up to, but not, 1; one or more.
    decay
        How important each feature is, compared with the one before.
    steps
        Steps of learning.
    seed
        The same seed gives the same numbers.
    """
    from headway.app.inspect.superposition import superposition

    return telling.tell(lambda: superposition(features, hidden, sparsity, decay=decay, steps=steps, seed=seed))


def dictionary(
    model: Path,
    /,
    *data: Path,
    site: str,
    atoms: int = 512,
    top: int | None = None,
    l1: float | None = None,
    steps: int = 2000,
    vectors: int = 50_000,
    seed: int = 0,
    task: str | None = None,
    columns: str | None = None,
    label_from: str | None = None,
    out: Path | None = None,
    common: Common = COMMON,
) -> int:
    """Take the vectors of a site apart into a few out of many atoms, and see what excites each of these.

    A sparse dictionary (sparse autoencoder) is learned from what the site shows of
    data.  Held-out rows say how much of it the atoms tell, and how much worse the
    model becomes when it goes on with what they tell.

    Parameters
    ----------
    model
        A model folder, of headway's or of Hugging Face's layout.
    data
        Files or folders of what the model reads, as for headway eval, or dates, the embedded data set.  Nothing need be
        said about images and sounds; with captions or transcripts it is told what the model loses.
    site
        Where to look, as in 3.out or decoder.1.cross.heads; a pattern may be given that means one site.
    atoms
        How many atoms the dictionary has.
    top
        Atoms for each vector; 16 unless --l1 is given.
    l1
        What each atom of a vector costs, as in 0.1, in the place of --top.
    steps
        Steps of learning.
    vectors
        About how many vectors to gather.
    seed
        The same seed gives the same dictionary.
    task
        What the data is for, as for headway eval; recognised unless given.
    columns
        Names or numbers of the columns to use, as in en,de; recognised unless given.
    label_from
        A pattern that finds the class in names of images or sounds, or with --task speech the transcript.
    out
        A new folder to write the dictionary into.
    """
    from headway.app.inspect.dictionary import Handed, Practice, dictionary, sparseness

    return common.look(
        model,
        lambda: dictionary(
            model,
            Handed(data, task, columns, label_from),
            site,
            sparseness(top, l1),
            Practice(steps=steps, seed=seed),
            atoms=atoms,
            vectors=vectors,
            out=out,
            quiet=common.json,
        ),
    )
