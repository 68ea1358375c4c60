"""config.json, preprocessor_config.json and recipe.yaml with every value of a wrong type or range: one sentence each.

The tables are mutations × targets: of each number, list and word of a file, what no model can have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
import torch
from safetensors.torch import save_file

from headway.zoo.build import ARCHITECTURES, architecture
from headway.zoo.choices import range_of
from tests.hostile.conftest import CONFIGS, config_of
from tests.hostile.trial import Case, Outcome, check, json_edit, try_all

pytestmark = pytest.mark.long

INTEGERS: tuple[object, ...] = ("2", 2.5, 10**9, -2, [2])
NUMBERS: tuple[object, ...] = ("x", float("nan"), -7.0)
LISTS: tuple[object, ...] = ("x", [0.5], [10**9], [[1]])
WORDS: tuple[object, ...] = (5, "nonsense", [])
HARMLESS = (
    "encoder_stride",
    "architectures",
    "token_id",
    "headway",
    "task",
    "kind",
    "id2label",
    "label2id",
    "summary",
    "forced",
)
UNREAD = ("hf swin num_layers", "hf swin hidden_size")  # told by other options
OTHERS: dict[str, tuple[tuple[str, ...], object]] = {
    "bert architectures as a word": (("architectures",), "BertModel"),
    "bert architectures of numbers": (("architectures",), [5]),
    "bert architectures of lists": (("architectures",), [["BertModel"]]),
    "bert model_type as a list": (("model_type",), ["bert"]),
    "bert id2label as a list": (("id2label",), ["bad", "good"]),
    "bert id2label of numbers": (("id2label",), {"0": 5}),
    "bert id2label by words": (("id2label",), {"bad": "good"}),
    "bert label2id as a number": (("label2id",), 5),
    "llama rope_scaling as a word": (("rope_scaling",), "linear"),
    "llama rope factor as a word": (("rope_scaling", "factor"), "eight"),
    "llama rope factor of nothing": (("rope_scaling", "factor"), 0),
    "llama rope factor without end": (("rope_scaling", "factor"), float("inf")),
    "llama rope low as a word": (("rope_scaling", "low_freq_factor"), "low"),
    "llama rope original as a word": (("rope_scaling", "original_max_position_embeddings"), "x"),
    "llama rope original of nothing": (("rope_scaling", "original_max_position_embeddings"), 0),
    "llama rope type as a list": (("rope_scaling", "rope_type"), ["llama3"]),
    "llama rope theta as a word": (("rope_theta",), "fast"),
    "llama rope theta of nothing": (("rope_theta",), -1),
}
EXPERTS = {"mixtral many experts and layers": {"num_local_experts": 1024, "num_hidden_layers": 1024}}
IMAGE_SIZES = (0, -5, 2.5, float("nan"), 30_000, 10**9, "big", [], {"height": 8}, {"shortest_edge": 0})
SOUND = {"sampling_rate": 16_000, "feature_size": 80, "n_fft": 400, "hop_length": 160, "win_length": 400}
SHORT: dict[str, Any] = {"size": {"shortest_edge": 8}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
PICTURE: dict[str, Any] = {"size": {"height": 8, "width": 8}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
RECIPES = {
    **{f"batch {x!r}": f"train: {{batch: {x}}}" for x in (10**18, -1, 2.5, "many", ".nan", "[3]")},
    **{f"threads {x!r}": f"train: {{threads: {x}}}" for x in (10**9, 0, "all", 1.5)},
    **{f"workers {x!r}": f"train: {{workers: {x}}}" for x in (10**6, -1, "few")},
    **{f"steps {x!r}": f"train: {{steps: {x}}}" for x in (10**18, 0, "long", "1e400")},
    **{f"layers {x!r}": f"model: {{layers: {x}}}" for x in (10**9, -1, 2.5, '"2"', "[1]", ".inf")},
    **{f"heads {x!r}": f"model: {{heads: {x}}}" for x in (-2, 0, 10**9, "two")},
    **{f"dim {x!r}": f"model: {{dim: {x}}}" for x in (10**9, 0, "wide")},
    **{f"max_length {x!r}": f"data: {{max_length: {x}}}" for x in (10**18, 0, "long")},
    **{f"dropout {x!r}": f"train: {{dropout: {x}}}" for x in (7, -1, ".nan", "some")},
    "eps": "train: {eps: x}",
    "vocab": "data: {vocab: 1000000000000}",
}


def wrong(value: object) -> tuple[object, ...]:
    match value:
        case bool():
            return ("x", 5)
        case int():
            return INTEGERS
        case float():
            return NUMBERS
        case list():
            return LISTS
        case str():
            return WORDS
        case _:
            return ()


def mutations(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in values.items():
        if any(part in key for part in HARMLESS) or key in ("family", "kept"):
            continue
        if isinstance(value, dict):
            yield from mutations(value, (*path, key))
        else:
            yield from (((*path, key), other) for other in wrong(value))


def thinned(cases: list[Case], step: int) -> list[Case]:
    """Every so many: the tables repeat themselves over the architectures."""
    return cases[::step]


def config_cases(bases: Path) -> list[Case]:
    """Those of Hugging Face's layout, and of ours, which share the schema."""
    found: list[Case] = []
    for layout, step in (("hf", 4), ("own", 8)):
        every = [
            Case(
                f"{layout} {name} {'.'.join(path)}={value!r}",
                ("run", "m", "the"),
                json_edit("config.json", *path, value=value),
                bases / f"{layout}-{name}",
            )
            for name in CONFIGS
            for path, value in mutations(config_of(bases / f"{layout}-{name}"))
        ]
        found += thinned(every, step)
    for name, (path, value) in OTHERS.items():
        edit = json_edit("config.json", *path, value=value)
        found.append(Case(name, ("run", "m", "the"), edit, bases / f"hf-{name.split()[0]}"))
    return found


