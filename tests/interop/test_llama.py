"""Configs of Llama and its like: published spellings, what is refused, and files that go back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from headway.errors import UserError
from headway.interop import llama, mistral, mixtral, phi3, qwen2
from headway.interop.registry import family
from headway.ops.rotary import UNSCALED, DynamicNtk, Linear, Llama3, LongRope, Ntk, Scaling, Yarn
from headway.zoo.llama import Config, Frequencies
from headway.zoo.llama import build as build_llama
from tests.interop import cases_llama
from tests.interop.parity import load, shaken

LLAMA_3 = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 128256,
}


def test_a_published_config_is_read() -> None:
    assert llama.read_config(LLAMA_3) == Config(
        vocab=128_256,
        context=131_072,
        kv_heads=8,
        hidden=14_336,
        eps=1e-5,
        rotary=Frequencies(500_000.0, Llama3(8.0, 1.0, 4.0, 8192)),
    )


def test_what_is_absent_is_what_the_other_library_takes() -> None:
    from transformers import LlamaConfig, MistralConfig, MixtralConfig, Phi3Config, Qwen2Config

    for known, theirs in (
        (llama, LlamaConfig),
        (mistral, MistralConfig),
        (mixtral, MixtralConfig),
        (qwen2, Qwen2Config),
        (phi3, Phi3Config),
    ):
        named = known.read_config(theirs().to_dict())
        assert known.write_config(known.read_config({})) == known.write_config(named)


def test_null_is_not_absent() -> None:
    assert mistral.read_config({}).window == 4096
    assert mistral.read_config({"sliding_window": None}).window is None
    assert (mistral.read_config({}).kv_heads, mistral.read_config({"num_key_value_heads": None}).kv_heads) == (8, 32)


FACTORS = {"short_factor": [1, 2.0], "long_factor": [3.0, 4.0]}
YARN = {"factor": 4.0, "original_max_position_embeddings": 512}
SPELLINGS: list[tuple[dict[str, Any], Frequencies]] = [
    ({}, Frequencies(10_000.0)),
    ({"rope_theta": 500.0, "rope_scaling": None}, Frequencies(500.0)),
    ({"rope_scaling": {"type": "linear", "factor": 2.0}}, Frequencies(10_000.0, Linear(2.0))),
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, Frequencies(10_000.0, DynamicNtk(2.0, 2048))),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, Frequencies(7.0)),
    ({"rope_parameters": {"rope_type": "linear", "factor": 3, "rope_theta": 7}}, Frequencies(7.0, Linear(3))),
    ({"rope_scaling": {"rope_type": "yarn", **YARN}}, Frequencies(scaling=Yarn(4.0, 512))),
    ({"rope_scaling": {"rope_type": "yarn", **YARN, "mscale": 0.5}}, Frequencies(scaling=Yarn(4.0, 512))),
    (
        {"rope_scaling": {"rope_type": "yarn", **YARN, "mscale": 0.5, "mscale_all_dim": 0.7, "beta_fast": 16}},
        Frequencies(scaling=Yarn(4.0, 512, beta_fast=16, mscale=0.5, mscale_all=0.7)),
    ),
    (
        {"rope_scaling": {"type": "yarn", "factor": None, **{"original_max_position_embeddings": 512}}},
        Frequencies(scaling=Yarn(4.0, 512)),
    ),
    ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, Frequencies(scaling=Yarn(2.0, 2048))),
    (
        {"rope_scaling": {"type": "yarn", **YARN, "truncate": False}},
        Frequencies(scaling=Yarn(4.0, 512, whole=False)),
    ),
    (
        {"rope_scaling": {"type": "longrope", **FACTORS, "original_max_position_embeddings": 512}},
        Frequencies(scaling=LongRope(4.0, (1.0, 2.0), (3.0, 4.0), 512)),
    ),
    (
        {"rope_scaling": {"type": "longrope", **FACTORS, "factor": 2.0}, "original_max_position_embeddings": 512},
        Frequencies(scaling=LongRope(2.0, (1.0, 2.0), (3.0, 4.0), 512)),
    ),
]


@pytest.mark.parametrize(("values", "expected"), SPELLINGS)
def test_every_spelling_of_frequencies_is_read(values: dict[str, Any], expected: Frequencies) -> None:
    assert llama.read_config(values).rotary == expected


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}},
            "config.json of a llama model has no 'short_factor'",
        ),
        (
            {"rope_scaling": {"type": "longrope", **FACTORS, "long_factor": 3}},
            "long_factor=3 in config.json; allowed: a",
        ),
        ({"rope_scaling": {"rope_type": "proportional"}}, "rope_type='proportional' is not supported for llama"),
        ({"rope_scaling": {"type": "su"}}, "rope_type='su' is not supported for llama models; allowed: 'default', 'l"),
        ({"rope_scaling": {"type": "linear"}}, "config.json of a llama model has no 'factor'"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "would shorten the context"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "flux": 1}}, "not known here: flux=1"),
        ({"rope_scaling": [2.0]}, "rope_scaling=[2.0] in config.json; allowed: null, or its type and numbers"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "not known here: full_attention="),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5 is not supported"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5 is not supported"),
        ({"hidden_act": "mish"}, "hidden_act='mish' is not supported"),
        ({"sliding_window": 128}, "not known here: sliding_window=128"),
        ({"layer_types": ["full_attention"]}, "not known here: layer_types="),
        ({"quantization_config": {"bits": 4}}, "not known here: quantization_config="),
    ],
)
def test_what_is_not_computed_is_refused_by_name(values: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as caught:
        llama.read_config(values)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "scaling",
    [
        UNSCALED,
        Linear(2.0),
        DynamicNtk(3.0, 2048),
        Llama3(8.0, 1.0, 4.0, 512),
        Yarn(2.0, 512),
        Yarn(2.0, 512, attention=2.0),
        Yarn(2.0, 512, attention=2.0, whole=False),
        Yarn(2.0, 512, whole=False),
        LongRope(2.0, (1.0, 2.0), (3.0, 4.0), 512),
        LongRope(2.0, (1.0, 2.0), (3.0, 4.0), 512, attention=1.3),
    ],
)
def test_a_config_comes_back(scaling: Scaling) -> None:
    config = Config(
        head_dim=128,
        kv_heads=4,
        hidden=99,
        rotary=Frequencies(5.0, scaling),
        biases="attention",
        tied=True,
        attention_dropout=0.2,
    )
    assert llama.read_config(json.loads(json.dumps(llama.write_config(config)))) == config


def test_a_window_makes_it_a_mistral() -> None:
    config = Config(window=7, head_dim=128, kv_heads=4, hidden=99)
    assert llama.write_config(config)["model_type"] == "mistral"
    assert mistral.read_config(llama.write_config(config)) == config


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (Config(window=7, biases="ffn"), "a Mistral has no bias vectors and a Llama no window"),
        (Config(rotary=Frequencies(part=0.5)), "only a Phi-3 turns a part of each head there, and this model 0.5"),
        (Config(rotary=Frequencies(scaling=Ntk(2.0))), "Ntk(factor=2.0) with context=2048 cannot be told"),
        (Config(rotary=Frequencies(scaling=DynamicNtk(2.0, 7))), "with context=2048 cannot be told"),
    ],
)
def test_what_cannot_be_told_there_is_not_written(config: Config, told: str) -> None:
    with pytest.raises(UserError) as caught:
        llama.write_config(config)
    assert told in str(caught.value)


def test_biases_of_queries_keys_and_values_make_it_a_qwen2() -> None:
    for window in (None, 7):
        config = Config(biases="qkv", window=window, head_dim=128, kv_heads=4, hidden=99)
        written = llama.write_config(config)
        assert written["model_type"] == "qwen2"
        assert qwen2.read_config(written) == config
    with pytest.raises(UserError, match="write it as a llama model"):
        qwen2.write_config(Config())


# as published: a window that is not used, or not in every layer
WINDOWS: list[tuple[dict[str, Any], int | None]] = [
    ({"use_sliding_window": False, "sliding_window": 131_072, "max_window_layers": 28}, None),
    ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 32}, None),
    ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}, 64),
    ({"layer_types": ["full_attention"] * 32}, None),
]


@pytest.mark.parametrize(("values", "window"), WINDOWS)
def test_a_window_is_of_every_layer_or_none(values: dict[str, Any], window: int | None) -> None:
    assert qwen2.read_config(values).window == window


@pytest.mark.parametrize(
    ("known", "values", "told"),
    [
        (qwen2, {"layer_types": ["chunked"] * 32}, "layer_types=['chunked'"),
        (qwen2, {"layer_types": ["full_attention"]}, "allowed: 32 of sliding_attention and full_attention"),
        (qwen2, {"quantization_config": {"bits": 4}}, "not known here: quantization_config="),
        (phi3, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "Linear scaling is not supported for phi3 models"),
        (phi3, {"full_attn_mod": 2}, "full_attn_mod=2 is not supported for phi3"),
        (mistral, {"layer_types": ["full_attention"]}, "not known here: layer_types="),
        (mixtral, {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5 is not supported for mixtral"),
    ],
)
def test_what_its_like_do_not_compute_is_refused_by_name(known: Any, values: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as caught:
        known.read_config(values)
    assert told in str(caught.value)


def test_phi3_turns_a_part_of_each_head_and_has_an_old_name_of_its_scaling() -> None:
    long = LongRope(32.0, (1.0, 2.0), (3.0, 4.0), 4096)
    frequencies = Frequencies(10_000.0, long, part=0.75)
    for kind in ("su", "yarn", "longrope"):
        values = {"max_position_embeddings": 131_072, "rope_scaling": {"type": kind, **FACTORS}}
        assert phi3.read_config({**values, "partial_rotary_factor": 0.75}).rotary == frequencies
    config = Config(context=131_072, head_dim=128, kv_heads=4, hidden=99, rotary=frequencies, window=9)
    assert phi3.read_config(json.loads(json.dumps(phi3.write_config(config)))) == config


def test_a_tensor_of_several_layers_has_their_rows() -> None:
    config = Config(vocab=9, dim=16, layers=2, heads=4, kv_heads=2, hidden=8)
    stored = phi3.keymap(config).save(dict(build_llama(config).named_parameters()))
    assert stored["model.layers.0.self_attn.qkv_proj.weight"].shape == (32, 16)
    with pytest.raises(UserError, match=r"has 32 rows; allowed: 16 \+ 16 \+ 16, as the config says"):
        phi3.keymap(Config(vocab=9, dim=16, layers=2, heads=4, kv_heads=4, hidden=8)).load(stored)


def test_sharpening_is_written_as_its_amplitude() -> None:
    scaling = Yarn(4.0, 512, mscale=0.5)  # alone, there, it would not be used
    again = llama.read_config(llama.write_config(Config(rotary=Frequencies(scaling=scaling)))).rotary.scaling
    assert again.amplitude() == scaling.amplitude()


# ---- files


MAKERS = {
    "llama": lambda: cases_llama.llama(attention_bias=True, **cases_llama.rope("yarn", **cases_llama.YARN)),
    "tied": lambda: cases_llama.llama(tie_word_embeddings=True),
    "mistral": lambda: cases_llama.mistral(sliding_window=3),
    "mixtral": cases_llama.mixtral,
    "qwen2": cases_llama.qwen2,
    "phi3": lambda: cases_llama.phi3(**cases_llama.HALF),
}


@pytest.mark.parametrize("name", MAKERS)
def test_files_go_there_and_back(name: str, tmp_path: Path) -> None:
    """What `save_pretrained` writes is read; what we write, `from_pretrained` loads, and computes the same."""
    from transformers import AutoModelForCausalLM

    theirs = shaken(MAKERS[name]()).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    values = json.loads((tmp_path / "theirs" / "config.json").read_text(encoding="utf-8"))
    known, stored = family(values["model_type"]), load_file(tmp_path / "theirs" / "model.safetensors")
    config = known.read_config(values)
    ours, names = known.build(config).eval(), known.keymap(config)
    load(ours, names.load(stored))

    written = names.save(dict(ours.named_parameters()))
    assert set(written) == set(stored)
    assert_close(written, stored, atol=0, rtol=0)
    (tmp_path / "ours").mkdir()
    save_file(
        {key: x.detach() for key, x in written.items()}, tmp_path / "ours" / "model.safetensors", {"format": "pt"}
    )
    (tmp_path / "ours" / "config.json").write_text(json.dumps(known.write_config(config)), encoding="utf-8")
    again, report = AutoModelForCausalLM.from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values())
    ids = torch.arange(12)[None] + 7
    with torch.inference_mode():
        assert_close(ours(ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)
        assert_close(again.eval()(ids).logits, theirs(ids).logits, atol=0, rtol=0)


def test_experts_may_be_stored_as_one(tmp_path: Path) -> None:
    theirs = shaken(cases_llama.mixtral())
    theirs.save_pretrained(tmp_path, save_original_format=False)
    stored = load_file(tmp_path / "model.safetensors")
    assert stored["model.layers.0.mlp.experts.gate_up_proj"].shape == (4, 80, 32)
    config = mixtral.read_config(json.loads((tmp_path / "config.json").read_text(encoding="utf-8")))
    ours = mixtral.keymap(config).load(stored)
    assert_close(
        ours["stack.blocks.1.ffn.body.experts.2.up.weight"], stored["model.layers.1.mlp.experts.gate_up_proj"][2, 40:]
    )
    with pytest.raises(UserError, match="a tensor holds 4 others; allowed: 3, as the config says"):
        mixtral.keymap(mixtral.Config(experts=3)).load(stored)


def test_stored_frequencies_are_let_be() -> None:
    config = Config(vocab=9, dim=16, layers=2, heads=2, hidden=8)
    names = llama.keymap(config)
    stored = names.save(dict(build_llama(config).named_parameters()))
    old = stored | {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(4) for i in range(2)}
    assert set(names.load(old)) == set(names.load(stored))
