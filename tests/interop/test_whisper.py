"""Whisper's two layouts give the same model, and folders and files that are not what they say are told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway.data.tokenizer_readers import load_tokenizer
from headway.errors import UserError
from headway.generate.transcribe import Transcriber
from headway.interop.registry import family
from headway.interop.whisper import (
    check_sound,
    keymap,
    openai_config,
    openai_dims,
    openai_keymap,
    read_config,
    read_openai,
    write_config,
    write_sound,
)
from headway.loading import load as load_model
from headway.nn.trunk import EncoderDecoder
from headway.zoo.build import config_of
from headway.zoo.whisper import Config, build
from tests.data.test_whisper_tokenizer import lines
from tests.generate.hearing import frames, pair, words
from tests.interop.cases_whisper import whisper
from tests.interop.parity import load, shaken

SIZES = {
    "dim": 16,
    "layers": 2,
    "heads": 2,
    "hidden": 64,
    "decoder_layers": 1,
    "decoder_heads": 4,
    "decoder_hidden": 64,
}
TINY = Config(vocab=31, context=12, mels=6, source_context=8, **SIZES)

# as openai/whisper-tiny has it, apart from what its lists hold
PUBLISHED = {
    "activation_dropout": 0.0,
    "activation_function": "gelu",
    "apply_spec_augment": False,
    "architectures": ["WhisperForConditionalGeneration"],
    "attention_dropout": 0.0,
    "begin_suppress_tokens": [220, 50257],
    "bos_token_id": 50257,
    "classifier_proj_size": 256,
    "d_model": 384,
    "decoder_attention_heads": 6,
    "decoder_ffn_dim": 1536,
    "decoder_layerdrop": 0.0,
    "decoder_layers": 4,
    "decoder_start_token_id": 50258,
    "dropout": 0.0,
    "encoder_attention_heads": 6,
    "encoder_ffn_dim": 1536,
    "encoder_layerdrop": 0.0,
    "encoder_layers": 4,
    "eos_token_id": 50257,
    "forced_decoder_ids": [[1, 50259], [2, 50359], [3, 50363]],
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "mask_feature_length": 10,
    "mask_feature_min_masks": 0,
    "mask_feature_prob": 0.0,
    "mask_time_length": 10,
    "mask_time_min_masks": 2,
    "mask_time_prob": 0.05,
    "max_length": 448,
    "max_source_positions": 1500,
    "max_target_positions": 448,
    "median_filter_width": 7,
    "model_type": "whisper",
    "num_hidden_layers": 4,
    "num_mel_bins": 80,
    "pad_token_id": 50257,
    "scale_embedding": False,
    "suppress_tokens": [1, 2, 7],
    "torch_dtype": "float32",
    "use_cache": True,
    "use_weighted_layer_sum": False,
    "vocab_size": 51865,
}


@pytest.mark.parametrize(
    "config",
    [TINY, Config(), replace(TINY, act="relu", dropout=0.1, attention_dropout=0.2, act_dropout=0.3, hidden=20)],
)
def test_a_config_reads_as_it_was_written(config: Config) -> None:
    assert read_config(write_config(config)) == config


def test_a_published_config_is_the_preset() -> None:
    assert read_config(PUBLISHED) == config_of("whisper-tiny")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"architectures": ["WhisperForAudioClassification"]}, "WhisperForAudioClassification"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False is not supported"),
    ],
)
def test_options_of_other_models_are_refused_by_name(option: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_config(PUBLISHED | option)


# ---- two layouts


def published(model: EncoderDecoder, c: Config) -> dict[str, Any]:
    """A model as OpenAI's file holds it: in 16 bits."""
    tensors = openai_keymap(c).save(dict(model.named_parameters()))
    return {"dims": openai_dims(c), "model_state_dict": {name: x.detach().half() for name, x in tensors.items()}}


def made(c: Config = TINY) -> EncoderDecoder:
    torch.manual_seed(0)
    model = build(c).eval()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3).copy_(parameter.data.half().float())
    return model


@pytest.mark.slow
def test_both_layouts_give_the_same_model(tmp_path: Path) -> None:
    model = made()
    torch.save(published(model, TINY), tmp_path / "tiny.pt")
    config, tensors = read_openai(tmp_path / "tiny.pt", unsafe=True)
    assert config == TINY
    there = keymap(TINY).load(keymap(TINY).save(dict(model.named_parameters())))
    assert set(tensors) == set(there) == set(dict(model.named_parameters()))
    assert_close({name: x.float() for name, x in tensors.items()}, there, atol=0, rtol=0)
    loaded = load_model(tmp_path / "tiny.pt", unsafe=True).model
    sound, ids = torch.randn(2, 16, 6), torch.randint(0, 31, (2, 5))
    assert_close(loaded(sound, ids), model(sound, ids))


