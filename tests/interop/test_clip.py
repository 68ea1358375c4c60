"""CLIP's files: read back by the library they are written for, and refused where they would be another model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from headway.errors import UserError
from headway.interop.clip import keymap, read_config, write_config
from headway.zoo import clip
from tests.interop.cases_clip import clip as theirs

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
