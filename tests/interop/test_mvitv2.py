"""MViT-v2 against timm: numbers, names both ways, its published sizes, images of other sizes.

Axes:  B batch   Y X rows and columns of the grid   C width
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from headway import Context, Trace, UserError
from headway.interop import mvitv2 as interop
from headway.interop.registry import model_type_of
from headway.zoo.build import build, config_of
from headway.zoo.mvitv2 import Config
from tests.interop.parity import difference, gradients, load, pull, shaken, tensor
from tests.interop.timm_models import timm_models

timm = timm_models()


def theirs_of(c: Config) -> Any:
    """Their model of a config; its sizes have no options there."""
    from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg

    halves = ((1, 1), *[(2, 2)] * (len(c.layers) - 1))
    sizes = MultiScaleVitCfg(
        depths=c.layers,
        embed_dim=c.dim,
        num_heads=c.heads,
        mlp_ratio=c.ratio,
        stride_q=halves,
        stride_kv_adaptive=(c.stride, c.stride),
        patch_kernel=(2 * c.patch - 1, 2 * c.patch - 1),
        patch_stride=(c.patch, c.patch),
        patch_padding=(c.patch - 1, c.patch - 1),
        norm_eps=c.eps,
    )
    model = MultiScaleVit(sizes, img_size=(c.image, c.image), in_chans=c.channels, num_classes=c.classes)
    return shaken(model).eval()


SMALL = Config(image=32, dim=8, layers=(1, 2, 1), heads=(1, 2, 4), classes=5)
CASES = {
    "mvitv2": SMALL,
    "mvitv2, grey, patches of two": config_of(SMALL, channels=1, patch=2, stride=2, layers=(2, 1), heads=(1, 1)),
    "mvitv2, wide keys, narrow hidden layers": config_of(SMALL, stride=8, ratio=2.0, eps=1e-3, heads=(2, 2, 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_timms(case: str) -> None:
    torch.manual_seed(0)
    config: Any = CASES[case]
    theirs, ours, names = theirs_of(config), build(config).eval(), interop.keymap(config)
    load(ours, names.load(theirs.state_dict()))
    x = torch.randn(2, config.channels, 32, 32)
    trace = Trace(ours, "*.out")
    logits, expected = ours(x, Context(trace=trace)), theirs(x)
    assert difference(logits, expected) <= 1e-5
    for stage, state in enumerate(theirs.forward_intermediates(x, intermediates_only=True)):
        assert difference(tensor(trace[f"{stage}.out"]).movedim(-1, 1), state) <= 1e-5
    (expected * pull(expected)).sum().backward()
    (logits * pull(logits)).sum().backward()
    assert gradients(theirs, ours, names) <= 1e-5
    assert_close(names.save(dict(ours.named_parameters())), dict(theirs.state_dict()), atol=0, rtol=0)


@pytest.mark.slow
@torch.no_grad()
def test_tables_are_stretched_to_other_images_as_timm_stretches_them() -> None:
    torch.manual_seed(0)
    theirs, ours = theirs_of(SMALL), build(SMALL).eval()
    load(ours, interop.keymap(SMALL).load(theirs.state_dict()))
    from timm.models.mvitv2 import checkpoint_filter_fn

    larger: Any = config_of(SMALL, image=64)
    again = theirs_of(larger)
    again.load_state_dict(checkpoint_filter_fn(dict(theirs.state_dict()), again))
    x = torch.randn(2, 3, 64, 64)
    assert difference(ours(x), again(x)) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", interop.LAYERS)
def test_published_sizes_have_timms_names(name: str) -> None:
    told = {"architecture": name, "num_classes": 7, "pretrained_cfg": {"input_size": [3, 256, 256]}}
    assert model_type_of(told) == "mvitv2"
    config = interop.read_config(told)
    with torch.device("meta"):
        theirs, ours = timm.create_model(name, img_size=256, num_classes=7), build(config)
    shapes = {key: x.shape for key, x in interop.keymap(config).load(theirs.state_dict()).items()}
    assert shapes == {key: x.shape for key, x in ours.state_dict().items()}
    assert interop.read_config(interop.write_config(config)) == config


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(UserError, match=r"'mvitv2_base_cls' is not supported"):
        interop.read_config({"architecture": "mvitv2_base_cls"})
    with pytest.raises(UserError, match="sets what is not known here: cfg_variant='x'"):
        interop.read_config({"architecture": "mvitv2_base", "model_args": {"cfg_variant": "x"}})
    with pytest.raises(UserError, match=r"timm has no MViT-v2 of these sizes; .*own layout"):
        interop.write_config(SMALL)
