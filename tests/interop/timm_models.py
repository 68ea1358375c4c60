"""timm without torchvision: `timm_models()` is timm, with stand-ins for torchvision only while it is being imported.

timm's models compute without torchvision, but its files import names from it. A test module says, at its top,

    timm = timm_models()
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

import pytest

STANDINS = [
    "torchvision",
    "torchvision.datasets",
    "torchvision.models",
    "torchvision.models.feature_extraction",
    "torchvision.ops",
    "torchvision.ops.misc",
    "torchvision.transforms",
    "torchvision.transforms.functional",
    "torchvision.utils",
]


def timm_models() -> ModuleType:
    """The module timm; where it is not installed, the calling test module is skipped."""
    if find_spec("timm") is None:
        pytest.skip("timm is not installed: its models have nothing to be compared with", allow_module_level=True)
    if find_spec("torchvision") is not None:
        return import_module("timm")
    sys.modules.update({name: StandIn(name) for name in STANDINS})
    try:
        return import_module("timm")
    finally:  # gone again at once, or other libraries would take torchvision for installed
        for name in STANDINS:
            del sys.modules[name]


class StandIn(ModuleType):
    """A module that has any name one asks it for: another stand-in, or an empty class."""

    def __init__(self, name: str):
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__path__ = []
        self.__file__ = name

    def __getattr__(self, name: str) -> type | ModuleType:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or Named(name, (), {})


class Named(type):
    """A class whose names, such as those of an enumeration, are all there and all differ."""

    def __getattr__(cls, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return object()
