"""ResNet against transformers and timm: while training too, and what is gathered goes both ways.

Parity in evaluation is among the cases of `parity`.

Axes:  B batch   Y X rows and columns of the grid   C width
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from headway import Context, Trace, UserError
from headway.interop import resnet as hf
from headway.interop import timm_resnet
from headway.interop.registry import family, model_type_of
from headway.interop.weights import write_weights
from headway.loading import load as load_folder
from headway.nn.trunk import tensors_of
from headway.system import read_json, write_json
from headway.zoo.build import build
from headway.zoo.resnet import Config
from tests.interop.cases_resnet import model, trained
from tests.interop.parity import difference, gradients, load, pull, shaken, tensor
from tests.interop.timm_models import timm_models

timm = timm_models()
SMALL = {"layers": (1, 2, 1, 1), "channels": (4, 8, 12, 16)}


def theirs_and_ours(name: str, **options: Any) -> tuple[Any, Any, Config]:
    theirs = shaken(trained(timm.create_model(name, num_classes=5, **options))).eval()
    config = timm_resnet.read_config({"architecture": name, "num_classes": 5, "model_args": options})
    ours = build(config).eval()
    load(ours, timm_resnet.keymap(config).load(theirs.state_dict()))
    return theirs, ours, config


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "resnet26"])
@pytest.mark.parametrize("training", [False, True])
def test_numbers_are_timms(name: str, training: bool) -> None:
    torch.manual_seed(0)
    theirs, ours, config = theirs_and_ours(name, **SMALL, in_chans=1)
    x, names = torch.randn(3, 1, 37, 30), timm_resnet.keymap(config)
    theirs.train(training)
    ours.train(training)
    trace = Trace(ours, "*.out")
    logits, expected = ours(x, Context(trace=trace)), theirs(x)
    assert difference(logits, expected) <= 1e-5
    if not training:  # a second pass would move the statistics
        for stage, state in enumerate(theirs.forward_intermediates(x, indices=[1, 2, 3, 4], intermediates_only=True)):
            assert difference(tensor(trace[f"{stage}.out"]).movedim(-1, 1), state) <= 1e-5
    (expected * pull(expected)).sum().backward()
    (logits * pull(logits)).sum().backward()
    assert gradients(theirs, ours, names) <= 1e-5
    assert_close(names.save(tensors_of(ours)), dict(theirs.state_dict()), atol=1e-6 * training, rtol=1e-5 * training)


@pytest.mark.slow
def test_while_training_it_is_transformers_too() -> None:
    torch.manual_seed(0)
    theirs = shaken(model(num_labels=4)).train()
    config = hf.read_config(theirs.config.to_dict())
    ours, names = build(config).train(), hf.keymap(config)
    load(ours, names.load(theirs.state_dict()))
    x = torch.randn(3, 3, 40, 24)
    logits, expected = ours(x), theirs(pixel_values=x).logits
    assert difference(logits, expected) <= 1e-5
    (expected * pull(expected)).sum().backward()
    (logits * pull(logits)).sum().backward()
    assert gradients(theirs, ours, names) <= 1e-5
    assert_close(names.save(tensors_of(ours)), dict(theirs.state_dict()), atol=1e-6, rtol=1e-5)


@pytest.mark.slow
def test_a_folder_keeps_the_statistics_both_ways(tmp_path: Path) -> None:
    """theirs → ours → our layout → their layout: every tensor bit for bit."""
    theirs = shaken(model(num_labels=4)).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    load_folder(tmp_path / "theirs").save(tmp_path / "ours")
    again = load_folder(tmp_path / "ours")
    again.save_hf(tmp_path / "back")
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert_close(again.model(x), theirs(pixel_values=x).logits)
    assert_close(dict(type(theirs).from_pretrained(tmp_path / "back").state_dict()), dict(theirs.state_dict()))


@pytest.mark.slow
def test_a_folder_of_timms_is_read_and_files_without_counts_too(tmp_path: Path) -> None:
    theirs, ours, config = theirs_and_ours("resnet50", **SMALL)
    write_json(tmp_path / "config.json", timm_resnet.write_config(config))
    assert model_type_of(read_json(tmp_path / "config.json")) == "timm_resnet"
    kept = {name: x for name, x in theirs.state_dict().items() if not name.endswith("num_batches_tracked")}
    write_weights(tmp_path, kept)
    loaded = load_folder(tmp_path)
    assert loaded.config == config
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert_close(loaded.model(x), ours(x))
    loaded.save_hf(tmp_path / "back")
    assert load_folder(tmp_path / "back").config == config


def test_lost_statistics_are_told(tmp_path: Path) -> None:
    theirs, _, config = theirs_and_ours("resnet18", **SMALL)
    write_json(tmp_path / "config.json", timm_resnet.write_config(config))
    write_weights(tmp_path, {name: x for name, x in theirs.state_dict().items() if name != "bn1.running_var"})
    with pytest.raises(UserError, match=r"1 tensors are missing: embed.blocks.0.norm.running_var"):
        load_folder(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "resnet26", "resnet50"])
def test_published_sizes_have_timms_names(name: str) -> None:
    with torch.device("meta"):
        theirs, config = timm.create_model(name), timm_resnet.read_config({"architecture": name})
        ours = build(config)
    shapes = {key: x.shape for key, x in timm_resnet.keymap(config).load(theirs.state_dict()).items()}
    assert shapes == {key: x.shape for key, x in ours.state_dict().items()}
    assert timm_resnet.read_config(timm_resnet.write_config(config)) == config
    assert family("resnet").read_config(hf.write_config(config)) == config


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: hf.read_config({"hidden_act": "gelu"}), "hidden_act='gelu' is not supported for resnet models"),
        (lambda: hf.read_config({"downsample_in_bottleneck": True}), "downsample_in_bottleneck=True is not supported"),
        (lambda: hf.read_config({"hidden_size": 32}), "sets what is not known here: hidden_size=32"),
        (lambda: hf.write_config(Config(attention=(2,))), "ResNets have no attention in transformers"),
        (lambda: hf.write_config(Config(stem="small")), "ResNets have no stem='small' in transformers"),
        (lambda: timm_resnet.read_config({"architecture": "resnet5O"}), "did you mean 'resnet50'"),
        (
            lambda: timm_resnet.read_config({"architecture": "resnet50", "model_args": {"stem_type": "deep"}}),
            "sets what is not known here: stem_type='deep'",
        ),
        (lambda: timm_resnet.write_config(Config(dim=32)), "timm's ResNets have no dim=32 with 4 stages"),
    ],
)
def test_what_is_not_known_is_refused(call: Any, told: str) -> None:
    with pytest.raises(UserError) as error:
        call()
    assert told in str(error.value)
