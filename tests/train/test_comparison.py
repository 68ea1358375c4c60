"""headway.compare: equal sizes and equal data, what is kept and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.cli.main import main
from headway.errors import UserError
from headway.training import calibration, comparison, comparison_plan
from headway.training.build import StepTiming
from headway.training.comparison_plan import matched, parameters
from headway.training.plan import Plan
from headway.zoo.workbench import MIXERS, Config

TINY = {"dim": 16, "layers": 1, "heads": 2}
SHORT = {"steps": 3, "batch": 64, "max_length": 16, "threads": 1, "tokenizer": "characters"}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "book.txt"
    file.write_text("".join(f"line {n} of a book, then {n * 7 % 13} words\n" for n in range(60)))
    return file


def compared(text: Path, choices: Mapping[str, Sequence[str | int]], **more: Any) -> comparison.ComparisonResult:
    settings: dict[str, Any] = {**SHORT, **TINY, "seeds": 2, "out": text.parent / "out", "quiet": True, **more}
    return headway.compare(text, choices, **settings)


@pytest.mark.slow
def test_a_grid_is_compared_at_equal_size(text: Path) -> None:
    found = compared(text, {"norm": ["layer", "rms"], "ffn": ["mlp", "swiglu"]})
    assert {tuple(one.choices.values()) for one in found.variants} == {
        ("layer", "mlp"),
        ("layer", "swiglu"),
        ("rms", "mlp"),
        ("rms", "swiglu"),
    }
    means = [one.mean for one in found.variants]
    assert means == sorted(means)
    sizes = [one.parameters for one in found.variants]
    assert max(sizes) - min(sizes) <= 3 * 16  # the weights of one hidden channel of a gated layer
    assert all(len(one.losses) == 2 and one.losses[0] != one.losses[1] for one in found.variants)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["seeds"] == [0, 1]
    assert plain["variants"][0]["min"] <= plain["variants"][0]["mean"] <= plain["variants"][0]["max"]
    assert [(one["axis"], one["choice"], one["count"]) for one in plain["means_by_choice"]] == [
        *(("norm", "layer", 4), ("norm", "rms", 4), ("ffn", "mlp", 4), ("ffn", "swiglu", 4))
    ]
    assert plain["means_by_choice"][0]["mean"] == pytest.approx(
        sum(one["mean"] for one in plain["variants"] if one["choices"]["norm"] == "layer") / 2
    )
    shown = found.to_text()
    assert "norm, ffn" in shown.splitlines()[2]
    assert max(map(len, shown.splitlines()[:14])) <= 80
    assert {file.name for file in found.folder.iterdir()} == {
        *("comparison.json", "comparison.png", "settings.json", "trainings")
    }
    assert len(list((found.folder / "trainings").iterdir())) == 8


@pytest.mark.slow
def test_all_kinds_of_mixers_are_compared(text: Path) -> None:
    found = compared(text, {"mixer": list(MIXERS)}, seeds=1)
    assert len(found.variants) == len(MIXERS)
    assert found.shared["positions"] == "sinusoidal"
    assert "positions are sinusoidal for all" in found.to_text()
    assert "one seed says nothing of chance" in found.to_text()


@pytest.mark.slow
def test_what_is_trained_is_not_trained_again(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, train_one = list[int](), comparison.train_one

    def interrupted(made: Any) -> dict[str, Any]:
        calls.append(made.recipe.seed)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return train_one(made)

    choices = {"norm": ["layer", "rms"]}
    monkeypatch.setattr(comparison, "train_one", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compared(text, choices)
    assert calls == [0, 0, 1]
    found = compared(text, choices)
    assert calls == [0, 0, 1, 1, 1]
    monkeypatch.setattr(comparison, "train_one", train_one)
    again = compared(text, choices, out=text.parent / "other")
    assert [one.losses for one in again.variants] == [one.losses for one in found.variants]
    with pytest.raises(UserError, match="was trained with other settings or other data"):
        compared(text, choices, batch=32)
    with pytest.raises(UserError, match="begun with 3 steps, not with 4 steps; give the same, or name another out="):
        compared(text, choices, steps=4)
    assert json.loads((found.folder / "settings.json").read_text())["steps"] == 3


PACE = {"attention": 0.25, "convolution": 0.5, "gru": 1.5}  # seconds of a step; an evaluation takes two


def timed_by_mixer(made: Plan, clock: Any = None) -> StepTiming:
    return StepTiming(PACE[made.config.mixer], 2.0, 0)


@pytest.mark.slow
def test_minutes_are_as_many_steps_as_the_slowest_variant_does(
    text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibration, "measured", timed_by_mixer)
    choices, out = {"mixer": list(PACE)}, text.parent / "out"
    found = compared(text, choices, steps=None, minutes=0.2, seeds=1, quiet=False)
    assert vars(found.budget) == {"steps": 6, "minutes": 0.2, "slowest": "mixer=gru"}  # 12 s = 6 × 1.5 + 2, and 1 left
    kept = [json.loads(file.read_text())["key"]["steps"] for file in (out / "trainings").iterdir()]
    assert kept == [6, 6, 6]
    said = "6 steps, as many as the slowest (mixer=gru) does in 0.2 minutes"
    assert f"3 variants, 1 seed each, in {out}\nbudget of each training: {said}\n" in capsys.readouterr().out
    assert f"equal budget: {said}\n" in found.to_text()
    assert (found.to_dict()["minutes"], found.to_dict()["slowest"]) == (0.2, "mixer=gru")
    monkeypatch.setattr(calibration, "measured", None)  # a comparison that was begun goes on with the steps it has
    assert compared(text, choices, steps=None, minutes=0.2, seeds=1).budget == found.budget
    with pytest.raises(UserError, match=r"begun with 6 steps, as .* in 0.2 minutes, not with 3 minutes; give the same"):
        compared(text, choices, steps=None, seeds=1)


@pytest.mark.slow
def test_minutes_beyond_the_use_of_the_data_are_told(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(made: Plan, clock: Any = None) -> StepTiming:
        return StepTiming(1.0, 0.0, 0)

    def enough(made: Plan) -> int:
        return 4

    monkeypatch.setattr(calibration, "measured", timed)
    for module in (calibration, comparison_plan):
        monkeypatch.setattr(module, "max_steps", enough)
    found = compared(text, {"norm": ["layer", "rms"]}, steps=None, minutes=60, seeds=1)
    assert str(found.budget) == "4 steps, enough for this data: not all of 60 minutes"


@pytest.mark.slow
def test_seeds_share_the_split_of_the_data(text: Path) -> None:
    """The loss is of the same held-out tokens, whatever the seed."""
    found = compared(text, {"norm": ["layer", "rms"]})
    targets = [json.loads(file.read_text())["targets"] for file in (found.folder / "trainings").iterdir()]
    assert set(targets) == {found.targets}


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("ffn", ["mlp", "swiglu", "moe"])
def test_sizes_are_matched_by_the_hidden_width(mixer: str, ffn: str) -> None:
    size = parameters(Config(vocab=50, dim=32, layers=2, ffn="relu", hidden=400))
    config = Config(vocab=50, dim=32, layers=2, mixer=mixer, ffn=ffn, positions="none")
    hidden = matched(config, size)
    made = [parameters(replace(config, hidden=width)) for width in (hidden - 1, hidden, hidden + 1)]
    apart = [abs(one - size) for one in made]
    assert apart[1] == min(apart)


def test_a_model_that_is_too_large_is_told() -> None:
    with pytest.raises(UserError, match=r"mixer=lstm .* parameters or more; allowed: 1,000, as the first variant has"):
        matched(Config(vocab=10, dim=32, layers=2, mixer="lstm", positions="none"), 1000)


REFUSED = {
    "nrom=layer,rms": "the workbench has no axis 'nrom'; did you mean 'norm'?",
    "norm=layr,rms": "norm=layr is not a choice; allowed: layer, rms; did you mean norm=layer?",
    "norm=rms,rms": "norm=rms is given twice; give each choice once",
    "ffn=mlp,relu": "ffn=mlp and ffn=relu are the same; give each choice once",
    "heads=2,two": "heads=two; allowed: whole numbers of 1 or more",
    "heads=2,3": "heads=3 does not divide dim=128",
    "norm=rms": "one variant has nothing to be compared with",
    "heads=1,2,4 layers=1,2,3 norm=layer,rms": "3 × 3 × 2 = 18 variants; allowed: 16 at most; compare one axis",
    "mixer=gru,lstm positions=rotary,none": "a recurrent mixer has no use for positions='rotary'",
    "norm=layer,rms --preset gpt2": "gpt2 is not a workbench",
    "norm=layer,rms --model.norm rms": "norm is compared, and --model.norm is given",
    "norm=layer,rms --seeds 0": "--seeds 0; allowed: 1 to 20",
    "": "nothing to compare; name an axis and its choices, as in norm=layer,rms",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_compared_is_told(words: str, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(text), *words.split()]) == 2
    assert REFUSED[words] in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_data_that_is_no_running_text_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "norm=layer,rms", "--data", "dates"]) == 2
    assert "the workbench learns from running text, and this is dates" in capsys.readouterr().err
    assert main(["compare", "norm=layer,rms"]) == 2
    assert "headway compare needs texts to learn from" in capsys.readouterr().err
    held = tmp_path / "held"
    held.mkdir()
    (held / "mine.txt").write_text("mine")
    (tmp_path / "book.txt").write_text("a line\n" * 50)
    words = ["compare", "norm=layer,rms", str(tmp_path / "book.txt"), "--out", str(held)]
    assert main(words) == 2
    assert "holds something else than a comparison" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_prints_json(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--seeds 1 --train.steps 2 --train.batch 64 --data.max-length 16 --train.threads 1 --json"
    out = str(text.parent / "out")
    assert (
        main(
            [
                "compare",
                "norm=layer,rms",
                "--data",
                str(text),
                *options.split(),
                "--out",
                out,
                "--preset",
                "workbench-nano",
            ]
        )
        == 0
    )
    told = capsys.readouterr()
    assert [one["choices"]["norm"] for one in json.loads(told.out)["variants"]] in (["layer", "rms"], ["rms", "layer"])
    assert "2 of 2" in told.err
