"""Every format of tokenizers that is read gives the ids and texts of its reference, on 2,000 nasty texts.

The reference of a folder is the class of transformers that its files name, and that of a SentencePiece file which
belongs to no class, to Llama or to Mistral is SentencePiece itself.  Folders are trained here, as published ones are
laid out.  No vocabulary here has two equally likely ways to cut a text, as "000" into "0" and "00": SentencePiece then
goes by the rounding of its sums.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, trainers

from headway.data.decode_stream import byte_letters
from headway.data.tokenizer_readers import load_tokenizer, read_tokenizers
from headway.errors import UserError
from tests.data.texts import CORPUS, EMOJI, SCRIPTS, VARIED, WORDS, nasty_texts

NASTY = nasty_texts(2000)
LEARNED = [*CORPUS, *VARIED[2:8], " ".join(SCRIPTS), " ".join(EMOJI), *WORDS[:12], "ガ 각 한국어 日本語 été"] * 2
LLAMA = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
T5_PIECES = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
pytestmark = pytest.mark.slow


class Reference(NamedTuple):
    encode: Callable[[list[str]], list[list[int]]]
    decode: Callable[[list[list[int]]], list[str | None]]  # None where it has its own rule


@pytest.fixture(scope="module", autouse=True)
def quiet() -> None:
    pytest.importorskip("transformers").logging.set_verbosity_error()


def class_of(folder: Path, **more: Any) -> Reference:
    """What transformers reads in a folder; `more` for its decoding."""
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder)
    return Reference(
        lambda texts: theirs(texts).input_ids,
        lambda rows: theirs.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=False, **more),
    )


def pieces_of(file: Path, before: Iterable[int] = (), special: Iterable[str] = ()) -> Reference:
    """What SentencePiece reads, `before` before a text, and each stretch between special tokens by itself."""
    theirs = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_file=str(file))
    cut = re.compile("|".join(map(re.escape, special)) or "(?!)")

    def encode(text: str) -> list[int]:
        ids, at = [*before], 0
        for found in cut.finditer(text):
            ids += [*theirs.encode(text[at : found.start()]), theirs.piece_to_id(found[0])]
            at = found.end()
        return ids + theirs.encode(text[at:])

    def decode(row: list[int]) -> str | None:
        """Not of the unknown, which SentencePiece writes as ⁇, nor behind a special token, where it adds a space."""
        inside = row[len([*before]) :]
        return None if any(map(theirs.is_control, inside)) or theirs.unk_id() in row else theirs.decode(row)

    return Reference(lambda texts: [*map(encode, texts)], lambda rows: [*map(decode, rows)])


def learn(file: Path, kind: str = "unigram", **options: Any) -> Path:
    trainer = pytest.importorskip("sentencepiece").SentencePieceTrainer
    size = 620 if options.get("byte_fallback") else 330
    loose = {"hard_vocab_limit": False} if kind == "unigram" else {}
    usual = {"vocab_size": size, "character_coverage": 1.0, "minloglevel": 2, "num_threads": 1, **loose}
    file.parent.mkdir(parents=True, exist_ok=True)
    trained = file.parent.parent / "trained"
    lines = iter(line for text in LEARNED for line in text.split("\n"))
    trainer.train(sentence_iterator=lines, model_prefix=str(trained), model_type=kind, **{**usual, **options})
    shutil.copy(f"{trained}.model", file)
    return file


def tell(folder: Path, model: str | None = None, **settings: Any) -> Path:
    if model is not None:
        (folder / "config.json").write_text(json.dumps({"model_type": model}))
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def learn_merges(folder: Path, first: Iterable[str] = (), last: Iterable[str] = (), suffix: str = "") -> Path:
    folder.mkdir()
    more = {"end_of_word_suffix": suffix} if suffix else {}
    backend = Backend(models.BPE(**more))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=700, show_progress=False, initial_alphabet=alphabet, special_tokens=[*first], **more
    )
    backend.train_from_iterator(LEARNED, trainer)
    backend.model.save(str(folder))
    vocab = json.loads((folder / "vocab.json").read_text("utf-8"))
    vocab |= {token: len(vocab) + at for at, token in enumerate(last)}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    return folder


def learn_words(folder: Path, lower: bool) -> Path:
    folder.mkdir()
    backend = Backend(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lower)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=500, show_progress=False, special_tokens=special)
    backend.train_from_iterator(LEARNED, trainer)
    backend.model.save(str(folder))
    return folder


# Each makes a folder and names its reference.


def xlm_roberta(folder: Path) -> Reference:
    return class_of(tell(learn(folder / "sentencepiece.bpe.model").parent, "xlm-roberta"))


def xlm_roberta_by_class(folder: Path) -> Reference:
    file = learn(folder / "sentencepiece.bpe.model")
    return class_of(tell(file.parent, tokenizer_class="XLMRobertaTokenizerFast"))


def camembert(folder: Path) -> Reference:
    return class_of(tell(learn(folder / "sentencepiece.bpe.model").parent, "camembert"))


def t5(folder: Path) -> Reference:
    return class_of(tell(learn(folder / "spiece.model", **T5_PIECES).parent, "t5"))


def mt5(folder: Path) -> Reference:
    file = learn(folder / "spiece.model", byte_fallback=True, **T5_PIECES)
    return class_of(tell(file.parent, "mt5", tokenizer_class="T5Tokenizer", extra_ids=0))


def albert(folder: Path) -> Reference:
    special = {"control_symbols": ["[CLS]", "[SEP]"], "user_defined_symbols": ["[MASK]"]}
    file = learn(folder / "spiece.model", pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, **special)
    return class_of(tell(file.parent, "albert"))


def albert_cased(folder: Path) -> Reference:
    albert(folder)
    return class_of(tell(folder, tokenizer_class="AlbertTokenizer", do_lower_case=False, keep_accents=True))


def xlnet(folder: Path) -> Reference:
    special = {"control_symbols": ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"], "user_defined_symbols": ["<eop>"]}
    file = learn(folder / "spiece.model", unk_id=0, bos_id=1, eos_id=2, **special)
    return class_of(tell(file.parent, "xlnet"))


def xlnet_uncased(folder: Path) -> Reference:
    xlnet(folder)
    return class_of(tell(folder, tokenizer_class="XLNetTokenizer", do_lower_case=True, keep_accents=True))


def marian(folder: Path) -> Reference:
    from sentencepiece import SentencePieceProcessor

    learn(folder / "target.spm", vocab_size=280)
    file = learn(folder / "source.spm")
    sides = [SentencePieceProcessor(model_file=str(one)) for one in (file, folder / "target.spm")]
    pieces = [side.id_to_piece(id) for side in sides for id in range(3, side.get_piece_size()) if id % 7]
    order = dict.fromkeys(["</s>", "<unk>", *pieces, ">>de<<", ">>fr<<", "<pad>"])
    (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(order)}))
    return class_of(tell(folder, "marian", source_lang="en", target_lang="de"))


def sentencepiece(kind: str, **options: Any) -> Callable[[Path], Reference]:
    return lambda folder: pieces_of(learn(folder / "m.model", kind, **options))


def llama(folder: Path) -> Reference:
    file = learn(folder / "tokenizer.model", "bpe", split_digits=True, allow_whitespace_only_pieces=True, **LLAMA)
    tell(folder, "llama", tokenizer_class="LlamaTokenizer", add_bos_token=True, legacy=True)
    return pieces_of(file, [1], ["<s>", "</s>", "<unk>"])


def llama_not_legacy(folder: Path) -> Reference:
    learn(folder / "tokenizer.model", "bpe", split_digits=True, allow_whitespace_only_pieces=True, **LLAMA)
    return class_of(tell(folder, "llama", tokenizer_class="LlamaTokenizer", add_bos_token=True, legacy=False))


def mistral(name: str, **options: Any) -> Callable[[Path], Reference]:
    """Versions 3 and 7 have [INST] and its like among their pieces; the file's name says which version it is."""

    def make(folder: Path) -> Reference:
        file = tell(learn(folder / name, "bpe", vocab_size=640, **LLAMA, **options).parent, "mistral") / name
        special = ["<s>", "</s>", "<unk>", *options.get("control_symbols", ())]
        return pieces_of(file, [1], special)

    return make


