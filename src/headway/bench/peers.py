"""The libraries that headway is compared with: what must be installed for each, and the command that does it.

They are imported by name, late, and by benchmarks alone: headway never needs one of them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Peer:
    """A library; `modules` are all that must be importable, and `packages` what pip calls them, the library first."""

    name: str
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    options: str = ""  # of pip
    held: bool = True  # whether it can be told which instructions to use

    @property
    def installed(self) -> bool:
        return all(find_spec(module) is not None for module in self.modules)

    @property
    def command(self) -> str:
        """Installs it without changing the version of torch."""
        return f"pip install {self.options}{' '.join(self.packages)} -c constraints.txt"

    @property
    def version(self) -> str:
        try:
            return version(self.packages[0])
        except PackageNotFoundError:
            return "not installed"


TORCH = Peer("torch", ("torch",), ("torch",))
TOKENIZERS = Peer("tokenizers", ("tokenizers",), ("tokenizers",))
TRANSFORMERS = Peer("transformers", ("transformers",), ("transformers",))
TRANSFORMERS_SERVER = Peer(  # the same library, with what `transformers serve` needs
    "transformers",
    ("transformers", "accelerate", "fastapi", "uvicorn", "openai"),
    ("transformers", "accelerate", "fastapi", "uvicorn", "openai"),
)
# its models are converted from those of transformers
CTRANSLATE2 = Peer("CTranslate2", ("ctranslate2", "transformers"), ("ctranslate2", "transformers"))
ONNXRUNTIME = Peer(
    "ONNX Runtime",
    ("onnxruntime", "onnx", "onnxscript", "transformers"),
    ("onnxruntime", "onnx", "onnxscript", "transformers"),
    held=False,
)
LLAMA_CPP = Peer("llama.cpp", ("xllamacpp", "gguf"), ("xllamacpp", "gguf"), held=False)
FASTER_WHISPER = Peer(
    "faster-whisper",
    ("faster_whisper", "ctranslate2", "transformers"),
    ("faster-whisper", "ctranslate2", "transformers"),
)
TIMM = Peer("timm", ("timm",), ("timm",), "--no-deps ")  # which asks for torchvision, and computes without it
X_TRANSFORMERS = Peer("x-transformers", ("x_transformers",), ("x-transformers",))

PEERS = (
    *(TORCH, TOKENIZERS, TRANSFORMERS, CTRANSLATE2, ONNXRUNTIME),
    *(LLAMA_CPP, FASTER_WHISPER, TIMM, X_TRANSFORMERS),
)


def library(module: str) -> Any:
    """A module of a peer, without what it would print."""
    if module == "timm":
        return without_torchvision(module)
    found = import_module(module)
    if module == "transformers":
        found.logging.set_verbosity_error()
        found.logging.disable_progress_bar()
    return found


# ---- timm's models compute without torchvision, but its files import names from it

STANDINS = (
    "torchvision",
    "torchvision.datasets",
    "torchvision.models",
    "torchvision.models.feature_extraction",
    "torchvision.ops",
    "torchvision.ops.misc",
    "torchvision.transforms",
    "torchvision.transforms.functional",
    "torchvision.utils",
)


def without_torchvision(module: str) -> ModuleType:
    """Imports a module; where torchvision is not installed, with stand-ins for it only meanwhile."""
    if find_spec("torchvision") is not None:
        return import_module(module)
    sys.modules.update({name: StandIn(name) for name in STANDINS})
    try:
        return import_module(module)
    finally:  # gone again at once, or other libraries would take torchvision for installed
        for name in STANDINS:
            del sys.modules[name]


class StandIn(ModuleType):
    """A module that has any name one asks it for: another stand-in, or an empty class."""

    def __init__(self, name: str):
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__path__ = []

    def __getattr__(self, name: str) -> type | ModuleType:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or NamedClass(name, (), {})


class NamedClass(type):
    """A class whose names, such as those of an enumeration, are all there and all differ."""

    def __getattr__(cls, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return object()
