"""Adapters in PEFT's layout: written here and loaded there, and the other way around; merged, or over one base."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.adapters import save_adapter, with_adapter
from headway.errors import UserError
from headway.interop.adapter import ADAPTER, WEIGHTS
from headway.interop.weights import read_safetensors, write_weights
from headway.loading import load
from headway.model import Model
from headway.nn.low_rank import DoRALinear, adapt, adapted, decompose
from headway.nn.trunk import tensors_of
from headway.training.lora import LoRA, attach

IDS = torch.randint(3, 40, (2, 9), generator=torch.Generator().manual_seed(3))


def config_of(kind: str) -> tuple[Any, str]:
    transformers: Any = import_module("transformers")
    small = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    more = {"intermediate_size": 24, "max_position_embeddings": 32}
    match kind:
        case "gpt2":
            c = transformers.GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=2)
            return c, "GPT2LMHeadModel"
        case "llama":
            return transformers.LlamaConfig(**small, **more, num_key_value_heads=1), "LlamaForCausalLM"
        case "neox":
            return transformers.GPTNeoXConfig(**small, **more), "GPTNeoXForCausalLM"
        case "phi3":
            c = transformers.Phi3Config(**small, **more, pad_token_id=0)
            return c, "Phi3ForCausalLM"
        case _:
            return transformers.BertConfig(**small, **more, num_labels=3), "BertForSequenceClassification"


KINDS = ["gpt2", "llama", "neox", "phi3", "bert"]


@pytest.fixture(scope="module", params=KINDS)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transformers'."""
    transformers: Any = import_module("transformers")

    config, name = config_of(request.param)
    torch.manual_seed(1)
    place = tmp_path_factory.mktemp(request.param) / "base"
    getattr(transformers, name)(config).save_pretrained(place)
    return place


def trained(base: Path, targets: tuple[str, ...] = (), rank: int = 3, *, dora: bool = False) -> Model:
    """A model whose low-rank parts, and final norm or head, are not what they began as."""
    found = load(base)
    torch.manual_seed(5)
    attach(found.model, LoRA(rank, 2.0 * rank, 0.1, targets, dora), tensors_of(found.model))
    for layer in adapted(found.model).values():
        nn.init.normal_(layer.lora_b)
        if isinstance(layer, DoRALinear):
            with torch.no_grad():
                layer.lora_magnitude.add_(5 * torch.rand(layer.out_features))
    return found


def saved(found: Model, base: Path, folder: Path) -> Path:
    save_adapter(found, folder, base, tensors_of(load(base).model), "")
    return folder


