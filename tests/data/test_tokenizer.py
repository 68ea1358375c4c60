"""Laws of tokenizers trained here: what comes back, what is lost, and how text comes out in a stream."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.tokenizer import Roles, Tokenizer
from headway.data.tokenizer_readers import load_tokenizer
from headway.data.tokenizer_training import BERT, LOSSLESS, LOSSY, TRAINERS, train_characters
from headway.errors import UserError
from tests.data.texts import CORPUS, VARIED, anything, spellings

SIZES = {"bpe": 320, "wordpiece": 200, "unigram": 380, "characters": 330, "words": 60}
LOSSLESS_LEVELS = ["bpe", "unigram", "characters"]


@cache
def trained(level: str) -> Tokenizer:
    return TRAINERS[level](CORPUS, SIZES[level])


def streamed(tokenizer: Tokenizer, ids: Sequence[int], after: Sequence[int] = ()) -> str:
    stream = tokenizer.stream(after)
    return "".join(stream.push(id) for id in ids) + stream.end()


@pytest.mark.slow
@pytest.mark.parametrize("level", LOSSLESS_LEVELS)
@given(text=anything | spellings)
def test_any_text_comes_back(level: str, text: str) -> None:
    tokenizer = trained(level)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert streamed(tokenizer, ids) == text
    assert tokenizer.plain(text) == ids


@pytest.mark.parametrize("level", LOSSLESS_LEVELS)
@pytest.mark.parametrize("text", VARIED)
def test_varied_texts_come_back(level: str, text: str) -> None:
    assert trained(level).decode(trained(level).encode(text)) == text


@pytest.mark.slow
@pytest.mark.parametrize("level", TRAINERS)
@given(text=spellings)
def test_no_text_becomes_a_special_token(level: str, text: str) -> None:
    tokenizer = trained(level)
    special = {tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.mask}
    assert special.isdisjoint(tokenizer.encode(text))


@pytest.mark.slow
@pytest.mark.parametrize("level", TRAINERS)
@given(data=st.data())
def test_a_stream_says_what_decoding_says_for_any_ids(level: str, data: st.DataObject) -> None:
    tokenizer = trained(level)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab - 1)))
    cut = data.draw(st.integers(0, len(ids)))
    assert streamed(tokenizer, ids) == tokenizer.decode(ids)
    before = streamed(tokenizer, ids[:cut])
    if not before.endswith("\ufffd"):  # else the cut may have gone through a character
        assert before + streamed(tokenizer, ids[cut:], after=ids[:cut]) == tokenizer.decode(ids)


@pytest.mark.parametrize("level", LOSSLESS_LEVELS)
def test_a_stream_gives_out_whole_characters_as_soon_as_they_are_whole(level: str) -> None:
    tokenizer = trained(level)
    stream = tokenizer.stream()
    given = [stream.push(id) for id in tokenizer.encode("👩☃")]
    assert given == ["", "", "", "👩", "", "", "☃"]
    assert stream.end() == ""
    half = tokenizer.encode("👩")[:2]
    assert [stream.push(id) for id in half] == ["", ""]
    assert stream.end() == "\ufffd" == tokenizer.decode(half)


def test_wordpiece_and_words_lose_space_control_and_the_unknown() -> None:
    piece, word = trained("wordpiece"), trained("words")
    assert piece.decode(piece.encode("The  cat\n\tsat\x01 on☃ it ☃.")) == "The cat sat it."  # on☃ is unknown as a whole
    assert word.decode(word.encode("the  cat\n\tzzz sat, ")) == "the cat sat ,"
    assert piece.unk in piece.encode("☃")
    assert word.encode("zzz") == [word.unk]


@pytest.mark.slow
@given(text=st.text(st.sampled_from("catshe onmd"), max_size=30))
def test_wordpiece_keeps_known_letters(text: str) -> None:
    piece = trained("wordpiece")
    assert piece.decode(piece.encode(text)) == " ".join(text.split())


def test_characters_with_an_unk_have_no_bytes() -> None:
    tokenizer = train_characters(["banana"], 10, Roles(unk="<unk>"))
    assert [tokenizer.token(id) for id in range(tokenizer.vocab)] == ["<unk>", "a", "n", "b"]
    assert tokenizer.encode("nab☃") == [2, 1, 3, 0]


@pytest.mark.parametrize("level", TRAINERS)
def test_special_tokens_come_first_and_are_distinct(level: str) -> None:
    tokenizer = trained(level)
    ids = [tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.mask, tokenizer.unk]
    assert [id for id in ids if id is not None] == list(range(len(tokenizer.roles.named())))
    assert tokenizer.vocab <= SIZES[level]
    assert all(tokenizer.id(tokenizer.token(id)) == id for id in range(tokenizer.vocab))
    assert tokenizer.decode([id for id in ids if id is not None]) == ""


def test_default_roles_say_what_levels_need() -> None:
    assert LOSSLESS.unk is None
    assert LOSSY.unk == "<unk>"
    assert BERT.mask == "[MASK]"


@pytest.mark.parametrize("level", TRAINERS)
def test_saved_and_read_back_it_is_the_same(level: str, tmp_path: Path) -> None:
    tokenizer = trained(level)
    tokenizer.save(tmp_path / "deep" / "folder")
    back = load_tokenizer(tmp_path / "deep" / "folder")
    assert (back.roles, back.vocab, back.literal) == (tokenizer.roles, tokenizer.vocab, True)
    for text in VARIED + CORPUS:
        assert back.encode(text) == tokenizer.encode(text)
        assert back.decode(back.encode(text)) == tokenizer.decode(tokenizer.encode(text))
    assert sorted(file.name for file in (tmp_path / "deep" / "folder").iterdir()) == [
        "tokenizer.json",
        "tokenizer_config.json",
    ]


@pytest.mark.parametrize("level", TRAINERS)
def test_transformers_reads_what_is_saved(level: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = trained(level)
    tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for role in ("pad", "bos", "eos", "mask", "unk"):
        assert getattr(theirs, f"{role}_token_id") == getattr(tokenizer, role)
    for text in CORPUS + VARIED:
        assert theirs(text).input_ids == tokenizer.encode(text)


@pytest.mark.parametrize("make", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))], ids=["copied", "pickled"])
def test_a_copy_reads_literally_too(make: Callable[[Tokenizer], Tokenizer]) -> None:
    tokenizer = make(trained("bpe"))
    assert tokenizer.decode(tokenizer.encode("<pad>")) == "<pad>"


def test_spellings_are_read_where_that_is_asked_for() -> None:
    literal = trained("wordpiece")
    reading = replace(literal, literal=False)
    assert literal.mask not in literal.encode("the [MASK]")
    assert reading.encode("the [MASK]") == [*literal.encode("the"), literal.mask]
    assert literal.mask not in literal.encode("the [MASK]")  # the one does not change the other
    assert literal.mask not in reading.plain("the [MASK]")


LEARN = """
import hashlib
from headway.data.tokenizer_training import TRAINERS
from tests.data.test_tokenizer import SIZES
from tests.data.texts import CORPUS
texts = CORPUS * 2 + ["ab ac ad ae af ba ca da ea fa", "xyz yzx zxy"]
for level, train in TRAINERS.items():
    print(hashlib.sha256(train(texts, SIZES[level] + 40).backend.to_str().encode()).hexdigest())
