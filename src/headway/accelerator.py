"""The device that a model computes on, by its name: cpu, an accelerator, or auto, an accelerator where there is one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headway.errors import UserError, nearest

if TYPE_CHECKING:
    import torch

AUTO, CPU = "auto", "cpu"
KINDS = (AUTO, CPU, "cuda", "mps", "xpu")
NAME = re.compile(r"auto|cpu|(cuda|mps|xpu)(:\d{1,3})?")
SPELLED = "auto, cpu, cuda, cuda:N, mps or xpu"


def check_device(name: str) -> None:
    """Refuses what is no name of a device, without torch; whether it is there, `device_named` knows."""
    if not NAME.fullmatch(name):
        raise UserError(f"there is no device {name!r}", allowed=SPELLED, meant=nearest(name, KINDS))


def device_named(name: str) -> torch.device:
    """The device of a name, which this machine must have."""
    import torch

    check_device(name)
    if name == CPU:
        return torch.device(CPU)
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name == AUTO:
        return found or torch.device(CPU)
    numbered = [] if found is None else [f"{found.type}:{n}" for n in range(torch.accelerator.device_count())]
    here = [CPU] if found is None else [CPU, found.type, *numbered]
    if name not in here:
        do = "headway doctor names what torch finds"
        raise UserError(f"device {name}: this machine has no such device", allowed=", ".join([AUTO, *here]), do=do)
    return torch.device(name)


def check_present(name: str) -> None:
    """Refuses a device that is not there; torch is imported only where an accelerator is asked for."""
    check_device(name)
    if name not in (AUTO, CPU):
        device_named(name)


def describe_device(name: str) -> str:
    """The device that a name stands for on this machine, and the name where it is another: cuda:0 (auto)."""
    found = str(device_named(name))
    return found if found == name else f"{found} ({name})"
