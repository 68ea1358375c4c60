"""fairseq's dictionaries over subword-nmt's pieces: `dict.LANGUAGE.txt` beside `bpe.code`.

A dictionary writes a piece that goes on as "pie@@" and one that ends a word as "ce"; the merges write the end as
"ce</w>".  Pieces that merging makes and the dictionary lacks are unknown to the model.
"""

from __future__ import annotations

from pathlib import Path

from headway.data.levels import frame, suffix_bpe
from headway.data.tokenizer import Roles, Tokenizer
from headway.data.tokenizer_files import check_merges, choose, numbered_lines, read_text
from headway.errors import UserError

ROLES = Roles(bos="<s>", pad="<pad>", eos="</s>", unk="<unk>")
FIRST = ("<s>", "<pad>", "</s>", "<unk>")  # fairseq's ids 0 to 3
END, GOES_ON = "</w>", "@@"


def read_fairseq(file: Path) -> Tokenizer:
    """`encode` puts </s> at the end, as fairseq does."""
    codes = [found for name in ("bpe.code", "bpe.codes", "bpecodes") if (found := file.with_name(name)).is_file()]
    if not codes:
        raise UserError(f"{file}: there is no bpe.code beside this dictionary")
    merges = read_codes(choose(codes, "files of merges"))
    vocab = numbered_lines([*FIRST, *(as_merged(token) for token in read_dictionary(file))], file)
    known = len(vocab)
    for pair in merges:
        for piece in (*pair, "".join(pair)):
            vocab.setdefault(piece, len(vocab))
    backend = suffix_bpe(vocab, merges, "<unk>")
    backend.add_special_tokens(list(FIRST))
    frame(backend, [], ["</s>"])
    return Tokenizer(backend, ROLES, literal=True, known=known)


def read_dictionary(file: Path) -> list[str]:
    """The tokens of lines such as `ce 1234`."""
    tokens: list[str] = []
    for number, line in enumerate(read_text(file).removesuffix("\n").split("\n"), 1):
        token, _, count = line.rstrip("\r").removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not token or not count.isdecimal():
            raise UserError(f"{file} line {number}: {line[:60]!r} is no token with its count")
        tokens.append(token)
    return tokens


def read_codes(file: Path) -> list[tuple[str, str]]:
    first, *lines = read_text(file).removesuffix("\n").split("\n")
    if first.split() != ["#version:", "0.2"]:
        raise UserError(f"{file}: begins with {first[:40]!r}", allowed="'#version: 0.2' of subword-nmt")
    return check_merges(enumerate((line.rstrip("\r ") for line in lines), 2), file)


def as_merged(token: str) -> str:
    return token.removesuffix(GOES_ON) if token.endswith(GOES_ON) else token + END
