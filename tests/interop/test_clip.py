"""CLIP's files: read back by the library they are written for, and refused where they would be another model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch.testing import assert_close

from headway.cli.main import main
from headway.conversion import convert
from headway.data.tokenizer_readers import load_tokenizer
from headway.errors import UserError
from headway.interop.clip import keymap, read_config, write_config
from headway.interop.clip_vision_model import write_config as write_image_config
from headway.loading import load
from headway.zoo import clip
from headway.zoo.clip_image import Config as ClipImage
from tests.data.test_tokenizer_parity import clip as clip_tokenizer
from tests.interop.cases_clip import TOWERS, tower
from tests.interop.cases_clip import clip as theirs
from tests.interop.parity import shaken

CONFIG = clip.Config(
    vocab=50,
    end=7,
    context=9,
    dim=8,
    layers=2,
    heads=2,
    image=8,
    patch=4,
    image_dim=12,
    image_layers=1,
    image_heads=3,
    image_hidden=20,
    width=6,
    act="gelu",
)


def test_a_config_comes_back() -> None:
    told = clip.Config(**{**vars(CONFIG), "hidden": 32})
    assert read_config(write_config(CONFIG)) == told
    assert read_config(write_config(told)) == told


def test_the_published_default_is_read() -> None:
    assert read_config({"model_type": "clip"}) == clip.Config(hidden=2048, image_hidden=3072)


@pytest.mark.slow
def test_transformers_reads_what_is_written() -> None:
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    ours = clip.build(CONFIG).eval()
    model = CLIPModel(CLIPConfig(**write_config(CONFIG))).eval()
    model.load_state_dict(keymap(CONFIG).save(dict(ours.named_parameters())))
    ids, images = torch.tensor([[1, 2, 7, 0], [3, 4, 5, 7]]), torch.randn(3, 3, 8, 8)
    with torch.no_grad():
        expected = model(input_ids=ids, pixel_values=images).logits_per_image
        assert_close(ours(images, ids), expected, atol=1e-5, rtol=1e-5)


def texts(folder: Path) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """A tokenizer in a folder; a text, and what transformers' model reads of it."""
    reference = clip_tokenizer(folder)
    text = "the river runs to the sea"
    ids = torch.tensor([reference.encode(text)])
    return (
        {
            "vocab_size": load_tokenizer(folder, "clip_text_model").vocab,
            "max_position_embeddings": 24,
            "eos_token_id": int(ids[0, -1]),
        },
        text,
        {"input_ids": ids},
    )


def images(folder: Path) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Preprocessing in a folder; an image, and what transformers' model reads of it."""
    from transformers import CLIPImageProcessor

    folder.mkdir()
    processor = CLIPImageProcessor(size={"shortest_edge": 12}, crop_size=12)
    processor.save_pretrained(folder)
    pixels = torch.randint(0, 256, (12, 12, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    picture = Image.fromarray(pixels.numpy())
    picture.save(folder / "picture.png")
    return {}, str(folder / "picture.png"), dict(processor(picture, return_tensors="pt"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TOWERS)
def test_a_tower_alone_is_read_run_and_written(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import transformers

    folder = tmp_path / "theirs"
    options, given, inputs = (texts if "Text" in name else images)(folder)
    torch.manual_seed(0)
    model = shaken(tower(name, **options)).eval()
    model.save_pretrained(folder)
    with torch.no_grad():
        out = model(**inputs)
    vector = next(out[key] for key in ("text_embeds", "image_embeds", "pooler_output") if key in out)
    loaded = load(folder)
    assert loaded.notes == ()
    assert_close(loaded.embed([given]), F.normalize(vector, dim=-1), atol=1e-5, rtol=1e-5)
    assert loaded.attend(given)._repr_html_()
    assert main(["run", str(folder), given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["output"] == pytest.approx(loaded.embed([given])[0].tolist(), abs=1e-5)
    for layout in ("headway", "hf"):
        convert(folder, tmp_path / layout, layout)
        assert torch.equal(load(tmp_path / layout).embed([given]), loaded.embed([given]))
    again = getattr(transformers, name).from_pretrained(tmp_path / "hf").eval()
    with torch.no_grad():
        assert_close(again(**inputs)[0], out[0], atol=1e-6, rtol=1e-5)
    values = {key: x for key, x in json.loads((folder / "config.json").read_text()).items() if key != "architectures"}
    (folder / "config.json").write_text(json.dumps(values))
    assert load(folder).notes == (f"config.json has no architectures; its tensors are those of a {name}",)


def test_a_tower_of_classes_has_no_place_there() -> None:
    with pytest.raises(UserError, match="a tower of CLIP's with top='classes' has no place in that layout"):
        write_image_config(ClipImage())


def config(**changes: Any) -> dict[str, Any]:
    """A config as that library writes it, with changes told as text_config__eos_token_id=5."""
    values = theirs().config.to_dict()
    for name, value in changes.items():
        *where, last = name.split("__")
        place = values
        for part in where:
            place = place[part]
        place[last] = value
    return values


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"text_config__layer_norm_eps": 1e-3}, "layer_norm_eps=0.001 is not supported for clip text models"),
        ({"vision_config__num_channels": 1}, "num_channels=1 is not supported for clip vision models"),
        ({"vision_config__hidden_act": "gelu"}, "towers of quick_gelu and gelu"),
        ({"vision_config__image_size": [8, 12]}, r"image_size=\[8, 12\] is not supported"),
        ({"vision_config__head_dim": 8}, "clip vision model sets what is not known here: head_dim=8"),
        ({"text_config__sliding_window": 4}, "clip text model sets what is not known here: sliding_window=4"),
        ({"hidden_size": 8}, "a clip model sets what is not known here: hidden_size=8"),
        ({"architectures": ["CLIPForImageClassification"]}, "'CLIPForImageClassification' is not supported"),
    ],
)
def test_another_model_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        read_config(config(**changes))


def test_an_old_files_end_is_its_largest_id() -> None:
    assert read_config(config(text_config__eos_token_id=2)).end == 98
    with pytest.raises(UserError, match="end=2 means there the largest id"):
        write_config(clip.Config(end=2))


def test_stored_positions_are_left() -> None:
    tensors = theirs().state_dict()
    stored = {f"{side}_model.embeddings.position_ids": torch.arange(3)[None] for side in ("text", "vision")}
    known = keymap(read_config(config()))
    assert known.load(tensors | stored).keys() == known.load(tensors).keys()
