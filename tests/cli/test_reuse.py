"""An encoder that learned without classes, reused under a new head: what it makes of an image stays what it was."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from headway.data.preprocess import ImagePreprocess
from headway.errors import UserError
from headway.loading import load
from headway.model import Model
from headway.nn.masked_autoencoder import MaskedAutoencoder, MaskedImageModel
from headway.nn.towers import TwoTowers
from headway.nn.trunk import Captioner, Trunk, tensors_of
from headway.tasks.captioning import Captioning
from headway.tasks.ctc_speech import CTC
from headway.tasks.inputs import ImageInput
from headway.tasks.masked_image import PANELS, MaskedImage
from headway.tasks.media_classification import ImageClassification
from headway.tasks.text_tasks import Framing, trained
from headway.training.groups import (
    ReusedWeights,
    describe_reuse,
    freeze,
    parts_of,
    reused_part,
    reused_weights,
    take_over,
)
from headway.zoo import captioner, clip, mae, seq2seq, simclr, simmim, swinv2, vit, vit_captioner
from headway.zoo.build import architecture_of, build, config_of, from_plain, to_plain
from headway.zoo.encoders import EncoderPart, ImageConfig, encoder_config
from tests.cli.command import Place, made_place
from tests.data.files import idx, put

SIGHT = ImageInput(ImagePreprocess((16, 16)))
PAIR: dict[str, Any] = {"dim": 16, "layers": 1, "heads": 2}
PYRAMID: dict[str, Any] = {"image": 16, "patch": 2, "dim": 8, "layers": (1, 1), "heads": (1, 2), "windows": (2, 2)}
TOWERS: dict[str, Any] = {"image_dim": 16, "image_layers": 1, "image_heads": 2, "width": 2}

CONFIGS: dict[str, object] = {
    "mae": mae.Config(image=16, patch=4, decoder_dim=16, decoder_layers=1, decoder_heads=2, **PAIR),
    "simmim": simmim.Config(simmim.Vit(image=16, patch=4, **PAIR)),
    "simmim, swin": simmim.Config(simmim.Swin(**PYRAMID)),
    "simmim, swinv2": simmim.Config(simmim.SwinV2(**PYRAMID)),
    "simclr": simclr.Config("resnet-nano", image=16, width=2),
    "clip": clip.Config(vocab=9, end=2, context=8, image=16, patch=4, **PAIR, **TOWERS),
    "vit": vit.Config(image=16, patch=4, classes=5, **PAIR),
}
CLASSES = {"classes": 2}  # as many as the vectors that simclr and clip compare are wide


def loaded(config: object) -> Model:
    torch.manual_seed(0)
    return Model(build(config).eval(), config, architecture_of(config))


def eye(model: nn.Module) -> Trunk:
    match model:
        case MaskedAutoencoder() | MaskedImageModel():
            return model.encoder
        case TwoTowers():
            return model.image
        case _:
            assert isinstance(model, Trunk)
            return model


def probe(start: Model, part: EncoderPart) -> tuple[nn.Module, ReusedWeights]:
    torch.manual_seed(1)
    more = {"top": "classes"} if part.architecture == "vit" else {}
    model = build(config_of(part.config, **CLASSES, **more)).eval()
    found = reused_weights(model, start, part, ImageClassification(SIGHT, ("a", "b")))
    take_over(model, found)
    return model, found


@pytest.mark.parametrize("name", CONFIGS)
def test_a_reused_encoder_sees_what_it_saw(name: str) -> None:
    start = loaded(CONFIGS[name])
    model, found = probe(start, encoder_config(start.config))
    images = torch.randn(2, 3, 16, 16)
    assert isinstance(model, Trunk)
    with torch.no_grad():
        assert torch.equal(model.features(images), eye(start.model).features(images))
    assert found.new == (["head.out"] if name == "clip" else ["head"])  # whose norm goes on
    assert "head.out.weight" not in found.tensors
    assert model(images).shape == (2, 2)


def test_classes_are_taken_over_where_they_are_the_same() -> None:
    start = loaded(vit.Config(image=16, patch=4, classes=2, **PAIR))
    for names, new in ((("a", "b"), []), (("b", "a"), ["head"])):
        start = Model(start.model, start.config, "vit", extra_config=ImageClassification(SIGHT, names).extra_config())
        assert probe(start, encoder_config(start.config))[1].new == new


def test_what_cannot_learn_a_task_is_refused_in_a_sentence() -> None:
    start = loaded(CONFIGS["mae"])
    assert reused_part(start, MaskedImage).prefix == ""
    found = reused_part(start, ImageClassification)
    assert found == EncoderPart(mae.encoder_config(start.config), "encoder.")
    with pytest.raises(UserError, match=r"a model of mae cannot learn this task \(speech\); allowed: conformer"):
        reused_part(start, CTC)


def test_what_is_new_is_told_by_its_largest_part() -> None:
    new = ["head.out.weight", "head.out.bias", "embed.position.table", "scale"]
    assert parts_of(new, ["embed.patches.weight", "stack.norm"]) == ["head", "embed.position", "scale"]
    tensors: dict[str, Tensor] = {"a": torch.zeros(1)}
    assert describe_reuse(ReusedWeights(tensors, 3, ["head"]), "run") == "1 of 3 tensors of run; new: head"
    assert describe_reuse(ReusedWeights(tensors, 1, []), "run") == "1 of 1 tensors of run"


CAPTIONERS: dict[str, Callable[[ImageConfig], object]] = {
    "captioner": lambda eye: captioner.Config(vocab=9, image=16, encoder=eye, dim=8, hidden=8, align=8),
    "vit_captioner": lambda eye: vit_captioner.Config(vocab=9, image=16, encoder=eye, dim=8, layers=1, heads=2),
}


@pytest.mark.parametrize("kind", CAPTIONERS)
@pytest.mark.parametrize("name", CONFIGS)
def test_an_encoder_of_images_becomes_that_of_a_captioner(name: str, kind: str) -> None:
    words = trained("words", ["a red square"], None, Framing(eos=True))
    start, task = loaded(CONFIGS[name]), Captioning(SIGHT, words, 8, 1)
    start = replace(start, preprocess=SIGHT.preprocess)
    part = reused_part(start, Captioning)
    assert part == encoder_config(start.config)._replace(place="encoder.")
    config = CAPTIONERS[kind](part.config)
    assert from_plain(type(config), to_plain(config)) == config
    model = build(config).eval()
    found = reused_weights(model, start, part, task)
    take_over(model, found)
    assert found.new == ["decoder"]
    mine, theirs = tensors_of(model), tensors_of(start.model)
    taken = [one for one in mine if one.startswith("encoder.")]
    assert set(taken) == set(found.tensors)
    for one in taken:
        assert torch.equal(mine[one], theirs[part.prefix + one.removeprefix("encoder.")])
    images = torch.randn(2, 3, 16, 16)
    assert isinstance(model, Captioner)
    with torch.no_grad():
        features = eye(start.model).features(images).flatten(1, -2)
        places = model.encoder(images)
    assert torch.equal(places, features[:, features.shape[1] - places.shape[1] :])


def test_what_is_no_encoder_of_images_becomes_none_of_a_captioner() -> None:
    start = loaded(seq2seq.Config(vocab=9, dim=4, hidden=4, layers=1))
    said = (
        r"a model of seq2seq cannot learn this task \(captions, text\); "
        r"allowed: captioner, vit_captioner, trocr, blip, llava, or an image encoder"
    )
    with pytest.raises(UserError, match=said):
        reused_part(start, Captioning)
    with pytest.raises(UserError, match=r"does not say how images are made fit for vit; add preprocessor_config.json"):
        reused_part(loaded(CONFIGS["vit"]), Captioning)
    with pytest.raises(UserError, match="of kind 'gone' is not known"):
        from_plain(captioner.Config, {"encoder": {"kind": "gone"}})
    with pytest.raises(UserError, match=r"encoder=.* in a config; allowed: str or ImageConfig"):
        from_plain(captioner.Config, {"encoder": {"kind": "gpt2"}})


FROZEN: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]] = {
    "vit": (lambda: build(CONFIGS["vit"]), ("head.",)),
    "swin": (lambda: build(swinv2.Config(**PYRAMID)), ("head.",)),
    "two towers": (lambda: build(CONFIGS["clip"]), ("image.head.", "text.head.")),
    "an encoder and a decoder": (lambda: build(seq2seq.Config(vocab=9, dim=4, hidden=4, layers=1)), ("decoder.",)),
}


@pytest.mark.parametrize("name", FROZEN)
def test_the_encoder_is_a_part_of_that_name_or_all_but_the_head(name: str) -> None:
    make, left = FROZEN[name]
    model = make()
    freeze(model, ("encoder",))
    free = {name for name, one in model.named_parameters() if one.requires_grad}
    assert free == {name for name, _ in model.named_parameters() if name.startswith(left)}
    assert free


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Photos in classes, and the same in one folder."""
    place = made_place(tmp_path_factory.mktemp("place"))
    flat = place.folder / "flat"
    flat.mkdir()
    for file in (place.folder / "photos").glob("*/*.png"):
        (flat / file.name).write_bytes(file.read_bytes())
    return place


