"""Decoding one id at a time.

A `DecodeStream` never takes text back, and never gives out half of a character:

    "".join(stream.push(id) for id in ids) + stream.end()  ==  decode(ids)

for any ids, also for bytes that no text has: each longest beginning of a character that breaks off becomes one U+FFFD.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Sequence
from copy import copy
from functools import cache
from typing import Protocol

from tokenizers import Tokenizer as Backend

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))  # what byte fallback calls its tokens
BROKEN = "\ufffd"


class DecodeStream(Protocol):
    """Text in the making.  `copy` of it goes on by itself."""

    def push(self, id: int) -> str:
        """The text that is certain now and was not before; often none."""
        ...

    def end(self) -> str:
        """What was held back, now that nothing follows."""
        ...


class ByteStream:
    """For byte-level vocabularies, where each token is some bytes."""

    def __init__(self, backend: Backend):
        self.backend, self.letters, self.skipped = backend, byte_letters(), specials(backend)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        return "" if id in self.skipped else self.decoder.decode(self.spelled(id))

    def end(self) -> str:
        return self.decoder.decode(b"", final=True)

    def __copy__(self) -> ByteStream:
        other = ByteStream.__new__(ByteStream)
        other.__dict__.update(self.__dict__, decoder=codecs.getincrementaldecoder("utf-8")("replace"))
        other.decoder.setstate(self.decoder.getstate())
        return other

    def spelled(self, id: int) -> bytes:
        token = self.backend.id_to_token(id) or ""
        if all(letter in self.letters for letter in token):
            return bytes(self.letters[letter] for letter in token)
        return token.encode()  # an added token, in plain characters


class PieceStream:
    """For all other vocabularies: a piece's text is what it adds to the text of the piece before it.

    `hold` is for decoders that could end within a character and of which nothing else is known.
    """

    def __init__(self, backend: Backend, hold: bool = False):
        self.backend, self.hold, self.mender = backend, hold, ByteMender(backend)
        self.before: list[int] = []
        self.held: list[int] = []

    def push(self, id: int) -> str:
        return "".join(self.give(whole) for whole in self.mender.push(id))

    def end(self) -> str:
        self.hold = False
        return "".join(self.give(whole) for whole in [*self.mender.end(), []])

    def give(self, whole: Sequence[int]) -> str:
        self.held = [*self.held, *whole]
        start, text = self.decode(self.before), self.decode(self.before + self.held)
        if not self.held or (self.hold and text.endswith(BROKEN)):
            return ""
        # decoders strip spaces where a text begins; only after other text is it certain that none does
        behind = self.decode(self.held).strip(" ")
        self.before, self.held = (self.held if behind else self.before + self.held), []
        return text[len(start) :]

    def decode(self, ids: list[int]) -> str:
        return self.backend.decode(ids, skip_special_tokens=False)

    def __copy__(self) -> PieceStream:
        other = PieceStream.__new__(PieceStream)
        other.__dict__.update(self.__dict__, mender=copy(self.mender))
        return other


class ByteMender:
    """Special tokens taken out, and byte tokens gathered into characters; broken ones are replaced by U+FFFD."""

    def __init__(self, backend: Backend):
        self.skipped = specials(backend)
        ids = [backend.token_to_id(token) for token in BYTES] if "ByteFallback" in decoder_kinds(backend) else []
        self.bytes = {id: byte for byte, id in enumerate(ids) if id is not None}
        self.ids = {byte: id for id, byte in self.bytes.items()}
        self.open: list[int] = []

    def push(self, id: int) -> list[list[int]]:
        """The units that are complete with this id: a piece, or the byte tokens of a character."""
        if id in self.skipped:
            return []
        if id not in self.bytes:
            return [*self.end(), [id]]
        self.open = [*self.open, self.bytes[id]]
        return self.take(final=False)

    def end(self) -> list[list[int]]:
        return self.take(final=True)

    def take(self, final: bool) -> list[list[int]]:
        units: list[list[int]] = []
        while self.open:
            try:
                bytes(self.open).decode()  # one byte came, so this is one character
                taken, broken = len(self.open), False
            except UnicodeDecodeError as error:
                if error.reason == "unexpected end of data" and not final:
                    break
                taken, broken = error.end, True
            units.append(self.spelled(self.open[:taken], broken))
            self.open = self.open[taken:]
        return units

    def spelled(self, given: list[int], broken: bool) -> list[int]:
        mark = list(BROKEN.encode())
        return [self.ids[byte] for byte in (mark if broken and self.ids.keys() >= set(mark) else given)]

    def all(self, ids: Iterable[int]) -> list[int]:
        units = [unit for id in ids for unit in self.push(id)] + self.end()
        return [id for unit in units for id in unit]


@cache
def byte_letters() -> dict[str, int]:
    """GPT-2's characters for bytes: printable bytes are themselves, the others are U+0100 and following."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in shown)
    return {chr(byte): byte for byte in shown} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


def decoder_kinds(backend: Backend) -> list[str]:
    """The names of the decoder's steps, in order."""
    if backend.decoder is None:
        return []
    decoder = json.loads(backend.decoder.__getstate__())
    return [step["type"] for step in decoder.get("decoders", [decoder])]


def specials(backend: Backend) -> frozenset[int]:
    """The ids that decoding leaves out."""
    return frozenset(id for id, token in backend.get_added_tokens_decoder().items() if token.special)
