"""Random weights in Hugging Face's layout, by headway's own export, and random inputs: the same for every contender."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from headway.system import write_json

WIDER = 2.0  # so that blocks outweigh the table of words, and a decoder does not repeat its last token


def write_model(folder: Path, config: Any, change: Callable[[Any], None] | None = None, **extra: Any) -> None:
    """A model of a config with random weights, which `change` may set; `extra` goes to its config.json."""
    import torch
    from torch import nn

    from headway.model import Model
    from headway.zoo.build import architecture_of, build

    torch.manual_seed(0)
    module = build(config).eval()
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.Linear):
                part.weight.mul_(WIDER)
    if change is not None:
        change(module)
    Model(module, config, architecture_of(config), extra_config=extra).save_hf(folder)


def write_words(folder: Path, vocab: int, roles: Mapping[str, int], names: Mapping[int, str] = {}) -> None:
    """A tokenizer whose words are w0, w1 … by their ids, but for `names`; `roles` are called as in transformers."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = {**{id: f"<{role}>" for role, id in roles.items()}, **names}
    words = {names.get(id, f"w{id}"): id for id in range(vocab)}
    backend = Tokenizer(models.WordLevel(words, unk_token=names[roles["unk_token"]]))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.save(str(folder / "tokenizer.json"))
    spelled = {role: names[id] for role, id in roles.items()}
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **spelled})


def random_rows(count: int, lengths: tuple[int, int], ids: tuple[int, int]) -> list[list[int]]:
    """Rows of random ids; lengths and ids are from the first number to below the second, but for equal lengths."""
    random = Random(0)
    return [[random.randrange(*ids) for _ in range(random.randint(*lengths))] for _ in range(count)]
