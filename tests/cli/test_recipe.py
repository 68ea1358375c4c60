"""Recipes: which layer wins, what is refused and in which words, and that a written recipe is the same recipe."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from dataclasses import fields, replace
from pathlib import Path
from types import NoneType, SimpleNamespace
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.cli import main as cli
from headway.cli import train_commands as cli_train
from headway.distributed.world import ALONE
from headway.errors import UserError
from headway.recipe import (
    ALIASES,
    EXCLUSIVE,
    SECTIONS,
    SETTINGS,
    DataSettings,
    ModelSettings,
    Recipe,
    TrainSettings,
    flat,
    from_flat,
)
from headway.setting import Setting, kinds_of
from headway.tasks.registry import DATA_WORDS
from headway.training.recipe_sources import (
    RecipeLayers,
    from_yaml,
    preset_values,
    read_layers,
    read_variables,
    resolve,
    to_yaml,
)
from headway.training.recipe_template import commented_yaml
from headway.training.setting_origins import ELSEWHERE, SHORT_OPTIONS, EnvironmentVariable
from headway.training.settings import read_yaml
from headway.zoo.presets import PRESETS

names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)


# texts of which only some are allowed
NAMED = {"model.preset": sorted(PRESETS), "data.task": [*DATA_WORDS], "device": ["cpu", "auto", "cuda:1"]}


def values_of(one: Setting) -> st.SearchStrategy[Any]:
    """Values that a setting may have."""
    return st.one_of(*(of_kind(kind, one) for kind in kinds_of(one.kind)))


def of_kind(kind: Any, one: Setting) -> st.SearchStrategy[Any]:
    if get_origin(kind) is tuple:
        first, *rest = get_args(kind)
        items = st.one_of(*(of_kind(member, one) for member in kinds_of(first)))
        return st.lists(items, max_size=3).map(tuple) if rest == [...] else st.tuples(*[items] * (1 + len(rest)))
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    most = min(value for value in (one.max_value, one.limit, 1e6) if value is not None)
    return {
        NoneType: st.none(),
        bool: st.booleans(),
        int: st.integers(int(one.min_value or 0), int(most)),
        float: st.floats(one.min_value or 0.0, most, allow_subnormal=False),
        str: st.sampled_from(words) if (words := NAMED.get(one.name)) else names,
        Path: names.map(Path),
    }[kind]


@st.composite
def given_values(draw: st.DrawFn) -> dict[str, Any]:
    """Some settings with values, no two of them rivals."""
    chosen = draw(st.sets(st.sampled_from(sorted(SETTINGS))))
    for rivals in EXCLUSIVE:
        chosen -= {*rivals[1:]} if rivals[0] in chosen else set()
    chosen -= {"train.epochs"} if "train.minutes" in chosen else set()
    chosen -= {"data.source", "data.target"} if len(chosen & {"data.source", "data.target"}) == 1 else set()
    found = {name: draw(values_of(SETTINGS[name])) for name in sorted(chosen)}
    if found.get("data.source") is None or found.get("data.target") is None:
        found = {name: value for name, value in found.items() if name not in ("data.source", "data.target")}
    return found


sizes = st.dictionaries(
    st.sampled_from(["layers", "dim", "act", "rotary"]),
    st.one_of(st.integers(), st.floats(allow_nan=False), names, st.just({"kind": "Frequencies", "base": 5e5})),
)


@pytest.mark.slow
@given(given_values(), sizes)
def test_a_written_recipe_is_the_same_recipe(
    tmp_path_factory: Any, values: dict[str, Any], more: dict[str, Any]
) -> None:
    recipe = from_flat({**values, **{f"model.{name}": value for name, value in more.items()}})
    file = tmp_path_factory.mktemp("recipe") / "recipe.yaml"
    file.write_text(to_yaml(recipe), encoding="utf-8")
    assert flat(from_yaml(file)) == flat(recipe)
    assert repr(from_yaml(file)) == repr(recipe)


@pytest.mark.slow
@given(given_values())
def test_flat_and_back(values: dict[str, Any]) -> None:
    recipe = from_flat(values)
    assert {name: flat(recipe)[name] for name in values} == values
    assert from_flat(flat(recipe)) == recipe


LAYERS = ("preset", "file", "variable", "option")


def layered(tmp_path: Path, name: str, values: dict[str, str]) -> Recipe:
    """The recipe where each layer that has a value in `values` gives it to one setting."""
    section, _, word = name.rpartition(".")
    file = tmp_path / "recipe.yaml"
    file.write_text(f"{section}:\n  {word}: {values['file']}\n" if "file" in values else "", encoding="utf-8")
    environ = {EnvironmentVariable().spell(name): values["variable"]} if "variable" in values else {}
    flags = {name: values["option"]} if "option" in values else {}
    preset = {name: int(values["preset"])} if "preset" in values else {}
    return resolve(read_layers(flags, file, environ), preset)


@pytest.mark.parametrize("name", ["train.steps", "model.layers"])
@pytest.mark.parametrize("present", range(16))
def test_the_strongest_layer_wins(tmp_path: Path, name: str, present: int) -> None:
    values = {layer: str(at + 10) for at, layer in enumerate(LAYERS) if present >> at & 1}
    expected = int(list(values.values())[-1]) if values else None
    assert flat(layered(tmp_path, name, values)).get(name) == expected


def test_a_stronger_rival_takes_back_the_weaker(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("train: {steps: 5}\ndata: {source: a, target: b}\n", encoding="utf-8")
    recipe = resolve(read_layers({"train.minutes": "3", "data.path": ("c.tsv",)}, file, {}))
    assert (recipe.train.steps, recipe.train.minutes) == (None, 3.0)
    assert recipe.data == DataSettings(path=("c.tsv",))
    recipe = resolve(read_layers({"data.target": "d"}, file, {"HEADWAY_TRAIN_EPOCHS": "2"}))
    assert recipe == Recipe(DataSettings(source=Path("a"), target=Path("d")), train=TrainSettings(epochs=2.0))


def test_none_leaves_a_choice_open_again(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("train: {patience: 5, dropout: null}\n", encoding="utf-8")
    recipe = resolve(read_layers({"train.patience": "none"}, file, {}), {"train.dropout": 0.3})
    assert (recipe.train.patience, recipe.train.dropout) == (None, None)


def test_words_become_values() -> None:
    words = {
        "train.steps": "1e4",
        "train.lr": "3e-4",
        "train.betas": "0.9, 0.99",
        "data.columns": "0,de",
        "data.skip_bad": "yes",
        "data.prefix": "no",
        "model.freeze": "embed*,encoder.0*",
        "model.from": "runs/a b",
        "model.act": "relu",
        "model.tied": "false",
        "model.rotary": "{kind: Frequencies, base: 5e5}",
    }
    recipe = resolve(read_layers(words, None, {}))
    assert recipe == Recipe(
        DataSettings(columns=(0, "de"), skip_bad=True, prefix="no"),
        ModelSettings(
            start=Path("runs/a b"),
            freeze=("embed*", "encoder.0*"),
            sizes={"act": "relu", "tied": False, "rotary": {"kind": "Frequencies", "base": 5e5}},
        ),
        TrainSettings(steps=10_000, lr=3e-4, betas=(0.9, 0.99)),
    )
    assert resolve(read_layers({"model.freeze": "3"}, None, {})).model.freeze == 3


def test_variables_that_are_not_settings_are_left_alone() -> None:
    environ = {"HEADWAY_CACHE": "x", "HEADWAY_CASES": "4", "HEADWAY_TRAIN_STEPS": "", "PATH": "y", "HEADWAY_SEED": "7"}
    assert {name: said.value for name, said in read_variables(environ).items()} == {"seed": 7}


def test_every_setting_has_a_variable_of_its_own() -> None:
    spelled = [EnvironmentVariable().spell(name) for name in SETTINGS]
    assert len({*spelled}) == len(spelled)
    assert EnvironmentVariable().spell("train.checkpoint_every") == "HEADWAY_TRAIN_CHECKPOINT_EVERY"


FILES = {
    "seed: 1\ntrain:\n  lr: 1\n  max_epoch: 5": "r.yaml line 4: [train] has no 'max_epoch'; did you mean 'epochs'?",
    "train: {learning_rate: 3e-4}": "r.yaml line 1: [train] has no 'learning_rate'; did you mean 'lr'?",
    "rate: 3e-4": "r.yaml line 1: a recipe has no 'rate'; did you mean 'train: lr'?",
    "\n\ntrian:\n  steps: 5": "r.yaml line 3: a recipe has no 'trian'; did you mean 'train'?",
    "steps: 5": "r.yaml line 1: a recipe has no 'steps'; did you mean 'train: steps'?",
    "model:\n  vocab: 5": "r.yaml line 2: [model] has no 'vocab'; did you mean 'data: vocab'?",
    "train:\n  steps: ten": "r.yaml line 2: steps: 'ten' is not a whole number",
    "train:\n  steps: '5'": "r.yaml line 2: steps: '5' is not a whole number",
    "train: {steps: 1.5}": "r.yaml line 1: steps: 1.5 is not a whole number",
    "train: {steps: true}": "r.yaml line 1: steps: true is not a whole number",
    "train: {steps: -1}": "r.yaml line 1: steps: -1 is out of bounds; allowed: 0 or more",
    "train: {batch: 0}": "r.yaml line 1: batch: 0 is out of bounds; allowed: 1 or more",
    "data: {folds: 1}": "r.yaml line 1: folds: 1 is out of bounds; allowed: 2 to 1000",
    "train: {lr: .nan}": "r.yaml line 1: lr: NaN is not a number",
    "train: {rate: .nan}": "r.yaml line 1: rate: NaN is not a number",
    "train:\n  lr: 1\n  rate: 2": "r.yaml line 3: rate: 2: train.lr is given twice; give lr",
    "data: {skip_bad: no}": "r.yaml line 1: skip_bad: 'no' is not true or false",
    "train: {betas: [0.9]}": "r.yaml line 1: betas: 0.9 is not a list of 2 numbers",
    "train: {betas: [0.9, 1]}": "r.yaml line 1: betas: 0.9,1 is out of bounds; allowed: 0 to 0.999999",
    "train: {schedule: cosin}": "r.yaml line 1: schedule: 'cosin' is not a choice; "
    "allowed: cosine, inverse, paper, wsd, constant; did you mean 'cosine'?",
    "seed: 1\ntrain: {steps: 5, epochs: 3}": "r.yaml line 2: steps and epochs are both given; give one of them",
    "train:\n  steps: 5\n  minutes: 3": "r.yaml line 2: steps and minutes are both given; give one of them",
    "train: 5": "r.yaml line 1: train: 5 is no section; "
    "write settings below train:, as headway init > recipe.yaml does",
    "model:\n  preset: gtp2": "r.yaml line 2: no preset 'gtp2'; see headway list; did you mean 'gpt2'? allowed: ",
    "- 5": "r.yaml line 1: this is no setting of a recipe, such as seed: 1; headway init > recipe.yaml writes one",
    "data: {source: a}": "r.yaml line 1: source is given without target; give target too",
    "data:\n  task: transation": "r.yaml line 2: task: 'transation' is not a choice; did you mean 'translation'? ",
    "train:\n\tlr: 1": "r.yaml line 2: this is not YAML: found character '\\t' that cannot start any token; "
    "indent with spaces",
    "seed: 1\nout: \x01": "r.yaml line 2: this is not YAML: U+0001 may not stand there; delete that character",
    "train: {lr: 0}": "r.yaml line 1: lr: 0 is out of bounds; allowed: 1e-12 or more",
    "data: {longest: 1}": "r.yaml line 1: longest: 1 is out of bounds; allowed: 2 or more",
}


@pytest.mark.parametrize("text", FILES)
def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_layers({}, Path("r.yaml"), {})
    assert str(caught.value).startswith(FILES[text])


VARIABLES = {
    "HEADWAY_TRAIN_STEPS=ten": "HEADWAY_TRAIN_STEPS=ten is not a whole number",
    "HEADWAY_TRAIN_STPES=10": "HEADWAY_TRAIN_STPES is set and names no setting; did you mean 'HEADWAY_TRAIN_STEPS'?",
    "HEADWAY_DATA_SKIP_BAD=maybe": "HEADWAY_DATA_SKIP_BAD=maybe is not true or false",
    "HEADWAY_TRAIN_RATE=high": "HEADWAY_TRAIN_RATE=high is not a number",
    "HEADWAY_SEED=-1": "HEADWAY_SEED=-1 is out of bounds; allowed: 0 to 9223372036854775807",
}


@pytest.mark.parametrize("line", VARIABLES)
def test_a_mistake_in_a_variable_names_it(line: str) -> None:
    variable, _, text = line.partition("=")
    with pytest.raises(UserError) as caught:
        read_layers({}, None, {variable: text})
    assert str(caught.value) == VARIABLES[line]


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("seed: 1\nout: d\xe9j\xe0".encode("latin-1"))
    (tmp_path / "large.yaml").write_bytes(b"#" * 1_000_001)
    told = {"latin.yaml": "line 2: this is not UTF-8", "large.yaml": "is too large", "none.yaml": "does not exist"}
    for name, said in {**told, "": "is a folder"}.items():
        with pytest.raises(UserError, match=said):
            read_layers({}, tmp_path / name, {})


def test_a_byte_order_mark_and_windows_lines_are_read(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_bytes(b"\xef\xbb\xbfseed: 5\r\ntrain:\r\n  steps: 3\r\n")
    assert from_yaml(tmp_path / "r.yaml") == Recipe(seed=5, train=TrainSettings(steps=3))


SIZES = ("vocab", "dim", "layers", "heads", "dropout")


def test_sizes_are_checked_against_the_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text("model:\n  dim: 5\n  lyers: 3\n", encoding="utf-8")
    right = read_layers({"model.layers": "4"}, None, {"HEADWAY_MODEL_DIM": "64"})
    right.check_sizes(SIZES)
    assert resolve(right).model.sizes == {"layers": 4, "dim": 64}
    told = "allowed: dim, layers, heads; did you mean"
    for asked, said in (
        (
            read_layers({"model.lyers": "4"}, None, {}),
            f"headway train has no option '--model.lyers'; {told} '--model.layers'?",
        ),
        (read_layers({}, Path("r.yaml"), {}), f"r.yaml line 3: [model] has no 'lyers'; {told} 'layers'?"),
        (
            read_layers({"model.presset": "x"}, None, {}),
            f"headway train has no option '--model.presset'; {told} '--preset'?",
        ),
    ):
        with pytest.raises(UserError) as caught:
            asked.check_sizes(SIZES)
        assert str(caught.value) == said


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_gives_its_sizes(name: str) -> None:
    recipe = resolve(RecipeLayers(), preset_values(name))
    assert recipe.model.preset == name
    expected = {key: value for key, value in PRESETS[name].sizes.items() if "vocab" not in key and key != "dropout"}
    assert recipe.model.sizes == expected
    assert recipe.train.dropout == PRESETS[name].sizes.get("dropout")


def test_what_was_said_is_remembered_with_its_place() -> None:
    asked = read_layers({"train.steps": "5"}, None, {"HEADWAY_TRAIN_STEPS": "3", "HEADWAY_SEED": "2"})
    said = asked.given("train.steps")
    assert said is not None
    assert said.origin.describe("train.steps", said.value) == "--train.steps 5"
    assert (asked.value("seed"), asked.value("out"), asked.given("out")) == (2, None, None)


@pytest.mark.parametrize("old", ALIASES)
def test_a_name_of_an_earlier_version_is_read_in_every_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str
) -> None:
    new = ALIASES[old]
    text = "0.25" if SETTINGS[new].kind in (float, float | None) else "3"
    section, _, word = old.partition(".")
    file = tmp_path / "recipe.yaml"
    file.write_text(f"{section}:\n  {word}: {json.dumps(text) if SETTINGS[new].kind == str | None else text}\n")
    by_option = command(monkeypatch, f"--{old.replace('_', '-')}", text)[1]
    by_variable = read_layers({}, None, {EnvironmentVariable().spell(old): text})
    expected = flat(resolve(read_layers({new: text}, None, {})))
    assert expected[new] != SETTINGS[new].default
    for layers in (by_option, by_variable, read_layers({}, file, {}), read_layers({old: text}, None, {})):
        assert layers.given(old) is None
        found = flat(resolve(layers))
        assert {**found, "data.stratify": True} == expected  # a file with a share alone splits as earlier
    assert flat(from_flat({old: expected[new]})) == expected
    assert read_yaml(to_yaml(from_yaml(file)), "").value[section].keys() >= {new.partition(".")[2]}


def test_old_names_and_new_ones_are_layers_of_one_setting(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("train: {lr: 1, clip: 2}\ndata: {held_from: a}\n", encoding="utf-8")
    recipe = resolve(read_layers({"train.max_grad_norm": "3"}, file, {"HEADWAY_TRAIN_RATE": "4"}))
    assert (recipe.train.lr, recipe.train.max_grad_norm) == (4.0, 3.0)
    assert resolve(read_layers({"data.validation": ("b",)}, file, {})).data.validation_from is None


@pytest.mark.slow
def test_old_names_are_in_no_message_nor_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert not {*ALIASES} & {*SETTINGS}
    assert {*ALIASES.values()} <= {*SETTINGS}
    for words in (["train", "--help"], ["bottleneck", "--help"]):
        assert cli.main(words) == 0
        out = capsys.readouterr().out
        assert not [old for old in ALIASES if re.search(rf"--{old.replace('_', '-')}(?![\w-])", out)]
    assert not [old for old in ALIASES if re.search(rf"\b{old.rpartition('.')[2]}: ", commented_yaml())]
    source = Path(__file__).parents[2] / "src" / "headway"
    for file in sorted(source.rglob("*.py")):
        text = file.read_text(encoding="utf-8") if file.name != "recipe.py" else ""
        named = [old for old in ALIASES if re.search(rf"[\"-]{old}\"|--{old.replace('_', '-')}(?![\w-])", text)]
        assert not named, f"{file.name} names {named}"


def test_recipes_tell_every_setting() -> None:
    assert all(one.text for one in SETTINGS.values())
    told = {one.attribute for one in SETTINGS.values()}
    assert {one.name for kind in (*SECTIONS.values(), Recipe) for one in fields(kind)} - told == {*SECTIONS, "sizes"}
    assert {*SHORT_OPTIONS, *ELSEWHERE.values()} <= {*SETTINGS}
    assert not {*ELSEWHERE} & {one.word for one in SETTINGS.values()} - {"vocab", "dropout"}


def test_a_recipe_can_be_changed_by_hand() -> None:
    with pytest.raises(UserError, match=r"train\.steps and train\.minutes are both given"):
        Recipe(train=replace(TrainSettings(steps=5), minutes=3.0))


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, RecipeLayers, dict[str, bool]]:
    """What `headway train` hands on."""
    seen: list[Any] = []

    def train(asked: RecipeLayers, **how: bool) -> tuple[None, SimpleNamespace]:
        seen.extend((asked, how))
        return None, SimpleNamespace(signal=3)

    other = {name: lambda *_, **__: None for name in ("dry_run", "resolved_yaml")}
    monkeypatch.setitem(sys.modules, "headway.training.cross_validation", SimpleNamespace(train=train, **other))
    monkeypatch.setitem(sys.modules, "headway.training.run", SimpleNamespace(finished_in=lambda *_: None))
    monkeypatch.setattr("headway.training.recipe_sources.preflight", lambda *_: None)
    monkeypatch.setattr("headway.training.recipe_sources.run_to_resume", lambda _: Path("run"))
    return cli.main(["train", *words]), *seen


def test_the_command_hands_on_only_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADWAY_")]:
        monkeypatch.delenv(name)
    code, asked, how = command(monkeypatch, "a.tsv", "b c.tsv", "--train.checkpoint-every", "50", "--resume")
    assert code == 128 + 3
    assert {name: said.value for layer in asked.layers for name, said in layer.items()} == {
        "data.path": ("a.tsv", "b c.tsv"),
        "train.checkpoint_every": 50,
    }
    assert how == {"resume": True, "splits": None, "world": ALONE}


@pytest.mark.slow
def test_every_setting_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = {int: "2", float: "0.5", str: "x", Path: "x", bool: "true"}
    for name, one in SETTINGS.items():
        kind = kinds_of(one.kind)[0]
        text = one.choices[0] if one.choices else "0.5,0.5" if kind == tuple[float, float] else samples.get(kind, "1")
        text = NAMED[name][0] if name in NAMED else text
        words = [f"--{name.replace('_', '-')}={text}"]
        other = {"data.source": "data.target", "data.target": "data.source"}.get(name)
        code, asked, _ = command(monkeypatch, *words, *([f"--{other}=y"] if other else []))
        assert (code, asked.given(name) is None) == (131, False), name


def test_short_options_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "--source a --target b --validation c --validation d --task translation --preset gpt2 --minutes 3 "
    line += "--from m --skip-bad --objective causal --seed 4 --out o --model.head-dim 8 --model.kv_heads 2"
    recipe = resolve(command(monkeypatch, *shlex.split(line))[1])
    assert recipe.data == DataSettings(
        source=Path("a"),
        target=Path("b"),
        validation=(Path("c"), Path("d")),
        task="translation",
        objective="causal",
        skip_bad=True,
    )
    assert recipe.model == ModelSettings("gpt2", Path("m"), sizes={"head_dim": 8, "kv_heads": 2})
    assert (recipe.train.minutes, recipe.seed, recipe.out) == (3.0, 4, Path("o"))


OPTIONS = {
    "--train.stpes 4": "did you mean '--train.steps'?\n  tip: headway train --train.steps 4",
    "--train.steps=ten": "error: --train.steps ten is not a whole number",
    "--train.steps": "error: --train.steps needs a value; see headway train --help",
    "--lrr 3e-4": "did you mean '--lr'?\n  tip: headway train --lr 3e-4\n  allowed: --seed, ",
    "--lr 0": "error: --train.lr 0.0 is out of bounds; allowed: 1e-12 or more",
    "--data.longest 1": "error: --data.longest 1 is out of bounds; allowed: 2 or more",
    "--lr 1 --train.lr 2": "lr specified multiple times",
    "pairs.tsv --freeze 2": "error: --freeze without --from would freeze weights that were never trained; give --from",
    "--rate 3e-4": "did you mean '--train.lr'?",
    "--train.rat 3e-4": "did you mean '--train.lr'?",
    "--train.rate=high": "error: --train.rate high is not a number",
    "--train.rate 1 --train.lr 2": "--train.rate 1.0: --train.lr is given twice; give --train.lr\n",
    "--weight-decay=8": "did you mean '--train.weight-decay'?",
    "--preset gtp2": "did you mean 'gpt2'?\n  tip: headway train --preset gpt2",
    "--train.optimiser adamv": "did you mean 'adam'?\n  tip: headway train --train.optimiser adam",
    "--model.dropout 0.1": "did you mean '--train.dropout'?\n  tip: headway train --train.dropout 0.1",
    "--train.steps 5 --minutes 3": "error: --train.steps and --minutes are both given; give one of them",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", OPTIONS)
def test_a_mistake_in_an_option_is_told(capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert cli.main(["train", *line.split()]) == 2
    assert OPTIONS[line] in capsys.readouterr().err


@pytest.mark.slow
def test_debug_shows_where_an_error_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--train.steps=ten", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.slow
def test_the_help_has_every_option_and_is_grouped(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["train", "--help"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert [name for name in SETTINGS if f"--{name.replace('_', '-')}" not in out] == ["data.path"]
    places = [out.index(f" {group.name} ─") for group in cli_train.GROUPS.values()]
    assert places == sorted(places)


def test_a_recipe_of_an_earlier_version_splits_as_that_did(tmp_path: Path) -> None:
    """It names the share alone; what is resolved here names both."""
    file = tmp_path / "recipe.yaml"
    for text, expected in {
        "data:\n  validation_split: 0.05\n": (0.05, False),
        "data:\n  held_out: 0.1\n": (0.1, False),
        "data:\n  validation_split: 0.05\n  stratify: true\n": (0.05, True),
        "data:\n  path: [a.tsv]\n": (None, True),
        "data:\n  validation_split: null\n": (None, True),
    }.items():
        file.write_text(text, encoding="utf-8")
        data = from_yaml(file).data
        assert (data.validation_split, data.stratify) == expected


# ---- the version of the format


def test_a_recipe_tells_the_version_of_its_format(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(to_yaml(Recipe(seed=5)))
    assert file.read_text().startswith("version: 1\n")
    assert from_yaml(file) == Recipe(seed=5)
    file.write_text("seed: 5\n")  # as recipes were that tell none
    assert from_yaml(file) == Recipe(seed=5)


@pytest.mark.parametrize("version", ["2", "0", "1.5", "'1'", "true", "null", "[1]"])
def test_a_recipe_of_another_version_is_refused(tmp_path: Path, version: str) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(f"seed: 5\nversion: {version}\nnothing: 3\n")
    with pytest.raises(UserError, match=r"recipe\.yaml line 2: version: .* is no version of a recipe .*; use a newer"):
        from_yaml(file)
