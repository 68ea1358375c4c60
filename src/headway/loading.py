"""Reads a model folder, whatever library wrote it, or a single file: headway's layout, Hugging Face's, timm's, GGUF.

Files are data: nothing in them names code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headway.data.tokenizer_files import read_sides
from headway.data.tokenizer_readers import read_tokenizers
from headway.dtype import FP32, INT8, check_dtype, device_named, dtype_to_use, set_weights
from headway.errors import UserError, listed, malformed, nearest, no_model
from headway.generate.request import check_settings, generation_settings, is_setting
from headway.interop.adapter import ADAPTER, OWN, Adapter, read_adapter
from headway.interop.keymap import KeyMap
from headway.interop.timm_folder import is_timm, read_names, settings_of
from headway.interop.weights import GGUF_SUFFIX, OPENAI, foreign, model_for, read_weights
from headway.model import LAYOUT, PREPROCESSING, WHISPER, Model
from headway.nn.trunk import tensors_of
from headway.system import CPU, read_json
from headway.tasks.base import Task
from headway.tasks.model_parts import (
    CLASS_NAMES,
    CUSTOM,
    PROBLEM,
    RATES,
    TARGET_MEAN,
    TARGET_STD,
    check_class_names,
    check_tokenizers,
)
from headway.zoo.build import ARCHITECTURES, architecture, from_plain, on_meta

if TYPE_CHECKING:
    from headway.data.preprocess import Preprocess


def load(
    folder: str | Path,
    *,
    heads: int | None = None,
    unsafe: bool = False,
    dtype: str | torch.dtype | None = None,
    device: str = CPU,
    task: type[Task] | None = None,
    module: nn.Module | None = None,
) -> Model:
    """The model in a folder of ours or of Hugging Face's, or in a GGUF file, ready to run.

    `unsafe` lets it read a PyTorch pickle.  `heads` is for a folder without config.json that holds a fairseq
    Transformer or an `nn.Transformer`.  `task` is the class of a task that is none of headway's, and `module` takes the
    weights of a torch module of your own.  `dtype` is what it computes in: fp32, bf16, fp16 or int8 (`dtype.py`); by
    default fp32, or int8 where the weights are.  `device` is where: cpu, cuda, cuda:N, mps, xpu or auto.  Weights stay
    in their file until the model is first used; on a CPU, matrices are then laid out as decoding reads them fastest.
    """
    place, where = Path(folder), device_named(device)
    if place.suffix == OPENAI and place.is_file():
        loaded, tensors = read_openai_file(place, unsafe)
    elif place.suffix == GGUF_SUFFIX and place.is_file():
        loaded, tensors = read_gguf_file(place)
    elif not place.is_dir():
        raise foreign(place) or no_model(place)
    elif (place / ADAPTER).is_file():
        loaded, tensors = read_with_adapter(place, unsafe)
    elif (place / "config.json").exists():
        loaded, tensors = read_with_config(place, heads, unsafe)
    else:
        loaded, tensors = read_without_config(place, heads, unsafe)
    stored, dtype = loaded.dtype, dtype_to_use(dtype, loaded.dtype, place)
    if loaded.architecture == CUSTOM:
        if dtype == INT8:
            raise UserError("a torch module of your own cannot be int8", allowed="fp32, bf16 or fp16")
        if module is None:
            given = f"{place} holds the weights of a torch module that is none of headway's"
            raise UserError(given, do="load it from Python, as in headway.load(folder, module=my_module)")
        loaded = replace(loaded, model=module)
    if dtype == INT8 and where.type != CPU:
        raise UserError(f"int8 on {device}", allowed="int8 on cpu", do="take another dtype=, or leave device= out")
    set_weights(loaded.model, tensors, dtype, stored)
    loaded.model.to(where)
    own = loaded.tokenizer, loaded.target_tokenizer
    source, target = own if loaded.tokenizer else read_tokenizers(place, loaded.model_type)
    check_tokenizers(source, target, loaded.model, place)
    if any((place / name).is_file() for name in (PREPROCESSING, "processor_config.json")):
        loaded = replace(loaded, preprocess=read_preprocessing(place, loaded))
    return replace(loaded, tokenizer=source, target_tokenizer=target, own_task=task, dtype=dtype)


def read_with_config(place: Path, heads: int | None, unsafe: bool) -> tuple[Model, Mapping[str, Tensor]]:
    """A model on the meta device, by its config.json, and its tensors under our names."""
    if heads is not None:
        raise UserError(f"{place} has a config.json, which tells the heads", do="leave heads= out")
    values = read_json(place / "config.json")
    native = "headway" in values
    if native and values["headway"] != LAYOUT:
        given = f"config.json is of layout {values['headway']!r}"
        raise UserError(given, allowed=f"{LAYOUT}", do="use a newer headway")
    if not native:
        from headway.interop.registry import family, model_type_of

        if model_type := model_type_of(values):
            family(model_type)  # an unknown one is refused before the weights are read
    kept = values.get("kept") if native else values
    check_settings(kept if isinstance(kept, Mapping) else {}, str(place / "config.json"))
    tensors = read_weights(place, unsafe=unsafe)
    if native:
        return from_native(values, tensors), tensors
    loaded, file = from_hf(values, tensors), place / "generation_config.json"
    known = loaded.family()
    settings = generation_settings(read_json(file)) if file.is_file() else {}
    check_settings(settings, str(file))
    loaded = replace(loaded, extra_config={**loaded.extra_config, **settings, **known.read_settings(values)})
    return loaded, known.keymap(loaded.config).load(tensors)


def read_with_adapter(place: Path, unsafe: bool) -> tuple[Model, Mapping[str, Tensor]]:
    """The model that an adapter makes of another, with its low-rank parts added to the weights."""
    adapter = read_adapter(place)
    base = load(adapter.base, unsafe=unsafe, dtype=FP32)
    loaded, keymap = adapted_model(base, adapter)
    return loaded, adapter.merged(loaded.model, tensors_of(base.model), keymap)


def adapted_model(base: Model, adapter: Adapter) -> tuple[Model, KeyMap | None]:
    """The model that an adapter makes of `base`, on the meta device, and how its layers are called there."""
    if adapter.values:
        loaded = from_native(adapter.values, tensors_of(base.model))
        named = adapter.values[OWN].get("names")
        return loaded, None if named is None else replace(loaded, model_type=named).family().keymap(loaded.config)
    return replace(base, model=on_meta(base.config)), base.family().keymap(base.config)


def read_without_config(place: Path, heads: int | None, unsafe: bool) -> tuple[Model, Mapping[str, Tensor]]:
    """The same without a config.json: by the names and shapes of tensors, with the tokenizers beside them."""
    from headway.interop.no_config import recognised

    tensors = read_weights(place, unsafe=unsafe)
    known = recognised(tensors)
    if known is None:
        file = place / "config.json"
        given = f"{file} does not exist, and the tensors are no fairseq Transformer's or nn.Transformer's"
        raise UserError(given, do="add the config.json that belongs to them")
    if heads is None:
        given = f"{place} holds {known.name} and no config.json, and its tensors do not show how many heads it has"
        raise UserError(given, do="give their number, as in heads=8")
    config = known.read_config(heads)
    source_vocab = config.vocab if config.source_vocab is None else config.source_vocab
    source, target = read_sides(place, source_vocab, config.vocab)
    model = on_meta(config)
    loaded = Model(model, config, "transformer", None, known.tokens, source, target, known.assumed)
    return loaded, known.keymap(config).load(tensors)


def read_openai_file(place: Path, unsafe: bool) -> tuple[Model, Mapping[str, Tensor]]:
    """One of OpenAI's Whisper files, with the tokenizer beside it: a *.tiktoken file of its package."""
    from headway.data.whisper_tokenizer import ENGLISH_VOCAB, marks_of, read_tiktoken, usual_settings
    from headway.interop.whisper import read_openai

    config, tensors = read_openai(place, unsafe=unsafe)
    loaded = Model(on_meta(config), config, WHISPER, WHISPER)
    file = place.with_name("gpt2.tiktoken" if config.vocab == ENGLISH_VOCAB else "multilingual.tiktoken")
    if not file.is_file():
        return replace(loaded, lacking=f"{file.name} of OpenAI's package"), tensors
    tokenizer = read_tiktoken(file, config.vocab)
    settings = usual_settings(tokenizer, marks_of(tokenizer))
    return replace(loaded, tokenizer=tokenizer, extra_config=settings), tensors


