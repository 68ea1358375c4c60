"""Swin and Swin-V2 against timm: numbers, names both ways, all its architectures, and what it does with padding.

Axes:  B batch   Y X rows and columns of the grid   C width
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.testing import assert_close

import headway
from headway import Context, Trace, UserError
from headway.interop import timm_swin, timm_swinv2
from headway.interop.registry import Family, family, model_type_of
from headway.interop.weights import write_weights
from headway.system import write_json
from headway.zoo import swin, swinv2
from headway.zoo.build import build
from tests.interop.parity import difference, gradients, load, pull, shaken, tensor
from tests.interop.timm_models import timm_models

timm = timm_models()

KNOWN = timm_swin.ARCHITECTURES | timm_swinv2.ARCHITECTURES
SWIN, SWINV2 = "swin_tiny_patch4_window7_224", "swinv2_tiny_window8_256"
SIZES = {"img_size": 32, "patch_size": 2, "embed_dim": 8, "depths": (2, 2, 2), "num_heads": (1, 2, 4), "window_size": 4}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "swin": (SWIN, {}),
    "swin, a window as large as its grid": (SWIN, {"window_size": 8}),
    "swin, windows of each stage": (SWIN, {"window_size": (4, 8, 2)}),
    "swin, grey": (SWIN, {"in_chans": 1, "mlp_ratio": 2.5, "depths": (1, 3), "num_heads": (2, 2)}),
    "swinv2": (SWINV2, {}),
    "swinv2, a window as large as its grid": (SWINV2, {"window_size": 8}),
    "swinv2, pre-trained windows": (SWINV2, {"pretrained_window_sizes": (3, 3, 2)}),
}


def both(name: str, **options: Any) -> tuple[Any, Any, Any]:
    """A model of theirs, ours with its weights, and our config."""
    args = {**SIZES, **options}
    theirs = shaken(timm.create_model(name, num_classes=5, **args)).eval()
    config = known(name).read_config({"architecture": name, "num_classes": 5, "model_args": args})
    ours = build(config).eval()
    load(ours, known(name).keymap(config).load(theirs.state_dict()))
    return theirs, ours, config


def known(name: str) -> Family:
    return family(model_type_of({"architecture": name}))


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_the_references(case: str) -> None:
    name, options = CASES[case]
    torch.manual_seed(0)
    theirs, ours, config = both(name, **options)
    x = torch.randn(2, config.channels, 32, 32)
    trace = Trace(ours, "*.out")
    logits, expected = ours(x, Context(trace=trace)), theirs(x)
    assert difference(logits, expected) <= 1e-5
    for stage, state in enumerate(theirs.forward_intermediates(x, intermediates_only=True)):  # B C Y X
        assert difference(tensor(trace[f"{stage}.out"]).permute(0, 3, 1, 2), state) <= 1e-5
    (expected * pull(expected)).sum().backward()
    (logits * pull(logits)).sum().backward()
    names = known(name).keymap(config)
    assert gradients(theirs, ours, names) <= 1e-5
    assert_close(names.save(dict(ours.named_parameters())), dict(theirs.state_dict()), atol=0, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_what_is_written_makes_the_same_model_there(case: str) -> None:
    name, options = CASES[case]
    theirs, _, config = both(name, **options)
    written = known(name).write_config(config)
    assert known(name).read_config(written) == config
    again = timm.create_model(
        written["architecture"], num_classes=written["num_classes"], **written["model_args"]
    ).eval()
    again.load_state_dict(theirs.state_dict())
    x = torch.randn(2, config.channels, 32, 32)
    assert_close(again(x), theirs(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", [SWIN, SWINV2])
@torch.no_grad()
def test_folders_are_read_here_and_there(name: str, tmp_path: Path) -> None:
    theirs, ours, config = both(name)
    write_weights(tmp_path, theirs.state_dict())
    write_json(tmp_path / "config.json", known(name).write_config(config))
    found = headway.load(tmp_path)
    assert found.config == config
    x = torch.randn(2, 3, 32, 32)
    assert_close(found.model(x), ours(x))
    found.save_hf(tmp_path / "back")
    again = timm.create_model(f"local-dir:{tmp_path / 'back'}", pretrained=True).eval()
    assert_close(again(x), theirs(x))


@pytest.mark.parametrize("name", KNOWN)
def test_every_architecture_has_its_sizes(name: str) -> None:
    home = "swin_transformer_v2" if name.startswith("swinv2") else "swin_transformer"
    with patch(f"timm.models.{home}.build_model_with_cfg") as made:
        timm.create_model(name)
    told = made.call_args.kwargs
    assert {key: told.get(key) for key in KNOWN[name] if key != "img_size"} == {
        key: value for key, value in KNOWN[name].items() if key != "img_size"
    }
    assert timm.get_pretrained_cfg(name).input_size[1:] == (KNOWN[name]["img_size"],) * 2


def test_no_architecture_is_forgotten() -> None:
    assert set(timm.list_models("swin_*") + timm.list_models("swinv2_*", exclude_filters="swinv2_cr_*")) == set(KNOWN)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", "swin_s3_tiny_224", "swinv2_tiny_window16_256"])
def test_whole_models_have_our_shapes(name: str) -> None:
    with torch.device("meta"):
        theirs = timm.create_model(name)
        told = {"architecture": name, "num_classes": theirs.num_classes, "pretrained_cfg": theirs.pretrained_cfg}
        config = known(name).read_config(told)
        ours = known(name).keymap(config).save(dict(build(config).named_parameters()))
    assert {key: x.shape for key, x in ours.items()} == {key: x.shape for key, x in theirs.named_parameters()}
    assert list(config.windows) == [stage.blocks[0].window_size[0] for stage in theirs.layers]
    assert config.image == theirs.patch_embed.img_size[0]


@torch.no_grad()
def test_padding_is_seen_there_and_not_here() -> None:
    """One layer on 18×18 cells with windows of 4: the last two rows and columns share their windows with padding."""
    one = {"img_size": 36, "depths": (1,), "num_heads": (1,)}
    theirs, ours, _ = both(SWIN, **one)
    x = torch.randn(1, 3, 36, 36)
    there, here = theirs.forward_features(x), ours.features(x)  # B Y X C
    assert difference(here[:, :16, :16], there[:, :16, :16]) <= 1e-5
    assert difference(here[:, 16:], there[:, 16:]) > 1e-4


@torch.no_grad()
def test_timm_shifts_before_it_pads_and_so_sees_across_the_seam() -> None:
    """Rows of 7 cells, windows of 4 shifted by 2: here 2 to 5 are a window, 6 one, and 0 and 1 one.

    timm rolls a row to 2 3 4 5 6 0 1, pads it to 2 3 4 5, 6 0 1 · and hides from each other what lies on the two sides
    of a seam two slots before the end, where without padding it would be.  So cell 6 and cell 0 see each other.
    """
    theirs, ours, _ = both(SWIN, img_size=14, depths=(2,), num_heads=(1,), window_size=4)
    for model in (theirs, ours):
        assert shift(model) == 2
    grid = torch.randn(1, 7, 7, 8)
    other = grid.clone()
    other[:, 0] = torch.randn(1, 7, 8)
    last = [stack(model)(grid)[:, 6] - stack(model)(other)[:, 6] for model in (ours, theirs)]
    assert last[0].abs().max() == 0
    assert last[1].abs().max() > 1e-4


def stack(model: Any) -> Any:
    """The shifted layer, B Y X C → B Y X C."""
    return model.layers[0].blocks[1] if hasattr(model, "layers") else model.stack.blocks[0].stack.blocks[1]


def shift(model: Any) -> int:
    layer = stack(model)
    return layer.shift_size[0] if hasattr(model, "layers") else layer.attn.body.windows.shift_rows


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"architecture": "swin_tiny_patch4_window7_244"}, "did you mean 'swin_tiny_patch4_window7_224'"),
        ({"architecture": "swinv2_cr_tiny_ns_224"}, "'swinv2_cr_tiny_ns_224' is not supported for timm's Swin-V2"),
        ({"model_args": {"always_partition": True}}, "always_partition=True is not supported"),
        ({"model_args": {"head_dim": 8}}, "head_dim=8"),
        ({"model_args": {"global_pool": ""}}, "global_pool=''"),
        ({"model_args": {"proj_drop_rate": 0.1}}, "proj_drop_rate=0.1"),
        ({"model_args": {"window_size": (4, 8)}}, r"window_size=\(4, 8\) is not supported.*squares"),
        ({"model_args": {"embed_layer": "conv"}}, "embed_layer='conv'"),
    ],
)
def test_what_we_would_not_compute_is_refused(told: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        known(told.get("architecture", SWIN)).read_config({"architecture": SWIN, **told})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (swin.Config(act="relu"), "no act='relu'"),
        (swin.Config(layers=(2, 2), heads=(3, 6), windows=(14, 7)), "for the two sides of one"),
        (swin.Config(windows=(7, 7, 7, 14)), r"windows=\(7, 7, 7, 14\) would be \(7, 7, 7, 7\) there"),
        (swinv2.Config(windows=(8, 8, 8, 16)), r"would be \(16, 16, 16, 8\) there"),
    ],
)
def test_what_has_no_name_there_is_not_written(config: swin.Config, said: str) -> None:
    with pytest.raises(UserError, match=said):
        known("swinv2_" if isinstance(config, swinv2.Config) else "swin_").write_config(config)
