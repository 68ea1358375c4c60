"""The libraries that headway is compared with: what must be installed for each, and the command that does it.

They are imported by name, late, and by benchmarks alone: headway never needs one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any


@dataclass(frozen=True)
class Peer:
    """A library; `modules` are all that must be importable, and `packages` what pip calls them, the library first."""

    name: str
    modules: tuple[str, ...]
    packages: tuple[str, ...]

    @property
    def installed(self) -> bool:
        return all(find_spec(module) is not None for module in self.modules)

    @property
    def command(self) -> str:
        """Installs it without changing the version of torch."""
        return f"pip install {' '.join(self.packages)} -c constraints.txt"

    @property
    def version(self) -> str:
        try:
            return version(self.packages[0])
        except PackageNotFoundError:
            return "not installed"


TORCH = Peer("torch", ("torch",), ("torch",))
TOKENIZERS = Peer("tokenizers", ("tokenizers",), ("tokenizers",))
TRANSFORMERS = Peer("transformers", ("transformers",), ("transformers",))
# its models are converted from those of transformers
CTRANSLATE2 = Peer("CTranslate2", ("ctranslate2", "transformers"), ("ctranslate2", "transformers"))
ONNXRUNTIME = Peer(
    "ONNX Runtime",
    ("onnxruntime", "onnx", "onnxscript", "transformers"),
    ("onnxruntime", "onnx", "onnxscript", "transformers"),
)
LLAMA_CPP = Peer("llama.cpp", ("xllamacpp", "gguf"), ("xllamacpp", "gguf"))
FASTER_WHISPER = Peer(
    "faster-whisper",
    ("faster_whisper", "ctranslate2", "transformers"),
    ("faster-whisper", "ctranslate2", "transformers"),
)
TIMM = Peer("timm", ("timm", "torchvision"), ("timm", "torchvision"))
X_TRANSFORMERS = Peer("x-transformers", ("x_transformers",), ("x-transformers",))

PEERS = (
    *(TORCH, TOKENIZERS, TRANSFORMERS, CTRANSLATE2, ONNXRUNTIME),
    *(LLAMA_CPP, FASTER_WHISPER, TIMM, X_TRANSFORMERS),
)


def library(module: str) -> Any:
    """A module of a peer, without what it would print."""
    found = import_module(module)
    if module == "transformers":
        found.logging.set_verbosity_error()
        found.logging.disable_progress_bar()
    return found
