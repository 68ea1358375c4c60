"""timm's folders tell how images are made fit and what classes are called; both come in, and go out again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway import load
from headway.data.preprocess import FILE, ImagePreprocess
from headway.errors import UserError
from headway.interop.timm_folder import read_names
from headway.interop.weights import write_weights
from headway.model import Model, class_list
from headway.nn.trunk import tensors_of
from headway.system import read_json, write_json
from headway.zoo.build import build
from headway.zoo.vit import Config
from tests.data.files import picture
from tests.interop.timm_models import timm_models

SIZES = {"img_size": 16, "patch_size": 8, "embed_dim": 8, "depth": 1, "num_heads": 2}
SETTINGS: dict[str, Any] = {
    "input_size": [3, 16, 16],
    "interpolation": "bilinear",
    "crop_pct": 0.9,
    "mean": [0.5, 0.4, 0.3],
    "std": [0.2, 0.3, 0.4],
}
NAMES = ["cat", "dog", "cow"]
READY = ImagePreprocess(17, (16, 16), 3, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4), "bilinear")


def published(folder: Path, **told: Any) -> Path:
    """A tiny ViT as timm publishes one."""
    config = Config(image=16, patch=8, classes=3, dim=8, layers=1, heads=2, hidden=32, eps=1e-6)
    loaded = Model(build(config), config, "vit", "timm_vit")
    folder.mkdir(parents=True)
    write_weights(folder, loaded.family().keymap(config).save(tensors_of(loaded.model)))
    own = {"architecture": "vit_tiny_patch16_224", "num_classes": 3, "model_args": SIZES, "label_names": NAMES}
    write_json(folder / "config.json", {**own, "pretrained_cfg": SETTINGS, **told})
    return folder


def test_an_image_is_named_as_the_folder_says(tmp_path: Path) -> None:
    image = tmp_path / "one.png"
    picture(20, 30).save(image)
    loaded = load(published(tmp_path / "theirs"))
    answer = loaded.run(str(image))
    assert loaded.preprocess == READY
    assert sorted(answer["probabilities"]) == sorted(NAMES)
    loaded.save(tmp_path / "ours")
    assert load(tmp_path / "ours").run(str(image)) == answer


def test_what_was_read_is_written(tmp_path: Path) -> None:
    load(published(tmp_path / "theirs")).save(tmp_path / "ours")
    load(tmp_path / "ours").save_hf(tmp_path / "back")
    written = read_json(tmp_path / "back" / "config.json")
    assert {name: written["pretrained_cfg"][name] for name in SETTINGS} == SETTINGS
    assert written["label_names"] == NAMES
    assert "id2label" not in written
    (tmp_path / "back" / FILE).unlink()  # timm reads config.json alone
    again = load(tmp_path / "back")
    assert (again.preprocess, class_list(again.extra_config)) == (READY, NAMES)


@pytest.mark.slow
def test_the_file_of_transformers_goes_before_timms(tmp_path: Path) -> None:
    folder = published(tmp_path / "theirs")
    write_json(folder / FILE, ImagePreprocess((16, 16)).to_dict())
    assert load(folder).preprocess == ImagePreprocess((16, 16))


def test_old_files_have_their_settings_beside_the_architecture(tmp_path: Path) -> None:
    assert load(published(tmp_path / "theirs", pretrained_cfg=None, **SETTINGS)).preprocess == READY


@pytest.mark.parametrize("settings", [{"input_size": [3, 16, 16]}, {"mean": [0.5], "std": [0.5]}], ids=str)
def test_settings_of_no_or_other_images_say_nothing(settings: dict[str, Any], tmp_path: Path) -> None:
    loaded = load(published(tmp_path / "theirs", pretrained_cfg=settings))
    assert loaded.preprocess is None
    loaded.save_hf(tmp_path / "back")
    assert "mean" not in read_json(tmp_path / "back" / "config.json")["pretrained_cfg"]


def test_names_with_gaps() -> None:
    assert read_names({"label_names": {"0": "cat", "2": "cow"}}, 3)["id2label"] == {"0": "cat", "1": "1", "2": "cow"}
    assert read_names({"pretrained_cfg": {"label_names": ["a"]}}, 1)["label2id"] == {"a": 0}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"pretrained_cfg": {**SETTINGS, "crop_mode": "border"}}, "pretrained_cfg: crop_mode 'border' is not known"),
        ({"pretrained_cfg": {**SETTINGS, "crop_pct": "x"}}, "pretrained_cfg cannot be understood"),
        ({"label_names": "cat"}, "label_names is cat; allowed: a list of names"),
    ],
)
def test_mistakes_are_told(told: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        load(published(tmp_path / "theirs", **told))


def test_timm_reads_what_is_written(tmp_path: Path) -> None:
    timm = timm_models()
    from timm.data.config import resolve_data_config

    load(published(tmp_path / "theirs")).save_hf(tmp_path / "back")
    model = timm.create_model(f"local-dir:{tmp_path / 'back'}", pretrained=True)
    found = resolve_data_config(model=model)
    assert {name: found[name] for name in SETTINGS} == SETTINGS
    assert model.pretrained_cfg["label_names"] == NAMES