"""


@pytest.mark.slow
def test_the_same_texts_give_the_same_tokenizer_in_every_process() -> None:
    root = Path(__file__).parents[2]
    runs = [
        subprocess.run([sys.executable, "-c", LEARN], capture_output=True, text=True, check=True, cwd=root).stdout
        for _ in range(3)
    ]
    assert len(runs[0].split()) == len(TRAINERS)
    assert set(runs) == {runs[0]}


@pytest.mark.parametrize("level", TRAINERS)
def test_a_batch_is_its_texts_one_by_one(level: str) -> None:
    tokenizer = trained(level)
    assert tokenizer.encode_batch(VARIED) == [tokenizer.encode(text) for text in VARIED]
    assert tokenizer.plain_batch(VARIED) == [tokenizer.plain(text) for text in VARIED]


def test_nothing_is_normalised() -> None:
    text = "e\u0301 ﬁ \u1e9b\u0323"
    assert unicodedata.normalize("NFKC", text) != text
    assert all(trained(level).decode(trained(level).encode(text)) == text for level in LOSSLESS_LEVELS)


@pytest.mark.parametrize("level", TRAINERS)
def test_a_vocabulary_too_small_is_refused(level: str) -> None:
    with pytest.raises(UserError, match=r"a vocabulary of 5 is too small; allowed: \d+ or more"):
        TRAINERS[level](CORPUS, 5)


@pytest.mark.parametrize("level", LOSSLESS_LEVELS)
def test_no_texts_give_the_smallest_vocabulary(level: str) -> None:
    tokenizer = TRAINERS[level]([], 300)
    assert tokenizer.decode(tokenizer.encode("any ☃")) == "any ☃"


def test_mistakes_are_told() -> None:
    with pytest.raises(UserError, match="'<s>' is given both as bos and as eos"):
        Roles(bos="<s>", eos="<s>")
    with pytest.raises(UserError, match="the pad token is empty"):
        Roles(pad="")
    with pytest.raises(UserError, match="text that says 'the' would become the pad token"):
        TRAINERS["words"](CORPUS, 60, Roles(pad="the", unk="<unk>"))
    with pytest.raises(UserError, match="needs a token for what is unknown"):
        TRAINERS["words"](CORPUS, 60, Roles())
    with pytest.raises(UserError, match="half of a surrogate pair at character 1"):
        trained("bpe").encode("a\ud83d")
    with pytest.raises(UserError, match="id 9999 is not in the vocabulary; allowed: 0 to 319"):
        trained("bpe").decode([5, 9999])
    with pytest.raises(UserError, match=r"no token '<pda>'.*did you mean '<pad>'"):
        trained("bpe").id("<pda>")