def tekken(folder: Path) -> Reference:
    """tekken.json as Mistral has it; the reference puts no <s> before a text."""
    from transformers import PreTrainedTokenizerFast
    from transformers.integrations.mistral.tokenizer import MistralConverter

    learn_merges(folder)
    letters = byte_letters()
    vocab = json.loads((folder / "vocab.json").read_text("utf-8"))
    pieces = [bytes(letters[one] for one in token) for token in sorted(vocab, key=vocab.__getitem__)]
    for file in ("vocab.json", "merges.txt"):
        (folder / file).unlink()
    pattern = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>"]
    told = {
        "config": {"pattern": pattern, "default_vocab_size": len(pieces) + 10 - 5, "default_num_special_tokens": 10},
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(one).decode(), "token_str": None}
            for rank, one in enumerate(pieces)
        ],
        "special_tokens": [{"rank": n, "token_str": one, "is_control": True} for n, one in enumerate(special)],
    }
    (folder / "tekken.json").write_text(json.dumps(told))
    tell(folder, "mistral")
    theirs = PreTrainedTokenizerFast(tokenizer_object=MistralConverter(str(folder / "tekken.json")).converted())
    return Reference(
        lambda texts: [[1, *row] for row in theirs(texts).input_ids],
        lambda rows: theirs.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=False),
    )


