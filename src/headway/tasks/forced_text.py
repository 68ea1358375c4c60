"""What was written, so that another model can read the same: token by token, as a vocabulary spells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.errors import UserError

if TYPE_CHECKING:
    from headway.data.tokenizer import Tokenizer

SHOWN = 60  # letters of a text that are told in an error


@dataclass(frozen=True)
class ForcedText:
    """Tokens by their spelling, or by their number where they have none, and the text that they are.

    `by` is the title of the recording in which they were written; None: whoever reads them has written them.
    """

    pieces: tuple[str | int, ...]
    text: str
    by: str | None = None

    @staticmethod
    def of(ids: Sequence[int], words: Tokenizer) -> ForcedText:
        return ForcedText(tuple(spelling(words, id) for id in ids), text_of(words, ids))

    def ids(self, words: Tokenizer, rows: int | None) -> tuple[int, ...]:
        """The same tokens by their numbers in another vocabulary, of a model that has `rows` for so many."""
        found = tuple(words.backend.token_to_id(piece) if isinstance(piece, str) else piece for piece in self.pieces)
        for piece, id in zip(self.pieces, found, strict=True):
            if id is None or spelling(words, id) != piece or (rows is not None and id >= rows):
                raise self.foreign(f"{self.by} wrote {piece!r}, for which the model that shall read it has no token")
        ids = tuple(id for id in found if id is not None)
        if (read := text_of(words, ids)) != self.text:  # a piece may begin a word here, and go on with one there
            told = f"{self.by} wrote {self.text[:SHOWN]!r}, and the model that shall read it spells {read[:SHOWN]!r} so"
            raise self.foreign(told)
        return ids

    def foreign(self, said: str) -> UserError:
        return UserError(said, do="take models with the same tokens")


def spelling(words: Tokenizer, id: int) -> str | int:
    """How the vocabulary writes a token; its number where it has no name for it: models have rows to spare."""
    return (words.token(id) if id < words.vocab else "") or id


def text_of(words: Tokenizer, ids: Sequence[int]) -> str:
    return words.decode([id for id in ids if id < words.vocab])
