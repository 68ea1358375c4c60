"""The model folder: read, whatever library wrote it, and written, so that it explains itself.

A folder holds `config.json`, `model.safetensors` and, where there is one, a tokenizer.  In our own layout config.json says
`{"headway": 1, "architecture": …, "config": {…}}` and tensors have our names; in Hugging Face's layout both are as
`transformers` expects them.  Files are data: nothing in them names code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import UserError, listed, nearest
from headway.files import read_json, write_json
from headway.interop.families import FAMILIES, Family, family
from headway.interop.weights import read_weights, write_weights
from headway.zoo.build import ARCHITECTURES, architecture
from headway.zoo.plain import from_plain, to_plain

LAYOUT = 1  # of our own folders; what is newer is refused


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model, its config, and where it came from."""

    model: nn.Module
    config: Any
    architecture: str
    model_type: str | None = None  # in Hugging Face's layout, where that has one

    def save(self, folder: str | Path) -> None:
        """Writes the model in our own layout."""
        place = made(folder)
        write_weights(place, {names[0]: self.model.get_parameter(names[0]) for names in aliases(self.model)})
        config = {"headway": LAYOUT, "architecture": self.architecture, "config": to_plain(self.config)}
        write_json(place / "config.json", config)

    def save_hf(self, folder: str | Path) -> None:
        """Writes the model in Hugging Face's layout, for `transformers` to load."""
        known, place = self.family(), made(folder)
        write_weights(place, known.keymap(self.config).save(dict(self.model.named_parameters())))
        write_json(place / "config.json", known.write_config(self.config))

    def family(self) -> Family:
        types = [name for name, zoo in FAMILIES.items() if zoo == self.architecture]
        if self.model_type is None and not types:
            raise UserError(f"{self.architecture} models have no place in Hugging Face's layout", do="use --to headway")
        return family(self.model_type or types[0])


def load(folder: str | Path, *, unsafe: bool = False, dtype: torch.dtype = torch.float32) -> Loaded:
    """The model in a folder of ours or of Hugging Face's, ready to run; `unsafe` lets it read a PyTorch pickle."""
    place = Path(folder)
    if not place.is_dir():
        raise UserError(f"{place} is not a folder", allowed="a folder with config.json and model.safetensors")
    values = read_json(place / "config.json")
    loaded, tensors = told_here(values) if "headway" in values else told_there(values), read_weights(place, unsafe=unsafe)
    if loaded.model_type is not None:
        tensors = loaded.family().keymap(loaded.config).load(tensors)
    fill(loaded.model, tensors, dtype)
    loaded.model.eval()
    return loaded


def told_here(values: Mapping[str, Any]) -> Loaded:
    """A model without memory yet, from our own config.json."""
    if values["headway"] != LAYOUT:
        raise UserError(f"config.json is of layout {values['headway']!r}", allowed=f"{LAYOUT}", do="use a newer headway")
    name = values.get("architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        meant = nearest(str(name), ARCHITECTURES)
        raise UserError(f"no architecture {name!r}", allowed=listed(ARCHITECTURES, 20), meant=meant)
    known = architecture(name)
    config = from_plain(known.Config, values.get("config", {}))
    return Loaded(without_memory(known.build, config), config, name)


def told_there(values: Mapping[str, Any]) -> Loaded:
    """The same from Hugging Face's."""
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise UserError("config.json does not say what model it is of", allowed="a model_type, or headway's architecture")
    known = family(model_type)
    config = known.read_config(values)
    return Loaded(without_memory(known.build, config), config, known.architecture, model_type)


def without_memory(build: Any, config: Any) -> nn.Module:
    with torch.device("meta"):
        return build(config)


def fill(model: nn.Module, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """Gives a model that was built without memory its tensors; parameters with several names stay one parameter."""
    groups = aliases(model)
    check_names(groups, tensors)
    for names in groups:
        tensor, expected = next(tensors[name] for name in names if name in tensors), model.get_parameter(names[0]).shape
        if tensor.shape != expected:
            said = f"{names[0]} is {tuple(tensor.shape)} in the file and {tuple(expected)} by the config"
            raise UserError(said, do="use the config.json that was written with these weights")
        parameter = nn.Parameter(tensor.to(dtype))
        for name in names:
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, parameter)


def check_names(groups: list[list[str]], tensors: Mapping[str, Tensor]) -> None:
    missing = sorted(names[0] for names in groups if not any(name in tensors for name in names))
    unknown = sorted(set(tensors) - {name for names in groups for name in names})
    told = [
        f"{len(missing)} tensors are missing: {listed(missing)}" if missing else "",
        f"{len(unknown)} have no place: {listed(unknown)}" if unknown else "",
    ]
    if missing or unknown:
        raise UserError(f"the weights do not fit the config: {' and '.join(filter(None, told))}")


def aliases(model: nn.Module) -> list[list[str]]:
    """The names of each parameter; tied ones have several."""
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return list(groups.values())


def made(folder: str | Path) -> Path:
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    return place