def test_names_and_shapes_of_openai_by_eye() -> None:
    held = published(made(), TINY)
    shapes = {name: tuple(x.shape) for name, x in held["model_state_dict"].items()}
    assert (held["dims"]["n_audio_ctx"], held["dims"]["n_text_head"]) == (8, 4)
    expected = {
        "encoder.conv1.weight": (16, 6, 3),
        "encoder.conv2.bias": (16,),
        "encoder.positional_embedding": (8, 16),
        "encoder.blocks.1.attn.query.bias": (16,),
        "encoder.blocks.0.mlp.2.weight": (16, 64),
        "encoder.ln_post.weight": (16,),
        "decoder.token_embedding.weight": (31, 16),
        "decoder.positional_embedding": (12, 16),
        "decoder.blocks.0.cross_attn.key.weight": (16, 16),
        "decoder.blocks.0.cross_attn_ln.weight": (16,),
        "decoder.blocks.0.mlp_ln.bias": (16,),
        "decoder.ln.bias": (16,),
    }
    assert {name: shapes[name] for name in expected} == expected
    assert len(shapes) == 5 + 2 * 15 + 2 + 2 + 24 + 2
    assert not any("key.bias" in name for name in shapes)


def test_openai_files_are_pickles_and_read_on_request(tmp_path: Path) -> None:
    torch.save(published(made(), TINY), tmp_path / "tiny.pt")
    with pytest.raises(UserError, match=r"tiny\.pt is a PyTorch pickle, which is not read unasked; .*unsafe=True"):
        load_model(tmp_path / "tiny.pt")


class Forged:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, ("open('executed', 'w')",)


def test_the_words_that_an_openai_file_lacks_are_named(tmp_path: Path) -> None:
    torch.save(published(made(), TINY), tmp_path / "tiny.pt")
    with pytest.raises(UserError, match=r"put multilingual\.tiktoken of OpenAI's package beside it"):
        load_model(tmp_path / "tiny.pt", unsafe=True).run("one.wav")


def test_a_forged_file_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"dims": Forged(), "model_state_dict": {}}, tmp_path / "tiny.pt")
    with pytest.raises(UserError, match="is not a PyTorch file of plain tensors"):
        read_openai(tmp_path / "tiny.pt", unsafe=True)
    assert not (tmp_path / "executed").exists()


def test_files_of_another_kind_are_told(tmp_path: Path) -> None:
    file, dims = tmp_path / "other.pt", openai_dims(TINY)
    torch.save({"weight": torch.zeros(2)}, file)
    with pytest.raises(UserError, match="is not one of OpenAI's Whisper files; allowed: dims and model_state_dict"):
        read_openai(file, unsafe=True)
    torch.save({"dims": dims, "model_state_dict": {"a": 3}}, file)
    with pytest.raises(UserError, match="its model_state_dict holds more than tensors"):
        read_openai(file, unsafe=True)
    for wrong in ({}, {**dims, "n_vocab": -1}, {**dims, "n_text_state": 32}, {**dims, "more": 1}, [1]):
        with pytest.raises(UserError, match=r"Whisper's sizes are told as|a Whisper of width"):
            openai_config(wrong)
    with pytest.raises(UserError, match=r"absent.pt does not exist"):
        load_model(tmp_path / "absent.pt")


def test_what_openai_has_no_word_for_is_refused() -> None:
    with pytest.raises(UserError, match="no place for hidden=20"):
        openai_dims(replace(TINY, hidden=20))


@pytest.mark.parametrize("names", [keymap, openai_keymap])
def test_a_table_that_is_not_of_sines_is_refused(names: Any) -> None:
    rules = names(TINY)
    stored = rules.save(dict(made().named_parameters()))
    fixed = next(key for key in stored if key.endswith(next(iter(rules.fixed))))
    rules.load({**stored, fixed: stored[fixed].half()})
    rules.load({key: x for key, x in stored.items() if key != fixed})
    with pytest.raises(UserError, match="other numbers than the fixed ones"):
        rules.load({**stored, fixed: stored[fixed] + 0.1})


