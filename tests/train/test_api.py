"""Training from Python: the run of the command, with records, configs, modules and tasks of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import headway
from headway.cli import main as cli
from headway.errors import UserError
from headway.training.api import setting_name
from headway.zoo import transformer
from tests.train.runs import data_in

pytestmark = pytest.mark.slow  # whole runs

SMALL: dict[str, Any] = {"model": "transformer-nano", "dim": 16, "heads": 2, "layers": 1, "tokenizer": "words"}
SMALL |= {"batch": 100, "threads": 1, "steps": 4, "quiet": True}
PAIRS = [("a b c", "c b a"), ("b c", "c b"), ("c a", "a c"), ("a a b", "b a a")] * 10


@pytest.fixture
def place(tmp_path: Path) -> Any:
    with data_in(tmp_path) as folder:
        yield folder


def test_a_call_is_the_run_of_the_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = headway.train("pairs.tsv", out="called", **SMALL)
    assert capsys.readouterr().out == ""
    words = "--preset transformer-nano --model.dim 16 --model.heads 2 --model.layers 1 --data.tokenizer words"
    run = "--train.batch 100 --train.threads 1 --train.steps 4 --out typed"
    assert cli.main(["train", "pairs.tsv", *words.split(), *run.split()]) == 0
    ours, theirs = (load_file(place / name / "model.safetensors") for name in ("called", "typed"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    recipes = [(place / name / "recipe.yaml").read_text().replace(name, "") for name in ("called", "typed")]
    assert recipes[0] == recipes[1]
    assert model.predict("the cat").to_text() == headway.load("typed").predict("the cat").to_text()


def test_a_run_of_records_is_resumed(place: Path) -> None:
    class Stop:
        steps: list[int] = []  # noqa: RUF012

        def on_save(self, step: int) -> None:
            self.steps.append(step)
            if step == 2:
                raise RuntimeError("stopped")

    settings = {**SMALL, "task": "seq2seq", "checkpoint_every": 2}
    with pytest.raises(RuntimeError, match="stopped"):
        headway.train(PAIRS, out="parts", callbacks=[Stop()], **settings)
    with pytest.raises(UserError, match="the data has changed since this run began"):
        headway.train(PAIRS[:20], out="parts", resume=True, **settings)
    parts = headway.train(PAIRS, out="parts", resume=True, **settings)
    whole = headway.train(PAIRS, out="whole", **settings)
    assert Stop.steps == [1, 2]  # the first is the best so far
    for ours, theirs in zip(parts.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert headway.train(PAIRS, out="whole", resume=True, **settings).config == whole.config  # nothing is left to do


def test_a_config_of_the_zoo_takes_the_vocabulary_of_the_data(place: Path) -> None:
    config = transformer.Config(vocab=9999, dim=16, layers=1, heads=2, hidden=24)
    settings = {name: value for name, value in SMALL.items() if name not in ("model", "dim", "heads", "layers")}
    model = headway.train(PAIRS, task="seq2seq", model=config, out="own", **settings)
    assert (model.architecture, model.config.hidden) == ("transformer", 24)
    assert model.config.vocab < 30


class Mean(nn.Module):
    """A class by the mean of the vectors of the words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(200, 8), nn.Linear(8, 2)

    def forward(self, ids: Tensor, context: headway.Context | None = None) -> Tensor:
        rows = None if context is None else context.rows
        texts = ids if rows is None else ids.flatten().split(list(rows.lengths))
        return self.out(torch.stack([self.embed(text).mean(0) for text in texts]))


def test_a_module_of_your_own_is_trained_saved_and_loaded(place: Path) -> None:
    module, records = Mean(), [("a b", "x"), ("c", "y"), ("b a b", "x"), ("c d", "y")] * 20
    settings = {"task": "text-classification", "vocab": 60, "steps": 60, "lr": 0.05, "threads": 1, "quiet": True}
    model = headway.train(records, model=module, out="own", **settings)
    assert model.model is module
    assert headway.evaluate(model, records).scores.numbers["accuracy"] == 1
    again = headway.load("own", module=Mean())
    assert again.predict("a") == model.predict("a")
    with pytest.raises(UserError, match=r"own holds the weights of a torch module .* module=my_module"):
        headway.load("own")
    with pytest.raises(UserError, match=r"there is no setting model.layers"):
        headway.train(records, model=Mean(), out="other", layers=2, **settings)


def test_batches_are_those_of_the_run(place: Path) -> None:
    settings = {name: value for name, value in SMALL.items() if name != "quiet"}
    batches = headway.batches("pairs.tsv", **settings)
    assert len(batches) == len(list(batches)) == 4
    losses: list[float] = []

    class Watch:
        def on_step(self, result: Any, seconds: float) -> None:
            losses.append(result.loss / result.targets)

    headway.train("pairs.tsv", out="run", dropout=0.0, callbacks=[Watch()], **SMALL)
    first = next(iter(headway.batches("pairs.tsv", dropout=0.0, **settings)))
    assert batches.task.loss(batches.model.model.eval(), first).item() / first.targets == pytest.approx(losses[0])
    assert not (place / "pairs-model").exists()


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("steps", "train.steps"),
        ("train.steps", "train.steps"),
        ("out", "out"),
        ("columns", "data.columns"),
        ("start", "model.from"),
        ("batch_size", "train.batch"),
        ("warmup", "train.warmup_steps"),
        ("layers", "model.layers"),
    ],
)
def test_a_setting_may_lack_its_section(word: str, name: str) -> None:
    assert setting_name(word) == name


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt setting": ({"stpes": 5}, r"there is no setting model.stpes; .*did you mean 'train.steps'\?"),
    "a misspelt size": ({"layrs": 5}, r"there is no setting model.layrs; .*did you mean 'model.layers'\?"),
    "out of bounds": ({"steps": -1}, r"train.steps=-1 is out of bounds; allowed: 0 or more"),
    "twice": ({"rate": 1.0, "lr": 1.0}, r"train.lr is given twice"),
    "no model": ({"model": 5}, r"model=5; allowed: a preset, a model folder, a Config of headway.zoo"),
    "no preset": ({"model": "transfomer-nano"}, r"no preset 'transfomer-nano'; .*did you mean 'transformer-nano'\?"),
    "no task": ({"task": "nothing"}, r"data.task='nothing' is not a choice"),
    "both": ({"epochs": 2}, r"train.steps and train.epochs are both given"),
}


@pytest.mark.parametrize("name", ["validation", "test", "validation_from", "test_from"])
def test_settings_that_choose_files_are_refused_beside_records(place: Path, name: str) -> None:
    with pytest.raises(UserError, match=f"data.{name} chooses files, and the records are given in Python; .*split"):
        headway.train([("a", "b"), ("c", "d")] * 20, out="wrong", **{**SMALL, name: "held"})
    assert not (place / "wrong").exists()


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_the_setting(place: Path, name: str) -> None:
    settings, said = WRONG[name]
    with pytest.raises(UserError, match=said):
        headway.train("pairs.tsv", out="wrong", **{**SMALL, **settings})
    assert not (place / "wrong").exists()
