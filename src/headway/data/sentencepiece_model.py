"""SentencePiece's model files (*.model, *.spm), and the normal form that SentencePiece gives a text.

A file is a protobuf message:

    ModelProto       1 pieces*  2 trainer  3 normalizer
    SentencePiece    1 piece  2 score  3 type
    TrainerSpec      3 model_type  24 treat_whitespace_as_suffix  35 byte_fallback
    NormalizerSpec   2 precompiled_charsmap  3 add_dummy_prefix  4 remove_extra_whitespaces  5 escape_whitespaces

A charsmap is a length, a double array (Darts) over the bytes of what is replaced, and the replacements, each of which
ends in NUL.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from headway.errors import UserError

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
SPACE = "▁"
ASCII = "".join(map(chr, range(0x20, 0x7F)))
LABEL, LEAF, VALUE = 0x8000_00FF, 0x100, 0x7FFF_FFFF  # the parts of a unit of a double array


class VocabPiece(NamedTuple):
    text: str
    score: float
    kind: int


class SentencePieceModel(NamedTuple):
    """A whole model file."""

    pieces: tuple[VocabPiece, ...]
    kind: int = UNIGRAM
    fallback: bool = False
    charsmap: bytes = b""
    prefix: bool = True
    squeeze: bool = True

    def of(self, *kinds: int) -> list[str]:
        """The spellings of the pieces of some kinds."""
        return [piece.text for piece in self.pieces if piece.kind in kinds]


@dataclass(frozen=True)
class SentencePieceNormalizer:
    """The normal form of a text, as SentencePiece makes it before it looks for pieces.

    The longest source of the charsmap is replaced at each place; the `Precompiled` step of the tokenizers package goes
    by graphemes instead, and differs where one has several characters (half-width kana with a mark, conjoining jamo).
    `symbols` are pieces of the user, which stay as they are; `squeeze` removes extra spaces, `prefix` adds one.
    `leading` is the pattern of a token that a text may begin with and that is no part of it, as Marian's ">>de<<".
    """

    charsmap: bytes = b""
    prefix: bool = True
    squeeze: bool = True
    symbols: tuple[str, ...] = ()
    leading: str = ""

    def settings(self) -> dict[str, Any]:
        """All but the charsmap, which tokenizer.json holds in its own step."""
        told = {"prefix": self.prefix, "squeeze": self.squeeze, "symbols": list(self.symbols), "leading": self.leading}
        return {name: value for name, value in told.items() if value not in ([], "")}

    def __call__(self, text: str) -> str:
        if not text:
            return ""
        parts = self.symbol.split(text) if self.symbol else [text]  # symbols at odd places
        found = "".join(part if at % 2 or not self.charsmap else self.replaced(part) for at, part in enumerate(parts))
        if self.squeeze:
            found = re.sub(" {2,}", " ", found).lstrip(" ")
        found = SPACE * self.prefix + found.replace(" ", SPACE)
        return found.rstrip(SPACE) if self.squeeze else found

    @cached_property
    def symbol(self) -> re.Pattern[str] | None:
        spelled = "|".join(map(re.escape, sorted(self.symbols, key=len, reverse=True)))
        return re.compile(f"({spelled})") if spelled else None

    def replaced(self, text: str) -> str:
        found, at = list[str](), 0
        while odd := self.odd.search(text, at):
            found.append(text[at : odd.start()])
            at, part = self.longest(text, odd.start())
            found.append(part)
        return "".join((*found, text[at:]))

    @cached_property
    def odd(self) -> re.Pattern[str]:
        """Where a source may begin: at a character that is not plain, or at a plain one before such."""
        plain = re.escape("".join(letter for letter in ASCII if self.is_plain(letter)))
        return re.compile(rf"[{plain}]?[^{plain}]" if plain else r"[\s\S]")

    def is_plain(self, letter: str) -> bool:
        """Whether no source is this ASCII character, or begins with it and another such."""
        units, _ = self.table
        at = step(0, units[0]) ^ ord(letter)
        if units[at] & LABEL != ord(letter):
            return True
        node = step(at, units[at])
        return not (units[at] & LEAF or any(units[node ^ ord(other)] & LABEL == ord(other) for other in ASCII))

    @cached_property
    def table(self) -> tuple[tuple[int, ...], bytes]:
        """The units of the double array, and the replacements."""
        length = int.from_bytes(self.charsmap[:4], "little")
        return struct.unpack_from(f"<{length // 4}I", self.charsmap, 4), self.charsmap[4 + length :]

    def longest(self, text: str, at: int) -> tuple[int, str]:
        """Where the longest source that begins here ends, and its replacement; else the character itself."""
        units, texts = self.table
        found, node = (at + 1, text[at]), step(0, units[0])
        for end in range(at, len(text)):
            unit = 0
            for byte in text[end].encode():
                unit = units[node ^ byte]
                if unit & LABEL != byte:
                    return found
                node = step(node ^ byte, unit)
            if unit & LEAF:
                start = units[node] & VALUE
                found = (end + 1, texts[start : texts.index(b"\0", start)].decode())
        return found


def step(node: int, unit: int) -> int:
    """The base of a node's children in a double array."""
    return node ^ (unit >> 10) << ((unit & 0x200) >> 6)


