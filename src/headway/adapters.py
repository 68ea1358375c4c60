"""LoRA adapters as folders beside the model that they change: written, and laid over a model that is loaded already.

`headway.load` reads such a folder, too: it adds the low-rank parts to the weights, so that the model is as fast as any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from headway.data.tokenizer_readers import read_tokenizers
from headway.dtype import FP32
from headway.errors import UserError
from headway.interop.adapter import OWN, Theirs, attach_parts, fingerprint, read_adapter, write_adapter
from headway.interop.weights import fill
from headway.loading import adapted_model, read_preprocessing
from headway.model import PREPROCESSING, Model
from headway.nn.trunk import tensors_of


def save_adapter(model: Model, folder: Path, base: Path, weights: Mapping[str, Tensor], prefix: str) -> None:
    """Writes what a model has learned beside the weights of `base`, whose names begin with `prefix` there.

    Where transformers has such a model, layers are called as they are there.
    """
    theirs, named = None, model.model_type
    try:
        family = model.family()
        written = family.write_config(model.config)
    except UserError:  # PEFT has no model for it
        named = None
    else:
        theirs = Theirs(family.keymap(model.config), str(next(iter(written.get("architectures", [])), "")))
        named = named or str(written.get("model_type"))
    own = {"names": named, "prefix": prefix, "sha256": fingerprint(weights)}
    write_adapter(folder, model.model, base, theirs, {**model.native_config(), OWN: own})
    model.save_inputs(folder)


def with_adapter(base: Model, folder: Path) -> Model:
    """The model that an adapter makes of a loaded one; both have the weights of the base in common.

    Its low-rank parts stay beside the weights, which takes longer than `headway.load`, which merges them.
    """
    if base.dtype != FP32:
        raise UserError(f"adapters beside weights in {base.dtype}", allowed="fp32", do="load the adapter: it is merged")
    adapter = read_adapter(folder)
    loaded, keymap = adapted_model(base, adapter)
    low, tensors = adapter.parts(loaded.model, tensors_of(base.model), keymap)
    fill(loaded.model, tensors, torch.float32)
    attach_parts(loaded.model.eval(), low)
    source, target = read_tokenizers(folder, loaded.model_type)
    found = replace(loaded, tokenizer=source or base.tokenizer, target_tokenizer=target or base.target_tokenizer)
    own = (folder / PREPROCESSING).is_file()
    return replace(found, preprocess=read_preprocessing(folder, found) if own else base.preprocess)