@pytest.fixture(scope="module")
def configs(bases: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return try_all(config_cases(bases), tmp_path_factory.mktemp("configs"))


def test_a_config_with_a_wrong_value_is_one_sentence(configs: dict[str, Outcome], bases: Path) -> None:
    assert len(configs) > 250
    untouched = ("holds no tokenizer", "does not say how", "lacks")
    for name, outcome in configs.items():
        check(outcome, name)
    # the base itself ends with such a sentence: there, the value was not read
    unread = [name for name, outcome in configs.items() if any(text in outcome.err for text in untouched)]
    assert [name for name in unread if not name.startswith(UNREAD)] == []


def test_layers_of_experts_are_counted_before_they_are_made(bases: Path, tmp_path: Path) -> None:
    def edit(work: Path) -> None:
        file = work / "m" / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **EXPERTS["mixtral many experts and layers"]}))

    found = try_all([Case("experts", ("run", "m", "the"), edit, bases / "hf-mixtral")], tmp_path)["experts"]
    check(found, "experts")
    assert "8,192" in found.err


# layers and widths within their ranges, which took 6 to 34 s to build without memory
HUGE: dict[str, dict[str, Any]] = {
    "own": {
        "headway": 1,
        "architecture": "swin",
        "config": {"layers": [1000] * 4, "dim": 10_000, "heads": [2] * 4},
    },
    "hf": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 10_000,
        "intermediate_size": 10_000,
        "num_hidden_layers": 1000,
        "num_attention_heads": 10,
    },
    "hf without architectures": {
        "model_type": "bert",
        "hidden_size": 10_000,
        "num_hidden_layers": 1000,
        "num_attention_heads": 10,
    },
    "timm": {
        "architecture": "vit_base_patch16_224",
        "num_classes": 10,
        "model_args": {"embed_dim": 10_000, "depth": 1000, "num_heads": 10},
    },
}


def small_weights(config: dict[str, Any], work: Path) -> None:
    """A kilobyte of weights beside a config, as the file of an expanded tensor is too."""
    (work / "m").mkdir()
    (work / "m" / "config.json").write_text(json.dumps(config))
    save_file({"x": torch.zeros(256)}, work / "m" / "model.safetensors")


def expanded_weights(config: dict[str, Any], work: Path) -> None:
    """A tensor of many numbers that is one number in its file."""
    small_weights(config, work)
    (work / "m" / "model.safetensors").unlink()
    torch.save({"x": torch.zeros(1).expand(10**12)}, work / "m" / "pytorch_model.bin")


