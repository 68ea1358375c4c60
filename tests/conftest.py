"""What every test shares: one thread, one seed, repeatable hypothesis runs, and the way to the shared folder."""

from __future__ import annotations

import os
from pathlib import Path

# before torch is imported: on virtual machines that announce AMX and do not let it run, a matrix product in bfloat16
# (torch's own Muon, the reference of ours) ends the process with "illegal instruction"
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import pytest
import torch
from hypothesis import settings

ROOT = Path(__file__).parent.parent

torch.set_num_threads(1)
CASES = int(os.environ.get("HEADWAY_CASES", 100))
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=CASES)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.default_generator.manual_seed(0)  # torch.manual_seed takes 1 ms to note the stack for absent devices


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of data and weights beside the project; tests that need it are skipped where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder ../shared beside the project")
    return folder