@pytest.mark.slow
def test_an_openai_file_with_its_words_is_ready_to_listen(tmp_path: Path, shared: Path) -> None:
    config = replace(TINY, vocab=51_864, mels=80, layers=1)
    torch.save(published(made(config), config), tmp_path / "tiny.en.pt")
    gpt2 = load_tokenizer(shared / "weights" / "gpt2_tokenizer")
    (tmp_path / "gpt2.tiktoken").write_text(lines([gpt2.token(id) for id in range(50_256)]))
    loaded = load_model(tmp_path / "tiny.en.pt", unsafe=True)
    assert loaded.tokenizer is not None
    assert isinstance(loaded.model, EncoderDecoder)
    clip = torch.randn(8000, generator=torch.Generator().manual_seed(1))
    found = Transcriber.of(loaded.model, loaded.tokenizer, loaded.extra_config, 16).transcribe(clip, 16_000)
    assert found.language is None
    assert found.segments
    loaded.save_hf(tmp_path / "there")
    again = load_model(tmp_path / "there")
    assert again.tokenizer is not None
    assert isinstance(again.model, EncoderDecoder)
    assert again.extra_config["begin_suppress_tokens"] == [220, 50_256]
    back = Transcriber.of(again.model, again.tokenizer, loaded.extra_config, 16).transcribe(clip, 16_000)
    assert back == found


# ---- folders


@pytest.mark.slow
def test_a_folder_goes_to_transformers_and_back(tmp_path: Path) -> None:
    from transformers import WhisperForConditionalGeneration

    theirs = shaken(whisper()).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    loaded.save_hf(tmp_path / "back")
    again, told = WhisperForConditionalGeneration.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    kept = theirs.state_dict()
    assert all(torch.equal(x, kept[name]) for name, x in again.state_dict().items())
    assert load_model(tmp_path / "back").config == loaded.config


@pytest.mark.slow
def test_settings_of_a_folder_come_along(tmp_path: Path) -> None:
    theirs, ours = pair(0)
    theirs.save_pretrained(tmp_path)
    words().save(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.tokenizer is not None
    assert isinstance(loaded.model, EncoderDecoder)
    found = type(ours).of(loaded.model, loaded.tokenizer, loaded.extra_config, ours.window)
    assert found.rules == ours.rules
    assert (found.marks, found.latest, found.window) == (ours.marks, ours.latest, ours.window)
    sound = frames(0, ours.window)
    with torch.inference_mode():
        assert found.language(found.hear(sound, 0)) == ours.language(ours.hear(sound, 0))
    loaded.save_hf(tmp_path / "back")
    stored = json.loads((tmp_path / "back" / "generation_config.json").read_text())
    assert stored["lang_to_id"] == theirs.generation_config.lang_to_id
    assert load_model(tmp_path / "back").extra_config == loaded.extra_config


def test_a_preprocessor_of_other_frames_is_refused() -> None:
    config = config_of("whisper-large-v3")
    assert isinstance(config, Config)
    told = write_sound(config)
    assert (told["feature_size"], told["chunk_length"], told["nb_max_frames"]) == (128, 30, 3000)
    check_sound(told, config)
    check_sound({}, config)
    with pytest.raises(UserError, match=r"has hop_length=80; allowed: 160"):
        check_sound(told | {"hop_length": 80}, config)
    with pytest.raises(UserError, match=r"has dither=0.1"):
        check_sound(told | {"dither": 0.1}, config)


def test_the_library_reads_what_is_written_of_sounds(tmp_path: Path) -> None:
    from transformers import WhisperFeatureExtractor

    (tmp_path / "preprocessor_config.json").write_text(json.dumps(write_sound(replace(TINY, source_context=1500))))
    found = WhisperFeatureExtractor.from_pretrained(tmp_path)
    assert (found.feature_size, found.n_samples, found.nb_max_frames) == (6, 480_000, 3000)


def test_a_bare_model_is_read_without_its_prefix() -> None:
    """As `WhisperModel` is saved, and with the output as old files repeat it."""
    whole = shaken(whisper())
    known = family("whisper")
    config = known.read_config(whole.config.to_dict())
    bare: dict[str, Tensor] = whole.model.state_dict()
    load(known.build(config), known.keymap(config).load(bare))
    with pytest.raises(UserError, match="should be one tensor and differ"):
        known.keymap(config).load({**whole.state_dict(), "proj_out.weight": torch.zeros(99, 16)})
