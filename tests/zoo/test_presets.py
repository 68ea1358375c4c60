"""Presets: every one is a config of its architecture, and mistakes in asking for one are told."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest
import torch

from headway.errors import UserError
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.zoo import gpt2
from headway.zoo.build import ARCHITECTURES, architecture, architecture_of, build, config_of
from headway.zoo.presets import PRESETS

ASKED = """
transformer-nano transformer-tiny transformer-small transformer-base transformer-big
bert-tiny bert-mini bert-small bert-medium bert-base bert-large
text-classifier-tiny text-classifier-mini text-classifier-small text-classifier-medium roberta-base roberta-large
albert-base albert-large albert-xlarge albert-xxlarge gpt2 gpt2-medium gpt2-large gpt2-xl
gpt-nano gpt-micro gpt-mini gpt-baby
gpt3-small gpt3-medium gpt3-large gpt3-xl gpt3-2.7b gpt3-6.7b gpt3-13b gpt3
llama-7b llama-13b llama-30b llama-65b llama2-7b llama2-13b llama2-70b llama3-8b llama3-70b mistral-7b mixtral-8x7b
qwen3-0.6b gemma2-2b olmo-1b olmo2-1b pythia-160m bloom-560m qwen1.5-moe-a2.7b gpt-oss-20b deepseek-v3
deberta-v3-base led-base-16384 longformer-base-4096 modernbert-base xlnet-base nllb-600m
t5-tiny t5-mini t5-small t5-base t5-large t5-3b t5-11b t5-v1.1-small t5-v1.1-base t5-v1.1-large t5-v1.1-xl t5-v1.1-xxl
t5gemma-2b-2b
bart-base bart-large marian
vit-nano vit-micro vit-ti16 vit-s16 vit-b16 vit-l16 vit-h14 dinov2-s14 dinov3-s16 dinov3-b16 deit-ti16 deit-b16
beit-b16 beit-l16 pixels-nano pixels-128
mae-nano mae-b16 mae-l16 mae-h14 simmim-nano simmim-b16 simmim-swin-b
convnext-t convnext-b convnextv2-t
swin-nano swin-t swin-s swin-b swin-l swinv2-t swinv2-s swinv2-b
captioner captioner-small captioner-small-hard vit-captioner-small
clip-nano clip-vit-b32 clip-vit-b16 clip-vit-l14 clip-vit-l14-336 siglip-b16 clip-resnet-18 simclr-nano simclr-resnet-50
mvit-b mvit-nano mvitv2-t mvitv2-s mvitv2-b
resnet-nano resnet-nano-attention resnet-18 resnet-26 resnet-50 resnet-50-attention lrnet-nano lrnet-26 lrnet-50
seq2seq-lstm rnn-small rnnsearch-small rnnencdec-50 rnnsearch-50
conformer-nano conformer-s conformer-m conformer-l wav2vec2-base wav2vec2-conformer-large
whisper-tiny whisper-tiny.en whisper-base whisper-base.en whisper-small whisper-small.en
whisper-medium whisper-medium.en
whisper-large whisper-large-v2 whisper-large-v3 whisper-turbo vectors-small forecaster-small workbench-nano workbench
"""


def test_all_published_sizes_are_there() -> None:
    assert list(PRESETS) == ASKED.split()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_config_of_its_architecture(name: str) -> None:
    config = config_of(name)
    assert architecture_of(config) == PRESETS[name].architecture
    assert all(hasattr(config, field) for field in PRESETS[name].sizes)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_is_a_small_config_and_a_page(name: str) -> None:
    sizes = [field for field in fields(architecture(name).Config) if not field.name.endswith("dropout")]
    assert len(sizes) <= 20  # rates of training besides
    assert architecture_of(architecture(name).Config()) == name


TINY: dict[str, dict[str, object]] = {
    "transformer-base": {"dim": 16, "layers": 1, "heads": 2},
    "bert-base": {"dim": 16, "layers": 1, "heads": 2},
    "albert-base": {"width": 4, "dim": 16, "layers": 2, "heads": 2},
    "gpt2": {"dim": 16, "layers": 1, "heads": 2},
    "llama3-8b": {"dim": 16, "layers": 1, "heads": 2, "kv_heads": 1, "hidden": 8},
    "mixtral-8x7b": {"dim": 16, "layers": 1, "heads": 2, "kv_heads": 1, "hidden": 8},
    "t5-small": {"dim": 16, "layers": 1, "heads": 2, "hidden": 8},
    "bart-base": {"dim": 16, "layers": 1, "decoder_layers": 1, "heads": 2, "decoder_heads": 2},
    "marian": {"dim": 16, "layers": 1, "decoder_layers": 1, "heads": 2, "decoder_heads": 2},
    "seq2seq-lstm": {"dim": 8, "hidden": 8, "target_vocab": 11},
    "rnnsearch-50": {"dim": 8, "hidden": 8, "align": 4, "readout": 4},
}


@pytest.mark.parametrize("name", TINY)
def test_sizes_replace_those_of_a_preset(name: str) -> None:
    model, tokens = build(name, vocab=11, **TINY[name]), torch.arange(6).view(2, 3)
    assert isinstance(model, EncoderDecoder | Trunk)
    y = model(tokens, tokens) if isinstance(model, EncoderDecoder) else model(tokens)
    assert y.shape[:2] == (2, 3)


def test_a_config_is_built_as_it_is_or_with_other_sizes() -> None:
    config = gpt2.Config(vocab=11, context=8, dim=16, layers=3, heads=2)
    assert config_of(config) == config
    assert config_of(config, layers=1) == gpt2.Config(vocab=11, context=8, dim=16, layers=1, heads=2)
    model = build(config, layers=1)
    assert isinstance(model, Trunk)
    assert model(torch.zeros(1, 8, dtype=torch.long)).shape == (1, 8, 11)


def test_mistakes_are_told() -> None:
    with pytest.raises(UserError, match=r"no preset 'gpt2-xll'; .*did you mean 'gpt2-xl'\?"):
        build("gpt2-xll")
    with pytest.raises(UserError, match=r"no preset 'bert-nano'; .*did you mean 'bert-tiny'\?"):
        build("bert-nano")
    with pytest.raises(UserError, match=r"no field 'lyers'; .*did you mean 'layers'\?"):
        build("gpt2", lyers=2)
    with pytest.raises(UserError, match="layers='two'"):
        build("gpt2", layers="two")
    with pytest.raises(UserError, match=r"cannot build a model from dict .*headway list shows them"):
        build({"dim": 3})


def test_presets_are_read_without_torch() -> None:
    told = "import headway.zoo.presets, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
