"""What models cost: published counts of parameters, FLOPs against torch's own counter, bytes by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from headway.errors import UserError
from headway.nn.ffn import FFN, GatedFFN
from headway.nn.trunk import EncoderDecoder
from headway.ops.pattern import Causal, Chunked, Full, Global, Pattern, Positions, Window
from headway.zoo import bert, gpt2, llama, mixtral, rnn, seq2seq, t5, transformer, vit
from headway.zoo.build import build, config_of, on_meta
from headway.zoo.cost import cost, visible
from headway.zoo.presets import PRESETS

pytestmark = pytest.mark.slow

PUBLISHED = {
    "transformer-base": 101_009_544,
    "transformer-big": 214_249_472,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "roberta-base": 124_645_632,
    "roberta-large": 355_359_744,
    "albert-base": 11_683_584,
    "albert-xxlarge": 222_595_584,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt3": 174_604_259_328,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "t5-v1.1-small": 76_961_152,
    "t5-v1.1-base": 247_577_856,
    "t5-v1.1-large": 783_150_080,
    "t5-v1.1-xl": 2_849_757_184,
    "t5-v1.1-xxl": 11_135_332_352,
    "vit-ti16": 5_717_416,
    "vit-s16": 22_050_664,
    "vit-b16": 86_567_656,
    "vit-l16": 304_326_632,
    "vit-h14": 632_045_800,
    "mae-b16": 111_907_840,
    "bart-base": 139_420_416 + 50_265,  # and a bias for each word, which others do not count
    "bart-large": 406_291_456 + 50_265,
    "seq2seq-lstm": 384_000_000 + 8 * 8000 + 80_000,  # the paper's, and the biases of torch's layers and of the words
}
ROUNDED = {  # as the paper of GPT-3 has them
    "gpt3-small": 125e6,
    "gpt3-medium": 350e6,
    "gpt3-large": 760e6,
    "gpt3-xl": 1.3e9,
    "gpt3-2.7b": 2.7e9,
    "gpt3-6.7b": 6.7e9,
    "gpt3-13b": 13e9,
    "gpt3": 175e9,
}


def parameters(name: str) -> int:
    return sum(parameter.numel() for parameter in on_meta(name).parameters())


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_published(name: str) -> None:
    assert parameters(name) == PUBLISHED[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_gpt3_has_its_papers_sizes(name: str) -> None:
    assert parameters(name) == pytest.approx(ROUNDED[name], rel=0.025)


@pytest.mark.parametrize("name", ["gpt2", "bert-small", "t5-small", "albert-base", "rnnsearch-50"])
def test_the_layers_have_all_parameters(name: str) -> None:
    costs = cost(name, length=8)
    assert costs.total.parameters == costs.plain()["parameters"] == parameters(name)


class MetaOnly(TorchDispatchMode):
    """Fails at the first operation whose result has data: a tensor on any device but meta."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor)]
        assert all(tensor.is_meta for tensor in tensors), f"{func} computes on {tensors[0].device}"
        return found


def test_175_billion_parameters_are_counted_on_the_meta_device() -> None:
    """Nothing is computed or allocated, so the cost of the largest model takes neither time nor memory."""
    with MetaOnly():
        assert cost("gpt3").total.parameters == 174_604_259_328
    with pytest.raises(AssertionError, match="computes on cpu"), MetaOnly():
        build("gpt-nano")


# ---- FLOPs

T = 12
SMALL = {"dim": 16, "layers": 2, "heads": 4}


