"""Samples of which one thing is to be said: how each medium is read, for whatever that is, a class or a number.

Axes:  R rows   C width   T frames   F features
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

from headway.data.numbers import is_number_table, table_rows, vectors
from headway.data.order import random_for
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.transforms.compose import Mixing
from headway.errors import UserError, counted, listed
from headway.metrics.baselines import Vectors
from headway.recipe import Recipe
from headway.tasks.base import TaskSetup
from headway.tasks.inputs import ImageInput, Input, MelInput, SeriesInput, ShownInput, input_of
from headway.tasks.media_tasks import (
    AUGMENTATIONS,
    InputSetup,
    MediaTask,
    image_setup,
    series_setup,
    sound_setup,
)
from headway.tasks.model_parts import ModelParts
from headway.tasks.tracing import InputSeries, ItemAxis

ANSWERED_TOGETHER = 64  # samples of an evaluation
BASELINE_SAMPLES = 2000  # that are opened to be compared with others
PREDICTED_TOGETHER = 32  # samples that a person names


class SampleTask(MediaTask):
    """Say one thing about a sample."""

    target = "sample"
    columns = 3
    things: ClassVar[str] = "samples"  # that scores count
    reads: ClassVar[str]  # images, sounds or numbers
    order: ClassVar[str | None] = None  # of numbers, in the model's config
    head: ClassVar[str | None] = None  # what stands on an encoder that can have several heads
    mixings: ClassVar[Mapping[str, Mixing]] = {}  # augmentations that make a sample of two

    @classmethod
    @abstractmethod
    def input_setup(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> InputSetup[Any]:
        """How samples of data are read."""

    @classmethod
    def input_from(cls, parts: ModelParts) -> Input | None:
        """How a model reads its samples; None where these are others."""
        found = input_of(parts)
        if found is None or found.noun != cls.reads:
            return None
        return found if getattr(parts.config, "order", cls.order) == cls.order else None

    def vectors(self, records: Sequence[Record]) -> Vectors:
        """Samples as vectors, R C: all pixels of an image; of a series the mean and the deviation over time."""
        plain, never = self.input.without_augmentation(), random_for("unused")
        samples = (plain.load(record.handed[0], never) for record in records)
        rows = [torch.cat([x.mean(0), x.std(0, correction=0)]) if x.dim() == 2 else x.flatten() for x in samples]
        return torch.stack(rows).numpy()

    def row_name(self, record: Record) -> str:
        name = super().row_name(record)
        return f"{record.fields[1]}: {name}" if record.place else name


class ReadsImages(SampleTask):
    """A task on images."""

    things = reads = "images"
    head = "classes"
    architectures = (
        *("vit", "deit", "beit", "dinov2", "dinov3", "swin", "swinv2", "mvit", "mvitv2"),
        *("resnet", "convnext", "lrnet", "clip_image", "siglip_image"),
    )
    presets_by_size = ("resnet-nano", "resnet-18", "resnet-50")

    @classmethod
    def input_setup(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> InputSetup[ImageInput]:
        return image_setup(recipe, splits, start, AUGMENTATIONS, ("crop",), besides=cls.mixings)


class ReadsSounds(SampleTask):
    """A task on sounds."""

    reads = "sounds"
    head = "rows"
    architectures = ("conformer", "ast")
    presets_by_size = ("conformer-nano", "conformer-s")

    @classmethod
    def input_setup(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> InputSetup[MelInput]:
        return sound_setup(recipe, splits, start)


class ReadsVectors(SampleTask):
    """A task on vectors in an order, or in none."""

    reads = "numbers"
    architectures = ("vectors",)
    presets_by_size = ("vectors-small",)

    @classmethod
    def input_setup(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> InputSetup[SeriesInput]:
        found = series_setup(splits, start)
        return found._replace(config={**found.config, "order": cls.order})


@dataclass(frozen=True, eq=False)
class ReadsSeries(ReadsVectors):
    """A task on vectors in an order; rows of a table have `column_names`, and as many numbers."""

    order = "series"

    column_names: tuple[str | int, ...] = ()

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        setup = super().from_data(splits, recipe, start)
        assert isinstance(setup.task, cls)
        *names, _ = splits.columns or ("",)  # the last one is what is to be said
        return replace(setup, task=replace(setup.task, column_names=tuple(names)))

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        found = super().from_model(parts)
        return None if found is None else replace(found, column_names=tuple(parts.extra_config.get("columns", ())))

    def extra_config(self) -> Mapping[str, Any]:
        return {**super().extra_config(), **({"columns": list(self.column_names)} if self.column_names else {})}

    def inputs_named(self, given: str) -> list[str]:
        """The rows of a table."""
        if not is_number_table(given):
            return [given]
        return [row.replace(" ", "; ") for row in table_rows(Path(given), self.column_names)]

    def locate(self, given: str) -> str:
        found = super().locate(given)
        count, wanted = found.count(";") + 1, len(self.column_names)
        if wanted and count != wanted:
            names = listed(map(str, self.column_names), 20)
            raise UserError(f"{given[:60]!r} has {counted(count, 'number')}", allowed=f"{wanted}, which are {names}")
        return found

    def shown(self, model: nn.Module, given: str) -> ShownInput:
        """Numbers of a table's row by the names of their columns; vectors in an order also as a series."""
        found = super().shown(model, given)
        if not self.column_names:
            rows = tuple(map(tuple, vectors(self.locate(given)).tolist()))
            names = tuple(f"column {at}" for at in range(1, len(rows[0]) + 1))
            return found._replace(series=InputSeries(names, rows))
        if found.axis is None or len(found.axis) != len(self.column_names):
            return found
        pairs = zip(self.column_names, found.axis.labels, strict=True)
        return found._replace(axis=ItemAxis("columns", tuple(f"{name} = {number}" for name, number in pairs)))
