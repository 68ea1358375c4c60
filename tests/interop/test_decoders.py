"""Decoders of many families: published configs, files both ways, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from headway.errors import UserError
from headway.interop.config_reader import collect_notes
from headway.interop.registry import family
from headway.nn.trunk import tensors_of
from headway.zoo import bloom, deepseek, gemma, gpt2, gpt_neox, llama, olmo2
from tests.interop import cases_decoders, cases_more
from tests.interop.parity import load, shaken
from tests.interop.published_configs import COMMON, CONFIGS


def test_what_no_class_knows_is_noted() -> None:
    values = COMMON | CONFIGS["Qwen3-0.6B"] | {"condition_on_chain": True}
    with collect_notes() as notes:
        family("qwen3").read_config(values)
    assert notes == ["config.json sets what qwen3 models do not know in transformers either: condition_on_chain=True"]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("falcon", {"alibi": True}, "alibi=True is not supported for falcon"),
    ("falcon", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn=2"),
    ("falcon", {"new_decoder_architecture": True, "parallel_attn": False}, "parallel_attn=False"),
    ("mpt", {"attn_config": {"qk_ln": True}}, "qk_ln=True is not supported for mpt"),
    ("olmo", {"clip_qkv": -8.0}, "clip_qkv=-8.0 in a config"),
    ("opt", {"_remove_final_layer_norm": True}, "_remove_final_layer_norm=True is not supported for opt"),
    ("opt", {"enable_bias": False}, "enable_bias=False is not supported for opt"),
    ("stablelm", {"qk_layernorm": True}, "qk_layernorm=True is not supported for stablelm"),
    ("bloom", {"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post_layernorm=True"),
    ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
    ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0 is not supported"),
    ("gemma3_text", {"vision_config": {"layers": 2}}, "not known here: vision_config"),
    ("gptj", {"rotary_dim": 63}, "rotary_dim=63"),
    ("gpt_neo", {"attention_types": [["global"], 3]}, "attention_types="),
    ("smollm3", {"no_rope_layers": [1, 2]}, "no_rope_layers="),
    ("gpt_oss", {"quantization_config": {"quant_method": "mxfp4"}}, "weights quantised by 'mxfp4' are not read"),
    ("gpt_oss", {"attention_bias": False}, "attention_bias=False is not supported for gpt_oss"),
    ("deepseek_v3", {"quantization_config": {"quant_method": "fp8"}}, "weights quantised by 'fp8' are not read"),
    ("deepseek_v3", {"norm_topk_prob": False}, "norm_topk_prob=False is not supported for deepseek_v3"),
    ("deepseek_v3", {"rope_scaling": {"type": "yarn", "factor": 4.0, "mscale_all_dim": 1.0}}, "one of mscale and"),
    ("led", {"architectures": ["LEDForQuestionAnswering"]}, "'LEDForQuestionAnswering' is not supported for led"),
    ("led", {"attention_window": 3}, "attention_window=3 in config.json"),
    ("led", {"tie_word_embeddings": False}, "tie_word_embeddings=False is not supported for led"),
    ("qwen2_moe", {"qkv_bias": False}, "qkv_bias=False is not supported for qwen2_moe"),
    ("qwen2_moe", {"mlp_only_layers": [24]}, "mlp_only_layers=[24] in config.json; allowed: 0 to 23"),
    ("qwen2_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step=0"),
    ("qwen2_moe", {"architectures": ["Qwen2MoeForSequenceClassification"]}, "'Qwen2MoeForSequenceClassification'"),
    ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method='noaux_tc' is not supported for deepseek_v2"),
]


@pytest.mark.parametrize(("model_type", "values", "told"), REFUSED)
def test_what_is_not_computed_is_refused_by_name(model_type: str, values: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as caught:
        family(model_type).read_config(values)
    assert told in str(caught.value)


UNTOLD: list[tuple[str, object, str]] = [
    ("llama", llama.Config(qk_norm="heads"), "write it as a qwen3 model"),
    ("qwen3", llama.Config(), "write it as a llama model"),
    ("granite", llama.Config(unplaced_layers=(1,)), "write it as a smollm3 model"),
    ("smollm3", llama.Config(multipliers=llama.Multipliers(2.0)), "write it as a granite model"),
    ("gemma", gemma.Config(), "write it as a gemma2 model"),
    ("gemma2", gemma.Config(norms="pre"), "write it as a gemma model"),
    ("gemma3_text", gemma.Config(), "write it as a gemma2 model"),
    ("olmo2", olmo2.Config(window=4), "write it as a olmo3 model"),
    ("gpt2", gpt2.Config(score=1.0), "write it as a gpt_neo model"),
    ("opt", gpt2.Config(), "write it as a gpt2 model"),
    ("gpt_neo", gpt2.Config(), "write it as a gpt2 model"),
    ("gpt2", gpt2.Config(order="post"), "write it as a opt model"),
    ("gpt_neo", gpt2.Config(score=1.0, biases="out", width=8), "write it as a opt model"),
    ("gpt_neox", gpt_neox.Config(layout="pairs"), "write it as a gptj model"),
    ("phi", gpt_neox.Config(ffn="gated"), "write it as a stablelm model"),
    ("bloom", bloom.Config(biased=False), "write it as a mpt model"),
    ("mpt", bloom.Config(), "write it as a bloom model"),
    ("bloom", bloom.Config(clip=6.0), "write it as a mpt model"),
    ("deepseek_v2", deepseek.Config(), "write it as a deepseek_v3 model"),
]


@pytest.mark.parametrize(("model_type", "config", "told"), UNTOLD)
def test_what_cannot_be_told_there_is_not_written(model_type: str, config: object, told: str) -> None:
    with pytest.raises(UserError) as caught:
        family(model_type).write_config(config)
    assert told in str(caught.value)


CASES = [*cases_decoders.CASES, *cases_more.CASES]
WRITTEN = (
    *("qwen3, biased, tied, windows in some layers", "smollm3", "granite", "gemma", "gemma2"),
    *("gemma3_text", "olmo", "olmo2", "olmo3", "gpt_neox", "gptj", "phi", "stablelm, side by side, biased, tied"),
    *("starcoder2", "falcon", "falcon, two norms, groups", "gpt_neo", "opt", "bloom", "mpt"),
    *("opt, post-norm, narrow words", "olmo, clipped", "mpt, clipped"),
    *("gpt_oss", "deepseek_v2, groups, YaRN", "deepseek_v3", "qwen2_moe"),
    "qwen2_moe, some layers dense and some local, tied",
)


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in CASES if case.name in WRITTEN], ids=str)
def test_what_we_write_transformers_loads(case: Any, tmp_path: Path) -> None:
    """What `save_pretrained` writes is read; what we write, `from_pretrained` loads, and computes the same."""
    from transformers import AutoModelForCausalLM

    theirs: Any = shaken(case.make()).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    values = json.loads((tmp_path / "theirs" / "config.json").read_text(encoding="utf-8"))
    known, stored = family(values["model_type"]), load_file(tmp_path / "theirs" / "model.safetensors")
    config = known.read_config(values)
    ours, names = known.build(config).eval(), known.keymap(config)
    load(ours, names.load(stored))
    written = names.save(tensors_of(ours))
    (tmp_path / "ours").mkdir()
    tensors = {key: x.detach() for key, x in written.items()}
    save_file(tensors, tmp_path / "ours" / "model.safetensors", {"format": "pt"})
    (tmp_path / "ours" / "config.json").write_text(json.dumps(known.write_config(config)), encoding="utf-8")
    found: Any = AutoModelForCausalLM.from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    again, report = found
    assert not any(report.values())
    ids = torch.arange(12)[None] + 7
    with torch.inference_mode():
        assert_close(ours(ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)
        # one of the two names of GELU's approximation is written, and they round otherwise
        assert_close(again.eval()(ids).logits, theirs(ids).logits, atol=1e-6, rtol=0)
