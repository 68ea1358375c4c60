"""Real trained weights: a Llama tells its story, and a GPT that sorts agrees with its stored intermediate tensors."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from headway import Context, FixedState, Trace
from headway.interop import gpt2 as gpt2_names
from headway.interop import llama as llama_names
from headway.interop.keymap import KeyMap, Transpose
from headway.ops.attention_map import Readable
from headway.zoo import gpt2, llama
from tests.interop.parity import load, tensor

BOS = 1
STORY = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."


@pytest.mark.slow
def test_a_llama_tells_its_story(shared: Path) -> None:
    folder = shared / "weights" / "llama_stories260k"
    config = llama_names.read_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    model = llama.build(config).eval()
    load(model, llama_names.keymap(config).load(load_file(folder / "model.safetensors")))
    pieces = llama2c_pieces((folder / "tok512.bin").read_bytes())
    assert len(pieces) == config.vocab
    told = b"".join(pieces[token] for token in greedy(model, 50)).decode("utf-8")
    assert told.lstrip().startswith(STORY)


@torch.inference_mode()
def greedy(model: nn.Module, steps: int) -> Iterator[int]:
    """The likeliest token after all before, from the beginning of a text."""
    ctx, token = Context(state=FixedState(steps)), BOS
    for _ in range(steps):
        token = int(model(torch.tensor([[token]]), ctx)[0, -1].argmax())
        yield token


def llama2c_pieces(data: bytes) -> list[bytes]:
    """The tokens of a llama2.c tokenizer: after the longest length, a score, a length and the bytes of each."""
    pieces, at = [], 4
    while at < len(data):
        _, length = struct.unpack_from("<fi", data, at)
        pieces.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    return pieces


# ---- the GPT that sorts


@pytest.fixture(scope="module")
def sorter(shared: Path) -> nn.Module:
    stored = json.loads((shared / "weights" / "gpt_nano_sort" / "gpt-nano-sort-model.json").read_text(encoding="utf-8"))
    sizes = {
        name: stored["config"][f"n_{there}"]
        for name, there in (("dim", "embd"), ("layers", "layer"), ("heads", "head"))
    }
    config = gpt2.Config(vocab=3, context=stored["config"]["block_size"], tied=False, **sizes)
    model = gpt2.build(config).eval()
    load(model, plain_linears(gpt2_names.keymap(config)).load(tensors(stored)))
    return model


@pytest.fixture(scope="module")
def partials(shared: Path) -> dict[str, Tensor]:
    path = shared / "weights" / "gpt_nano_sort" / "gpt-nano-sort-t0-partials.json"
    return tensors(json.loads(path.read_text(encoding="utf-8")))


@torch.inference_mode()
def test_stored_intermediates_are_met(sorter: nn.Module, partials: dict[str, Tensor]) -> None:
    trace = Trace(sorter, "*")
    logits = sorter(partials["idx"].long(), Context(trace=trace))
    weights = trace["0.attn.weights"]
    assert isinstance(weights, Readable)
    found = {
        "x": tensor(trace["embed.out"]),
        "v": tensor(trace["0.attn.values"]),
        "attSm": weights.full(),
        "y": tensor(trace["0.attn.heads"]).transpose(1, 2).flatten(2),
        **{f"block{i}": tensor(trace[f"{i}.out"]) for i in range(3)},
        "lm_head": logits,
        "probs": logits.softmax(-1),
    }
    off = {name: float((value - partials[name]).abs().max()) for name, value in found.items()}
    assert {name: value for name, value in off.items() if not value <= 2e-6} == {}


@torch.inference_mode()
def test_it_sorts(sorter: nn.Module) -> None:
    letters = torch.randint(0, 3, (64, 6), generator=torch.Generator().manual_seed(0))
    ctx = Context(state=FixedState(11))
    token = sorter(letters, ctx)[:, -1:].argmax(-1)
    answer = [token]
    for _ in range(5):
        token = sorter(token, ctx).argmax(-1)
        answer.append(token)
    right = (torch.cat(answer, 1) == letters.sort(-1).values).all(-1)
    assert right.float().mean() > 0.95


def plain_linears(names: KeyMap) -> KeyMap:
    """GPT-2's names for files that store linear layers as they are."""
    rules = (
        replace(rule, changes=tuple(change for change in rule.changes if not isinstance(change, Transpose)))
        for rule in names.rules
    )
    return replace(names, rules=tuple(rules))


def tensors(stored: Mapping[str, Any]) -> dict[str, Tensor]:
    """JSON tensors: {shape, dtype, data}, the data little-endian float32 in base64."""

    def read(told: Mapping[str, Any]) -> Tensor:
        assert told["dtype"] == "torch.float32"
        values = np.frombuffer(base64.b64decode(told["data"]), dtype="<f4")
        return torch.from_numpy(values.copy()).view(told["shape"])

    return {name: read(told) for name, told in stored.items() if name != "config"}
