"""Numbers about a model: each function returns a `Result` with `to_dict()`, `to_text()` and `to_figure()`.

    model = headway.load(folder)
    headway.inspect.heads(model, "the cat sat").to_text()

This module is a façade: its names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.inspect.ablation import importance
    from headway.inspect.attention_heads import heads
    from headway.inspect.attribution import rollout
    from headway.inspect.embedding_space import neighbours
    from headway.inspect.layer_similarity import cka
    from headway.inspect.presentation import Result
    from headway.inspect.probing import probe
    from headway.inspect.sae_analysis import sae
    from headway.inspect.sparse_autoencoder import load_sae
    from headway.inspect.steering import Steering, direction
    from headway.inspect.toy_models import superposition

__all__ = [
    "Result",
    "Steering",
    "cka",
    "direction",
    "heads",
    "importance",
    "load_sae",
    "neighbours",
    "probe",
    "rollout",
    "sae",
    "superposition",
]

LATE = {  # no module may have the name of a function: importing it would hide the function
    "Result": "presentation",
    "Steering": "steering",
    "cka": "layer_similarity",
    "direction": "steering",
    "heads": "attention_heads",
    "importance": "ablation",
    "load_sae": "sparse_autoencoder",
    "neighbours": "embedding_space",
    "probe": "probing",
    "rollout": "attribution",
    "sae": "sae_analysis",
    "superposition": "toy_models",
}


def __getattr__(name: str) -> object:
    if name not in LATE:
        raise AttributeError(f"module 'headway.inspect' has no attribute {name!r}")
    return getattr(import_module(f"headway.inspect.{LATE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *LATE])
