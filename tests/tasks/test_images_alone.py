"""Models of images without labels have scores of their own, on whatever images they are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.data.records import Record
from headway.errors import UserError
from headway.evaluation import EvalQuery
from headway.metrics.baselines import nearest_neighbours
from headway.nn.masked_autoencoder import MaskedAutoencoder
from headway.ops.patches import hidden_mask, patchify, squared_error
from headway.tasks.masked_image import MaskedImage, concealed, masked_model
from headway.tasks.results import EvalResult
from headway.tasks.simclr import SimCLR
from headway.training.build import learner_of
from tests.train.runs import data_in, planned


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("data")) as folder:
        yield folder


def evaluated(family: str) -> tuple[torch.nn.Module, MaskedImage | SimCLR, list[Record], EvalResult]:
    made = planned(family)
    model, task = learner_of(made).model.eval(), made.task
    assert isinstance(task, MaskedImage | SimCLR)
    records = [*EvalQuery.of(Path("photos")).first]
    return model, task, records, task.evaluate(model, records)


@pytest.mark.slow
def test_hidden_patches_are_compared_with_what_was_there() -> None:
    model, task, records, found = evaluated("mae")
    assert isinstance(task, MaskedImage)
    masked, errors = masked_model(model), list[float]()
    assert isinstance(masked, MaskedAutoencoder)
    with torch.inference_mode():
        for record in records:  # one at a time: what is hidden follows from the image alone
            batch = task.without_augmentation().hiding(record)
            visible = concealed(model, batch).told
            wanted = masked.target(patchify(batch.images, masked.patch))
            hidden = hidden_mask(visible, wanted.shape[1])
            errors.append((squared_error(masked(batch.images, visible), wanted, hidden) / hidden.sum()).item())
    assert found.scores.numbers["loss"] == pytest.approx(np.mean(errors), rel=1e-5)
    assert (found.scores.count, found.scores.things) == (len(records), "images")
    low, high = found.scores.intervals["loss"]
    assert low < found.scores.numbers["loss"] < high
    names = [one.name for one in found.baselines]
    assert names == ["the mean visible patch", "majority class", "the 5 nearest by pixels"]
    again = task.evaluate(model, records[::-1]).scores.numbers
    assert again == pytest.approx(found.scores.numbers)


@pytest.mark.slow
def test_the_other_view_of_an_image_is_to_be_found() -> None:
    _, task, records, found = evaluated("simclr")
    assert 0 <= found.scores.numbers["view_accuracy"] <= 1
    assert found.scores.intervals["view_accuracy"].high > found.scores.numbers["view_accuracy"]
    assert found.baselines[0].scores.numbers["view_accuracy"] == pytest.approx(1 / (2 * len(records) - 1))
    assert "by chance" in found.to_text()

    class Blind(torch.nn.Module):
        """All images are the same to it; the first view is the nearest of all, which is right for no image but one."""

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.ones(len(images), 2)

    assert task.own_scores(Blind(), records).scores.numbers["view_accuracy"] <= 1 / len(records)

    class Sees(torch.nn.Module):
        """It knows which views belong together."""

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.eye(len(images) // 2).repeat(2, 1)

    assert task.own_scores(Sees(), records).scores.numbers["view_accuracy"] == 1


@pytest.mark.slow
def test_images_without_classes_are_enough(tmp_path: Path) -> None:
    """Only what a task needs is asked for: a classifier is refused what a masked model takes."""
    (tmp_path / "flat").mkdir()
    for at, path in enumerate(sorted(Path("photos").rglob("*.png"))):
        (tmp_path / "flat" / f"{at}.png").write_bytes(path.read_bytes())
    query = EvalQuery.of(tmp_path / "flat")
    assert query.first.missing is not None

    class Given:
        def __init__(self, family: str):
            self.model, self.task = torch.nn.Identity(), planned(family).task

        def task_for(self, data_kind: object) -> object:
            return self.task

    _, found = query.fitted(Given("mae"), query.first, "it")  # pyright: ignore[reportArgumentType]
    assert len([*found]) > 1
    with pytest.raises(UserError, match="nothing says the classes"):
        query.fitted(Given("resnet"), query.first, "it")  # pyright: ignore[reportArgumentType]


def test_neighbours_vote_by_hand() -> None:
    vectors = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [0.2, 1]], np.float32)
    labels = ["a", "a", "b", "b", "a"]
    assert nearest_neighbours(vectors, labels, 1) == ["a", "a", "b", "a", "b"]
    assert nearest_neighbours(vectors, labels, 4) == ["a", "a", "a", "a", "b"]