def test_a_model_of_more_parameters_than_its_weights_is_not_made(tmp_path: Path) -> None:
    """Whatever the layout: by the numbers in the file, after the first layer."""
    words = ("run", "m", "the", "--unsafe")
    cases = [
        Case(f"{name}, {make.__name__}", words, partial(make, config))
        for name, config in HUGE.items()
        for make in (small_weights, expanded_weights)
    ]
    for name, outcome in try_all(cases, tmp_path).items():
        check(outcome, name)
        assert "parameters or more, and the weights hold" in outcome.err, (name, outcome.err)


def test_preprocessing_with_a_wrong_number_is_one_sentence(bases: Path, tmp_path: Path) -> None:
    files: dict[str, dict[str, Any]] = {
        **{f"size {size!r}": {**PICTURE, "size": size} for size in IMAGE_SIZES},
        **{f"crop {size!r}": {**PICTURE, "crop_size": size, "do_center_crop": True} for size in IMAGE_SIZES},
        **{f"{name} {x!r}": {**PICTURE, name: x} for name in ("image_mean", "image_std") for x in ("x", [], [None], 5)},
        "channels": {**PICTURE, "channels": 10**12, "image_mean": [0.5], "image_std": [0.5]},
        **{f"{name} {x!r}": {**SOUND, name: x} for name in SOUND for x in (10**7, 0, -1, "many", float("nan"), [1])},
        **{f"crop_pct {x!r}": {**SHORT, "crop_pct": x} for x in ("x", 0, [], float("nan"), -1)},
        **{f"shortest_edge {x!r}": {**PICTURE, "size": {"shortest_edge": x}} for x in ("x", None, [], 2.5)},
        **{f"{name} {x!r}": {**PICTURE, name: x} for name in ("resample", "rescale_factor") for x in ("x", None, [])},
        **{
            f"{name} {x!r}": {**SOUND, name: x} for name in ("lowest", "highest", "chunk_length") for x in ("x", [], -1)
        },
        "no size": {"image_mean": [0.5], "image_std": [0.5]},
        "no mean": {"size": 8, "image_std": [0.5]},
        "numbers of words": {"mean": ["a"], "deviation": ["b"]},
        "a word of numbers": {"mean": 5, "deviation": 7},
    }

    def write(values: dict[str, Any], work: Path) -> None:
        (work / "m" / "preprocessor_config.json").write_text(json.dumps(values))

    words = ("run", "m", "x.png")
    cases = [Case(name, words, partial(write, told), bases / "hf-vit") for name, told in files.items()]
    for name, outcome in try_all(cases, tmp_path).items():
        check(outcome, name)
        assert "preprocessor_config.json: " in outcome.err, (name, outcome.err)  # checked by name, not by accident


def test_a_recipe_with_a_wrong_number_is_one_sentence(tmp_path: Path) -> None:
    def write(text: str, work: Path) -> None:
        (work / "r.yaml").write_text(text)
        (work / "a.tsv").write_text("".join(f"a {n}\tb {n}\n" for n in range(60)))

    words = ("train", "a.tsv", "--config", "r.yaml", "--preset", "transformer-nano", "--dry-run", "--train.steps", "2")
    told = {name: text for name, text in RECIPES.items() if not name.startswith("steps")}
    cases = [Case(name, words, partial(write, text)) for name, text in told.items()]
    steps = {name: text for name, text in RECIPES.items() if name.startswith("steps")}
    cases += [Case(name, words[:-2], partial(write, text)) for name, text in steps.items()]
    for name, outcome in try_all(cases, tmp_path).items():
        check(outcome, name)


def test_every_number_of_every_config_has_a_range() -> None:
    def numeric(hint: Any) -> bool:
        kinds = get_args(hint) if get_origin(hint) in (Union, type(int | None)) else (hint,)
        return any({kind, *get_args(kind)} & {int, float} for kind in kinds)

    hints = {name: get_type_hints(architecture(name).Config) for name in ARCHITECTURES}
    numbers = [(name, field) for name, found in hints.items() for field, hint in found.items() if numeric(hint)]
    assert len(numbers) > 200
    assert [place for place in numbers if range_of(place[1]) is None] == []