def gpt2(folder: Path) -> Reference:
    return class_of(tell(learn_merges(folder, ["<|endoftext|>"]), "gpt2"))


def roberta(folder: Path) -> Reference:
    first, last = ["<s>", "<pad>", "</s>", "<unk>"], ["<|endoftext|>", "madeupword0000", "<mask>"]
    mask = {"content": "<mask>", "lstrip": True, "rstrip": False, "normalized": False, "special": True}
    learn_merges(folder, first, last)
    (folder / "special_tokens_map.json").write_text(json.dumps({"mask_token": mask}))
    return class_of(tell(folder, "roberta"))


def bart(folder: Path) -> Reference:
    roberta(folder)
    return class_of(tell(folder, "bart", add_prefix_space=True))


def qwen2(folder: Path) -> Reference:
    return class_of(tell(learn_merges(folder, last=["<|endoftext|>"]), "qwen2", tokenizer_class="Qwen2Tokenizer"))


def clip(folder: Path) -> Reference:
    return class_of(tell(learn_merges(folder, last=["<|startoftext|>", "<|endoftext|>"], suffix="</w>"), "clip"))


def whisper(folder: Path) -> Reference:
    words = ["endoftext", "startoftranscript", "en", "translate", "transcribe", "notimestamps"]
    special = [f"<|{word}|>" for word in words]
    learn_merges(folder, last=special)
    count = len(json.loads((folder / "vocab.json").read_text("utf-8"))) - len(special)
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}
    added = {str(count + at): {"content": token, **flags} for at, token in enumerate(special)}
    return class_of(tell(folder, "whisper", tokenizer_class="WhisperTokenizer", added_tokens_decoder=added))


def bert(lower: bool) -> Callable[[Path], Reference]:
    return lambda folder: class_of(tell(learn_words(folder, lower), "bert", do_lower_case=lower))


def wav2vec2(folder: Path) -> Reference:
    folder.mkdir()
    tokens = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVKXJQZ'0123é你"]
    (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}))
    return class_of(tell(folder, "wav2vec2-conformer", tokenizer_class="Wav2Vec2CTCTokenizer"), group_tokens=False)


USER = {"user_defined_symbols": ["<sep>", "cat", "[INST]", "naïve"]}
FOLDERS: dict[str, Callable[[Path], Reference]] = {
    "XLM-RoBERTa": xlm_roberta,
    "XLM-RoBERTa by its class": xlm_roberta_by_class,
    "CamemBERT": camembert,
    "T5": t5,
    "mT5": mt5,
    "ALBERT": albert,
    "ALBERT, cased": albert_cased,
    "XLNet": xlnet,
    "XLNet, lower-cased": xlnet_uncased,
    "Marian": marian,
    "SentencePiece, unigram": sentencepiece("unigram"),
    "SentencePiece, unigram and bytes": sentencepiece("unigram", **LLAMA),
    "SentencePiece, unigram, lower-cased": sentencepiece("unigram", normalization_rule_name="nmt_nfkc_cf", **USER),
    "SentencePiece, BPE": sentencepiece("bpe"),
    "SentencePiece, BPE, no prefix": sentencepiece("bpe", add_dummy_prefix=False, split_by_whitespace=False, **USER),
    "Llama": llama,
    "Llama, not legacy": llama_not_legacy,
    "Mistral v1": mistral("tokenizer.model"),
    "Mistral v3": mistral("tokenizer.model.v3", control_symbols=["[INST]", "[/INST]", "[control_8]"]),
    "Mistral v7": mistral("tokenizer.model.v7", user_defined_symbols=["[INST]", "[/INST]", "[control_8]"]),
    "Mistral, tekken": tekken,
    "GPT-2": gpt2,
    "RoBERTa": roberta,
    "BART": bart,
    "Qwen2": qwen2,
    "CLIP": clip,
    "Whisper": whisper,
    "BERT": bert(lower=True),
    "BERT, cased": bert(lower=False),
    "Wav2Vec2": wav2vec2,
}


