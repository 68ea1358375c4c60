"""Reading a tokenizer from a folder or a file, ours or others'.

| file | whose | read by |
| --- | --- | --- |
| tokenizer.json | ours, Hugging Face's | this file |
| vocab.json + merges.txt | GPT-2, RoBERTa, BART | this file |
| vocab.json alone | Wav2Vec2 and its Conformer | read_letters.py |
| vocab.txt | BERT | this file |
| *.model, *.spm | SentencePiece: Llama, T5, ALBERT, Marian | read_sentencepiece.py |
| tok*.bin | llama2.c | read_llama2c.py |
| dict.*.txt + bpe.code | fairseq with subword-nmt | read_fairseq.py |
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headway.data.levels import byte_bpe, frame, wordpiece
from headway.data.read_fairseq import read_fairseq
from headway.data.read_letters import holds_letters, read_letters
from headway.data.read_llama2c import read_llama2c
from headway.data.read_sentencepiece import read_sentencepiece
from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_files import (
    add_tokens,
    check_merges,
    check_vocab,
    choose,
    find_roles,
    numbered_lines,
    read_text,
    settings,
    spelled,
)
from headway.errors import UserError
from headway.files import read_json


def load_tokenizer(path: Path | str) -> Tokenizer:
    """The tokenizer in a folder, or in a file with what stands beside it."""
    path = Path(path)
    if path.is_dir():
        for pattern, read in READERS.items():
            if found := sorted(path.glob(pattern)):
                return read(choose(found, f"tokenizers ({pattern})"))
        raise UserError(f"{path}: there is no tokenizer in this folder", allowed=", ".join(READERS))
    for pattern, read in READERS.items():
        if path.match(pattern):
            return read(path)
    if path.suffix == ".json":
        return read_pipeline(path)
    raise UserError(f"{path}: not the name of a tokenizer's file", allowed=", ".join(READERS))


def read_pipeline(file: Path) -> Tokenizer:
    """tokenizer.json: a whole pipeline as data."""
    from tokenizers import Tokenizer as Pipeline

    told = settings(file.parent)
    model = read_json(file).get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if vocab is None:
        raise UserError(f"{file}: not a tokenizer: it has no model with a vocabulary")
    if isinstance(vocab, dict):
        check_vocab(vocab, file)
    try:
        backend = Pipeline.from_str(read_text(file))
    except Exception as error:  # the package raises nothing narrower
        raise UserError(f"{file}: not a tokenizer: {error}") from error
    known = told.get("known_tokens")
    return Tokenizer(
        backend,
        find_roles(backend, told),
        literal=told.get("split_special_tokens") is True,
        known=known if isinstance(known, int) else None,
    )


def read_vocab(file: Path) -> Tokenizer:
    """vocab.json, of letters or of GPT-2's tokens."""
    alone = not file.with_name("merges.txt").is_file()
    return read_letters(file) if alone and file.is_file() and holds_letters(file) else read_gpt2(file)


def read_gpt2(file: Path) -> Tokenizer:
    """vocab.json and merges.txt.  Where the vocabulary has RoBERTa's tokens, its frame <s> … </s> is used."""
    vocab_file, merges_file = file.with_name("vocab.json"), file.with_name("merges.txt")
    told = settings(file.parent)
    vocab = check_vocab(read_json(vocab_file), vocab_file)
    lines = enumerate(read_text(merges_file).split("\n"), 1)
    merges = check_merges(((n, line.rstrip("\r")) for n, line in lines if line and not header(n, line)), merges_file)
    for pair in merges:
        for token in (*pair, "".join(pair)):
            if token not in vocab:
                raise UserError(f"{merges_file}: {' '.join(pair)!r} merges {token!r}, which {vocab_file.name} lacks")
    backend = byte_bpe(vocab, merges, prefix_space=told.get("add_prefix_space") is True)
    own = [token for token in ("<s>", "<pad>", "</s>", "<unk>", "<|endoftext|>") if token in vocab]
    backend.add_special_tokens(own)
    if "<mask>" in vocab:
        from tokenizers import AddedToken

        backend.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    add_tokens(backend, told, file.parent)
    if {"<s>", "</s>", "<mask>"} <= vocab.keys():
        frame(backend, ["<s>"], ["</s>"])
    return Tokenizer(backend, find_roles(backend, told))


def read_bert(file: Path) -> Tokenizer:
    """vocab.txt: one token a line, its id the number of the line."""
    told = settings(file.parent)
    lines = read_text(file).removesuffix("\n").split("\n")
    vocab = numbered_lines((line.rstrip("\r") for line in lines), file)
    roles = {role: spelled(told, role) or f"[{role.upper()}]" for role in ("unk", "cls", "sep", "pad", "mask")}
    if missing := [token for token in (roles["unk"], roles["cls"], roles["sep"]) if token not in vocab]:
        raise UserError(f"{file}: not BERT's vocabulary: it lacks {missing[0]!r}")
    strip = told.get("strip_accents")
    backend = wordpiece(
        vocab,
        roles["unk"],
        lower=told.get("do_lower_case", True) is True,
        accents=None if strip is None else not strip,
        chinese=told.get("tokenize_chinese_chars", True) is True,
    )
    backend.add_special_tokens([token for token in roles.values() if token in vocab])
    add_tokens(backend, told, file.parent)
    frame(backend, [roles["cls"]], [roles["sep"]])
    return Tokenizer(backend, find_roles(backend, {f"{role}_token": token for role, token in roles.items()}))


def header(number: int, line: str) -> bool:
    return number == 1 and line.startswith("#version")


# In a folder the first that is there is read.  Marian's vocab.json has no merges and belongs to its *.spm.
READERS: dict[str, Callable[[Path], Tokenizer]] = {
    "tokenizer.json": read_pipeline,
    "merges.txt": read_gpt2,
    "*.model": read_sentencepiece,
    "*.spm": read_sentencepiece,
    "dict.*.txt": read_fairseq,
    "vocab.txt": read_bert,
    "tok*.bin": read_llama2c,
    "vocab.json": read_vocab,
}
