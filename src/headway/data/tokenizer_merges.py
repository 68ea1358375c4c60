"""vocab.json and merges.txt, and tekken.json: byte pairs in GPT-2's characters for bytes, and what each family adds.

A folder's tokenizer_config.json or config.json names the class of transformers that reads its files; where neither
does, a vocabulary with <s>, </s> and <mask> is RoBERTa's and any other GPT-2's.  Other classes are refused.

GPT-2           words are cut as GPT-2 cuts them; nothing is put around a text.
RoBERTa, BART   the same, framed by <s> … </s>; <mask> takes the white space before it.
Whisper         the same, framed by the tokens that begin a transcript and <|endoftext|>.
Qwen2           canonical composition (NFC) first; numbers are cut into digits.
CLIP            small letters; `</w>` marks the end of a word; <|startoftext|> … <|endoftext|>.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from headway.data.decode_stream import byte_letters
from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_files import (
    MAX_VOCAB,
    add_tokens,
    check_merges,
    check_vocab,
    find_roles,
    holds_letters,
    read_letters,
    read_settings,
    read_text,
    role_token,
    strip_edges,
    tokenizer_class,
)
from headway.data.tokenizer_training import Merges, byte_bpe, frame, merges_by_score
from headway.errors import UserError
from headway.system import read_json

END = "<|endoftext|>"
ROBERTA = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
Vocab = Mapping[str, int]
Settings = Mapping[str, Any]


def read_vocab(file: Path) -> Tokenizer:
    """vocab.json, of characters or of GPT-2's tokens."""
    alone = not file.with_name("merges.txt").is_file()
    return read_letters(file) if alone and file.is_file() and holds_letters(file) else read_merges(file)


def read_merges(file: Path) -> Tokenizer:
    vocab_file, merges_file = file.with_name("vocab.json"), file.with_name("merges.txt")
    vocab = check_vocab(read_json(vocab_file), vocab_file)
    lines = read_text(merges_file).split("\n")
    first = int(lines[0].startswith("#version"))
    numbered = enumerate(lines[first:], first + 1)
    merges = check_merges(((number, line.rstrip("\r")) for number, line in numbered if line), merges_file)
    for pair in merges:
        for token in (*pair, "".join(pair)):
            if token not in vocab:
                raise UserError(f"{merges_file}: {' '.join(pair)!r} merges {token!r}, which {vocab_file.name} lacks")
    usual = "RobertaTokenizer" if {"<s>", "</s>", "<mask>"} <= vocab.keys() else "GPT2Tokenizer"
    name = tokenizer_class(merges_file, ("", *CLASSES)) or usual
    return CLASSES[name](vocab, merges, read_settings(file.parent), file.parent)


def read_gpt2(vocab: Vocab, merges: Merges, settings: Settings, folder: Path) -> Tokenizer:
    backend = byte_bpe(vocab, merges, prefix_space=settings.get("add_prefix_space") is True)
    named = add_special(backend, settings, folder, {"eos": END})
    return finished(backend, named, settings, folder, [], [])


def read_roberta(vocab: Vocab, merges: Merges, settings: Settings, folder: Path) -> Tokenizer:
    backend = byte_bpe(vocab, merges, prefix_space=settings.get("add_prefix_space") is True)
    named = add_special(backend, settings, folder, ROBERTA)
    return finished(backend, named, settings, folder, [named["bos"]], [named["eos"]])


def read_whisper(vocab: Vocab, merges: Merges, settings: Settings, folder: Path) -> Tokenizer:
    backend = byte_bpe(vocab, merges, prefix_space=settings.get("add_prefix_space") is True)
    named = add_special(backend, settings, folder, {"eos": END})
    told = ("startoftranscript", settings.get("language"), settings.get("task"))
    times = () if settings.get("predict_timestamps") is True else ("notimestamps",)
    begin = [f"<|{word}|>" for word in (*told, *times) if word is not None]
    return finished(backend, named, settings, folder, begin, [named["eos"]])


def read_qwen2(vocab: Vocab, merges: Merges, settings: Settings, folder: Path) -> Tokenizer:
    backend = byte_bpe(vocab, merges)
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=settings.get("add_prefix_space") is True, use_regex=False),
        ]
    )
    named = add_special(backend, settings, folder, {"eos": END})
    return finished(backend, named, settings, folder, [], [])


