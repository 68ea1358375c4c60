"""The model folder: what is written is read again, by us and by the other library, and what is broken is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from torch import Tensor
from torch.testing import assert_close

from headway.data.tokenizer import Roles, Tokenizer
from headway.errors import UserError
from headway.interop.keymap import matched
from headway.loading import load
from headway.model import Model
from headway.nn.trunk import EncoderDecoder
from headway.system import read_json, write_json
from headway.tasks.generation import GenerationOptions
from headway.zoo.build import build, config_of
from headway.zoo.cost import dummy_inputs
from tests.interop.parity import Case
from tests.interop.table import CASES


def numbers(loaded: Model) -> Tensor:
    """What a model says of what it reads, whatever that is."""
    length = 61 if hasattr(loaded.config, "strides") else None  # few samples of a waveform
    given = [drawn(x) for x in dummy_inputs(loaded.config, loaded.model, 2, length).tensors]
    model: Any = loaded.model
    with torch.no_grad():
        return model(*given, *given) if isinstance(model, EncoderDecoder) and len(given) == 1 else model(*given)


def drawn(x: Tensor) -> Tensor:
    """Numbers in place of none; ids and numbers of patches are 0, 1, 2 …"""
    if x.is_floating_point():
        return torch.randn(x.shape, generator=torch.Generator().manual_seed(5))
    return (torch.arange(x.shape[1]) % 50).expand(x.shape)


QUICK = ("bert", "clip", "gpt2", "llama", "t5 1.1", "vit", "whisper")
ONE_EACH = {case.name.partition(",")[0]: case for case in reversed(CASES)}
EACH = [
    pytest.param(case, id=str(case), marks=() if name in QUICK else pytest.mark.slow) for name, case in ONE_EACH.items()
]


@pytest.mark.slow
@pytest.mark.parametrize("case", EACH)
def test_a_folder_is_read_and_written_both_ways(case: Case, tmp_path: Path) -> None:
    """theirs → ours → our layout → their layout → ours: bit for bit the same numbers, and their library loads it."""
    theirs = case.make().eval()
    theirs.save_pretrained(tmp_path / "theirs")
    first = load(tmp_path / "theirs")
    expected = numbers(first)
    first.save(tmp_path / "ours")
    second = load(tmp_path / "ours")
    assert second.config == first.config
    assert_close(numbers(second), expected, atol=0, rtol=0)
    second.save_hf(tmp_path / "back")
    third = load(tmp_path / "back")
    assert_close(numbers(third), expected, atol=0, rtol=0)
    again = type(theirs).from_pretrained(tmp_path / "back")
    unused = third.family().keymap(third.config).ignored  # there, and no part of what the model computes
    for name, x in theirs.state_dict().items():
        if not any(matched(pattern, name) for pattern in unused):
            assert_close(again.state_dict()[name], x, atol=0, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for name, case in ONE_EACH.items() if name != "resnet"], ids=str)
def test_every_family_computes_in_low_precision(case: Case, tmp_path: Path) -> None:
    """int8 weights come back bit for bit, and each dtype gives nearly the same numbers."""
    case.make().save_pretrained(tmp_path)
    expected = numbers(load(tmp_path))
    low, half = load(tmp_path, dtype="int8"), load(tmp_path, dtype="bf16")
    found = numbers(low)
    for some in (found, numbers(half).float()):
        assert not torch.equal(some, expected)
        assert float(F.cosine_similarity(some.flatten(), expected.flatten(), 0)) > 0.98
    low.save(tmp_path / "int8")
    assert torch.equal(numbers(load(tmp_path / "int8")), found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    case = next(case for case in CASES if case.name == "gpt2")
    case.make().save_pretrained(tmp_path)
    return tmp_path


def changed_config(folder: Path, **values: object) -> None:
    write_json(folder / "config.json", {**read_json(folder / "config.json"), **values})


def test_rates_of_training_there_come_back(folder: Path, tmp_path: Path) -> None:
    rates = {"resid_pdrop": 0.3, "embd_pdrop": 0.2, "attn_pdrop": 0.05, "summary_first_dropout": 0.4}
    changed_config(folder, **rates)
    load(folder).save(tmp_path / "ours")
    load(tmp_path / "ours").save_hf(tmp_path / "back")
    written = read_json(tmp_path / "back" / "config.json")
    assert {rate: written[rate] for rate in rates} == rates


def test_a_model_of_no_named_family_is_written_as_its_own_architecture(tmp_path: Path) -> None:
    config = config_of("t5-small", vocab=20, dim=16, layers=1, heads=2, head_dim=8, hidden=16)
    Model(build(config), config, "t5").save_hf(tmp_path)
    assert read_json(tmp_path / "config.json")["model_type"] == "t5"


WRITTEN_AS = {
    "mae-nano": ("mae", "ViTMAEForPreTraining", {"image": 16, "patch": 8, "decoder_layers": 1}),
    "wav2vec2-conformer-large": ("wav2vec2_conformer", "Wav2Vec2ConformerForCTC", {"channels": (8, 8, 8)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("preset", WRITTEN_AS)
def test_a_family_of_another_name_is_found_by_its_architecture(preset: str, tmp_path: Path) -> None:
    import transformers

    name, kind, sizes = WRITTEN_AS[preset]
    waves = {"kernels": (5, 3, 2), "strides": (3, 2, 1), "top": "ctc", "vocab": 9} if "channels" in sizes else {}
    config = config_of(preset, dim=16, layers=1, heads=2, hidden=16, **sizes, **waves)
    made = Model(build(config).eval(), config, name)
    made.save_hf(tmp_path)
    assert_close(numbers(load(tmp_path)), numbers(made))
    theirs: Any = getattr(transformers, kind)
    assert theirs.from_pretrained(tmp_path).config.hidden_size == 16


def test_what_is_to_be_added_is_told_by_what_a_model_reads() -> None:
    for preset, told in {"swin-t": "images", "conformer-s": "sounds or numbers"}.items():
        config = config_of(preset)
        unready = Model(torch.nn.Linear(1, 1), config, preset)
        for ask in (unready.run, unready.attend):
            with pytest.raises(UserError, match=f"how {told} are made fit for .*; add preprocessor_config.json"):
                ask("one.jpg")


def test_ties_stay_one_parameter(folder: Path) -> None:
    loaded = load(folder)
    assert loaded.model.head.weight is loaded.model.embed.token.weight  # type: ignore[union-attr]


def test_half_precision_is_read_as_single(folder: Path) -> None:
    half = load(folder, dtype=torch.float16)
    half.save_hf(folder)
    assert {p.dtype for p in half.model.parameters()} == {torch.float16}
    assert {p.dtype for p in load(folder).model.parameters()} == {torch.float32}


def nameless(folder: Path) -> None:
    """A model that neither its config nor its tensors name."""
    write_json(folder / "config.json", {})
    save_file({"weight": torch.zeros(2)}, folder / "model.safetensors")


MISTAKES: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: load(folder / "nowhere"), "nowhere does not exist; allowed: a folder with config.json"),
    (lambda folder: (folder / "config.json").unlink(), "config.json does not exist"),
    (lambda folder: (folder / "config.json").write_text("{"), "config.json is not JSON"),
    (lambda folder: nameless(folder), "config.json does not say what model it is of, and neither do the names"),
    (lambda folder: changed_config(folder, model_type="gtp2"), "models of type 'gtp2' are not known"),
    (lambda folder: changed_config(folder, scale_attn_weights=False), "scale_attn_weights=False is not supported"),
    (lambda folder: changed_config(folder, n_layer=5), "the weights do not fit the config: 32 tensors are missing"),
    (lambda folder: changed_config(folder, vocab_size=98), "embed.token.weight is (99, 16) in the file and (98, 16)"),
    (lambda folder: write_json(folder / "config.json", {"headway": 2}), "config.json is of layout 2; allowed: 1"),
    (
        lambda folder: write_json(folder / "config.json", {"headway": 1, "architecture": "os.system"}),
        "no architecture 'os.system'",
    ),
    (
        lambda folder: write_json(folder / "config.json", {"headway": 1, "architecture": "gpt2", "config": {"dmi": 1}}),
        "a config has no field 'dmi'",
    ),
    (
        lambda folder: write_json(folder / "config.json", {"headway": 1, "architecture": "gpt2", "family": ["x"]}),
        "models of type \"['x']\" are not known",
    ),
]


@pytest.mark.parametrize(("spoil", "told"), MISTAKES, ids=[told[:40] for _, told in MISTAKES])
def test_a_broken_folder_is_told(folder: Path, spoil: Callable[[Path], object], told: str) -> None:
    def spoil_and_load() -> None:
        spoil(folder)
        load(folder)

    with pytest.raises(UserError) as caught:
        spoil_and_load()
    assert told in str(caught.value)


def test_what_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    config = config_of("roberta-base", vocab=20, dim=16, layers=1, heads=4)
    loaded = Model(build(config), config, "bert", "bert")
    with pytest.raises(UserError, match="write it as a roberta model"):
        loaded.save_hf(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_has_no_layout_there_is_told(tmp_path: Path) -> None:
    loaded = Model(torch.nn.Linear(1, 1), None, "workbench")
    with pytest.raises(UserError, match="workbench models have no place in Hugging Face's layout"):
        loaded.save_hf(tmp_path)


def marian_folder(folder: Path) -> Any:
    """A tiny Marian model with two vocabularies of pieces, as the published ones have."""
    sentencepiece = pytest.importorskip("sentencepiece")
    from transformers import MarianConfig, MarianMTModel

    corpora = {
        "source": "the cat sat on the mat and the dog ran",
        "target": "die katze sass auf der matte und der hund lief",
    }
    pieces = {"</s>": 0, "<unk>": 1}
    folder.mkdir()
    for side, corpus in corpora.items():
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([corpus] * 20),
            model_prefix=str(folder / side),
            vocab_size=30,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        for piece in (processor.id_to_piece(i) for i in range(processor.get_piece_size())):
            pieces.setdefault(piece, len(pieces))
    pieces["<pad>"] = len(pieces)
    write_json(folder / "vocab.json", pieces)
    sizes = {"vocab_size": len(pieces), "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    pad = pieces["<pad>"]
    config = MarianConfig(
        **sizes, **heads, max_position_embeddings=32, pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0
    )
    model = MarianMTModel(config).eval()
    model.save_pretrained(folder)
    return model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Recommended")
def test_a_model_with_two_vocabularies_reads_with_one_and_writes_with_the_other(tmp_path: Path) -> None:
    from transformers import MarianTokenizer

    theirs = marian_folder(tmp_path / "marian")
    words = MarianTokenizer.from_pretrained(tmp_path / "marian")
    loaded = load(tmp_path / "marian")
    text = "the cat ran on the mat"
    assert loaded.tokenizer is not None
    assert loaded.target_tokenizer is not None
    assert loaded.tokenizer.encode(text) == words(text).input_ids
    made = theirs.generate(**words(text, return_tensors="pt"), max_new_tokens=8, num_beams=1, do_sample=False)[0, 1:]
    answer = loaded.run(text, GenerationOptions(max_new_tokens=8))
    assert answer["tokens"] == made.tolist()
    assert answer["output"] == words.decode(made, skip_special_tokens=True)
    loaded.save(tmp_path / "ours")
    assert load(tmp_path / "ours").run(text, GenerationOptions(max_new_tokens=8)) == answer


def test_a_tokenizer_of_another_model_is_told(folder: Path) -> None:
    words = ["<unk>", *(f"word{i}" for i in range(200))]
    backend = Backend(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    Tokenizer(backend, Roles(unk="<unk>")).save(folder)
    with pytest.raises(UserError, match=r"has 201 tokens and the model's embedding 99; use the tokenizer"):
        load(folder)
