"""Wav2Vec2-Conformer's config both ways, what is refused, and what of its files is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from headway import UserError
from headway import load as read
from headway.conversion import convert
from headway.data.sounds import read_sound
from headway.data.text_lines import MediaLocation
from headway.interop.registry import family
from headway.interop.wav2vec2_conformer import keymap, read_config
from headway.system import write_json
from headway.zoo.wav2vec2_conformer import Config, build
from tests.data.files import wav
from tests.interop.cases_wav2vec2_conformer import CASES, LAYERED, SIZES, model
from tests.interop.parity import Case, answer, load, shaken

LEFT = ("pos_conv_embed", "masked_spec_embed")  # what no call of theirs reads, but to train


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
@torch.no_grad()
def test_what_is_written_makes_the_same_model_there(case: Case) -> None:
    import transformers

    theirs: Any = shaken(case.make()).eval()
    known = family(theirs.config.model_type)
    ours = known.read_config(theirs.config.to_dict())
    written, names = known.write_config(ours), known.keymap(ours)
    assert known.read_config(written) == ours
    kind = getattr(transformers, written["architectures"][0])
    assert isinstance(theirs, kind)
    again = kind._from_config(kind.config_class.from_dict(written)).eval()
    back = names.save(names.load(theirs.state_dict()))
    missing, unknown = again.load_state_dict(back, strict=False)
    assert not unknown
    assert all(any(part in name for part in LEFT) for name in missing)
    x = torch.randn(2, 61)
    assert_close(answer(again(x)), answer(theirs(x)))


@pytest.mark.slow
def test_files_are_read_by_either_library(tmp_path: Path) -> None:
    theirs: Any = shaken(model("Wav2Vec2ConformerForCTC", **LAYERED)).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    found = read(tmp_path / "theirs")
    found.save(tmp_path / "ours")
    found.save_hf(tmp_path / "back")
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    x = torch.randn(2, 61)
    with torch.no_grad():
        expected = theirs(x).logits
        assert_close(again(x).logits, expected)
        assert_close(read(tmp_path / "ours").model(x[..., None]), expected.log_softmax(-1), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_a_published_folder_is_run_and_converted(tmp_path: Path) -> None:
    from transformers import Wav2Vec2CTCTokenizer, Wav2Vec2FeatureExtractor

    tokens = ["<pad>", "<s>", "</s>", "<unk>", "|", "E", "T", "A", "H"]
    write_json(tmp_path / "vocab.json", {token: id for id, token in enumerate(tokens)})
    words: Any = Wav2Vec2CTCTokenizer(str(tmp_path / "vocab.json"))
    theirs: Any = shaken(model("Wav2Vec2ConformerForCTC", **LAYERED)).eval()
    with torch.no_grad():
        theirs.lm_head.bias[:4] = -9.0  # letters are heard
    for part in (theirs, words, Wav2Vec2FeatureExtractor()):
        part.save_pretrained(tmp_path / "theirs")
    (tmp_path / "one.wav").write_bytes(wav(length=2000, rate=16_000))
    found = read(tmp_path / "theirs").run(str(tmp_path / "one.wav"))
    with torch.no_grad():
        samples = torch.from_numpy(read_sound(MediaLocation(tmp_path / "one.wav"), 16_000))
        heard = theirs(((samples - samples.mean()) / (samples.var(unbiased=False) + 1e-7).sqrt())[None]).logits
    assert found["output"] == words.batch_decode(heard.argmax(-1))[0] != ""
    convert(tmp_path / "theirs", tmp_path / "ours", "headway", unsafe=False)
    assert read(tmp_path / "ours").run(str(tmp_path / "one.wav")) == found


def test_statistics_of_the_batch_norm_go_both_ways() -> None:
    theirs = model("Wav2Vec2ConformerForCTC", **LAYERED)
    config = read_config(theirs.config.to_dict())
    names = keymap(config)
    ours = names.load(theirs.state_dict())
    kept = {name for name in ours if name.endswith(("running_mean", "running_var", "num_batches_tracked"))}
    assert kept == {name for name, _ in build(config).named_buffers()}
    again = names.save({name: ours[name] for name in kept})
    assert_close(again, {name: theirs.state_dict()[name] for name in again})


def test_a_pretrained_file_is_read_without_what_it_was_trained_by() -> None:
    theirs = model("Wav2Vec2ConformerForPreTraining", codevector_dim=4, proj_codevector_dim=4).eval()
    config = read_config(theirs.config.to_dict())
    assert config.top == "none"
    ours = build(config).eval()
    load(ours, keymap(config).load(theirs.state_dict()))
    x = torch.randn(2, 61)
    with torch.no_grad():
        assert_close(ours(x[..., None]), theirs.wav2vec2_conformer(x).last_hidden_state, atol=1e-5, rtol=1e-5)


def test_defaults_are_those_of_the_library() -> None:
    import transformers

    told = transformers.Wav2Vec2ConformerConfig(vocab_size=32).to_dict()
    found = read_config({"architectures": ["Wav2Vec2ConformerForCTC"], "vocab_size": 32})
    assert found == read_config({**told, "architectures": ["Wav2Vec2ConformerForCTC"]})
    assert (found.dim, found.layers, found.act, found.norms) == (768, 12, "gelu", "first")
    assert Config() == read_config(PUBLISHED)


PUBLISHED = {  # the large ones with relative positions, where they differ from the defaults
    "architectures": ["Wav2Vec2ConformerForCTC"],
    "model_type": "wav2vec2-conformer",
    "conv_bias": True,
    "feat_extract_norm": "layer",
    "hidden_act": "swish",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "vocab_size": 32,
}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"position_embeddings_type": "rotary"}, "position_embeddings_type='rotary'"),
        ({"feat_extract_norm": "none"}, "feat_extract_norm='none'"),
        ({"feat_extract_activation": "relu"}, "feat_extract_activation='relu'"),
        ({"layer_norm_eps": 1e-3}, "layer_norm_eps=0.001"),
        ({"add_adapter": True}, "add_adapter=True"),
        ({"use_weighted_layer_sum": True}, "use_weighted_layer_sum=True"),
        ({"hidden_act": "mish"}, "hidden_act='mish'"),
        ({"pad_token_id": 31}, "pad_token_id=31"),
        ({"vocab_size": None}, "has no 'vocab_size'"),
        ({"architectures": ["Wav2Vec2ConformerForXVector"]}, "'Wav2Vec2ConformerForXVector' is not supported"),
    ],
)
def test_what_we_would_not_compute_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_config({"architectures": ["Wav2Vec2ConformerForCTC"], **SIZES, **options})


def test_a_wide_pointwise_convolution_is_refused() -> None:
    theirs = model("Wav2Vec2ConformerModel")
    tensors = theirs.state_dict()
    name = "encoder.layers.0.conv_module.pointwise_conv1.weight"
    tensors[name] = tensors[name].expand(-1, -1, 3)
    with pytest.raises(UserError, match="a convolution over one frame is"):
        keymap(read_config(theirs.config.to_dict())).load(tensors)
