"""`headway inspect neighbours`: the words whose vectors are nearest to a word's, or the lines nearest to a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headway.app.inspect.cells import digits, table, visible
from headway.app.inspect.figures import Bars, Drawing
from headway.app.inspect.reading import lines_of
from headway.app.inspect.told import Found
from headway.checkpoint import Loaded
from headway.data.batched import batched
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError, nearest
from headway.inspect.space import nearest_rows
from headway.nn.embed import TokenEmbed
from headway.nn.model import EncoderDecoder

TOGETHER = 32  # lines at a time
WIDE = 60  # letters of a line in a table


def neighbours(words: Sequence[str], among: Path | None, count: int) -> Callable[[Loaded], Neighbours]:
    """The `count` nearest tokens of the vocabulary to each word; or lines `among` those of a file to each text."""
    if not words:
        raise UserError("no word was given", do="as in headway inspect neighbours MODEL king queen")
    if count < 1:
        raise UserError(f"--count {count}", allowed="1 or more")
    lines = None if among is None else list(dict.fromkeys(lines_of(among)))

    def find(loaded: Loaded) -> Neighbours:
        return by_tokens(loaded, words, count) if lines is None else by_vectors(loaded, words, lines, count)

    return find


def by_tokens(loaded: Loaded, words: Sequence[str], count: int) -> Neighbours:
    """By the table that tokens are looked up in."""
    vocabulary, weight = loaded.vocabulary(), token_vectors(loaded.model)
    ids = torch.tensor([id_of(word, vocabulary) for word in words])
    known = weight[: vocabulary.vocab]  # rows behind these belong to no token
    near = nearest_rows(known[ids], known, count + 1)
    found = dict[str, Sequence[Near]]()
    for word, own, cosines, rows in zip(words, ids.tolist(), near.cosines.tolist(), near.rows.tolist(), strict=True):
        others = [Near(spelled(vocabulary, id), x) for id, x in zip(rows, cosines, strict=True) if id != own]
        found[word] = others[:count]
    return Neighbours("tokens of the vocabulary", found)


def by_vectors(loaded: Loaded, texts: Sequence[str], lines: Sequence[str], count: int) -> Neighbours:
    """By the vectors that the model gives whole texts, or images or sounds that are named."""
    answerer = loaded.answerer()

    def vectors(inputs: Sequence[str]) -> Tensor:
        return torch.cat([answerer.embed(some) for some in batched(inputs, TOGETHER)])

    near = nearest_rows(vectors(texts), vectors(lines), count + 1)
    found = dict[str, Sequence[Near]]()
    for text, cosines, rows in zip(texts, near.cosines.tolist(), near.rows.tolist(), strict=True):
        near_by = [Near(lines[int(row)], x) for row, x in zip(rows, cosines, strict=True)]
        others = [one for one in near_by if one.text != text]
        found[text] = others[:count]
    return Neighbours("lines", found)


def token_vectors(model: nn.Module) -> Tensor:
    """The table of vectors of the tokens that a model reads."""
    side = model.encoder if isinstance(model, EncoderDecoder) else model
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
    made = f"; it is read as {len(pieces)} pieces: {' '.join(visible(piece) for piece in pieces[:8])}"
    alike = {bare: None for token in vocabulary.backend.get_vocab() if (bare := letters(token))[:1] == word[:1]}
    do = "give another, or compare whole texts with --among FILE"
    said = f"the vocabulary has no token {visible(word)!r}" + (made if len(pieces) > 1 else "")
    return UserError(said, do=do, meant=nearest(word, alike))


def letters(token: str) -> str:
    """A token without the signs that stand for a space, or for being within a word."""
    return token.removeprefix("Ġ").removeprefix("▁").removeprefix("##").removesuffix("</w>")


def spelled(vocabulary: Tokenizer, id: int) -> str:
    return vocabulary.decode([id]).strip() or vocabulary.token(id)


@dataclass(frozen=True)
class Near:
    text: str
    cosine: float


@dataclass(frozen=True, eq=False)
class Neighbours(Found):
    """`found` has the nearest of each word or text, the nearest first."""

    among: str
    found: Mapping[str, Sequence[Near]]

    def plain(self) -> dict[str, Any]:
        return {
            "among": self.among,
            "neighbours": {word: [vars(one) for one in near] for word, near in self.found.items()},
        }

    def shown(self) -> str:
        return "\n\n".join(
            table((visible(word, WIDE), "cosine"), [(visible(one.text, WIDE), digits(one.cosine)) for one in near])
            for word, near in self.found.items()
        )

    def drawn(self) -> Drawing:
        panels = [
            Bars(word, [one.text for one in near], [one.cosine for one in near], "cosine")
            for word, near in self.found.items()
        ]
        return Drawing(f"nearest {self.among}", panels)
