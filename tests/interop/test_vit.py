"""ViT, its like, its masked autoencoder and ConvNeXt: folders both ways, timm's too, and images of other sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway import Context, Trace, load
from headway.conversion import convert
from headway.errors import UserError
from headway.interop import timm_vit, vit, vit_mae
from headway.interop.registry import family
from headway.interop.weights import write_weights
from headway.ops.patches import hidden_mask, unpatchify
from headway.zoo import mae, simmim
from headway.zoo.build import build
from headway.zoo.vit import Config
from tests.interop import cases_convnext, cases_vit
from tests.interop.parity import answer, difference, gradients, pull, shaken
from tests.interop.parity import load as load_tensors
from tests.interop.timm_models import timm_models

CASES = [*cases_vit.CASES, *cases_convnext.CASES]
close = {"atol": 1e-5, "rtol": 1e-5}
SIZES = {"img_size": 12, "patch_size": 4, "embed_dim": 16, "depth": 3, "num_heads": 4, "num_classes": 5}
TIMM: dict[str, dict[str, Any]] = {
    "a class token": {},
    "no biases, one channel": {"qkv_bias": False, "in_chans": 1, "mlp_ratio": 1.5},
    "the mean": {"class_token": False, "global_pool": "avg", "fc_norm": False},
    "the mean, normed after it": {"class_token": False, "global_pool": "avg"},
    "patches of a pixel": {"img_size": 3, "patch_size": 1},
}


def images(channels: int = 3, high: int = 12, wide: int = 12) -> Tensor:
    return torch.randn(2, channels, high, wide, generator=torch.Generator().manual_seed(2))


def theirs(name: str) -> Any:
    torch.manual_seed(0)
    return shaken(next(case for case in CASES if case.name == name).make()).eval()


# Hugging Face's folders


@pytest.mark.slow
@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_their_folder_is_read_and_ours_is_read_by_them(name: str, tmp_path: Path) -> None:
    model = theirs(name)
    model.save_pretrained(tmp_path / "theirs")
    loaded = load(tmp_path / "theirs")
    loaded.save_hf(tmp_path / "ours")
    loaded.save(tmp_path / "own")
    again, own = type(model).from_pretrained(tmp_path / "ours"), load(tmp_path / "own")
    for key, tensor in model.state_dict().items():
        if not key.endswith("embeddings.mask_token"):  # of DINO's and BEiT's own training: left out
            assert_close(again.state_dict()[key], tensor, rtol=0, atol=0)
    for key, parameter in own.model.named_parameters():
        assert_close(parameter, loaded.model.get_parameter(key), rtol=0, atol=0)
        assert parameter.requires_grad == loaded.model.get_parameter(key).requires_grad
    assert (own.config, own.model_type) == (loaded.config, loaded.model_type)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "told"), {"vit, classes": "a logit from transformers: ", "vit_mae": "not compared"}.items()
)
def test_a_folder_is_converted_and_compared_where_it_names_classes(name: str, told: str, tmp_path: Path) -> None:
    theirs(name).save_pretrained(tmp_path / "theirs")
    assert told in convert(tmp_path / "theirs", tmp_path / "ours", "headway").to_text()


@pytest.mark.parametrize(("high", "wide"), [(16, 8), (24, 24), (8, 12)])
@pytest.mark.parametrize("name", ["vit, classes", "deit, two heads", "dinov3_vit"])
def test_images_of_other_sizes_are_as_theirs(name: str, high: int, wide: int) -> None:
    model = theirs(name)
    known = family(model.config.model_type)
    config = known.read_config(model.config.to_dict())
    ours = known.build(config).eval()
    load_tensors(ours, known.keymap(config).load(model.state_dict()))
    x = images(config.channels, high, wide)
    # DINOv3 has no table that would be interpolated
    options = {} if name.startswith("dinov3") else {"interpolate_pos_encoding": True}
    assert_close(ours(x), answer(model(pixel_values=x, **options)), **close)


@pytest.mark.parametrize("side", [4, 16, 24])
def test_beits_offsets_are_interpolated_as_theirs(side: int) -> None:
    """Their released code reads images of other sizes so by itself; its option means another interpolation."""
    model = theirs("beit, classes")
    known = family("beit")
    config = known.read_config(model.config.to_dict())
    ours = known.build(config).eval()
    load_tensors(ours, known.keymap(config).load(model.state_dict()))
    x = images(3, side, side)
    assert_close(ours(x), model(pixel_values=x).logits, **close)


def test_the_pooler_is_beside_the_features() -> None:
    model = theirs("vit")
    known = family("vit")
    config = known.read_config(model.config.to_dict())
    ours: Any = known.build(config).eval()
    ours.load_state_dict(known.keymap(config).load(model.state_dict()))
    assert_close(ours.head.pooler(ours.features(images())), model(pixel_values=images()).pooler_output, **close)


def test_a_file_without_a_pooler_has_none(tmp_path: Path) -> None:
    model = theirs("vit, classes")
    model.vit.save_pretrained(tmp_path)
    loaded = load(tmp_path)
    assert loaded.config.top == "none"
    assert_close(loaded.model(images()), model.vit(pixel_values=images()).last_hidden_state, **close)


def test_simmim_is_theirs() -> None:
    """Their head lays a patch out channel by channel; ours has its channels last."""
    import transformers

    sizes = {"image_size": 12, "patch_size": 4, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.ViTConfig(**sizes, intermediate_size=24, encoder_stride=4)
    model = shaken(transformers.ViTForMaskedImageModeling(config)).eval()
    known = vit.read_config({**config.to_dict(), "architectures": ["ViTModel"]})
    encoder = simmim.Vit(**{**known.__dict__, "top": "none"})
    ours = simmim.build(simmim.Config(encoder)).eval()
    left = {name: x for name, x in model.vit.state_dict().items() if name != "embeddings.mask_token"}
    tensors = {f"encoder.{name}": x for name, x in vit.keymap(encoder).load(left).items()}
    tensors["encoder.embed.patches.token"] = model.vit.embeddings.mask_token
    head = model.decoder[0]
    tensors["out.weight"] = head.weight[..., 0, 0].unflatten(0, (3, 16)).transpose(0, 1).flatten(0, 1)
    tensors["out.bias"] = head.bias.unflatten(0, (3, 16)).T.flatten()
    ours.load_state_dict(tensors)
    x, hidden = images(), hidden_mask(torch.tensor([[0, 4, 5], [1, 2, 8]]), 9)
    out = model(pixel_values=x, bool_masked_pos=hidden)
    assert_close(unpatchify(ours(x, hidden), (3, 3), 4), out.reconstruction, **close)
    assert_close(ours.loss(x, hidden) / hidden.sum(), out.loss, **close)


# timm


def timm_model(**options: Any) -> Any:
    timm = timm_models()
    torch.manual_seed(0)
    return shaken(timm.create_model("vit_base_patch16_224", **{**SIZES, **options})).eval()


def told(**options: Any) -> dict[str, Any]:
    return {"architecture": "vit_base_patch16_224", "model_args": {**SIZES, **options}}


@pytest.mark.parametrize("options", TIMM.values(), ids=TIMM)
def test_timms_numbers_are_ours(options: dict[str, Any]) -> None:
    model, config = timm_model(**options), timm_vit.read_config(told(**options))
    names, ours = timm_vit.keymap(config), build(config).eval()
    ours.load_state_dict(names.load(model.state_dict()))
    x = images(config.channels, config.image, config.image)
    trace = Trace(ours, "*.out")
    logits, expected = ours(x, Context(trace=trace)), model(x)
    assert difference(logits, expected) <= 1e-5
    _, states = model.forward_intermediates(x, output_fmt="NLC", return_prefix_tokens=False)
    for layer, state in enumerate(states):
        shown = trace[f"{layer}.out"]
        assert isinstance(shown, Tensor)
        assert difference(shown[:, -state.shape[1] :], state) <= 1e-5
    (expected * pull(expected)).sum().backward()
    (logits * pull(logits)).sum().backward()
    assert gradients(model, ours, names) <= 1e-5
    saved = names.save(dict(ours.named_parameters()))
    assert set(saved) == set(model.state_dict())
    assert all(torch.equal(saved[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(("high", "wide"), [(16, 8), (24, 24), (8, 12)])
def test_timm_smooths_positions_for_images_of_other_sizes(high: int, wide: int) -> None:
    model, config = timm_model(dynamic_img_size=True), timm_vit.read_config(told(dynamic_img_size=True))
    ours = build(config).eval()
    ours.load_state_dict(timm_vit.keymap(config).load(model.state_dict()))
    assert_close(ours(images(3, high, wide)), model(images(3, high, wide)), **close)


def test_timms_folder_is_read_and_written_again(tmp_path: Path) -> None:
    model, (first, second) = timm_model(), (tmp_path / "first", tmp_path / "second")
    first.mkdir()
    rates = {"drop_path_rate": 0.25, "patch_drop_rate": 0.5}
    (first / "config.json").write_text(json.dumps({**told(**rates), "num_classes": 5, "global_pool": "token"}))
    write_weights(first, model.state_dict())
    loaded = load(first)
    assert (loaded.model_type, loaded.architecture) == ("timm_vit", "vit")
    assert_close(loaded.model(images()), model(images()), **close)
    loaded.save_hf(second)
    assert load(second).config == loaded.config
    assert (loaded.config.depth_dropout, loaded.config.patch_dropout) == (0.25, 0.5)
    written = json.loads((second / "config.json").read_text())
    again = timm_models().create_model(written["architecture"], **written["model_args"], num_classes=5).eval()
    again.load_state_dict(load_file(second))
    assert_close(again(images()), model(images()), rtol=0, atol=0)


def load_file(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes"),
    {
        "vit_tiny_patch16_224": (192, 12, 3, 16, 224, "class"),
        "vit_large_patch32_384": (1024, 24, 16, 32, 384, "class"),
        "vit_huge_patch14_gap_224": (1280, 32, 16, 14, 224, "mean"),
    }.items(),
)
def test_timms_names_tell_sizes(name: str, sizes: tuple[Any, ...]) -> None:
    c = timm_vit.read_config({"architecture": name, "num_classes": 10})
    assert (c.dim, c.layers, c.heads, c.patch, c.image, c.pool) == sizes
    with torch.device("meta"):
        model = timm_models().create_model(name, num_classes=10)
        assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in build(c).parameters())


# What cannot be


@pytest.mark.parametrize("c", [Config(dim=16, heads=2), Config(dim=16, heads=2, top="none", patch=8, hidden=20)])
def test_configs_go_there_and_back(c: Config) -> None:
    back = vit.read_config(vit.write_config(c))
    assert back == Config(**{**c.__dict__, "top": back.top, "hidden": c.hidden or 64})
    smooth = Config(**{**c.__dict__, "resample": "bicubic, smooth", "hidden": c.hidden or 64})
    assert timm_vit.read_config(timm_vit.write_config(smooth)) == smooth


def test_an_autoencoders_config_goes_there_and_back() -> None:
    c = mae.Config(dim=16, heads=2, hidden=20, decoder_dim=8, decoder_hidden=12, normalised=False)
    assert vit_mae.read_config(vit_mae.write_config(c)) == c


MISTAKES = [
    (lambda: vit.read_config({"hidden_act": "tanhh"}), "hidden_act='tanhh' is not supported for vit models"),
    (lambda: vit.read_config({"image_size": [12, 16]}), r"image_size=\[12, 16\] is not supported"),
    (lambda: vit.read_config({"head_dim": 3}), "sets what is not known here: head_dim=3"),
    (lambda: vit.read_config({"architectures": ["ViTForMaskedImageModeling"]}), "'ViTForMaskedImageModeling' is not"),
    (lambda: vit.write_config(Config(pool="mean")), "and this one pool='mean'; use to=headway, or .*'timm_vit'"),
    (lambda: vit_mae.read_config({"architectures": ["ViTMAEModel"]}), "'ViTMAEModel' is not supported"),
    (lambda: timm_vit.read_config({"architecture": "vit_base_patch16_clip_224"}), "'vit_base_patch16_clip_224' is not"),
    (lambda: timm_vit.read_config(told(init_values=1e-5)), "sets what is not known here: init_values=1e-05"),
    (lambda: timm_vit.read_config(told(global_pool="avg")), "global_pool='avg' with class_token=True and fc_norm=True"),
    (lambda: timm_vit.write_config(Config(act="relu")), "write it as a vit model"),
    (lambda: vit.Table(2).load([torch.zeros(1, 6, 4)]), "a table has 6 positions; allowed: 5, for 2×2 patches"),
]


@pytest.mark.parametrize(("mistake", "said"), MISTAKES)
def test_mistakes_are_told(mistake: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        mistake()


def test_an_unknown_architecture_of_timms_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architecture": "xcit_nano_12_p8_224"}')
    with pytest.raises(UserError, match="timm's 'xcit_nano_12_p8_224' is not known; allowed: those that begin with"):
        load(tmp_path)
