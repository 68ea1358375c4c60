"""The dtype that a model computes in: fp32, bf16, fp16 or int8; and the device that it computes on, by its name.

bf16 and fp16 are that of all weights and activations.  int8 is that of the weights of linear layers and of what is
multiplied by them, with a scale for each output channel and each row (`ops/int8.py`); all else is fp32.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.distributed.world import on_this_machine
from headway.errors import UserError, counted, nearest
from headway.system import AUTO, CPU, check_device, read_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

VISIBLE = "CUDA_VISIBLE_DEVICES"
FP32, BF16, FP16, INT8 = "fp32", "bf16", "fp16", "int8"
DTYPES = {FP32: "float32", BF16: "bfloat16", FP16: "float16", INT8: "int8"}  # and torch's names


def check_dtype(name: str) -> None:
    if name not in DTYPES:
        allowed = f"{', '.join(list(DTYPES)[:-1])} or {list(DTYPES)[-1]}"
        raise UserError(f"there is no dtype {name!r}", allowed=allowed, meant=nearest(name, DTYPES))


def dtype_to_use(asked: str | torch.dtype | None, stored: str, folder: Path) -> str:
    """The dtype that a model is loaded in: int8 weights as such, others in fp32 unless another dtype is asked for."""
    name = {f"torch.{theirs}": ours for ours, theirs in DTYPES.items()}.get(str(asked), asked)
    if name is not None:
        check_dtype(str(name))
    if stored == INT8 and name not in (None, INT8):
        given = f"{folder} holds int8 weights, of which no others can be made"
        raise UserError(given, do=f"load the model that it was converted from for {name}")
    return stored if stored == INT8 else str(name or FP32)


def holds_int8(folder: Path) -> bool:
    """Whether the weights of a folder are int8, so that there are no others to compare them with."""
    config = folder / "config.json"
    return config.is_file() and read_json(config).get("dtype") == INT8


def set_weights(model: nn.Module, tensors: Mapping[str, Tensor], dtype: str, stored: str) -> None:
    """Gives a model that was built without memory its weights, ready to compute in a dtype."""
    import torch

    from headway.generate.weight_layout import arrange, arrange_later
    from headway.interop.weights import fill

    if dtype == INT8:
        from headway.nn.low_precision import pack, quantise
        from headway.nn.native_blocks import lower_stacks

        if stored == INT8:
            quantise(model)
        fill(model, tensors, torch.float32)
        if stored != INT8:
            quantise(model)
        arrange(model.eval())
        pack(model)
        lower_stacks(model)
        return
    fill(model, tensors, getattr(torch, DTYPES[dtype]))
    arrange_later(model.eval())
    if dtype != FP32:
        convert_inputs(model, getattr(torch, DTYPES[dtype]))


def convert_inputs(model: nn.Module, dtype: torch.dtype) -> None:
    """Lets a model take images, sounds and numbers in float32, as they are read."""
    from headway.nn.trunk import Trunk

    def convert(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        inputs, *others = given
        return (inputs.to(dtype) if inputs.is_floating_point() else inputs, *others)

    for part in model.modules():
        if isinstance(part, Trunk):
            part.embed.register_forward_pre_hook(convert)


def has_instructions(dtype: str) -> bool:
    """Whether this CPU has instructions for a dtype."""
    import torch

    from headway.ops.int8 import has_int8_kernel

    if dtype in (FP32, INT8):
        return dtype == FP32 or has_int8_kernel()
    if not torch.backends.mkldnn.is_available():
        return False
    name = "_is_mkldnn_bf16_supported" if dtype == BF16 else "_is_mkldnn_fp16_supported"
    return getattr(torch.ops.mkldnn, name)()


PRODUCT = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"


def check_bf16() -> None:
    """Refuses bf16 where a product of matrices ends the process: a virtual machine may announce AMX and have none."""
    import torch

    if not torch.cpu._is_amx_tile_supported():  # pyright: ignore[reportPrivateUsage]
        return
    if subprocess.run([sys.executable, "-c", PRODUCT], capture_output=True, check=False).returncode:
        said = "bf16 does not run on this machine, which announces AMX instructions that it does not have"
        raise UserError(said, do="use fp32, or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16")


def slow_dtype(dtype: str) -> str | None:
    """A note on a dtype for which this CPU has no instructions."""
    slow = f"this CPU has no instructions for {dtype}: it is slower than fp32"
    return None if has_instructions(dtype) else slow


# ---- devices: cpu, an accelerator, or auto, an accelerator where there is one


def device_named(name: str) -> torch.device:
    """The device of a name, which this machine must have; of several processes each has an accelerator of its own."""
    import torch

    check_device(name)
    if name == CPU:
        return torch.device(CPU)
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name == AUTO and found is None:
        return torch.device(CPU)
    numbered = [] if found is None else [f"{found.type}:{n}" for n in range(torch.accelerator.device_count())]
    here = [CPU] if found is None else [CPU, found.type, *numbered]
    if name not in (AUTO, *here):
        do = "headway doctor names what torch finds"
        raise UserError(f"device {name}: this machine has no such device", allowed=", ".join([AUTO, *here]), do=do)
    assert found is not None
    rank, processes = on_this_machine()
    if processes == 1:
        return found if name == AUTO else torch.device(name)
    if name in numbered:
        raise UserError(f"device {name} for {processes} processes", do=f"give {found.type}, and each has its own")
    if len(numbered) == 1 and os.environ.get(VISIBLE):  # each is shown another one
        return torch.device(numbered[0])
    if processes > len(numbered):
        have = counted(len(numbered), f"{found.type} device")
        raise UserError(f"{processes} processes on a machine with {have}", do="start one for each device")
    return torch.device(numbered[rank])


def check_device_present(name: str) -> None:
    """Refuses a device that is not there; torch is imported only where an accelerator is asked for."""
    check_device(name)
    if name not in (AUTO, CPU):
        device_named(name)


def describe_device(name: str) -> str:
    """The device that a name stands for on this machine, and the name where it is another: cuda:0 (auto)."""
    found = str(device_named(name))
    return found if found == name else f"{found} ({name})"
