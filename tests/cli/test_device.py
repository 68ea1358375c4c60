"""`--device`: what may be asked for, what is there, and when a person is told."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
import torch

import headway
from headway.dtype import check_device_present, describe_device, device_named
from headway.errors import UserError
from headway.recipe import Recipe
from headway.system import check_device
from headway.training.recipe_sources import read_layers, resolve


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:1", "mps", "xpu", "xpu:0"])
def test_names_of_devices(name: str) -> None:
    check_device(name)
    assert Recipe(device=name).device == name


@pytest.mark.parametrize("name", ["gpu", "cdua", "cuda:", "cuda:x", "cpu:0", "auto:1", "", "CUDA", "meta"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"there is no device .*; allowed: auto, cpu, cuda, cuda:N, mps or xpu"):
        Recipe(device=name)


class Accelerators:
    """Two of a kind, as torch tells of them."""

    def is_available(self) -> bool:
        return True

    def current_accelerator(self) -> torch.device:
        return torch.device("cuda")

    def device_count(self) -> int:
        return 2


def test_devices_of_a_machine() -> None:
    with patch.object(torch, "accelerator", Accelerators()):
        assert [str(device_named(name)) for name in ("auto", "cpu", "cuda", "cuda:1")] == [
            "cuda",
            "cpu",
            "cuda",
            "cuda:1",
        ]
        assert describe_device("auto") == "cuda (auto)"
        with pytest.raises(UserError, match="no such device; allowed: auto, cpu, cuda, cuda:0, cuda:1"):
            device_named("cuda:2")
        with pytest.raises(UserError, match="no such device"):
            check_device_present("mps")


def test_without_an_accelerator() -> None:
    class Nothing(Accelerators):
        def is_available(self) -> bool:
            return False

    with patch.object(torch, "accelerator", Nothing()):
        assert describe_device("auto") == "cpu (auto)"
        with pytest.raises(UserError, match=r"device cuda: this machine has no such device; allowed: auto, cpu"):
            device_named("cuda")


def test_a_recipe_keeps_what_was_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("device: auto\n")
    assert resolve(read_layers({}, file, environ={})).device == "auto"
    file.write_text("device: gpu\n")
    with pytest.raises(UserError, match=r"recipe.yaml line 1: .*there is no device 'gpu'"):
        read_layers({}, file, environ={})


@pytest.mark.slow
def test_an_absent_device_is_told_before_data_is_read() -> None:
    with (
        pytest.raises(UserError, match="no such device"),
        patch.object(torch.accelerator, "is_available", lambda: False),
    ):
        headway.train("nowhere.tsv", device="cuda:1")
