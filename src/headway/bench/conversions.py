"""A suite's weights, which lie in Hugging Face's layout, in the formats of peers: CTranslate2's, GGUF and ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json import loads
from pathlib import Path
from typing import Any

from headway.bench.peers import library
from headway.bench.suite import Workspace

CT2, ONNX = "ctranslate2", "onnx"  # folders beside the weights


def to_ctranslate2(work: Workspace) -> None:
    """CTranslate2's own converter; it keeps fp32, from which int8 is made when a model is loaded."""
    if not (work.folder / CT2).exists():
        library("ctranslate2.converters").TransformersConverter(str(work.folder)).convert(str(work.folder / CT2))


def onnx_file(work: Workspace, precision: str) -> Path:
    return work.folder / ONNX / f"{precision}.onnx"


def to_onnx(work: Workspace, model: Any, inputs: Mapping[str, Any], output: str, dynamic: Mapping[str, Any]) -> None:
    """Exports a torch module once in fp32, and by ONNX Runtime's dynamic quantisation in int8."""
    import torch

    if onnx_file(work, "int8").exists():
        return
    onnx_file(work, "fp32").parent.mkdir(exist_ok=True)
    torch.onnx.export(
        model,
        (),
        str(onnx_file(work, "fp32")),
        kwargs=dict(inputs),
        input_names=list(inputs),
        output_names=[output],
        dynamic_shapes=dict(dynamic),
        dynamo=True,
        external_data=False,
    )
    onnx, quantization = library("onnx"), library("onnxruntime.quantization")
    exported = onnx.load(str(onnx_file(work, "fp32")))
    del exported.graph.value_info[:]  # shapes that the quantiser infers itself, and that some exports have wrong
    onnx.save(exported, str(onnx_file(work, "fp32")))
    quantization.quantize_dynamic(
        onnx_file(work, "fp32"),
        onnx_file(work, "int8"),
        weight_type=quantization.QuantType.QInt8,
        per_channel=True,
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )


def onnx_session(work: Workspace, precision: str) -> Any:
    ort = library("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = work.threads
    return ort.InferenceSession(str(onnx_file(work, precision)), options, providers=["CPUExecutionProvider"])


def gguf_file(work: Workspace, kind: str) -> Path:
    return work.folder / f"{kind}.gguf"


def to_gguf(kind: str) -> Callable[[Workspace], None]:
    """Writes a decoder as GGUF, its matrices quantised as `kind`; of q4_0 the table of words is q8_0."""

    def convert(work: Workspace) -> None:
        gguf, load_file = library("gguf"), library("safetensors.numpy").load_file
        config = loads((work.folder / "config.json").read_text())
        family = GGUF_FAMILIES[config["model_type"]]
        writer = gguf.GGUFWriter(str(gguf_file(work, kind)), family.architecture)
        family.settings(writer, config)
        # a tokenizer must be there; prompts are given as ids
        words = [f"w{index}" for index in range(config["vocab_size"])]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(words)
        writer.add_token_types([gguf.TokenType.NORMAL] * len(words))
        writer.add_token_merges(["w 1"])
        writer.add_bos_token_id(config["bos_token_id"])
        writer.add_eos_token_id(config["eos_token_id"])
        writer.add_add_bos_token(False)
        types = gguf.GGMLQuantizationType
        for name, tensor in load_file(work.folder / "model.safetensors").items():
            theirs, value = family.tensor(name, tensor, config)
            if theirs is None:
                continue
            if value.ndim == 1 or kind == "fp32" or "position_embd" in theirs:
                writer.add_tensor(theirs, value.astype("float32"))
                continue
            quantised = (
                types.Q8_0 if kind == "q8_0" or "token_embd" in theirs or theirs == "output.weight" else types.Q4_0
            )
            writer.add_tensor(theirs, gguf.quants.quantize(value.astype("float32"), quantised), raw_dtype=quantised)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    return convert


class GGUFGPT2:
    """GPT-2's names and settings in GGUF."""

    architecture = "gpt2"
    names: Mapping[str, str] = {
        "ln_1": "attn_norm",
        "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output",
        "ln_2": "ffn_norm",
        "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down",
    }

    def settings(self, writer: Any, config: Mapping[str, Any]) -> None:
        writer.add_context_length(config["n_positions"])
        writer.add_embedding_length(config["n_embd"])
        writer.add_feed_forward_length(config.get("n_inner") or 4 * config["n_embd"])
        writer.add_block_count(config["n_layer"])
        writer.add_head_count(config["n_head"])
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])

    def tensor(self, name: str, value: Any, config: Mapping[str, Any]) -> tuple[str | None, Any]:
        name = name.removeprefix("transformer.")
        whole = {"wte.weight": "token_embd.weight", "wpe.weight": "position_embd.weight"}
        if name in whole:
            return whole[name], value
        if name.startswith("ln_f."):
            return f"output_norm.{name.rpartition('.')[2]}", value
        if not name.startswith("h."):
            return None, value
        _, layer, rest = name.split(".", 2)
        part, _, kind = rest.rpartition(".")
        if part not in self.names:
            return None, value
        return (
            f"blk.{layer}.{self.names[part]}.{kind}",
            value.T if value.ndim == 2 else value,
        )  # their files are [in, out]


class GGUFLlama:
    """Llama's names and settings in GGUF; rotary pairs are neighbours there."""

    architecture = "llama"
    names: Mapping[str, str] = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }

    def settings(self, writer: Any, config: Mapping[str, Any]) -> None:
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
        writer.add_vocab_size(config["vocab_size"])

    def tensor(self, name: str, value: Any, config: Mapping[str, Any]) -> tuple[str | None, Any]:
        whole = {"embed_tokens.weight": "token_embd", "norm.weight": "output_norm", "lm_head.weight": "output"}
        name = name.removeprefix("model.")
        if name in whole:
            return f"{whole[name]}.weight", value
        _, layer, rest = name.split(".", 2)
        part, _, kind = rest.rpartition(".")
        heads = {"self_attn.q_proj": "num_attention_heads", "self_attn.k_proj": "num_key_value_heads"}
        if part in heads:
            count = config[heads[part]]
            value = value.reshape(count, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
        return f"blk.{layer}.{self.names[part]}.{kind}", value


GGUF_FAMILIES: Mapping[str, Any] = {"gpt2": GGUFGPT2(), "llama": GGUFLlama()}