SHORT = ["--train.threads", "1", "--train.batch", "16", "--model.image", "8"]
SMALL = ["--preset", "mae-nano", "--model.dim", "16", "--model.layers", "1", "--model.decoder-layers", "1"]


def tensors(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def pretrained(place: Place) -> str:
    done = place("train", "flat", "--objective", "masked", *SMALL, *SHORT, "--train.steps", "3", "--out", "mae")
    assert (done.code, done.err) == (0, "")
    assert "flat: 40 images, to be learned from without classes" in done.out
    assert "headway train DATA --from mae --freeze encoder" in done.out
    assert "perplexity" not in done.out
    return "mae"


@pytest.mark.slow
def test_a_linear_probe_changes_the_head_alone_and_says_what_it_reuses(place: Place, pretrained: str) -> None:
    count = len(tensors(place.folder / pretrained))
    for out, steps in (("probe", "3"), ("longer", "5")):
        words = ["--from", pretrained, "--freeze", "encoder", *SHORT, "--train.steps", steps, "--out", out]
        done = place("train", "photos", *words)
        assert (done.code, done.err) == (0, "")
        assert f"reuses  23 of {count} tensors of mae; new: head " in done.out
    before, after, longer = (tensors(place.folder / name) for name in (pretrained, "probe", "longer"))
    for name, tensor in after.items():
        if name.startswith("head."):
            assert not torch.equal(tensor, longer[name])
        else:
            assert torch.equal(tensor, before[f"encoder.{name}"])
            assert torch.equal(tensor, longer[name])
    assert place("run", "probe", "photos/dark/0.png").out.split()[0] in ("dark", "light")


@pytest.mark.slow
def test_masked_images_are_shown_in_the_report(place: Place, pretrained: str) -> None:
    page = (place.folder / pretrained / "report.html").read_text(encoding="utf-8")
    assert page.count('<img src="data:image/png;base64,') == 4 * (len(PANELS) + 5)  # and all heads, and three of them
    assert "what encoder.0.attn, the last layer, attends to" in page
    assert "Nothing can be drawn" not in page
    assert "masked learning from images" in page
    vector = [float(word) for word in place("run", pretrained, "photos/dark/0.png").out.split()]
    assert len(vector) == 16
    assert sum(x * x for x in vector) == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_images_alone_in_an_idx_file_are_learned_from(place: Place) -> None:
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8), np.uint8)
    put(place.folder / "digits", {"images-idx3-ubyte.gz": gzip.compress(idx(images))})
    file = "digits/images-idx3-ubyte.gz"
    done = place("train", file, "--objective", "masked", *SMALL, *SHORT, "--train.steps", "2", "--out", "alone")
    assert (done.code, done.err) == (0, "")
    assert f"{file}: 30 images of 8 × 8 pixels, to be learned from without classes" in done.out
    assert len(place("run", "alone", f"{file}/3").out.split()) == 16
    assert "has no labels beside it" in place("train", file, "--dry-run").said


