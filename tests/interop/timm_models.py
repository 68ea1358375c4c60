"""timm without torchvision: a test module says, at its top,

timm = timm_models()
"""

from types import ModuleType

import pytest

from headway.bench.peers import TIMM, library


def timm_models() -> ModuleType:
    """The module timm; where it is not installed, the calling test module is skipped."""
    if not TIMM.installed:
        pytest.skip("timm is not installed: its models have nothing to be compared with", allow_module_level=True)
    return library("timm")
