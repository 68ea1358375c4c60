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


@pytest.mark.parametrize("rank", [0, 1])
def test_each_process_has_an_accelerator_of_its_own(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with patch.object(torch, "accelerator", Accelerators()):
        assert [str(device_named(name)) for name in ("auto", "cuda", "cpu")] == [f"cuda:{rank}", f"cuda:{rank}", "cpu"]
        with pytest.raises(UserError, match="device cuda:1 for 2 processes; give cuda, and each has its own"):
            device_named("cuda:1")
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
        with pytest.raises(UserError, match="3 processes on a machine with 2 cuda devices; start one for each device"):
            device_named("auto")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(rank))
        with patch.object(Accelerators, "device_count", lambda self: 1):  # pyright: ignore
            assert str(device_named("cuda")) == "cuda:0"


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
