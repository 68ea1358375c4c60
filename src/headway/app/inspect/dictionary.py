"""`headway inspect dictionary`: what the vectors of a site are made of, and what excites each part.

A sparse dictionary is learned from the vectors that a site shows of data.  Rows that are held out say how good it is:
how much of their variance it tells, and how much worse the model becomes where it goes on with what the dictionary
tells instead of the vectors themselves; beside it, with their mean and with zeros.

Axes:  N vectors   C width   A atoms
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from headway.app.inspect.askers import asker_for
from headway.app.inspect.atoms import Atom, Learned, Losses, Place
from headway.app.inspect.calls import Call, Shown, mean_loss
from headway.app.inspect.gathered import Gathered, gather
from headway.app.inspect.handed import Handed
from headway.checkpoint import Loaded
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.inspect.dictionary import Config, Dictionary, Penalty, Sparseness, Top
from headway.inspect.dictionary_learning import PIECE, Moment, Practice, learn, quality, usage
from headway.inspect.importance import changed as edited
from headway.inspect.site_vectors import changed, one_site
from headway.train.memory import keep_memory

USUAL = 16  # atoms for each vector, where neither --top nor --l1 is given
ATOMS, EXAMPLES = 16, 5  # most used atoms that are told, and places for each
BEFORE, AFTER = 12, 6  # tokens that are shown around the one that excites an atom


def dictionary(
    model: Path,
    handed: Handed,
    site: str,
    sparse: Sparseness,
    practice: Practice,
    *,
    atoms: int,
    vectors: int,
    out: Path | None = None,
    quiet: bool = False,
) -> Callable[[Loaded], Learned]:
    """Learns a dictionary of what a site of the model in a folder shows of data, and writes it to `out`."""
    keep_memory()
    Config(1, atoms, sparse)  # what cannot be is told before anything is loaded
    check_room(vectors, out)
    handed.check()

    def look(loaded: Loaded) -> Learned:
        name = one_site(loaded.model, site)
        asker = asker_for(loaded, handed, model)
        gathered = gather(loaded.model, name, asker, vectors)
        config = Config(gathered.vectors.shape[1], atoms, sparse, name)
        made, moments = learn(gathered.learned, config, practice, (lambda moment: None) if quiet else progress)
        if out is not None:
            made.save(out)
        counts = (len(gathered.learned), len(gathered.kept))
        good = quality(made, gathered.learned, gathered.kept)
        lost = None if asker.target is None else losses(loaded.model, made, gathered.calls, asker.target)
        shares, best = used(made, gathered)
        return Learned(asker.why, config, practice, counts, moments, good, lost, shares, best, out)

    return look


def sparseness(top: int | None, l1: float | None) -> Sparseness:
    if top is not None and l1 is not None:
        raise UserError("--top and --l1 are two ways to keep atoms few", do="give one of them")
    return Top(USUAL if top is None else top) if l1 is None else Penalty(l1)


def check_room(vectors: int, out: Path | None) -> None:
    if vectors < 2:
        raise UserError(f"--vectors {vectors}", allowed="2 or more")
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already", do="name a new or empty folder")


def progress(moment: Moment) -> None:
    """A line for people who wait, out of the way of what is printed in the end."""
    told = f"step {moment.step:,}: {moment.explained:.3f} of a batch's variance, {moment.active:.1f} active atoms"
    dead = f", {moment.dead:,} dead" + (" and revived" if moment.revived else "") if moment.dead else ""
    print(told + dead, file=sys.stderr, flush=True)


def losses(model: nn.Module, made: Dictionary, calls: Sequence[Call], target: str) -> Losses:
    """The loss on held-out rows as the model is, and with each vector of the site replaced."""
    site = made.config.site

    def mean(x: Tensor) -> Tensor:
        return made.centre.to(x.dtype).expand_as(x)

    found = [mean_loss(calls)]
    for change in (made, mean, torch.zeros_like):
        with edited(model, {site: changed(site, change)}):
            found.append(mean_loss(calls))
    return Losses(target, *found)


@torch.no_grad()
def used(made: Dictionary, gathered: Gathered) -> tuple[list[float], list[Atom]]:
    """The share of vectors that use each atom, and of those that are used most where they are strongest."""
    shares = usage(made, gathered.vectors) / len(gathered.vectors)  # A
    most = [atom for atom in shares.argsort(descending=True, stable=True)[:ATOMS].tolist() if shares[atom] > 0]
    codes = torch.cat([made.codes(some)[:, most] for some in gathered.vectors.split(PIECE)])  # N ATOMS
    found = [Atom(atom, float(shares[atom]), places(codes[:, at], gathered)) for at, atom in enumerate(most)]
    return shares.tolist(), found


def places(codes: Tensor, gathered: Gathered) -> list[Place]:
    """Where an atom's codes (N) are largest, one place of a row at most."""
    found: dict[int, Place] = {}
    for at in codes.argsort(descending=True, stable=True).tolist():
        row = int(gathered.owners[at])
        if len(found) == EXAMPLES or not codes[at] > 0:
            break
        if row not in found:
            found[row] = place_in(gathered.rows[row], int(gathered.places[at]), float(codes[at]))
    return list(found.values())


def place_in(row: Shown, at: int, code: float) -> Place:
    """A place of a row: its token between those around it, or the row's name where it has no tokens."""
    if row.words is None or at >= len(row.ids):
        return Place(code, row.name, after=f" at {at}")
    first = max(0, at - BEFORE)
    texts = pieces(row.words, row.ids[first : at + 1 + AFTER])
    return Place(code, texts[at - first], "".join(texts[: at - first]), "".join(texts[at - first + 1 :]))


def pieces(words: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each token in its place; a token without a text of its own as the vocabulary writes it."""
    stream = words.stream()
    return [stream.push(id) or words.token(id) for id in ids]