REFUSED = {
    "no classes": (["flat"], "nothing says the classes"),
    "a preset of something else": (
        ["flat", "--objective", "masked", "--preset", "vit-nano"],
        "vit-nano cannot learn this task (images, masked); allowed: mae-nano",
    ),
    "a start of something else": (
        ["flat", "--objective", "contrastive", "--from", "mae"],
        "a model of mae cannot learn this task (images, contrastive); allowed: simclr",
    ),
    "mixed images": (["flat", *SMALL, "--data.augment", "mixup"], "data.augment 'mixup'; allowed: crop, flip"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_wrong_combinations_get_one_sentence(place: Place, pretrained: str, name: str) -> None:
    words, said = REFUSED[name]
    assert said in place("train", *words, "--dry-run").said


@pytest.mark.slow
def test_a_linear_probe_of_clip_leaves_the_norm_that_its_head_takes_over(place: Place) -> None:
    small = [
        "--model.dim",
        "16",
        "--model.heads",
        "2",
        "--model.layers",
        "1",
        "--model.width",
        "8",
        "--model.patch",
        "4",
    ]
    tower = ["--model.image-dim", "16", "--model.image-heads", "2", "--model.image-layers", "1"]
    words = ["told", "--preset", "clip-nano", *small, *tower, *SHORT, "--train.steps", "2", "--out", "clip"]
    assert place("train", *words).code == 0
    probed = ["--from", "clip", "--freeze", "encoder", *SHORT, "--train.steps", "3", "--out", "of clip"]
    done = place("train", "photos", *probed)
    assert (done.code, done.err) == (0, "")
    before, after = tensors(place.folder / "clip"), tensors(place.folder / "of clip")
    assert [
        name
        for name in after
        if not name.startswith("head.out.") and not torch.equal(after[name], before[f"image.{name}"])
    ] == []
    assert "head.norm.weight" in after


@pytest.mark.slow
def test_a_model_that_is_there_has_its_own_sizes(place: Place, pretrained: str) -> None:
    refused = place("train", "photos", "--from", pretrained, "--preset", "swin-nano", "--dry-run")
    assert refused.code == 2
    assert "--preset swin-nano with --from mae, which is a model already; leave one of them out" in refused.err


SEEN = ["--preset", "resnet-nano", "--model.dim", "8", "--model.layers", "[1, 1]", "--model.widths", "[8, 8]"]
TOLD = ["--data.tokenizer", "words", "--model.dim", "8", "--train.threads", "1", "--train.batch", "16"]
WRITERS = {
    "recurrent": ["--model.hidden", "8", "--model.align", "8"],
    "transformer": ["--preset", "vit-captioner-small", "--model.heads", "2", "--model.decoder-layers", "1"],
}


@pytest.fixture(scope="module")
def classifier(place: Place) -> str:
    done = place("train", "photos", *SEEN, *SHORT, "--train.steps", "2", "--out", "seen")
    assert (done.code, done.err) == (0, "")
    return "seen"


@pytest.mark.long
@pytest.mark.parametrize("name", WRITERS)
def test_a_captioner_goes_on_from_a_classifier_of_images(place: Place, classifier: str, name: str) -> None:
    before = tensors(place.folder / classifier)
    words = ["told", "--from", classifier, *TOLD, *WRITERS[name], "--train.steps", "3"]
    for out, how in ((f"{name} frozen", ["--freeze", "encoder"]), (f"{name} free", [])):
        done = place("train", *words, *how, "--out", out)
        assert (done.code, done.err) == (0, "")
        assert f"reuses  {len(before) - 2} of {len(before)} tensors of seen; new: decoder " in done.out
        assert f"on the encoder of {classifier}" in (place.folder / out / "README.md").read_text(encoding="utf-8")
        after = tensors(place.folder / out)
        equal = [torch.equal(after[f"encoder.{one}"], before[one]) for one in before if not one.startswith("head.")]
        assert all(equal) == bool(how)
        settings = json.loads((place.folder / out / "config.json").read_text(encoding="utf-8"))
        assert settings["config"]["encoder"]["kind"] == "resnet"
        assert "id2label" not in settings["kept"]
        assert place("run", out, "told/0.png").code == 0
    again = place("train", "--config", str(Path(f"{name} free") / "recipe.yaml"), "--out", f"{name} again")
    assert (again.code, again.err) == (0, "")
    first, second = (tensors(place.folder / f"{name} {run}") for run in ("free", "again"))
    assert all(torch.equal(tensor, second[one]) for one, tensor in first.items())


NO_ENCODER = {
    "an encoder besides": (["--model.encoder", "resnet-18"], "--model.encoder resnet-18 with --from seen, which is an"),
    "a preset of something else": (
        ["--preset", "vit-nano"],
        "vit-nano cannot learn this task (captions, text); allowed",
    ),
    "images of another size": (["--model.image", "16"], "--model.image 16 with data that asks for 8; leave it out"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NO_ENCODER)
def test_what_contradicts_an_encoder_gets_one_sentence(place: Place, classifier: str, name: str) -> None:
    words, said = NO_ENCODER[name]
    refused = place("train", "told", "--from", classifier, *words, "--dry-run")
    assert refused.code == 2
    assert said in refused.err
    assert refused.err.count("\n") == 1


@pytest.mark.slow
def test_a_captioner_goes_on_from_a_vit_of_hugging_face(place: Place) -> None:
    import transformers

    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=8, patch_size=4
    )
    transformers.ViTForImageClassification(config).save_pretrained(place.folder / "foreign")
    size = {"size": {"height": 8, "width": 8}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    put(place.folder / "foreign", {"preprocessor_config.json": json.dumps(size).encode()})
    words = ["--from", "foreign", "--freeze", "encoder", *TOLD, *WRITERS["transformer"], "--train.steps", "2"]
    done = place("train", "told", *words, "--out", "of foreign")
    assert (done.code, done.err) == (0, "")
    theirs, ours = load(place.folder / "foreign").model, load(place.folder / "of foreign").model
    images = torch.randn(2, 3, 8, 8)
    assert isinstance(theirs, Trunk)
    assert isinstance(ours, Captioner)
    with torch.no_grad():
        assert torch.equal(ours.encoder(images), theirs.features(images)[:, 1:])
