"""Tasks on texts: how their models read a text, and the tokenizers of a run.

A tokenizer is trained on the texts at a level that suits them, or taken from a folder or a model.  It frames a text as
the task wants it: sources and targets of pairs have an end, texts to classify or fill have a beginning and an end, and
a text that is continued has neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_readers import load_tokenizer
from headway.data.tokenizer_training import TRAINERS, frame
from headway.errors import UserError
from headway.generate.session import context_of
from headway.nn.head import MeanPool
from headway.nn.trunk import Trunk, encoder_of
from headway.tasks.base import RecordTask, Task
from headway.tasks.batches import DataRow, EncoderInput, FittedRow, PackedBatch, fitted
from headway.tasks.model_parts import ModelParts
from headway.tasks.results import EmbeddingVector

if TYPE_CHECKING:
    from headway.data.shards import Shards
    from headway.data.splits import DataSplits
    from headway.recipe import Recipe

SAMPLE = 20_000  # records that are looked at to choose a level
TRAINING_CHARACTERS = 50_000_000  # of texts, from which a vocabulary is trained
# tokens of a vocabulary for fewer characters of text than the first number
VOCABULARIES = ((200_000, 1000), (2_000_000, 4000), (20_000_000, 8000), (200_000_000, 16_000))
MAX_SYMBOLS = 300  # distinct words or fewer are symbols of a notation, such as phonemes
SHORT_TEXT = 40  # characters on average or fewer are learned character by character
SHORT_CORPUS = 5_000_000  # characters: a language model of less is learned character by character
SENTINELS = 100  # tokens that stand for spans
MAX_LENGTH = 256  # tokens of a side or a text, unless given
SAMPLE_TEXT: str = "The cat sat on the mat."
DEFAULT_CONTEXT = 512  # tokens that are read at once by a model that has no limit


@dataclass(frozen=True)
class Framing:
    """What a tokenizer puts around a text, and how many sentinel tokens it has besides."""

    bos: bool = False
    eos: bool = False
    sentinels: int = 0


def one_tokenizer(
    recipe: Recipe, splits: DataSplits, start: ModelParts | None, level: str, framing: Framing, min_vocab: int = 0
) -> tuple[Tokenizer, dict[str, Any]]:
    """The tokenizer of the model that a run goes on from, or one of the recipe's level or else `level`; and choices."""
    if start and (start.tokenizer or start.preprocess is None):  # a model of sounds may have no words yet
        return started(start)[0], {}
    level = recipe.data.tokenizer or level
    # of an image or a sound, whose first field is a hash, what is said about it
    fields = (record.fields[:1] if record.place is None else record.fields[1:] for record in splits.train())
    tokenizer = trained(level, chain.from_iterable(fields), recipe.data.vocab, framing, min_vocab)
    return tokenizer, {"data.tokenizer": level, "data.vocab": tokenizer.vocab - framing.sentinels}


def two_tokenizers(
    recipe: Recipe, splits: DataSplits, *, joint: bool
) -> tuple[Tokenizer, Tokenizer, dict[str, Any], str]:
    """One tokenizer for sources and targets where both are written alike or must be `joint`, else one for each.

    The text says why a level was not chosen that would suit their words.
    """
    data, framing = recipe.data, Framing(eos=True)
    left, left_note = (data.tokenizer, "") if data.tokenizer else level_of(side(splits, 0))
    asked = data.target_tokenizer or data.tokenizer
    right, right_note = (asked, "") if asked else level_of(side(splits, 1))
    note = right_note or left_note
    if left != right and data.tokenizer is None and data.target_tokenizer is None and joint:
        left = right = "bpe" if "bpe" in (left, right) else "characters"
    chosen: dict[str, Any] = {"data.tokenizer": left, "data.target_tokenizer": right}
    if left == right:
        both = (text for record in splits.train() for text in record.fields)
        shared = trained(left, both, data.vocab, framing)
        return shared, shared, {**chosen, "data.vocab": shared.vocab}, note
    source = trained(left, side(splits, 0), data.vocab, framing)
    return source, trained(right, side(splits, 1), data.vocab, framing), chosen, note


