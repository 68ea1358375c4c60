"""Every architecture on a simulated device: a step of training, its attention maps, and what it writes.

A tensor that is made on the CPU in the middle of a call raises; numbers are those of the CPU.  Whole runs of tasks are
in tests/train/test_devices.py, the ways of decoding in tests/generate/test_devices.py.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from headway.generate.decoding import Job
from headway.generate.request import Stop
from headway.nn.context import EMPTY
from headway.nn.trace import record
from headway.nn.trunk import EncoderDecoder, Forecaster, Trunk
from headway.ops.attention_map import Readable
from headway.tasks.base import task_class
from headway.zoo import clip_image, deepseek, llama, simmim, vit
from headway.zoo.build import ARCHITECTURES, architecture, build
from headway.zoo.cost import call, dummy_inputs, images, reads_pairs
from tests.simulated_device import DeviceTensor, moved, simulated_device

VOCAB = 23
SIZES: dict[str, object] = {
    **{"vocab": VOCAB, "end": VOCAB - 1, "context": 16, "dim": 16, "layers": 1, "heads": 2, "kv_heads": 1},
    **{"head_dim": 8, "hidden": 16, "width": 8, "decoder_layers": 1, "decoder_heads": 2, "decoder_hidden": 16},
    **{"decoder_dim": 16, "image": 16, "patch": 4, "image_dim": 16, "image_layers": 1, "image_heads": 2, "align": 8},
    **{"source_context": 8, "mels": 4, "features": 4, "experts": 4, "kernel": 3, "readout": 8, "buckets": 8},
}
PYRAMID: dict[str, object] = {"dim": 4, "layers": (1, 1), "heads": (1, 2), "patch": 2, "stride": 2, "windows": (2, 2)}
CONVOLUTIONS: dict[str, object] = {"dim": 8, "layers": (1, 1), "widths": (16, 16)}
WAVES: dict[str, object] = {"channels": (4,), "kernels": (3,), "strides": (2,), "groups": 2}
ATTENTIVE: dict[str, object] = {"encoder": "resnet-nano-attention"}
EYE: dict[str, object] = {"encoder": vit.Config(image=16, patch=4, dim=16, layers=1, heads=2, hidden=16, top="none")}
SPECIAL: dict[str, dict[str, object]] = {
    **dict.fromkeys(("swin", "swinv2", "mvit", "mvitv2"), PYRAMID),
    **dict.fromkeys(("wav2vec2", "wav2vec2_conformer"), WAVES),
    **dict.fromkeys(("simclr", "image_text"), ATTENTIVE),
    "convnext": CONVOLUTIONS,
    "dinov3": {"stretch": 1.0},
    **dict.fromkeys(("trocr", "blip"), EYE),
    "llava": {
        "encoder": clip_image.Config(image=16, patch=4, dim=16, layers=2, heads=2, top="vector"),
        "decoder": llama.Config(VOCAB, context=64, dim=16, layers=1, heads=2, hidden=16),
        **{"image_token": 3, "taps": (1,)},
    },
    "resnet": {**CONVOLUTIONS, "attention": (1,)},
    "lrnet": {**CONVOLUTIONS, "hidden": (8, 8), "share": 2, "size": 3},
    "captioner": {"widths": (8, 16)},
    "conformer": {"channels": 4, "top": "decoder"},
    "deberta": {"marked": True, "farthest": 8},
    "deepseek": {
        "layers": 2,
        "dense_layers": 1,
        "latent": deepseek.Latent(latent=6, plain=4, turned=4, value=5, rank=7),
        "mixture": deepseek.Experts(experts=4, top=2, expert_hidden=8, groups=2, kept=1),
    },
    "led": {"window": 3, "source_context": 16},
    "longformer": {"layers": 2, "window": (2, 3), "top": "rows"},
    "modernbert": {"layers": 2, "local_layers": (1,), "window": 4},
    "gpt_oss": {"layers": 2, "local_layers": (1,), "window": 4},
    "olmo": {"clip": 0.5},
    "qwen2_moe": {"layers": 2, "dense_layers": (1,), "expert_hidden": 8, "shared_hidden": 8, "top": 2},
    "simmim": {"encoder": simmim.Vit(16, 3, 4, dim=16, layers=1, heads=2)},
}


def small(name: str) -> Any:
    """A config of an architecture that is small in all that it has, without dropout."""
    usual: Any = architecture(name).Config()
    names = {field.name for field in fields(usual)}
    sizes = {size: value for size, value in (SIZES | SPECIAL.get(name, {})).items() if size in names}
    return replace(usual, **sizes, **{size: 0.0 for size in names if size.endswith("dropout")})


def inputs_of(name: str) -> tuple[Tensor, ...]:
    """Two rows of random numbers, in the shapes that the model is called with."""
    config, draw = small(name), torch.Generator().manual_seed(3)
    with torch.device("meta"):
        model = build(config)
        length = None if images(config, model, 1) and not reads_pairs(model) else 12
        empty = dummy_inputs(config, model, 2, length).tensors
    return tuple(
        torch.randn(x.shape, generator=draw)
        if x.is_floating_point()
        else torch.randint(0, 2 if x.dtype == torch.bool else 8, x.shape, generator=draw).to(x.dtype)
        for x in empty
    )


def model_of(name: str) -> nn.Module:
    torch.manual_seed(1)
    model = build(small(name))
    for parameter in model.parameters():  # what starts at zero would hide what it is added to
        if parameter.dim() and not parameter.any():
            nn.init.normal_(parameter, std=0.3)
    return model


def trained(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The loss and the gradients of a step, and the parameters after it."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, eps=1.0)  # no updates of the noise in zero gradients
    found = [x for x in tree_leaves(call(model.train(), inputs, EMPTY, EMPTY)) if isinstance(x, Tensor)]
    loss = torch.stack([(x / x.detach().abs().max()).square().mean() for x in found if x.is_floating_point()]).sum()
    loss.backward()
    grads = [torch.zeros_like(x) if x.grad is None else x.grad for x in model.parameters()]
    optimiser.step()
    return [loss, *grads, *model.parameters()]


@torch.no_grad()
def recorded(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Every attention map."""
    with record(model, "*") as trace:
        call(model.eval(), inputs, EMPTY, EMPTY)
    shown = [value for name in trace.values for value in trace.values[name]]
    return [value.full() if isinstance(value, Readable) else value for value in shown]