def read_gguf_file(place: Path) -> tuple[Model, Mapping[str, Tensor]]:
    """A GGUF file, read as a folder of Hugging Face's layout would be, with the tokenizer in it."""
    from headway.data.gguf_tokenizer import read_gguf_tokenizer
    from headway.interop.gguf_models import read_model

    found = read_model(place)
    loaded = replace(from_hf(found.config, found.tensors), tokenizer=read_gguf_tokenizer(found.values, place))
    return loaded, loaded.family().keymap(loaded.config).load(found.tensors)


def from_native(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Model:
    """A model from our own config.json."""
    name, extra, task = values.get("architecture"), values.get("kept", {}), values.get("task")
    check_dtype(dtype := str(values.get("dtype", FP32)))
    if name == CUSTOM:
        return Model(nn.Identity(), None, CUSTOM, None, extra, task_name=task, dtype=dtype)
    if not isinstance(name, str) or name not in ARCHITECTURES:
        meant = nearest(str(name), ARCHITECTURES)
        raise UserError(f"no architecture {name!r}", allowed=listed(ARCHITECTURES, 20), meant=meant)
    config, model_type = from_plain(architecture(name).Config, values.get("config", {})), values.get("family")
    if model_type is not None:
        from headway.interop.registry import family

        family(str(model_type))  # an unknown one is refused here, not when it is saved
    if not isinstance(extra, Mapping) or not isinstance(task, str | None):
        said = f"config.json: task is {task!r:.60} and kept {extra!r:.60}"
        raise UserError(said, allowed="the name of a task, and an object")
    check_class_names(extra)
    return Model(model_for(config, tensors), config, name, model_type, extra, task_name=task, dtype=dtype)


def from_hf(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Model:
    """A model from Hugging Face's config.json, or timm's; the tensors' names decide what the config leaves open."""
    from headway.interop.config_reader import collect_notes
    from headway.interop.incomplete_config import completed
    from headway.interop.registry import family, model_type_of

    timm = is_timm(values)
    values, inferred = (values, ()) if timm else completed(values, tensors)
    model_type = model_type_of(values)
    known = family(model_type or "")
    with malformed("config.json"), collect_notes() as ignored:
        config = known.settle(known.read_config(values), tensors)
    check_class_names(values)
    kept = (*CLASS_NAMES, *RATES, PROBLEM, TARGET_MEAN, TARGET_STD)
    extra = {name: value for name, value in values.items() if name in kept or is_setting(name)}
    notes = (*inferred, *ignored)
    loaded = Model(model_for(config, tensors), config, known.architecture, model_type, extra, notes=notes)
    if not timm:
        return loaded
    from headway.data.timm_preprocess import read_timm

    preprocess = read_timm(settings_of(values), (config.channels, config.image, config.image))
    return replace(loaded, extra_config={**extra, **read_names(values, config.classes)}, preprocess=preprocess)


def read_preprocessing(folder: Path, loaded: Model) -> Preprocess | None:
    from headway.data.preprocess import read_preprocess, read_settings

    if loaded.architecture == WHISPER:
        from headway.interop.whisper import check_sound

        check_sound(read_settings(folder) or {}, loaded.config)
    return read_preprocess(folder)
