"""Tokens are told as a person reads them."""

from __future__ import annotations

from tokenizers import Tokenizer as Backend
from tokenizers.decoders import Metaspace
from tokenizers.models import WordLevel

from headway.data.tokenizer import Roles, Tokenizer
from headway.tasks.text_tracing import piece, special, tokens
from tests.cli.folders import words


def joined() -> Tokenizer:
    """Words whose space belongs to them, as SentencePiece writes it."""
    backend = Backend(WordLevel({"<s>": 0, "▁the": 1, "▁c": 2, "at": 3, "<unk>": 4, "▁": 5}, unk_token="<unk>"))
    backend.decoder = Metaspace()
    return Tokenizer(backend, Roles(bos="<s>", unk="<unk>"))


def test_a_word_keeps_its_space() -> None:
    axis = tokens("text", [0, 1, 2, 3], joined())
    assert axis.labels == ("<s>", " the", " c", "at")
    assert axis.special == (0,)


def test_what_reads_as_nothing_is_told_as_it_is_spelled() -> None:
    assert piece(joined(), 0) == "<s>"
    assert piece(joined(), 5) == "▁"


def test_a_part_of_a_letter_is_told_as_it_is_spelled() -> None:
    known = words("characters")
    part = known.plain("é" if "é" not in known.backend.get_vocab() else "€")
    assert len(part) > 1
    assert [piece(known, id) for id in part] == [known.token(id) for id in part]


def test_a_row_to_spare_has_a_number() -> None:
    assert piece(joined(), 6) == "#6"


def test_masks_and_what_is_unknown_are_part_of_a_text() -> None:
    known = words("wordpiece", before=True, after=True)
    apart = special(known)
    assert {known.bos, known.eos, known.pad} <= apart
    assert not {known.mask, known.unk} & apart