def logits(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model.eval()(IDS)


def theirs(base: Path, folder: Path) -> Any:
    peft: Any = pytest.importorskip("peft")
    transformers: Any = import_module("transformers")

    name = json.loads((base / "config.json").read_text())["architectures"][0]
    plain = getattr(transformers, name).from_pretrained(base)
    return peft.PeftModel.from_pretrained(plain, str(folder)).eval()


@pytest.mark.parametrize("dora", [False, True], ids=["LoRA", "DoRA"])
@pytest.mark.parametrize("targets", [(), ("q", "v", "up")], ids=["all", "some"])
def test_merged_loaded_over_a_base_and_as_trained_are_one_model(
    base: Path, targets: tuple[str, ...], dora: bool, tmp_path: Path
) -> None:
    found = trained(base, targets, dora=dora)
    expected = logits(found.model)
    assert not torch.allclose(expected, logits(load(base).model), atol=1e-3)
    folder = saved(found, base, tmp_path / "adapter")
    merged, below = load(folder), load(base)
    assert adapted(merged.model) == {}
    assert_close(logits(merged.model), expected, rtol=1e-5, atol=1e-5)
    beside = with_adapter(below, folder)
    assert_close(logits(beside.model), expected, rtol=1e-5, atol=1e-5)
    own, shared = tensors_of(beside.model), tensors_of(below.model)
    assert all(own[name].data_ptr() == tensor.data_ptr() for name, tensor in shared.items())
    assert torch.equal(logits(below.model), logits(load(base).model))


@pytest.mark.slow
@pytest.mark.parametrize("dora", [False, True], ids=["LoRA", "DoRA"])
def test_peft_computes_the_same_with_what_is_written_here(base: Path, dora: bool, tmp_path: Path) -> None:
    found = trained(base, ("q", "v", "up", "out"), dora=dora)
    folder = saved(found, base, tmp_path / "adapter")
    with torch.no_grad():
        assert_close(theirs(base, folder)(input_ids=IDS).logits, logits(found.model), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dora", [False, True], ids=["LoRA", "DoRA"])
def test_what_peft_writes_is_computed_here(base: Path, dora: bool, tmp_path: Path) -> None:
    peft: Any = pytest.importorskip("peft")
    transformers: Any = import_module("transformers")

    name = json.loads((base / "config.json").read_text())["architectures"][0]
    plain = getattr(transformers, name).from_pretrained(base)
    given = {"rank_pattern": {"0.*": 2}, "alpha_pattern": {"0.*": 3}, "use_rslora": name.startswith("Llama")}
    task = {"task_type": "SEQ_CLS"} if name.startswith("Bert") else {}
    given |= {"init_lora_weights": False, "use_dora": dora}
    model = peft.get_peft_model(plain, peft.LoraConfig(r=4, lora_alpha=6, target_modules="all-linear", **given, **task))
    for values in (value for name, value in model.eval().named_parameters() if "magnitude" in name):
        nn.init.uniform_(values)
    model.save_pretrained(str(tmp_path / "adapter"))
    with torch.no_grad():
        expected = model(input_ids=IDS).logits
    write_base(tmp_path / "adapter", base)
    assert_close(logits(load(tmp_path / "adapter").model), expected, rtol=1e-5, atol=1e-5)


def write_base(folder: Path, base: Path) -> None:
    values = json.loads((folder / ADAPTER).read_text())
    (folder / ADAPTER).write_text(json.dumps({**values, "base_model_name_or_path": str(base)}))


def test_converted_it_is_a_model_of_transformers(base: Path, tmp_path: Path) -> None:
    transformers: Any = import_module("transformers")

    from headway.conversion import convert

    found = trained(base)
    folder = saved(found, base, tmp_path / "adapter")
    convert(folder, tmp_path / "merged", to="hf")
    name = json.loads((base / "config.json").read_text())["architectures"][0]
    model = getattr(transformers, name).from_pretrained(tmp_path / "merged").eval()
    with torch.no_grad():
        assert_close(model(input_ids=IDS).logits, logits(found.model), rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers: Any = import_module("transformers")

    config, name = config_of("gpt2")
    torch.manual_seed(1)
    place = tmp_path_factory.mktemp("gpt2") / "base"
    getattr(transformers, name)(config).save_pretrained(place)
    return place


def test_int8_is_that_of_merged_weights(gpt2: Path, tmp_path: Path) -> None:
    folder = saved(trained(gpt2), gpt2, tmp_path / "adapter")
    load(folder).save(tmp_path / "merged")
    assert torch.equal(logits(load(folder, dtype="int8").model), logits(load(tmp_path / "merged", dtype="int8").model))


def test_a_base_that_was_moved_with_its_adapter_is_found(gpt2: Path, tmp_path: Path) -> None:
    folder = saved(trained(gpt2), gpt2, tmp_path / "adapter")
    load(gpt2).save(tmp_path / "base")
    write_base(folder, Path("/nowhere/base"))
    assert adapted(load(folder).model) == {}


def test_adapters_that_do_not_fit_are_refused(gpt2: Path, tmp_path: Path) -> None:
    folder = saved(trained(gpt2), gpt2, tmp_path / "adapter")
    other = load(gpt2)
    with torch.no_grad():
        other.model.stack.norm.bias += 1  # type: ignore[operator]
    other.save(tmp_path / "other")
    write_base(folder, tmp_path / "other")
    with pytest.raises(UserError, match="was trained on other weights than those in"):
        load(folder)
    write_base(folder, tmp_path / "gone")
    with pytest.raises(UserError, match=r"changes the model in .*gone, which is not there"):
        load(folder)
    (folder / "config.json").unlink()  # as PEFT writes it, without a fingerprint
    write_base(folder, gpt2)
    assert_close(logits(load(folder).model), logits(trained(gpt2).model), rtol=1e-5, atol=1e-5)
    tensors = read_safetensors(folder / WEIGHTS)
    short = {name: x[:, :-1] if "lora_A" in name else x for name, x in tensors.items()}
    write_weights(folder, short, WEIGHTS)
    with pytest.raises(UserError, match=r"does not fit the model in .* at stack"):
        load(folder)
    write_weights(folder, {name.replace("c_attn", "query"): x for name, x in tensors.items()}, WEIGHTS)
    with pytest.raises(UserError, match=r"changes transformer.h.0.attn.query, which this model does not have"):
        load(folder)
    values = json.loads((folder / ADAPTER).read_text())
    (folder / ADAPTER).write_text(json.dumps({**values, "use_dora": True}))
    with pytest.raises(UserError, match=r"has no lora_magnitude_vector that fits"):
        load(folder)
    (folder / ADAPTER).write_text(json.dumps({**values, "lora_bias": True}))
    with pytest.raises(UserError, match="says lora_bias=True, which is not computed here"):
        load(folder)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_step_of_dora_is_that_of_peft(dropout: float) -> None:
    """Output and gradients of a layer in training; what is added to the layer's output is dropped out alike."""
    peft: Any = pytest.importorskip("peft")

    torch.manual_seed(0)
    x, layer = torch.randn(5, 6), nn.Linear(6, 4)
    settings = peft.LoraConfig(r=2, lora_alpha=3, lora_dropout=dropout, use_dora=True, target_modules=["0"])
    theirs = peft.get_peft_model(nn.Sequential(layer), settings).train()
    mine = decompose(adapt(nn.Linear(6, 4), 2, 1.5, dropout))
    own = {name: value for name, value in theirs.named_parameters() if "base_layer" not in name}
    pairs = list(zip((mine.lora_a, mine.lora_b, mine.lora_magnitude), own.values(), strict=True))
    with torch.no_grad():
        mine.weight.copy_(layer.weight)
        assert mine.bias is not None
        mine.bias.copy_(layer.bias)
        for value, other in pairs:
            value.copy_(other.uniform_(0.5, 1.5))
    for model in (mine, theirs):
        torch.manual_seed(1)
        model(x).square().sum().backward()
    torch.manual_seed(1)
    found = mine(x)
    torch.manual_seed(1)
    assert_close(found, theirs(x), rtol=1e-5, atol=1e-5)
    for value, other in pairs:
        assert_close(value.grad, other.grad, rtol=1e-5, atol=1e-5)


def test_a_new_dora_layer_computes_what_the_old_one_did() -> None:
    layer, x = nn.Linear(6, 4), torch.randn(5, 6)
    with torch.no_grad():
        layer.weight[1] = 0  # as rows of padding are
    expected = layer(x)
    made = decompose(adapt(layer, 2, 1.5))
    assert torch.equal(made(x), expected)
    made(x).sum().backward()
    assert made.lora_magnitude.grad is not None
    assert made.lora_magnitude.grad.isfinite().all()
    assert torch.equal(made.merged(), layer.weight)


def test_an_adapter_over_int8_weights_is_refused(gpt2: Path, tmp_path: Path) -> None:
    folder = saved(trained(gpt2), gpt2, tmp_path / "adapter")
    with pytest.raises(UserError, match="adapters beside weights in int8"):
        with_adapter(load(gpt2, dtype="int8"), folder)