@pytest.mark.parametrize("name", FOLDERS)
def test_ids_and_texts_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    reference = FOLDERS[name](folder)
    tokenizer, _ = read_tokenizers(folder)
    assert tokenizer is not None
    expected = reference.encode(NASTY)
    check_equal(tokenizer.encode_batch(NASTY), expected)
    check_equal([tokenizer.decode(row) for row in expected], reference.decode(expected))
    tokenizer.save(tmp_path / "saved")  # and it stays so
    check_equal(load_tokenizer(tmp_path / "saved").encode_batch(NASTY), expected)


def check_equal(ours: list[Any], theirs: list[Any]) -> None:
    pairs = enumerate(zip(ours, theirs, strict=True))
    wrong = [at for at, (one, other) in pairs if one != other and other is not None]
    shown = [(NASTY[at], ours[at], theirs[at]) for at in sorted(wrong, key=lambda at: len(NASTY[at]))[:3]]
    assert not wrong, f"{len(wrong)} of {len(ours)}, such as {shown}"


WHOLE = [
    "XLM-RoBERTa",
    "CamemBERT",
    "T5",
    "mT5",
    "ALBERT",
    "ALBERT, cased",
    "XLNet",
    "Llama, not legacy",
    "GPT-2",
    "RoBERTa",
]
WHOLE += ["BART", "Qwen2", "CLIP", "Whisper", "BERT", "BERT, cased"]


@pytest.mark.parametrize("name", WHOLE)
def test_tokenizer_json_is_read_as_its_class_reads_it(name: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    FOLDERS[name](tmp_path / "folder")
    AutoTokenizer.from_pretrained(tmp_path / "folder").save_pretrained(tmp_path / "whole")
    shutil.copy(tmp_path / "folder" / "config.json", tmp_path / "whole")
    assert (tmp_path / "whole" / "tokenizer.json").is_file()
    reference, tokenizer = class_of(tmp_path / "whole"), load_tokenizer(tmp_path / "whole")
    expected = reference.encode(NASTY)
    check_equal(tokenizer.encode_batch(NASTY), expected)
    check_equal([tokenizer.decode(row) for row in expected], reference.decode(expected))


REFUSED = {
    "a class of SentencePiece that is not read": ("spiece.model", {"tokenizer_class": "BigBirdTokenizer"}, None),
    "a model whose class is not known": ("spiece.model", {}, "deberta-v2"),
    "a model of another format": ("spiece.model", {}, "gpt2"),
    "byte pairs for XLM-RoBERTa": ("bpe", {}, "xlm-roberta"),
    "Marian without its vocabulary": ("source.spm", {}, "marian"),
    "a class of byte pairs that is not read": ("merges.txt", {"tokenizer_class": "DebertaTokenizer"}, None),
    "byte pairs of a Llama": ("merges.txt", {}, "llama"),
    "a class of words that is not read": ("vocab.txt", {"tokenizer_class": "MPNetTokenizerFast"}, None),
    "a tekken.json of the first form": ("tekken.json", {}, None),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_equal_is_refused(case: str, tmp_path: Path) -> None:
    name, settings, model = REFUSED[case]
    folder = tmp_path / "folder"
    if name == "merges.txt":
        learn_merges(folder, ["<|endoftext|>"])
    elif name == "vocab.txt":
        learn_words(folder, lower=True)
    elif name == "tekken.json":
        folder.mkdir()
        (folder / name).write_text(json.dumps({"config": {"pattern": "."}, "vocab": []}))
    else:
        learn(folder / ("tokenizer.model" if name == "bpe" else name), "bpe" if name == "bpe" else "unigram")
    tell(folder, model, **settings)
    with pytest.raises(UserError) as caught:
        load_tokenizer(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
