"""The tokenizers of a run: learned from its texts at a level that suits them, or taken from a folder.

A tokenizer frames a text as the task wants it: sources and targets of pairs have an end, texts to classify or fill have
a beginning and an end, and a text that is continued has neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from headway.data.levels import frame
from headway.data.read_tokenizer import load_tokenizer
from headway.data.tokenizer import Tokenizer
from headway.data.train_tokenizer import TRAINERS
from headway.errors import UserError

SAMPLE = 20_000  # records that are looked at to choose a level
LETTERS = 50_000_000  # of texts, from which a vocabulary is learned
SYMBOLS = 300  # distinct words or fewer are signs of a notation, such as phonemes
SHORT = 40  # letters on average or fewer are learned letter by letter
MARKS = 100  # tokens that stand for spans


def level_of(texts: Iterable[str]) -> str:
    """Letters for short texts, whole words for a notation of few signs, byte pairs for all others."""
    sample = list(islice(texts, SAMPLE))
    if not sample:
        raise UserError("there are no records to learn a vocabulary from")
    words = Counter(word for text in sample for word in text.split())
    if len(words) <= SYMBOLS and sum(words.values()) >= 20 * len(words) and sum(words.values()) > 2 * len(sample):
        return "words"
    return "characters" if sum(map(len, sample)) <= SHORT * len(sample) else "bpe"


def size_of(letters: int) -> int:
    """A vocabulary for so many letters of text."""
    steps = ((200_000, 1000), (2_000_000, 4000), (20_000_000, 8000), (200_000_000, 16_000))
    return next((size for least, size in steps if letters < least), 32_000)


def learned(
    level: str, texts: Iterable[str], vocab: int | None, before: bool, after: bool, marks: int = 0
) -> Tokenizer:
    """A tokenizer of a level, or the one in a folder of that name, that frames a text with its `bos` and `eos`."""
    if level not in TRAINERS:
        return framed(load_tokenizer(Path(level)), before, after, marks)
    kept = list(bounded(texts))
    if vocab is None:
        vocab = 8000 if level == "characters" else size_of(sum(map(len, kept)))
    return framed(TRAINERS[level](kept, vocab), before, after, marks)


def framed(words: Tokenizer, before: bool, after: bool, marks: int) -> Tokenizer:
    words.backend.add_special_tokens([f"<extra_id_{number}>" for number in range(marks)])
    first, last = (
        [token] if wished and token else [] for wished, token in ((before, words.roles.bos), (after, words.roles.eos))
    )
    frame(words.backend, first, last)
    return replace(words)


def marks_of(words: Tokenizer) -> tuple[int, ...]:
    """The ids of the tokens that stand for spans, in their order."""
    found = (words.backend.token_to_id(f"<extra_id_{number}>") for number in range(MARKS))
    return tuple(id for id in found if id is not None)


def bounded(texts: Iterable[str]) -> Iterator[str]:
    """Texts up to a number of letters in all: more would hardly change a vocabulary."""
    room = LETTERS
    for text in texts:
        if room <= 0:
            return
        yield text
        room -= len(text)
