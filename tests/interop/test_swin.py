"""Swin's configs in Hugging Face's layout both ways, what is refused, and what padding makes of it there and here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from headway import UserError
from headway.interop.registry import family
from headway.zoo import swin, swinv2
from tests.interop.cases_swin import CASES, SIZES, model
from tests.interop.parity import Case, answer, difference, load, shaken

HF = {"swin": "SwinForImageClassification", "swinv2": "Swinv2ForImageClassification"}


def both(architecture: str, **options: Any) -> tuple[Any, Any]:
    """A model of theirs, and ours with its weights."""
    theirs: Any = shaken(model(architecture, **options)).eval()
    known = family(theirs.config.model_type)
    config = known.read_config(theirs.config.to_dict())
    ours = known.build(config).eval()
    load(ours, known.keymap(config).load(theirs.state_dict()))
    return theirs, ours


@pytest.mark.parametrize("case", CASES, ids=str)
@torch.no_grad()
def test_what_is_written_makes_the_same_model_there(case: Case) -> None:
    import transformers

    theirs: Any = shaken(case.make()).eval()
    told: dict[str, Any] = theirs.config.to_dict()
    known = family(told["model_type"])
    ours = known.settle(known.read_config(told), theirs.state_dict())
    assert ours == known.read_config(told)
    written = known.write_config(ours)
    assert known.read_config(written) == ours
    kind = getattr(transformers, written["architectures"][0])
    again = kind._from_config(kind.config_class.from_dict(written)).eval()
    again.load_state_dict(theirs.state_dict())
    x = torch.randn(2, written["num_channels"], written["image_size"], written["image_size"])
    assert_close(answer(again(x)), answer(theirs(x)))


@pytest.mark.slow
@pytest.mark.parametrize("name", HF)
def test_files_are_read_by_their_own_library(name: str, tmp_path: Any) -> None:
    from headway import load as read

    theirs, ours = both(HF[name], num_labels=5)
    theirs.save_pretrained(tmp_path / "theirs")
    found = read(tmp_path / "theirs")
    assert found.architecture == name
    found.save_hf(tmp_path / "back")
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert_close(found.model(x), ours(x))
        assert_close(again(x).logits, theirs(x).logits)


@pytest.mark.parametrize("name", HF)
def test_a_file_without_classes_is_the_bare_model(name: str) -> None:
    known = family(name)
    theirs = model(HF[name].replace("ForImageClassification", "Model"))
    told = {**theirs.config.to_dict(), "architectures": None}
    found = known.settle(known.read_config(told), theirs.state_dict())
    assert found.classes == 0
    load(known.build(found), known.keymap(found).load(theirs.state_dict()))


@pytest.mark.slow
@pytest.mark.parametrize("name", HF)
@torch.no_grad()
def test_where_nothing_is_padded_any_size_is_equal(name: str) -> None:
    theirs, ours = both(HF[name], image_size=64, num_labels=5)
    for size in ((64, 64), (96, 64), (64, 128)):  # grids of 32 to 64 cells, 8 to 16 after two merges: all by 4
        x = torch.randn(1, 3, *size)
        assert difference(ours(x), theirs(x).logits) <= 1e-5


@pytest.mark.slow
@torch.no_grad()
def test_whether_windows_shift_is_seen_from_the_image_at_hand() -> None:
    """Made for 32×32, the last grid is one window of 4 and does not shift; at 64×64 it is four, and does.

    There Swin decides by the smallest image that it was ever called with, and Swin-V2, as in timm, when it is made.
    """
    small, large = torch.randn(1, 3, 32, 32), torch.randn(1, 3, 64, 64)
    theirs, ours = both(HF["swin"], num_labels=5)
    assert difference(ours(large), theirs(large).logits) <= 1e-5
    assert difference(ours(small), theirs(small).logits) <= 1e-5
    assert difference(ours(large), theirs(large).logits) > 1e-4
    theirs, ours = both(HF["swinv2"], num_labels=5)
    assert difference(ours(large), theirs(large).logits) > 1e-4


@pytest.mark.parametrize("name", HF)
@torch.no_grad()
def test_padding_is_seen_there_and_not_here(name: str) -> None:
    """At 40×40 pixels the grids of 20, 10 and 5 are padded to 20, 12 and 8.

    There the padded cells are keys and values like others, made of zeros; here they are hidden.  What we compute is the
    same whatever the padding holds (`test_padding_changes_nothing`); theirs is not.
    """
    theirs, ours = both(HF[name], num_labels=5)
    x = torch.randn(2, 3, 40, 40)
    assert 1e-4 < difference(ours(x), theirs(x).logits) < 0.5
    seen = [stage.blocks[0] for stage in theirs.base_model.encoder.layers]
    before = theirs(x).logits
    for block in seen:
        fill(block, 3.0)
    assert difference(theirs(x).logits, before) > 1e-3


def fill(block: Any, value: float) -> None:
    """Lets a block of theirs pad with another value than zero."""

    def pad(x: torch.Tensor, high: int, wide: int) -> tuple[torch.Tensor, tuple[int, ...]]:
        side = block.window_size
        values = (0, 0, 0, -wide % side, 0, -high % side)
        return torch.nn.functional.pad(x, values, value=value), values

    block.maybe_pad = pad


@torch.no_grad()
def test_a_grid_as_narrow_as_its_window_shifts_along_the_other_axis_here_and_not_there() -> None:
    """Grids of 16×4 cells, windows of 4: the published code, and theirs, shift along no axis then.  timm shifts one."""
    theirs, ours = both(HF["swin"], num_labels=5, depths=[2], num_heads=[2])
    x = torch.randn(1, 3, 32, 8)
    assert difference(ours(x), theirs(x).logits) > 1e-4
    theirs, ours = both(HF["swin"], num_labels=5, depths=[1], num_heads=[2])  # the first layer has no shift
    assert difference(ours(x), theirs(x).logits) <= 1e-5


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("swin", {"use_absolute_embeddings": True}, "use_absolute_embeddings=True is not supported for swin"),
        ("swin", {"qkv_bias": False}, "qkv_bias=False"),
        ("swin", {"layer_norm_eps": 1e-6}, "layer_norm_eps=1e-06"),
        ("swin", {"hidden_dropout_prob": 0.1}, "hidden_dropout_prob=0.1"),
        ("swin", {"image_size": [32, 64]}, r"image_size=\[32, 64\] is not supported for swin models; allowed: squares"),
        ("swin", {"hidden_act": "mish"}, "hidden_act='mish'"),
        ("swin", {"architectures": ["SwinForMaskedImageModeling"]}, "'SwinForMaskedImageModeling' is not supported"),
        ("swinv2", {"qkv_bias": False}, "qkv_bias=False is not supported for swinv2"),
        ("swinv2", {"architectures": ["Swinv2Backbone"]}, "'Swinv2Backbone' is not supported"),
    ],
)
def test_what_we_would_not_compute_is_refused(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        family(name).read_config({"model_type": name, "architectures": [HF[name]], **SIZES, **options})


def test_windows_that_have_no_name_there_are_refused() -> None:
    with pytest.raises(UserError, match=r"there is one window_size there; use to=headway, or .*model_type='timm_swin'"):
        family("swin").write_config(swin.Config(windows=(7, 7, 14, 7)))
    with pytest.raises(UserError, match=r"windows=\(16, 16, 16, 16\) would be \(16, 16, 16, 8\) there.*256×256"):
        family("swinv2").write_config(swinv2.Config(windows=(16, 16, 16, 16)))
    written = family("swinv2").write_config(swinv2.Config(windows=(16, 16, 16, 8), pretrained=(12, 12, 12, 6)))
    assert (written["window_size"], written["pretrained_window_sizes"]) == (16, [12, 12, 12, 6])


def test_published_configs_are_the_presets() -> None:
    """What the published files say of themselves, with options of their first years."""
    from headway.zoo.build import config_of

    told = {
        "model_type": "swin",
        "architectures": ["SwinForImageClassification"],
        "depths": [2, 2, 18, 2],
        "num_heads": [4, 8, 16, 32],
        "embed_dim": 128,
        "hidden_size": 1024,
        "path_norm": True,
        "drop_path_rate": 0.5,
        "id2label": {str(i): str(i) for i in range(1000)},
    }
    assert family("swin").read_config(told) == config_of("swin-b")
    old = {**told, "model_type": "swinv2", "architectures": None, "image_size": 256, "window_size": 8}
    assert family("swinv2").read_config(old) == config_of("swinv2-b")
