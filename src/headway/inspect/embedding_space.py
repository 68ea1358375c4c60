"""Nearest neighbours in embedding space: tokens of the vocabulary, or whole texts, images and sounds.

Axes:  N rows   M queries   C width   k nearest
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.order import batched
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError, nearest
from headway.figures import BarChart, Plot, printable
from headway.inspect.activations import lines_in
from headway.inspect.presentation import LazyModel, Result, check_counts, resolve, table
from headway.model import Model
from headway.nn.embed import TokenEmbed
from headway.nn.trunk import encoder_of

BATCH = 32  # lines
MAX_LINE_CHARACTERS = 60  # in a table


def neighbours(
    model: LazyModel, words: Sequence[str], *, among: str | Path | Iterable[str] | None = None, count: int = 10
) -> NeighboursResult:
    """The `count` nearest tokens of the vocabulary to each word; or lines `among` those of a file to each text.

    `among` may also be an iterable of texts.
    """
    if not words:
        raise UserError("no word was given", do="as in headway inspect neighbours MODEL king queen")
    check_counts(count=count)
    if among is None:
        return NeighboursResult("tokens of the vocabulary", nearest_tokens(resolve(model), words, count))
    lines = list(dict.fromkeys(lines_in(Path(among)) if isinstance(among, str | Path) else among))
    return NeighboursResult("lines", nearest_lines(resolve(model), words, lines, count))


def nearest_tokens(loaded: Model, words: Sequence[str], count: int) -> Neighbours:
    """By the token embeddings."""
    vocabulary, weight = loaded.vocabulary(), token_embeddings(loaded.model)
    ids = [id_of(word, vocabulary) for word in words]
    known = weight[: vocabulary.vocab]  # the rows after these belong to no token
    return nearest_others(words, known[ids], known, ids, count, lambda id: spelled(vocabulary, id))


def nearest_lines(loaded: Model, texts: Sequence[str], lines: Sequence[str], count: int) -> Neighbours:
    """By the embeddings of whole texts, or of image or sound files."""
    queries, vectors = (
        torch.cat([loaded.embed(batch) for batch in batched(inputs, BATCH)]) for inputs in (texts, lines)
    )
    own = [lines.index(text) if text in lines else None for text in texts]
    return nearest_others(texts, queries, vectors, own, count, lines.__getitem__)


def nearest_others(
    words: Sequence[str],
    queries: Tensor,
    table: Tensor,
    own: Sequence[int | None],
    count: int,
    label: Callable[[int], str],
) -> Neighbours:
    """The rows of `table` (N C) nearest to the query (M C) of each word, but for the word's own row."""
    cosines, rows = (found.tolist() for found in nearest_rows(queries, table, count + 1))
    return {
        word: [Neighbour(label(row), x) for row, x in zip(*near, strict=True) if row != itself][:count]
        for word, itself, *near in zip(words, own, rows, cosines, strict=True)
    }


def nearest_rows(queries: Tensor, table: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest cosine similarities of each query (M C) to rows of `table` (N C), falling, and these rows: M k."""
    cosines = F.normalize(queries, dim=-1) @ F.normalize(table, dim=-1).mT  # M N
    values, rows = cosines.topk(min(k, len(table)), dim=-1)
    return values, rows


def token_embeddings(model: nn.Module) -> Tensor:
    """The input embeddings of the tokens."""
    side = encoder_of(model)
    found = next((part.token.weight for part in side.modules() if isinstance(part, TokenEmbed)), None)
    if found is None:
        raise UserError("this model reads no words", do="compare whole files, with among=FILE")
    return found.detach()


def id_of(word: str, vocabulary: Tokenizer) -> int:
    """The one token that a word is: as it begins a text, as it stands behind a space, or as a token is written."""
    for ids in vocabulary.plain_batch([word, f" {word}"]):
        if len(ids) == 1 and ids[0] != vocabulary.unk:
            return ids[0]
    id = vocabulary.backend.token_to_id(word)
    if id is not None and id < vocabulary.vocab:
        return id
    pieces = [spelled(vocabulary, id) for id in vocabulary.plain(word) if id != vocabulary.unk]
    split = f"; it is read as {len(pieces)} pieces: {' '.join(printable(piece) for piece in pieces[:8])}"
    similar = {bare: None for token in vocabulary.backend.get_vocab() if (bare := bare_token(token))[:1] == word[:1]}
    said = f"the vocabulary has no token {printable(word)!r}" + (split if len(pieces) > 1 else "")
    do = "give another, or compare whole texts with among=FILE"
    raise UserError(said, do=do, meant=nearest(word, similar))


def bare_token(token: str) -> str:
    """A token without the markers of a space or of a word piece."""
    return token.removeprefix("Ġ").removeprefix("▁").removeprefix("##").removesuffix("</w>")


def spelled(vocabulary: Tokenizer, id: int) -> str:
    return vocabulary.decode([id]).strip() or vocabulary.token(id)


@dataclass(frozen=True)
class Neighbour:
    text: str
    cosine: float


Neighbours = Mapping[str, Sequence[Neighbour]]  # of each word or text, the nearest first


@dataclass(frozen=True, eq=False)
class NeighboursResult(Result):
    among: str
    found: Neighbours

    def data(self) -> dict[str, Any]:
        return {"among": self.among, "neighbours": self.found}

    def blocks(self) -> Iterator[str]:
        for word, near in self.found.items():
            rows = [(printable(one.text, MAX_LINE_CHARACTERS), one.cosine) for one in near]
            yield table((printable(word, MAX_LINE_CHARACTERS), "cosine"), rows)

    def plot(self) -> Plot:
        panels = [
            BarChart(word, [one.text for one in near], [one.cosine for one in near], "cosine")
            for word, near in self.found.items()
        ]
        return Plot(f"nearest {self.among}", panels)
