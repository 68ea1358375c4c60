"""fairseq's dictionaries over subword-nmt's pieces: `dict.LANGUAGE.txt` beside `bpe.code`.

A dictionary writes a piece that goes on as "pie@@" and one that ends a word as "ce"; the merges write the end as
"ce</w>".  Pieces that merging makes and the dictionary lacks are unknown to the model.  Where merges join small letters
and never a capital, they were learned from lower-cased texts, and a text is lower-cased before it is split.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.data.levels import frame, suffix_bpe
from headway.data.tokenizer import Roles, Tokenizer
from headway.data.tokenizer_files import check_merges, choose, numbered_lines, read_text
from headway.errors import UserError, listed

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
    if lowered(merges):
        from tokenizers import normalizers

        backend.normalizer = normalizers.Lowercase()
    backend.add_special_tokens(list(FIRST))
    frame(backend, [], ["</s>"])
    return Tokenizer(backend, ROLES, literal=True, known=known)


def read_sides(folder: Path, source: int, target: int) -> tuple[Tokenizer | None, Tokenizer | None]:
    """The tokenizers of what a model reads and writes; None for the second where it is the same.

    Nothing names the sides of two dictionaries; `source` and `target` are how many rows the model has for each.
    """
    files = sorted(folder.glob("dict.*.txt"))
    if not files:
        return None, None
    if len({read_text(file) for file in files}) == 1:
        return read_fairseq(files[0]), None
    found = [read_fairseq(file) for file in files]
    sides = [[words for words in found if words.vocab == rows] for rows in (source, target)]
    if [len(side) for side in sides] != [1, 1] or sides[0] == sides[1]:
        sizes = listed(f"{file.name} with {words.vocab}" for file, words in zip(files, found, strict=True))
        said = f"{folder}: the model reads {source} tokens and writes {target}, and there are {sizes}"
        raise UserError(said, allowed="one dictionary for both, or one of each size")
    return sides[0][0], sides[1][0]


def lowered(merges: Sequence[tuple[str, str]]) -> bool:
    letters = "".join(left + right.removesuffix(END) for left, right in merges)
    return letters == letters.lower() != letters.upper()


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
