"""LoRA adapters in the layout of PEFT: adapter_config.json and adapter_model.safetensors.

PEFT names tensors by the modules of transformers' model of the base: `base_model.model.…c_attn.lora_A.weight`.  Several
layers here may be one there (GPT-2's c_attn).  Its B has the rows of each, and the As stand below each other:

    [B₁ 0; 0 B₂] [A₁; A₂] = [B₁ A₁; B₂ A₂]

so such a layer has the ranks of all together, as `rank_pattern` and `alpha_pattern` say.  DoRA's lengths of rows
(`lora_magnitude_vector`) stand one below the other.  What else was trained, such as a new head, are `modules_to_save`.
Folders of ours have a config.json too, which says what the adapted model is.

Axes:  C inputs   O outputs
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headway.errors import UserError, listed, malformed
from headway.interop.keymap import Grouped, KeyMap, Portions, Rule, Split, Tensors, Transpose, filled, matched
from headway.interop.weights import bytes_of, read_safetensors, write_weights
from headway.nn.low_rank import (
    DoRALinear,
    adapt,
    adapted,
    decompose,
    learned_tensors,
    row_lengths,
    with_lengths,
)
from headway.system import read_json, write_json

ADAPTER, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
LENGTHS = (".lora_magnitude_vector", ".lora_magnitude_vector.weight")  # behind a module's name, in PEFT's versions
OWN = "adapter"  # in our config.json
# of settings that change what is computed; others say how it was trained
USUAL: Mapping[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "lora_bias": (False, None),
    "layer_replication": (None,),
    "target_parameters": (None, []),
    "trainable_token_indices": (None,),
    "alora_invocation_tokens": (None,),
}
# what transformers' classes are for, in PEFT's words
PURPOSES = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
    "ForConditionalGeneration": "SEQ_2_SEQ_LM",
    "MTModel": "SEQ_2_SEQ_LM",
    "ForCausalLM": "CAUSAL_LM",
    "LMHeadModel": "CAUSAL_LM",
}


HEADED = ("SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS")  # PEFT expects their heads among what was trained


class LowRank(NamedTuple):
    """scale · B A is added to the weight of a layer; its rows have these lengths then, where there are any (DoRA)."""

    a: Tensor  # rank C
    b: Tensor  # O rank
    scale: float
    lengths: Tensor | None = None  # O

    def merged(self, weight: Tensor) -> Tensor:
        """The weight of a layer and this part as one."""
        whole = weight.to(torch.promote_types(weight.dtype, self.a.dtype)) + self.scale * (self.b @ self.a)
        return (whole if self.lengths is None else with_lengths(whole, self.lengths)).to(weight.dtype)


@dataclass(frozen=True, eq=False)
class Adapter:
    """What a folder holds: settings of PEFT, tensors by their names there, and our config.json, if there is one."""

    folder: Path
    settings: Mapping[str, Any]
    tensors: Tensors
    values: Mapping[str, Any]

    @property
    def base(self) -> Path:
        """The folder of the model that it changes: as it was, or beside the adapter if both were moved."""
        named = Path(str(self.settings.get("base_model_name_or_path")))
        found = [place for place in (named, self.folder.absolute().parent / named.name) if place.exists()]
        if not found:
            said = f"the adapter in {self.folder} changes the model in {named}, which is not there"
            raise UserError(said, do=f"put it beside the adapter, or write its place into {ADAPTER}")
        return found[0]

    def check_base(self, base: Mapping[str, Tensor]) -> None:
        """Refuses other weights than those that the adapter was trained on, where the folder tells."""
        known = self.values.get(OWN, {}).get("sha256")
        if known is not None and known != fingerprint(base):
            said = f"the adapter in {self.folder} was trained on other weights than those in {self.base}"
            raise UserError(said, do=f"bring those back, or write the place of the right model into {ADAPTER}")

    def low_rank(self, keymap: KeyMap | None) -> dict[str, LowRank]:
        """The low-rank parts by the names of layers here."""
        found = dict[str, LowRank]()
        for name, a in self.tensors.items():
            module, marked, rest = name.partition(".lora_A.")
            if marked:
                b = self.tensors.get(f"{module}.lora_B.{rest}")
                if b is None or a.dim() != 2 or b.dim() != 2 or len(a) != b.shape[1]:
                    raise UserError(f"{self.folder / WEIGHTS}: {module} has no lora_A and lora_B that fit")
                part = LowRank(a.float(), b.float(), self.scale(module, len(a)), self.lengths(module, len(b)))
                found |= split_layers(module, part, keymap)
        return found

    def lengths(self, module: str, rows: int) -> Tensor | None:
        """Those of the rows of a module of theirs, with DoRA."""
        if not self.settings.get("use_dora"):
            return None
        found = next((self.tensors[f"{module}{end}"] for end in LENGTHS if f"{module}{end}" in self.tensors), None)
        if found is None or found.shape != (rows,):
            raise UserError(f"{self.folder / WEIGHTS}: {module} has no lora_magnitude_vector that fits")
        return found.float()

    def scale(self, module: str, rank: int) -> float:
        """alpha / rank of a module of theirs."""
        alpha = in_pattern(self.settings.get("alpha_pattern"), module, self.settings.get("lora_alpha", 8))
        return float(alpha) / (rank**0.5 if self.settings.get("use_rslora") else rank)

    def others(self, keymap: KeyMap | None) -> Tensors:
        """What else was trained, by the names here."""
        low = (".lora_A.", ".lora_B.", LENGTHS[0])
        found = {name: x for name, x in self.tensors.items() if not any(part in name for part in low)}
        return found if keymap is None or not found else keymap.load(found)

    def merged(self, model: nn.Module, base: Mapping[str, Tensor], keymap: KeyMap | None) -> Tensors:
        """The tensors of an adapted model (of which `model` has the names), with low-rank parts added to weights."""
        low, tensors = self.parts(model, base, keymap)
        weights = {f"{name}.weight": part for name, part in low.items()}
        return {**tensors, **{name: part.merged(tensors[name]) for name, part in weights.items()}}

    def parts(
        self, model: nn.Module, base: Mapping[str, Tensor], keymap: KeyMap | None
    ) -> tuple[dict[str, LowRank], Tensors]:
        """The low-rank parts, and the tensors beside them: those of the base, which are shared, and new ones."""
        self.check_base(base)
        with malformed(str(self.folder / WEIGHTS)):
            low, own = self.low_rank(keymap), self.others(keymap)
        prefix = str(self.values.get(OWN, {}).get("prefix", ""))
        shapes = {name: x.shape for name, x in model.state_dict().items()}
        tensors = {name: base[prefix + name] for name in shapes if prefix + name in base} | own
        wrong = [
            name
            for name, part in low.items()
            if shapes.get(f"{name}.weight") != (len(part.b), part.a.shape[1]) or f"{name}.weight" not in tensors
        ]
        wrong += [name for name, x in own.items() if shapes.get(name) != x.shape]
        if wrong:
            said = f"the adapter in {self.folder} does not fit the model in {self.base} at {listed(sorted(wrong), 4)}"
            raise UserError(said, do="name the model that it was trained on")
        return low, {name: x for name, x in tensors.items() if name in shapes}


def read_adapter(folder: Path) -> Adapter:
    settings, config = read_json(folder / ADAPTER), folder / "config.json"
    for name, usual in USUAL.items():
        if settings.get(name) not in usual and name in settings:
            said = f"{folder / ADAPTER} says {name}={settings[name]!r:.60}, which is not computed here"
            raise UserError(said, allowed=f"LoRA with {name}={usual[0]}", do="merge it with peft: merge_and_unload()")
    values = read_json(config) if config.is_file() else {}
    found = read_safetensors(folder / WEIGHTS)
    tensors = {name.removeprefix(PREFIX): x for name, x in found.items()}
    return Adapter(folder, settings, tensors, values if OWN in values else {})


def attach_parts(model: nn.Module, low: Mapping[str, LowRank]) -> None:
    """Gives the layers of a model low-rank parts that are not merged."""
    for name, (a, b, scale, lengths) in low.items():
        layer = model.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        made = adapt(layer, len(a), scale)
        made.lora_a, made.lora_b = nn.Parameter(a, False), nn.Parameter(b, False)
        if lengths is not None:
            decompose(made).lora_magnitude = nn.Parameter(lengths, False)


def split_layers(module: str, low: LowRank, keymap: KeyMap | None) -> dict[str, LowRank]:
    """A low-rank part of theirs as those of the layers here that are one there."""
    if keymap is None:
        return {module: low}
    for prefix in sorted(keymap.prefixes, key=len, reverse=True):
        for rule in keymap.rules:
            if found := matched(rule.theirs, f"{module}.weight".removeprefix(prefix)):
                parts = split_rows(low.b, rule)
                lengths = [None] * len(parts) if low.lengths is None else split_rows(low.lengths[:, None], rule)
                names = (filled(name, found.groups()).removesuffix(".weight") for name in rule.names)
                return {
                    name: low._replace(b=b.contiguous(), lengths=None if own is None else own[:, 0].contiguous())
                    for name, b, own in zip(names, parts, lengths, strict=True)
                }
    raise UserError(f"the adapter changes {module}, which this model does not have", do="name the right model")


def split_rows(rows: Tensor, rule: Rule) -> Sequence[Tensor]:
    """The rows of a layer of theirs as those of the layers here, O … each."""
    parts = [rows]
    for change in row_changes(rule):
        parts = change.load(parts)
    return parts


def joined_rows(parts: Sequence[Tensor], rule: Rule) -> Tensor:
    """What `split_rows` split."""
    parts = list(parts)
    for change in reversed(row_changes(rule)):
        parts = change.save(parts)
    return parts[0]


def row_changes(rule: Rule) -> Sequence[Split | Portions | Grouped]:
    """The changes of a weight that B has too: those of its rows.  PEFT stores no A or B as a transpose."""
    found = list[Split | Portions | Grouped]()
    for change in rule.changes:
        if isinstance(change, Transpose):
            continue
        if not isinstance(change, Split | Portions | Grouped) or (isinstance(change, Split) and change.axis != 0):
            raise UserError(f"{rule.theirs} holds several layers in a way that low-rank parts have no place in")
        found.append(change)
    return found


def in_pattern(patterns: Mapping[str, Any] | None, module: str, usual: Any) -> Any:
    """What `rank_pattern` or `alpha_pattern` says of a module."""
    found = (value for pattern, value in (patterns or {}).items() if re.match(rf"(.*\.)?({pattern})$", module))
    return next(found, usual)


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of weights in float32, which does not depend on the layout or the order of their file."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(f"{name} {tuple(tensors[name].shape)}".encode())
        found.update(bytes_of(tensors[name].float()))
    return found.hexdigest()


class Theirs(NamedTuple):
    """How the base is called in transformers: the map of its names, and its class."""

    keymap: KeyMap
    written_class: str


def write_adapter(folder: Path, model: nn.Module, base: Path, theirs: Theirs | None, config: Mapping[str, Any]) -> None:
    """Writes what a training with low-rank parts has learned; `config` is that of the adapted model, for our use."""
    layers = {
        name: LowRank(one.lora_a, one.lora_b, one.scale, one.lora_magnitude if isinstance(one, DoRALinear) else None)
        for name, one in adapted(model).items()
    }
    low = {f"{name}.lora_{part}" for name in layers for part in ("a", "b", "magnitude")}
    others = {name: x for name, x in learned_tensors(model).items() if name not in low}
    turned = False
    if theirs is not None:
        turned = any(isinstance(change, Transpose) for rule in theirs.keymap.rules for change in rule.changes)
        layers, others = joined_layers(layers, model, theirs.keymap), replace(theirs.keymap, fixed={}).save(others)
    ranks = {name: len(part.a) for name, part in layers.items()}
    rank = min(ranks.values())
    scale = next(iter(layers.values())).scale
    larger = {name: own for name, own in ranks.items() if own != rank}
    named = theirs.written_class if theirs else ""
    purpose = next((word for end, word in PURPOSES.items() if named.endswith(end)), None)
    settings = {
        "peft_type": "LORA",
        "task_type": purpose if others or purpose not in HEADED else None,
        "base_model_name_or_path": str(base.absolute()),
        "r": rank,
        "lora_alpha": scale * rank,
        "lora_dropout": next(iter(adapted(model).values())).drop.p,
        "target_modules": list(layers),
        "rank_pattern": larger,
        "alpha_pattern": {name: scale * own for name, own in larger.items()},
        "modules_to_save": sorted({name.rpartition(".")[0] for name in others}) or None,
        "use_dora": any(one.lengths is not None for one in layers.values()),
        "bias": "none",
        "fan_in_fan_out": turned,
        "inference_mode": True,
    }
    tensors = {f"{PREFIX}{name}": x for name, x in others.items()}
    for name, (a, b, _, lengths) in layers.items():
        tensors |= {f"{PREFIX}{name}.lora_A.weight": a, f"{PREFIX}{name}.lora_B.weight": b}
        tensors |= {} if lengths is None else {f"{PREFIX}{name}{LENGTHS[0]}": lengths}
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder, tensors, WEIGHTS)
    write_json(folder / ADAPTER, settings)
    write_json(folder / "config.json", config)


def joined_layers(layers: Mapping[str, LowRank], model: nn.Module, keymap: KeyMap) -> dict[str, LowRank]:
    """Low-rank parts as those of the layers there; a layer here without one adds nothing to its rows."""
    found, left = dict[str, LowRank](), dict(layers)
    for rule in keymap.rules:
        for layer in layers:
            numbers = next((m.groups() for one in rule.names if (m := matched(one, f"{layer}.weight"))), None)
            if layer not in left or numbers is None:
                continue
            names = [filled(one, numbers).removesuffix(".weight") for one in rule.names]
            own = [left.pop(one, None) or nothing(model.get_submodule(one)) for one in names]
            bs = torch.block_diag(*(one.b for one in own)).split([len(one.b) for one in own])
            lengths = [one.lengths[:, None] for one in own if one.lengths is not None]
            a, b = torch.cat([one.a for one in own]), joined_rows(bs, rule)
            if layers[layer].lengths is None:
                part = LowRank(a, b, layers[layer].scale)
            else:
                part = LowRank(a, b, layers[layer].scale, joined_rows(lengths, rule)[:, 0])
            there = filled(rule.theirs, numbers).removesuffix(".weight")
            found[there if rule.outside else keymap.prefixes[0] + there] = part
    assert not left, left
    return found


def nothing(layer: nn.Module) -> LowRank:
    """A part of rank 0, and the lengths that rows have."""
    assert isinstance(layer, nn.Linear)
    a, b = layer.weight.new_zeros(0, layer.in_features), layer.weight.new_zeros(layer.out_features, 0)
    return LowRank(a, b, 0.0, row_lengths(layer.weight.detach()))