def started(start: ModelParts) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of sources and of targets of the model that a run goes on from."""
    if start.tokenizer is None:
        raise UserError("the model to start from has no tokenizer", do="add tokenizer.json to its folder")
    return start.tokenizer, start.target_tokenizer or start.tokenizer


def side(splits: DataSplits, field: int) -> Iterator[str]:
    """One field of all training records."""
    return (record.fields[field] for record in splits.train())


def corpus_level(splits: DataSplits) -> str:
    """Characters for a short corpus, byte pairs for a long one."""
    room = SHORT_CORPUS
    for text in side(splits, 0):
        room -= len(text)
        if room < 0:
            return "bpe"
    return "characters"


def level_of(texts: Iterable[str]) -> tuple[str, str]:
    """Characters for short texts, whole words for a notation of few symbols, byte pairs for all others.

    Words are chosen only where they write every text as it is; the second text says what they would write instead.
    """
    sample = list(islice(texts, SAMPLE))
    if not sample:
        said = "no records are left to learn from, beside those that are held out for validation"
        raise UserError(said, do="give more, or files of their own as data.validation")
    words, note = Counter(word for text in sample for word in text.split()), ""
    if len(words) <= MAX_SYMBOLS and sum(words.values()) >= 20 * len(words) and sum(words.values()) > 2 * len(sample):
        tokenizer = trained("words", words, None, Framing())
        wrong = next((word for word in words if tokenizer.decode(tokenizer.encode(word)) != word), None)
        if wrong is None:
            return "words", ""
        note = f"words would write {tokenizer.decode(tokenizer.encode(wrong))!r} for {wrong!r}"
    return "characters" if sum(map(len, sample)) <= SHORT_TEXT * len(sample) else "bpe", note


def trained(level: str, texts: Iterable[str], vocab: int | None, framing: Framing, min_vocab: int = 0) -> Tokenizer:
    """A tokenizer of a level, or the one in a folder of that name, that frames a text.

    A vocabulary is larger for more text; texts beyond `TRAINING_CHARACTERS` would hardly change it.
    """
    if level not in TRAINERS:
        return framed(load_tokenizer(Path(level)), framing)
    kept, characters = list[str](), 0
    for text in texts:
        if characters >= TRAINING_CHARACTERS:
            break
        kept.append(text)
        characters += len(text)
    if vocab is None and level == "characters":
        vocab = 8000
    elif vocab is None:
        vocab = max(min_vocab, next((size for least, size in VOCABULARIES if characters < least), 32_000))
    return framed(TRAINERS[level](kept, vocab), framing)


def framed(tokenizer: Tokenizer, framing: Framing) -> Tokenizer:
    tokenizer.backend.add_special_tokens([f"<extra_id_{number}>" for number in range(framing.sentinels)])
    first = [tokenizer.roles.bos] if framing.bos and tokenizer.roles.bos else []
    last = [tokenizer.roles.eos] if framing.eos and tokenizer.roles.eos else []
    frame(tokenizer.backend, first, last)
    return replace(tokenizer)


def sentinels_of(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids of the tokens that stand for spans, in their order."""
    found = (tokenizer.backend.token_to_id(f"<extra_id_{number}>") for number in range(SENTINELS))
    return tuple(id for id in found if id is not None)


def context_for(parts: ModelParts) -> int:
    """Tokens that a model reads at once: its table of positions, or what its config says."""
    trunk = getattr(parts.model, "input_encoder", None)
    own = context_of(trunk) if isinstance(trunk, Trunk) else None
    found = (own, getattr(parts.config, "context", None), DEFAULT_CONTEXT)
    return next(context for context in found if context is not None)


def merged_settings(start: ModelParts | None, own: Mapping[str, Any]) -> dict[str, Any]:
    """What generation heeds: the settings of the model that a run goes on from, and those of the task over them."""
    return {**(start.extra_config if start else {}), **own}


def given(value: Any, otherwise: Any) -> Any:
    """A setting, or what it is where nobody gave it."""
    return otherwise if value is None else value


class ReadsText(Task):
    """A task whose models read texts with `tokenizer`."""

    tokenizer: Tokenizer

    @property
    def input_encoding(self) -> Mapping[str, object]:
        """What the numbers that models read mean."""
        return {"tokenizer": self.tokenizer.backend.get_vocab()}

    @torch.inference_mode()
    def embed(self, model: nn.Module, inputs: Sequence[str]) -> Tensor:
        """Vectors of length 1, B C, on packed rows, so that padding costs nothing."""
        read = PackedBatch.of_texts(model, self.fitted(model, inputs), self.tokenizer)
        return self.pooled(model, read)

    def pooled(self, model: nn.Module, read: PackedBatch) -> Tensor:
        """The mean of each text's features, of length 1."""
        from headway.ops.losses import unit_vectors

        encoder = encoder_of(model)
        return unit_vectors(MeanPool()(encoder.features(read.ids, read.context, *read.marks(encoder)), read.context))

    def embeddings(self, model: nn.Module, inputs: Sequence[str]) -> list[EmbeddingVector]:
        rows = self.fitted(model, inputs)
        return [replace(one, cut=row.cut) for one, row in zip(super().embeddings(model, inputs), rows, strict=True)]

    def fitted(self, model: nn.Module, texts: Sequence[str]) -> list[FittedRow]:
        """Texts as the encoder reads them, cut to its context."""
        return fitted(self.sources(texts), context_of(encoder_of(model)))

    def sample_input(self, folder: Path, context: int | None) -> str:
        return sample_text(self.tokenizer, context)

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """What the encoder reads."""
        return self.tokenizer.encode_batch(texts)

    def encoder_input(self, model: nn.Module, rows: Sequence[DataRow]) -> EncoderInput:
        """Texts cut to the model's context, as they are in training."""
        read = PackedBatch.of_texts(model, self.fitted(model, [one.row for one in rows]), self.tokenizer)
        return EncoderInput(read.ids, read.context, marks=read.marks(encoder_of(model)))


class TokenRows(RecordTask, ReadsText):
    """Rows of token ids in every column, which count as many as they are."""

    unit = "tokens"

    def sizes(self, rows: Shards) -> np.ndarray:
        return np.stack([rows.lengths(column) for column in range(rows.columns)], 1)


def sample_text(tokenizer: Tokenizer, context: int | None, mask: str | None = None) -> str:
    """A short sentence within a model's context; with a `mask` in the place of a word."""
    words = SAMPLE_TEXT.split()
    if mask is not None:
        words[1] = mask
    while len(words) > 1 and context is not None and len(tokenizer.encode(" ".join(words))) > context:
        words.pop()
    return " ".join(words)