def counted(config: object) -> int:
    """What torch counts, where nothing is hidden from a query or it computes what is."""
    model = on_meta(config).eval()
    tokens = torch.zeros(3, T, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as mode, torch.no_grad():
        model(tokens, tokens) if isinstance(model, EncoderDecoder) else model(tokens)
    return mode.get_total_flops()


SEEING_ALL = {
    "bert": bert.Config(vocab=50, **SMALL),
    "bert pooled": bert.Config(vocab=50, **SMALL, top="rows"),
    "t5 encoder": t5.Config(vocab=50, **SMALL, hidden=32, decoder_layers=0),
    "rnn": rnn.Config(vocab=50, dim=8, hidden=10, score="dot", readout=6),
    "lstm": rnn.Config(vocab=50, dim=8, hidden=10, score="bilinear", readout=6, directions=1, layers=2, cell="lstm"),
    "fixed": rnn.Config(vocab=50, dim=8, hidden=10, score="fixed", readout=6, cell="rnn"),
    "seq2seq": seq2seq.Config(vocab=50, target_vocab=30, dim=8, hidden=10, layers=2),
}


@pytest.mark.parametrize("name", SEEING_ALL)
def test_flops_are_those_that_torch_counts(name: str) -> None:
    assert cost(SEEING_ALL[name], batch=3, length=T).total.flops == counted(SEEING_ALL[name])


LOOKING_BACK = {
    "gpt2": gpt2.Config(vocab=50, context=T, **SMALL),
    "llama": llama.Config(vocab=50, **SMALL, kv_heads=2),
    "transformer": transformer.Config(vocab=50, **SMALL),
    "t5": t5.Config(vocab=50, **SMALL, hidden=32),
}


@pytest.mark.parametrize("name", LOOKING_BACK)
def test_what_is_hidden_from_a_query_is_not_counted(name: str) -> None:
    config = LOOKING_BACK[name]
    width = 4 * 64 if isinstance(config, t5.Config) else 16
    hidden = 3 * 2 * (T * T - T * (T + 1) // 2)  # pairs, in a batch of 3 and 2 layers
    assert cost(config, batch=3, length=T).total.flops == counted(config) - 2 * 2 * width * hidden


def test_a_window_bounds_what_a_token_costs() -> None:
    sizes = {"vocab": 50, **SMALL, "hidden": 32}
    without = cost(llama.Config(**sizes), length=1).total.flops
    layers, width, window = 2, 16, 8
    for length in (100, 1000):
        costs = cost(llama.Config(**sizes, window=window), length=length)
        pairs = window * length - window * (window - 1) // 2
        others = (without - layers * 2 * 2 * width) * length
        assert costs.total.flops == others + layers * 2 * 2 * width * pairs


def test_a_token_pays_for_the_experts_that_it_takes() -> None:
    sizes = {"vocab": 50, **SMALL, "kv_heads": 4, "hidden": 32}
    two, three = (cost(mixtral.Config(**sizes, experts=8, top=top), length=T) for top in (2, 3))
    assert two.total.parameters == three.total.parameters
    assert three.total.flops - two.total.flops == T * 2 * (2 * 3 * 16 * 32)  # layers · a gated expert


def test_the_additive_score_costs_its_width_for_each_pair() -> None:
    narrow, wide = (
        cost(rnn.Config(vocab=50, dim=8, hidden=10, readout=6, align=align), length=T).total.flops for align in (4, 5)
    )
    assert wide - narrow == 2 * (T * T + T * 10 + T * 20)  # pairs, queries, keys


def test_shared_layers_cost_each_turn() -> None:
    once, often = cost(config_of("albert-base", layers=1)), cost("albert-base")
    assert often.layers["0"].flops == 12 * once.layers["0"].flops
    assert often.layers["0"].attention == 12 * once.layers["0"].attention
    assert often.total.parameters == once.total.parameters


@pytest.mark.parametrize(
    "pattern", [Full(), Causal(), Causal(window=3), Window(2), Chunked(4), Causal() & Chunked(5), Window(1) | Global(2)]
)
def test_pairs_are_those_of_the_mask(pattern: Pattern) -> None:
    at = Positions.run(0, 13, torch.device("cpu")).at
    keep = pattern.keep(at, at)
    assert visible(pattern, 13, 13) == (13 * 13 if keep is None else int(keep.sum()))


# ---- bytes


def test_bytes_by_hand() -> None:
    costs = cost(gpt2.Config(vocab=50, context=T, **SMALL), batch=3, length=T)
    numbers = costs.total.parameters
    assert costs.bytes_by_kind() == {
        "weights": 4 * numbers,
        "gradients": 4 * numbers,
        "optimizer": 8 * numbers,
        "kv_cache": 4 * 3 * 2 * 2 * T * 16,  # batch, layers, keys and values, tokens, width
        "attention": 4 * 3 * 2 * 4 * T * T,  # batch, layers, heads, queries, keys
    }


def test_attention_of_a_hundred_thousand_tokens() -> None:
    """64 heads in 16 bits: 1.28e12 bytes, the lecture's 1.192 TB."""
    config = llama.Config(vocab=50, dim=128, heads=64, layers=1)
    stored = cost(config, length=100_000, bits=16).bytes_by_kind()["attention"]
    assert stored == 1_280_000_000_000
    assert round(stored / 2**30, 2) == 1192.09


def test_shared_keys_shrink_the_cache() -> None:
    sizes = {"vocab": 50, "dim": 32, "heads": 8, "layers": 2}
    full, grouped = (cost(llama.Config(**sizes, kv_heads=groups), length=T).total.cache for groups in (8, 2))
    assert full == 4 * grouped


def test_an_encoder_has_no_cache_and_a_decoder_also_keeps_its_memory() -> None:
    assert cost("bert-tiny", length=T).total.cache == 0
    costs = cost(transformer.Config(vocab=50, **SMALL), length=T)
    assert costs.layers["encoder.0"].cache == 0
    assert costs.layers["decoder.0"].cache == 2 * 2 * T * 16  # keys and values, of itself and of the memory


def test_swiglu_is_as_large_as_the_plain_layer() -> None:
    dim = 96

    def weights(module: nn.Module) -> int:
        return sum(p.numel() for p in module.parameters())

    assert weights(GatedFFN(dim, 8 * dim // 3, bias=False)) == 8 * dim**2 == weights(FFN(dim, 4 * dim, bias=False))


# ---- mistakes


def test_a_transformer_on_pixels_would_store_768_gib() -> None:
    """128² tokens, 48 layers, 16 heads, in 32 bits: and a ViT on a grid of 14 × 14 patches some 113 MiB."""
    assert cost("pixels-128").bytes_by_kind()["attention"] == 768 * 2**30
    patches = vit.Config(dim=1024, layers=48, heads=16, pool="mean")
    assert cost(patches).bytes_by_kind()["attention"] == 48 * 16 * 196**2 * 4 == round(112.546875 * 2**20)


def test_images_are_counted_one_by_one() -> None:
    once, often = cost("vit-nano"), cost("vit-nano", batch=3)
    assert (once.unit, once.length) == ("image", 1)
    assert once.per_token(once.total.flops) == often.per_token(often.total.flops)
    with pytest.raises(UserError, match="a length of 7 for a model that reads images"):
        cost("vit-nano", length=7)


def test_an_encoder_of_visible_patches_costs_what_these_do() -> None:
    """A quarter of 196 patches and the class token, against all of them."""
    encoder = sum(tally.flops for name, tally in cost("mae-b16").layers.items() if name.startswith("encoder.1"))
    whole = sum(tally.flops for name, tally in cost("vit-b16").layers.items() if name.startswith("1"))
    assert encoder / whole == pytest.approx(50 / 197, rel=0.05)


def test_impossible_batches_are_told() -> None:
    with pytest.raises(UserError, match="a batch of 0 rows of 1024 tokens"):
        cost("gpt2", batch=0)
    with pytest.raises(UserError, match="numbers of 7 bits; allowed: 8, 16, 32 or 64"):
        cost("gpt2", bits=7)
    with pytest.raises(UserError, match="position 1999 lies beyond the 1024 positions"):
        cost("gpt2", length=2000)


FIRST = {preset.architecture: name for name, preset in reversed(PRESETS.items())}.values()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.proof) for name in PRESETS]
)
def test_every_preset_has_its_cost(name: str) -> None:
    seen_or_heard = any(hasattr(config_of(name), field) for field in ("image", "encoder", "features", "strides"))
    costs = cost(name, length=None if seen_or_heard else 64)
    assert costs.per_token(costs.total.flops) > 0