def read_clip(vocab: Vocab, merges: Merges, settings: Settings, folder: Path) -> Tokenizer:
    backend = Backend(models.BPE(dict(vocab), list(merges), unk_token=END, end_of_word_suffix="</w>"))
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    words = pre_tokenizers.Split(Regex(CLIP), "removed", invert=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    backend.decoder = words_decoder()
    named = add_special(backend, settings, folder, {"bos": "<|startoftext|>", "eos": END})
    return finished(backend, named, settings, folder, [named["bos"]], [named["eos"]])


def words_decoder() -> decoders.Decoder:
    return decoders.Sequence([decoders.ByteLevel(), decoders.Replace("</w>", " "), strip_edges()])


def read_tekken(file: Path) -> Tokenizer:
    """Mistral's tekken.json: special tokens, then bytes by rank; what joins into the lowest rank is joined next."""
    told = read_json(file)
    config, entries, special = told.get("config"), told.get("vocab"), told.get("special_tokens")
    if not (isinstance(config, dict) and isinstance(entries, list) and isinstance(special, list)):
        said = f"{file}: not a tekken.json that lists its special tokens"
        raise UserError(said, do="add the folder's tokenizer.json")
    try:
        named = {int(one["rank"]): str(one["token_str"]) for one in special}
        first = [named[rank] for rank in range(len(special))]
        count = int(config.get("default_num_special_tokens") or len(first))
        size, pattern = int(config.get("default_vocab_size") or len(entries) + count), str(config["pattern"])
        pieces = [base64.b64decode(one["token_bytes"], validate=True) for one in entries[: size - count]]
        splits = pre_tokenizers.Split(Regex(pattern), "isolated")
    except Exception as error:  # of the entries, and of the package that reads the pattern
        raise UserError(f"{file}: not a tekken.json: {error!r}") from error
    first += [f"<SPECIAL_{number}>" for number in range(len(first), min(count, MAX_VOCAB))]
    letters = {byte: letter for letter, byte in byte_letters().items()}
    ranks = {"".join(letters[byte] for byte in piece): rank for rank, piece in enumerate(pieces)}
    if len(ranks) != len(pieces) or {*first} & {*ranks}:
        raise UserError(f"{file}: a token occurs twice")
    merges = merges_by_score({piece: -rank for piece, rank in ranks.items()})
    vocab = {token: id for id, token in enumerate([*first, *ranks])}
    backend = byte_bpe({}, [])
    backend.model = models.BPE(vocab, merges, ignore_merges=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([splits, pre_tokenizers.ByteLevel(False, use_regex=False)])
    backend.add_special_tokens(first)
    frame(backend, ["<s>"] if "<s>" in vocab else [], [])
    return Tokenizer(backend, find_roles(backend, read_settings(file.parent)))


def add_special(backend: Backend, settings: Settings, folder: Path, usual: Mapping[str, str]) -> dict[str, str]:
    """Adds the special tokens that the settings name, or else the usual ones, and returns those by their roles."""
    named = {role: role_token(settings, role) or token for role, token in usual.items()}
    also = (role_token(settings, role) for role in ("bos", "eos", "unk", "pad", "cls", "sep", "mask"))
    for token in dict.fromkeys([*named.values(), *(token for token in also if token)]):
        if backend.token_to_id(token) is not None:
            lstrip = token == named.get("mask")
            backend.add_special_tokens([AddedToken(token, lstrip=lstrip, special=True, normalized=False)])
    add_tokens(backend, settings, folder)
    return named


def finished(
    backend: Backend,
    named: Mapping[str, str],
    settings: Settings,
    folder: Path,
    before: Sequence[str],
    after: Sequence[str],
) -> Tokenizer:
    """The tokenizer, framed by tokens that the vocabulary must have."""
    if missing := [token for token in (*before, *after) if backend.token_to_id(token) is None]:
        raise UserError(f"{folder}: its vocabulary lacks {missing[0]!r}, which belongs around a text")
    frame(backend, before, after)
    return Tokenizer(
        backend, find_roles(backend, {**settings, **{f"{role}_token": name for role, name in named.items()}})
    )


CLASSES: dict[str, Callable[[Vocab, Merges, Settings, Path], Tokenizer]] = {
    "CLIPTokenizer": read_clip,
    "GPT2Tokenizer": read_gpt2,
    "Qwen2Tokenizer": read_qwen2,
    "RobertaTokenizer": read_roberta,
    "WhisperTokenizer": read_whisper,
}