@torch.no_grad()
def written(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Any]:
    """What the model goes on with, token by token, or row by row."""
    model.eval()
    if isinstance(model, Forecaster):
        return [model.ahead(inputs[0], 3)]
    memory = model.remember(inputs[0]) if isinstance(model, EncoderDecoder) else EMPTY
    decoder = model.decoder if isinstance(model, EncoderDecoder) else model
    assert isinstance(decoder, Trunk)
    rows = Job(decoder, [[1, 2, 3], [4]], Stop(5), memory=memory).generate()
    return [part for [one] in rows for part in (one.tokens, one.logprobs)]


def assert_same(name: str, answer: Any) -> None:
    model, inputs = model_of(name), inputs_of(name)
    expected = answer(deepcopy(model), inputs)
    with simulated_device() as device:
        found = answer(moved(model), tuple(x.to(device) for x in inputs))
    assert_close([x.inner if isinstance(x, DeviceTensor) else x for x in found], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_step_is_the_same(name: str) -> None:
    assert_same(name, trained)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_recording_is_the_same(name: str) -> None:
    assert_same(name, recorded)


WRITING = ("causal-lm", "seq2seq", "captioning", "speech-seq2seq")  # tasks
WRITERS = sorted({"forecaster", "whisper", *(name for task in WRITING for name in task_class(task).architectures)})


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_is_the_same(name: str) -> None:
    assert_same(name, written)


def test_a_weight_that_stays_on_the_cpu_is_found() -> None:
    model, inputs = model_of("llama"), inputs_of("llama")
    with simulated_device() as device:
        layer = next(part for part in moved(model).modules() if isinstance(part, nn.Linear))
        layer.weight = nn.Parameter(torch.ones(layer.weight.shape))
        with pytest.raises(RuntimeError, match="tensors of both devices"):
            recorded(model, (inputs[0].to(device),))
