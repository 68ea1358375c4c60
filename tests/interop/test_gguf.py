"""GGUF: its blocks against the gguf package, models both ways, llama.cpp's text, and files that lie."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.conversion import convert, save_gguf
from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_training import train_bpe, train_characters, train_unigram
from headway.errors import UserError
from headway.interop.gguf_blocks import TYPES, BlockType
from headway.interop.gguf_file import read_gguf
from headway.interop.gguf_models import ARCHITECTURES
from headway.loading import load
from headway.model import Model
from headway.ops.rotary import Linear, Llama3, Yarn
from headway.zoo.build import architecture
from headway.zoo.llama import Frequencies

TEXT = "Hello world, this is a text about attention, and a model that reads it was trained here 12 times."
SIZES = {"context": 256, "dim": 64, "layers": 2, "heads": 4, "hidden": 128}
WINDOWS = {"head_dim": 32, "kv_heads": 2, "window": 8}
LOCAL = {"rotary": Frequencies(1e6), "local_rotary": Frequencies(1e4), "local_layers": (0, 1, 2, 3, 4), "layers": 6}
# case: the architecture, the model_type, and what is its own
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("llama", "llama", {"kv_heads": 2}),
    "llama3": ("llama", "llama", {"kv_heads": 2, "rotary": Frequencies(5e5, Llama3(8.0, 1.0, 4.0, 32))}),
    "linear": ("llama", "llama", {"rotary": Frequencies(1e4, Linear(2.0)), "tied": True}),
    "yarn": ("llama", "llama", {"rotary": Frequencies(1e4, Yarn(2.0, 128)), "biases": "all"}),
    "mistral": ("llama", "mistral", {"kv_heads": 1}),
    "qwen2": ("llama", "qwen2", {"biases": "qkv"}),
    "qwen3": ("llama", "qwen3", {"qk_norm": "heads", "head_dim": 32}),
    "gemma": ("gemma", "gemma", {"kv_heads": 1, "head_dim": 32, "norms": "pre"}),
    "gemma2": ("gemma", "gemma2", {**WINDOWS, "local_layers": (0,), "score_cap": 50.0, "logit_cap": 30.0}),
    "gemma3": ("gemma", "gemma3_text", {**WINDOWS, **LOCAL, "qk_norm": True}),
    "gpt2": ("gpt2", "gpt2", {}),
}


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_bpe([TEXT], 280)


@pytest.fixture(scope="module")
def letters() -> Tokenizer:
    return train_characters([TEXT], 300)


def made(case: str, tokenizer: Tokenizer, **sizes: Any) -> Model:
    """A model whose weights are so large that its logits are far apart."""
    name, model_type, own = MODELS[case]
    known = architecture(name)
    torch.manual_seed(0)
    config = known.Config(**{**SIZES, **own, "vocab": tokenizer.vocab + 8, **sizes})
    model = known.build(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return Model(model, config, name, model_type, {}, tokenizer)


def logits(model: Model) -> torch.Tensor:
    with torch.no_grad():
        return model.model(torch.tensor([model.vocabulary().encode(TEXT)]))


@pytest.mark.parametrize("kind", [one for one in TYPES if one.dequantise], ids=lambda one: one.name)
def test_blocks_are_those_of_ggml(kind: BlockType) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[dev]'")
    theirs = gguf.GGMLQuantizationType[kind.name]
    blocks = np.random.default_rng(0).integers(0, 256, (64, kind.bytes), dtype=np.uint8)
    assert kind.dequantise is not None
    with np.errstate(all="ignore"):  # some scales of random bytes are no numbers
        assert np.array_equal(kind.dequantise(blocks), gguf.quants.dequantize(blocks, theirs), equal_nan=True)
    if kind.quantise is not None:
        x = np.random.default_rng(1).standard_normal((64, kind.size), dtype=np.float32)
        x[3] = 0
        assert np.array_equal(kind.quantise(x), gguf.quants.quantize(x, theirs))


def test_a_block_by_hand() -> None:
    block = np.concatenate([np.array([0.5], np.float16).view(np.uint8), np.full(16, 0x9F, np.uint8)])[None]
    q4_0 = next(one for one in TYPES if one.name == "Q4_0")
    assert q4_0.dequantise is not None
    assert q4_0.dequantise(block).tolist() == [[0.5 * (15 - 8)] * 16 + [0.5 * (9 - 8)] * 16]  # low nibbles first


@pytest.mark.parametrize("case", MODELS)
def test_models_come_back(case: str, words: Tokenizer, tmp_path: Path) -> None:
    model = made(case, words)
    save_gguf(model, tmp_path / "model.gguf")
    again = load(tmp_path / "model.gguf")
    assert torch.equal(logits(again), logits(model))
    assert again.model_type == {"mistral": "llama"}.get(model.model_type or "", model.model_type)
    assert again.vocabulary().encode(TEXT) == words.encode(TEXT)
    assert again.extra_config["eos_token_id"] == words.eos


@pytest.mark.parametrize(("dtype", "most"), [("fp16", 0.005), ("bf16", 0.05), ("int8", 0.2)])
def test_narrow_matrices_come_near(dtype: str, most: float, words: Tokenizer, tmp_path: Path) -> None:
    model = made("llama", words)
    save_gguf(model, tmp_path / "model.gguf", dtype)
    stored = {one.kind.name for one in read_gguf(tmp_path / "model.gguf").tensors.values()}
    assert stored == {"F32", {"fp16": "F16", "bf16": "BF16", "int8": "Q8_0"}[dtype]}
    assert 0 < (logits(load(tmp_path / "model.gguf")) - logits(model)).abs().max() < most
    assert load(tmp_path / "model.gguf", dtype="int8").dtype == "int8"


def test_characters_and_templates_come_back(letters: Tokenizer, tmp_path: Path) -> None:
    model = made("llama", replace(letters, chat_template="{{ messages[0].content }}"))
    save_gguf(model, tmp_path / "model.gguf")
    again = load(tmp_path / "model.gguf").vocabulary()
    assert again.chat_template == "{{ messages[0].content }}"
    for text in (TEXT, "two  spaces, é 東"):
        assert again.plain(text) == letters.plain(text)
        assert again.decode(again.plain(text)) == text


def test_the_gguf_package_reads_it(words: Tokenizer, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[dev]'")
    model = made("llama", words)
    save_gguf(model, tmp_path / "model.gguf")
    read = gguf.GGUFReader(tmp_path / "model.gguf")
    assert read.fields["general.architecture"].contents() == "llama"
    assert read.fields["llama.attention.head_count_kv"].contents() == 2
    assert read.fields["tokenizer.ggml.tokens"].contents()[words.eos or 0] == words.roles.eos
    table = next(one for one in read.tensors if one.name == "token_embd.weight")
    assert np.array_equal(table.data, model.model.get_parameter("embed.token.weight").detach().numpy())


@pytest.mark.slow
def test_what_the_gguf_package_writes_is_read(words: Tokenizer, tmp_path: Path) -> None:
    """A file of llama.cpp's own converter: Q4_0 matrices, values of other types, version 3."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[dev]'")
    model = made("qwen2", words)
    save_gguf(model, tmp_path / "plain.gguf")
    plain = read_gguf(tmp_path / "plain.gguf")
    writer = gguf.GGUFWriter(str(tmp_path / "model.gguf"), "qwen2")
    for name, value in plain.values.items():
        if isinstance(value, list | np.ndarray):
            writer.add_array(name, list(value) if isinstance(value, list) else value.tolist())
        elif name != "general.architecture":
            writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value))
    writer.add_eot_token_id(5)
    for name, one in plain.tensors.items():
        x = one.load().numpy()
        if x.ndim == 2:
            q4_0 = gguf.GGMLQuantizationType.Q4_0
            writer.add_tensor(name, gguf.quants.quantize(x, q4_0), raw_dtype=q4_0)
        else:
            writer.add_tensor(name, x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    again = load(tmp_path / "model.gguf")
    assert again.extra_config["eos_token_id"] == [words.eos, 5]
    assert 0 < (logits(again) - logits(model)).abs().max() < 2
    assert again.predict(TEXT, max_new_tokens=2).to_dict()["text"]


@pytest.mark.slow
@pytest.mark.parametrize("case", [*MODELS, "letters"])
def test_llama_cpp_writes_the_same(case: str, words: Tokenizer, letters: Tokenizer, tmp_path: Path) -> None:
    xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp is not installed: make peers")
    tokenizer = letters if case == "letters" else words
    model = made("llama" if case == "letters" else case, tokenizer)
    save_gguf(model, tmp_path / "model.gguf")
    # of bytes that make no character the server shows none
    barred = [id for id in range(model.config.vocab) if not is_plain(tokenizer, id)]
    ids = tokenizer.encode(TEXT)
    found = list(ids)
    for _ in range(8):
        with torch.no_grad():
            scores = model.model(torch.tensor([found]))[0, -1]
        scores[barred] = -torch.inf
        found.append(int(scores.argmax()))
    params = xllamacpp.CommonParams()
    params.model.path = str(tmp_path / "model.gguf")
    params.n_ctx, params.n_parallel = 256, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers, params.warmup, params.verbosity, params.cache_ram_mib = 0, False, -1, 0
    greedy = {"n_predict": 8, "temperature": 0, "samplers": ["top_k"], "top_k": 1, "ignore_eos": True}
    said = {"prompt": TEXT, "logit_bias": [[id, False] for id in barred], **greedy}
    answer = xllamacpp.Server(params).handle_completions(said)
    assert answer["usage"]["prompt_tokens"] == len(ids)
    assert answer["choices"][0]["text"] == tokenizer.decode(found[len(ids) :])


def is_plain(tokenizer: Tokenizer, id: int) -> bool:
    text = tokenizer.decode([id]) if id < tokenizer.vocab else ""
    return text.isascii() and text.isprintable() and text != ""


def test_the_command_converts_both_ways(words: Tokenizer, tmp_path: Path) -> None:
    model = made("gpt2", words)
    model.save(tmp_path / "model")
    there = convert(tmp_path / "model", tmp_path / "model.gguf")
    assert there.layout == "gguf"
    assert there.comparison == "largest difference of a logit, read again: 0.0e+00"
    convert(tmp_path / "model.gguf", tmp_path / "again")
    assert torch.equal(logits(load(tmp_path / "again")), logits(model))


@pytest.mark.parametrize(
    ("case", "sizes", "said"),
    [
        ("mistral", {"window": 8}, "computes a mistral without its window of 8"),
        ("qwen2", {"window": 8}, "computes no qwen2 with sliding_window=8"),
        ("gemma2", {"local_layers": (1,)}, "computes no gemma2 with layer_types"),
        ("gemma2", {"score_dim": 8}, "query_pre_attn_scalar=8"),
        ("gpt2", {"act": "relu"}, "activation_function='relu'"),
        ("llama", {"top": "rows"}, "a LlamaForSequenceClassification is not written as GGUF"),
        ("qwen2", {"rotary": Frequencies(5e5, Llama3(8.0, 1.0, 4.0, 32))}, r"\(llama3\) has no place in a GGUF"),
    ],
)
def test_what_llama_cpp_does_not_compute_is_refused(
    case: str, sizes: dict[str, Any], said: str, words: Tokenizer, tmp_path: Path
) -> None:
    made(case, words, **sizes).save(tmp_path / "model")
    with pytest.raises(UserError, match=said):
        convert(tmp_path / "model", tmp_path / "model.gguf")
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_other_tokenizers_and_targets_are_refused(words: Tokenizer, tmp_path: Path) -> None:
    made("llama", train_unigram([TEXT], 320)).save(tmp_path / "unigram")
    with pytest.raises(UserError, match="a tokenizer of Unigram has no place in GGUF"):
        convert(tmp_path / "unigram", tmp_path / "model.gguf")
    made("llama", words).save(tmp_path / "model")
    with pytest.raises(UserError, match=r"name a file such as out\.gguf"):
        convert(tmp_path / "model", tmp_path / "out", to="gguf")
    (tmp_path / "model.gguf").touch()
    with pytest.raises(UserError, match=r"model\.gguf is there already.*name a new file"):
        convert(tmp_path / "model", tmp_path / "model.gguf")
    with pytest.raises(UserError, match=r"model\.gguf is empty"):
        load(tmp_path / "model.gguf")


@pytest.fixture(scope="module")
def small(words: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("gguf") / "model.gguf"
    save_gguf(made("llama", words, dim=32, hidden=32, layers=1), file, "int8")
    return file.read_bytes()


def entry(name: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value


HEAD = b"GGUF" + struct.pack("<I", 3)
NAME = entry("general.architecture", 8, struct.pack("<Q", 5) + b"llama")
LIES = {
    "another format": (b"PK\3\4" + bytes(60), "is no GGUF: it begins with"),
    "version 1": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "is GGUF of version 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "is big-endian"),
    "tensors": (HEAD + struct.pack("<QQ", 2**60, 0), "says that it has 1,152,921,504,606,846,976 tensors"),
    "values": (HEAD + struct.pack("<QQ", 0, 2**60), "says that it has 1,152,921,504,606,846,976 values"),
    "a long name": (HEAD + struct.pack("<QQQ", 0, 1, 2**50) + bytes(40), "ends early: 1,125,899,906,842,624 bytes"),
    "a long array": (HEAD + struct.pack("<QQ", 0, 1) + entry("a", 9, struct.pack("<IQ", 5, 2**61)), "ends early"),
    "texts": (HEAD + struct.pack("<QQ", 0, 1) + entry("a", 9, struct.pack("<IQ", 8, 2**40)), "texts in one array"),
    "a deep array": (HEAD + struct.pack("<QQ", 0, 1) + entry("a", 9, struct.pack("<IQI", 9, 1, 9)), "an array within"),
    "a type": (HEAD + struct.pack("<QQ", 0, 1) + entry("a", 77, bytes(8)), "a value of type 77"),
    "twice": (HEAD + struct.pack("<QQ", 0, 2) + NAME * 2, "has 'general.architecture' twice"),
    "no architecture": (HEAD + struct.pack("<QQ", 0, 0), "of the architecture None"),
    "an architecture": (
        HEAD + struct.pack("<QQ", 0, 1) + entry("general.architecture", 8, struct.pack("<Q", 5) + b"rwkv6"),
        "of the architecture 'rwkv6'.*allowed: llama, qwen2",
    ),
    "no sizes": (HEAD + struct.pack("<QQ", 0, 1) + NAME, r"has no llama\.context_length"),
    "axes": (HEAD + struct.pack("<QQ", 1, 0) + entry("x", 9, bytes(40)), "a tensor of 9 axes"),
    "blocks": (HEAD + struct.pack("<QQ", 1, 0) + entry("x", 1, struct.pack("<QIQ", 32, 20, 0)), "ggml's type 20"),
    "rows": (HEAD + struct.pack("<QQ", 1, 0) + entry("x", 1, struct.pack("<QIQ", 33, 8, 0)), "a multiple of 32"),
    "none": (HEAD + struct.pack("<QQ", 1, 0) + entry("x", 1, struct.pack("<QIQ", 0, 0, 0)), r"of shape \(0,\)"),
    "beyond": (
        HEAD + struct.pack("<QQ", 1, 0) + entry("x", 1, struct.pack("<QIQ", 2**62, 0, 0)),
        "does not lie within the file",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused(lie: str, tmp_path: Path) -> None:
    data, said = LIES[lie]
    (tmp_path / "model.gguf").write_bytes(data + bytes(32))
    with pytest.raises(UserError, match=said):
        load(tmp_path / "model.gguf")


@pytest.mark.slow
def test_broken_files_are_told_in_one_sentence(small: bytes, tmp_path: Path) -> None:
    """Cut anywhere, or with a byte changed anywhere in the header, a file is read or refused."""
    file, draw = tmp_path / "model.gguf", random.Random(0)
    header = len(small) - sum(one.data.nbytes for one in opened(small, file).tensors.values())
    spoiled = [small[: draw.randrange(len(small))] for _ in range(40)]
    for _ in range(160):
        changed = bytearray(small)
        changed[draw.randrange(header)] ^= 1 << draw.randrange(8)
        spoiled.append(bytes(changed))
    said = list[str]()
    for data in spoiled:
        file.write_bytes(data)
        try:
            load(file)
        except UserError as error:
            said.append(str(error))
    assert len(said) > 60
    assert not any("\n" in one for one in said)
    assert [one.name for one in tmp_path.iterdir()] == ["model.gguf"]


def opened(data: bytes, file: Path) -> Any:
    file.write_bytes(data)
    return read_gguf(file)


def test_every_architecture_is_tried() -> None:
    assert {model_type for _, model_type, _ in MODELS.values()} >= {one.model_type for one in ARCHITECTURES.values()}
    assert import_module("headway.interop.gguf_models").BY_TYPE["mistral"] == "llama"
