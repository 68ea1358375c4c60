"""Nearest neighbours in embedding space: tokens of the vocabulary, or whole texts, images and sounds.

Axes:  N rows   M queries   C width   k nearest
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.order import batched
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError, nearest
from headway.figures import BarChart, Plot, printable
from headway.inspect.activations import lines_of
from headway.inspect.presentation import LazyModel, Result, format_number, resolve, table
from headway.model import Model
from headway.nn.embed import TokenEmbed
from headway.nn.trunk import encoder_of

BATCH = 32  # lines
MAX_LINE_CHARACTERS = 60  # in a table


def neighbours(
    model: LazyModel, words: Sequence[str], *, among: str | Path | None = None, count: int = 10
) -> NeighboursResult:
    """The `count` nearest tokens of the vocabulary to each word; or lines `among` those of a file to each text."""
    if not words:
        raise UserError("no word was given", do="as in headway inspect neighbours MODEL king queen")
    if count < 1:
        raise UserError(f"--count {count}", allowed="1 or more")
    lines = None if among is None else list(dict.fromkeys(lines_of(Path(among))))
    loaded = resolve(model)
    return nearest_tokens(loaded, words, count) if lines is None else nearest_lines(loaded, words, lines, count)


class NearestRows(NamedTuple):
    cosines: Tensor  # M k, falling
    rows: Tensor  # M k


def nearest_rows(queries: Tensor, table: Tensor, k: int) -> NearestRows:
    """The k rows of `table` (N C) with the largest cosine similarity to each query (M C)."""
    cosines = F.normalize(queries, dim=-1) @ F.normalize(table, dim=-1).mT  # M N
    found = cosines.topk(min(k, len(table)), dim=-1)
    return NearestRows(found.values, found.indices)


def nearest_tokens(loaded: Model, words: Sequence[str], count: int) -> NeighboursResult:
    """By the token embeddings."""
    vocabulary, weight = loaded.vocabulary(), token_embeddings(loaded.model)
    ids = torch.tensor([id_of(word, vocabulary) for word in words])
    known = weight[: vocabulary.vocab]  # the rows after these belong to no token
    near = nearest_rows(known[ids], known, count + 1)
    found = dict[str, Sequence[Neighbour]]()
    for word, own, cosines, rows in zip(words, ids.tolist(), near.cosines.tolist(), near.rows.tolist(), strict=True):
        others = [Neighbour(spelled(vocabulary, id), x) for id, x in zip(rows, cosines, strict=True) if id != own]
        found[word] = others[:count]
    return NeighboursResult("tokens of the vocabulary", found)


def nearest_lines(loaded: Model, texts: Sequence[str], lines: Sequence[str], count: int) -> NeighboursResult:
    """By the embeddings of whole texts, or of image or sound files."""

    def vectors(inputs: Sequence[str]) -> Tensor:
        return torch.cat([loaded.embed(some) for some in batched(inputs, BATCH)])

    near = nearest_rows(vectors(texts), vectors(lines), count + 1)
    found = dict[str, Sequence[Neighbour]]()
    for text, cosines, rows in zip(texts, near.cosines.tolist(), near.rows.tolist(), strict=True):
        near_by = [Neighbour(lines[int(row)], x) for row, x in zip(rows, cosines, strict=True)]
        others = [one for one in near_by if one.text != text]
        found[text] = others[:count]
    return NeighboursResult("lines", found)


def token_embeddings(model: nn.Module) -> Tensor:
    """The input embeddings of the tokens."""
    side = encoder_of(model)
    found = next((part.token.weight for part in side.modules() if isinstance(part, TokenEmbed)), None)
    if found is None:
        raise UserError("this model reads no words", do="compare whole files, with --among FILE")
    return found.detach()


def id_of(word: str, vocabulary: Tokenizer) -> int:
    """The one token that a word is: as it begins a text, as it stands behind a space, or as a token is written."""
    for ids in vocabulary.plain_batch([word, f" {word}"]):
        if len(ids) == 1 and ids[0] != vocabulary.unk:
            return ids[0]
    id = vocabulary.backend.token_to_id(word)
    if id is not None and id < vocabulary.vocab:
        return id
    raise unknown(word, vocabulary)


def unknown(word: str, vocabulary: Tokenizer) -> UserError:
    """Why a word has no vector of its own, and one that has and is spelled much like it."""
    pieces = [spelled(vocabulary, id) for id in vocabulary.plain(word) if id != vocabulary.unk]
    made = f"; it is read as {len(pieces)} pieces: {' '.join(printable(piece) for piece in pieces[:8])}"
    alike = {bare: None for token in vocabulary.backend.get_vocab() if (bare := bare_token(token))[:1] == word[:1]}
    do = "give another, or compare whole texts with --among FILE"
    said = f"the vocabulary has no token {printable(word)!r}" + (made if len(pieces) > 1 else "")
    return UserError(said, do=do, meant=nearest(word, alike))


def bare_token(token: str) -> str:
    """A token without the markers of a space or of a word piece."""
    return token.removeprefix("Ġ").removeprefix("▁").removeprefix("##").removesuffix("</w>")


def spelled(vocabulary: Tokenizer, id: int) -> str:
    return vocabulary.decode([id]).strip() or vocabulary.token(id)


@dataclass(frozen=True)
class Neighbour:
    text: str
    cosine: float


@dataclass(frozen=True, eq=False)
class NeighboursResult(Result):
    """`found` has the neighbours of each word or text, the nearest first."""

    among: str
    found: Mapping[str, Sequence[Neighbour]]

    def to_dict(self) -> dict[str, Any]:
        return {
            "among": self.among,
            "neighbours": {word: [vars(one) for one in near] for word, near in self.found.items()},
        }

    def to_text(self) -> str:
        width = MAX_LINE_CHARACTERS
        return "\n\n".join(
            table(
                (printable(word, width), "cosine"),
                [(printable(one.text, width), format_number(one.cosine)) for one in near],
            )
            for word, near in self.found.items()
        )

    def plot(self) -> Plot:
        panels = [
            BarChart(word, [one.text for one in near], [one.cosine for one in near], "cosine")
            for word, near in self.found.items()
        ]
        return Plot(f"nearest {self.among}", panels)