def parse(data: bytes, file: Path) -> SentencePieceModel:
    try:
        message = gather(memoryview(data))
        trainer, rules = gather(last(message, 2, memoryview(b""))), gather(last(message, 3, memoryview(b"")))
        pieces = tuple(piece(gather(part)) for part in message.get(1, []))
        spec = SentencePieceModel(
            pieces,
            kind=int(last(trainer, 3, UNIGRAM)),
            fallback=bool(last(trainer, 35, 0)),
            charsmap=bytes(last(rules, 2, memoryview(b""))),
            prefix=bool(last(rules, 3, 1)),
            squeeze=bool(last(rules, 4, 1)),
        )
    except (ValueError, TypeError, struct.error) as error:
        raise UserError(f"{file}: not a SentencePiece model: {error}") from error
    if not pieces:
        raise UserError(f"{file}: not a SentencePiece model: it has no pieces")
    check_pieces(pieces, file)
    if spec.kind not in (UNIGRAM, BPE):
        raise UserError(f"{file}: model type {spec.kind} is not supported", allowed="1 (unigram), 2 (BPE)")
    if last(trainer, 24, 0) or not last(rules, 5, 1):
        raise UserError(f"{file}: spaces as suffixes, or not escaped, are not supported")
    return spec


def check_pieces(pieces: tuple[VocabPiece, ...], file: Path) -> None:
    seen: set[str] = set()
    for piece in pieces:
        if not piece.text or piece.text in seen:
            raise UserError(f"{file}: the piece {piece.text!r} is empty or occurs twice")
        if piece.kind not in range(1, 7) or piece.score != piece.score:
            raise UserError(f"{file}: the piece {piece.text!r} has kind {piece.kind} and score {piece.score}")
        seen.add(piece.text)


def piece(fields: dict[int, list[Any]]) -> VocabPiece:
    (score,) = struct.unpack("<f", last(fields, 2, memoryview(bytes(4))))
    return VocabPiece(bytes(last(fields, 1, memoryview(b""))).decode(), score, int(last(fields, 3, NORMAL)))


def gather(data: memoryview) -> dict[int, list[Any]]:
    """A message's fields by number: whole numbers for varints, views of the bytes for all others."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        else:
            if wire == 2:
                length, at = varint(data, at)
            elif wire in (1, 5):
                length = 8 if wire == 1 else 4
            else:
                raise ValueError(f"a field of wire type {wire}")
            if length > len(data) - at:
                raise ValueError(f"a field says it has {length} bytes where {len(data) - at} are left")
            value, at = data[at : at + length], at + length
        found.setdefault(key >> 3, []).append(value)
    return found


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, lowest first, and where it ends."""
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number that does not end")


def last(fields: dict[int, list[Any]], number: int, default: Any) -> Any:
    return fields.get(number, [default])[-1]


def whole_charsmap(data: bytes) -> bool:
    """Whether a table of normal forms (a length, a double array, texts that end in NUL) leads nowhere beyond itself.

    The package that uses it does not look.
    """
    length = int.from_bytes(data[:4], "little")
    texts = data[4 + length :]
    if not 0 < length <= len(data) - 4 or length % 4 or not texts.endswith(b"\0"):
        return False
    units = struct.unpack_from(f"<{length // 4}I", data, 4)
    for at, unit in enumerate(units):
        if at and unit >> 31:  # a leaf: no way on, but for the root, whose offset is taken whatever it is
            continue
        to = step(at, unit)
        if to | 0xFF >= len(units):
            return False
        text = texts[(start := units[to] & VALUE) : start + 1]
        if unit & LEAF and (not text or text[0] & 0xC0 == 0x80):
            return False
    try:
        return bool(texts.decode())
    except UnicodeDecodeError:
        return False
