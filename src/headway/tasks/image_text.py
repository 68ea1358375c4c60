"""Contrastive learning from images and texts: a text is to be nearer to its image than to the others of the batch.

Of several texts about an image one is drawn each time.  The batch is what a pair is told apart from, so its loss is no
sum over pairs that stand alone.

Axes:  N images   M texts   B pairs   P width of the vectors that are compared
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.order import batched
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.tokenizer import Tokenizer
from headway.distributed.sharing import shared
from headway.errors import UserError
from headway.generate.session import context_of
from headway.metrics.retrieval import KS, chance_recall, score_retrieval
from headway.metrics.scores import MEASURES, Scores
from headway.nn.towers import TwoTowers
from headway.nn.trunk import device_of
from headway.ops.losses import unit_vectors
from headway.recipe import Recipe
from headway.tasks.base import TaskSetup
from headway.tasks.batches import Batch, PackedBatch, Row, cut, ids, to_device
from headway.tasks.captioning import CAPTION_CROPS, CAPTION_TOKENS, TextsAboutMedia, opened_once, texts_of
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.inputs import ImageInput, Input, ModelInput, input_of
from headway.tasks.media_classification import ranked_classes
from headway.tasks.media_tasks import batch_size, image_setup
from headway.tasks.model_parts import ModelParts
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    BaselineData,
    BaselineResult,
    EvalOptions,
    EvalResult,
    Prediction,
    Sample,
)
from headway.tasks.text_tasks import Framing, given, one_tokenizer
from headway.tasks.tracing import TracedRun, TraceOptions

PAIRS_PER_BATCH = 128  # images with a caption each: the more, the more there is to tell apart
IMAGES_TOGETHER = 32
TEXTS_TOGETHER = 256
DECISIVE = "texts_10"


@dataclass(frozen=True, eq=False)
class ImageTextBatch(Batch):
    seen: ModelInput  # N images
    owners: Tensor  # B, the image of each text
    texts: PackedBatch  # B
    tokens: int

    @property
    def targets(self) -> int:
        return len(self.owners)

    def tokens_at(self, site: str) -> Tensor | None:
        return self.texts.ids if site.startswith("text.") else None


@dataclass(frozen=True, eq=False)
class ImageTextContrastive(TextsAboutMedia):
    """Tell which text belongs to an image, and which image to a text, among all of the batch."""

    name = "image-text-contrastive"
    does = "finds the texts that belong to an image"
    target = "pair"
    asks_together = True
    compares_rows = True
    architectures = ("clip", "siglip", "image_text")
    presets_by_size = ("clip-nano", "clip-vit-b32")

    input: Input
    tokenizer: Tokenizer | None
    max_length: int

    # ---- from data, and from a model

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        found = image_setup(recipe, splits, start, CAPTION_CROPS, ("crop",))  # a text may say left and right
        input = in_colour(found.input)
        tokenizer, more = one_tokenizer(recipe, splits, start, "bpe", Framing(bos=True, eos=True))
        if tokenizer.eos is None:
            raise UserError("the tokenizer has no token that ends a text", do="train without model.from")
        longest = int(given(recipe.data.max_length, cast(int, recipe.model.sizes.get("context", CAPTION_TOKENS))))
        longest = longest if start is None else min(longest, start.config.context)
        chosen = {**found.chosen, **more, "data.max_length": longest}
        chosen["train.batch"] = given(recipe.train.batch, PAIRS_PER_BATCH)
        config = {"image": found.config["image"], "vocab": tokenizer.vocab, "end": tokenizer.eos, "context": longest}
        task = cls(input, tokenizer, longest)
        return TaskSetup(task, tokenizer, tokenizer, chosen, 0, config, None, input.preprocess)

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        if not isinstance(parts.model, TwoTowers):
            return None
        found = input_of(parts)
        assert found is not None
        longest = context_of(parts.model.text) or CAPTION_TOKENS
        return cls(found, parts.target_tokenizer or parts.tokenizer, longest)

    def extra_config(self) -> Mapping[str, Any]:
        return {"bos_token_id": self.words().bos, "eos_token_id": self.words().eos}

    # ---- learning

    def has_loss(self, model: nn.Module, described: bool) -> bool:
        return False  # the loss of a row depends on the others of its batch

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> ImageTextBatch:
        seen, owners = opened_once(self.input, rows, random)
        texts = [known[int(random.integers(len(known)))] for known in map(texts_of, rows)]
        return ImageTextBatch(seen, torch.tensor(owners), PackedBatch.of(texts), batch_size(rows))

    def loss(self, model: nn.Module, batch: ImageTextBatch) -> Tensor:
        assert isinstance(model, TwoTowers)
        images = model.image(*batch.seen)[batch.owners]
        texts = model.text(batch.texts.ids, batch.texts.context)
        return model.loss(images, texts, batch.owners)

    # ---- use

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[Prediction]:
        """Of one image and the texts behind it, how likely it belongs to each; of one input alone, its vector."""
        assert isinstance(model, TwoTowers)
        if len(inputs) == 1:
            yield from self.embeddings(model, inputs)
            return
        image, *texts = inputs
        near = model.probabilities(self.embed(model, [image]), self.embed_texts(model, texts))[0]  # M
        yield ranked_classes(image, texts, near)

    def pooled(self, model: nn.Module, read: ModelInput) -> Tensor:
        """The vectors that images are compared by."""
        assert isinstance(model, TwoTowers)
        return unit_vectors(model.image(*read))

    @torch.inference_mode()
    def embed_texts(self, model: nn.Module, texts: Sequence[str]) -> Tensor:
        """Vectors of length 1 to be compared with those of images, M P; long texts are cut to what the model reads."""
        assert isinstance(model, TwoTowers)
        longest = context_of(model.text)
        rows = [row if longest is None else cut(row, longest) for row in self.words().encode_batch(list(texts))]
        read = to_device(PackedBatch.of([ids(row) for row in rows]), device_of(model))
        return unit_vectors(model.text(read.ids, read.context))

    @torch.inference_mode()
    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        """Recall both ways among all images and all texts, so that more data is a harder task."""
        known = list(records)
        names, texts = [record.name for record in known], [text for record in known for text in record.fields[1:]]

        def vectors(embed: Callable[[nn.Module, Sequence[str]], Tensor], inputs: Sequence[str], size: int) -> Tensor:
            found = shared(partial(embed, model), batched(inputs, size))
            return torch.cat([torch.as_tensor(one, device=device_of(model)) for _, one in found])

        images, written = vectors(self.embed, names, IMAGES_TOGETHER), vectors(self.embed_texts, texts, TEXTS_TOGETHER)
        near = (images @ written.mT).cpu()  # N M
        owners = [at for at, record in enumerate(known) for _ in record.fields[1:]]
        scores, by_chance = score_retrieval(near, owners), recall_by_chance(known)
        told = {name: f"by chance {MEASURES[name].shown(value)}" for name, value in by_chance.items()}
        scores = replace(scores, numbers={DECISIVE: scores.numbers[DECISIVE], **scores.numbers}, signatures=told)
        return EvalResult(scores, nearest_texts(near, known, owners, texts), extra={"chance": by_chance})

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        by_chance = recall_by_chance(data.validation)
        numbers = {DECISIVE: by_chance[DECISIVE], **by_chance}
        yield BaselineResult("chance", Scores(numbers, found.scores.count, found.scores.things))

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        return self.traced_vector(model, input)


def in_colour(input: ImageInput) -> ImageInput:
    """With three channels, which is what a CLIP sees of grey images too."""
    ready = input.preprocess
    if ready.channels == 3:
        return input
    return replace(input, preprocess=replace(ready, channels=3, mean=ready.mean * 3, std=ready.std * 3))


def recall_by_chance(records: Sequence[Record]) -> dict[str, float]:
    """What recall would be if answers were drawn by lot."""
    counts = [len(record.fields) - 1 for record in records]
    texts = {f"texts_{k}": sum(chance_recall(n, sum(counts), k) for n in counts) / len(counts) for k in KS}
    return texts | {f"images_{k}": chance_recall(1, len(counts), k) for k in KS}


def nearest_texts(near: Tensor, records: Sequence[Record], owners: list[int], texts: list[str]) -> list[Sample]:
    """The text that is nearest to each image; where it is another's, one of its own is wanted."""
    found = list[Sample]()
    for at, (record, best) in enumerate(zip(records, near.argmax(1).tolist(), strict=True)):
        wanted = texts[best] if owners[best] == at else record.fields[1]
        found.append(Sample(record.name, texts[best], wanted))
    return found
