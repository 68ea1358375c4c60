"""Models that do not fit into memory, as a person meets them: a sentence, at once, and no traceback."""

from __future__ import annotations

import resource

import pytest

import headway.interop.weights
import headway.training.defaults
from headway.system import held_memory
from tests.cli.command import SIX, Place, made_place

GIB = 2**30


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return made_place(tmp_path_factory.mktemp("place"))


def limited(size: float) -> None:
    """Leaves so many bytes of addresses to this process."""
    most = held_memory()[0] + round(size)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


@pytest.mark.slow
def test_a_preset_that_does_not_fit_is_refused(place: Place) -> None:
    preset = "gpt2-xl"
    words = ["train", "text.txt", "--preset", preset, "--data.max-length", "32", "--train.threads", "1"]
    done = place(*words, "--out", preset, before=lambda: limited(3 * GIB))
    assert done.code == 2
    assert f"training {preset} needs " in done.said
    assert "; --preset gpt" in done.said
    assert " fits" in done.said
    assert not (place.folder / preset).exists()


@pytest.mark.slow
def test_memory_that_runs_out_in_training_is_told(place: Place) -> None:
    def yes(*_: object) -> bool:
        return True

    def without_check() -> None:
        headway.training.defaults.surely_fits = yes
        limited(GIB / 4)

    done = place(
        "train", "text.txt", "--preset", "gpt2", "--data.max-length", "32", "--out", "full", before=without_check
    )
    assert done.code == 2
    assert "out of memory: this process can have " in done.said
    assert "give a smaller --train.batch" in done.said


@pytest.mark.slow
def test_weights_that_do_not_fit_are_told(place: Place) -> None:
    assert place(*SIX, "--out", "small").code == 0

    def little() -> None:
        headway.interop.weights.memory_limit = lambda: 1000

    for words in (["run", "small", "the cat"], ["eval", "small", "pairs.tsv"], ["look", "small", "the cat"]):
        done = place(*words, before=little)
        assert (done.code, "the weights of this model take " in done.said) == (2, True)
