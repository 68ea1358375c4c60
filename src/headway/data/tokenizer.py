"""Text to ids and back, whole or one id at a time.

One `Tokenizer` serves every level, from characters to subwords, by a pipeline of the `tokenizers` package.
`tokenizer_training.py` learns one from texts, `tokenizer_readers.py` reads those of other libraries.

The rule for special tokens:

- `encode` puts around a text what its authors put there: BERT's [CLS] … [SEP], Llama's <s>.  Tokenizers trained here
  put nothing; a task adds `bos` and `eos` where it wants them.
- A special token that is spelled in the text, such as "[MASK]", is read as one where the checkpoint's authors read it
  so.  With `literal`, as in tokenizers trained here, a text is a text: no spelling becomes a special token.  Use
  `replace(tokenizer, literal=False)` to read the spellings.
- `plain` gives the ids of the text alone, always literally.
- `decode` leaves special tokens out.

A `DecodeStream` never takes text back, and never gives out half of a character:

    "".join(stream.push(id) for id in ids) + stream.end()  ==  decode(ids)

for any ids, also for bytes that no text has: each longest beginning of a character that breaks off becomes one U+FFFD.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer as Backend

from headway.errors import UserError, nearest
from headway.system import write_json, write_text

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))  # what byte fallback calls its tokens
BROKEN = "\ufffd"


@dataclass(frozen=True)
class Roles:
    """Which token plays which part.  No token plays two."""

    pad: str | None = None
    bos: str | None = None
    eos: str | None = None
    mask: str | None = None
    unk: str | None = None

    def __post_init__(self) -> None:
        taken: dict[str, str] = {}
        for role, token in self.named().items():
            if token in taken:
                raise UserError(f"{token!r} is given both as {taken[token]} and as {role}", do="each needs its own")
            if not token:
                raise UserError(f"the {role} token is empty", do="give it a spelling such as '<pad>', or leave it out")
            taken[token] = role

    def named(self) -> dict[str, str]:
        """The roles that are played, in order."""
        return {role: token for role, token in asdict(self).items() if token is not None}


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Text to ids and back; `roles` whose tokens the vocabulary lacks are not played.

    `literal`: no spelling in a text is a special token.  `known`: ids from here on are pieces that merging passes
    through and the model has no row for; they become `unk`.
    """

    backend: Backend
    roles: Roles = Roles()
    literal: bool = False
    known: int | None = None

    def __post_init__(self) -> None:
        played = {role: t for role, t in self.roles.named().items() if self.backend.token_to_id(t) is not None}
        object.__setattr__(self, "roles", Roles(**played))
        registered = {token.content for token in self.backend.get_added_tokens_decoder().values() if token.special}
        self.backend.add_special_tokens([token for token in played.values() if token not in registered])
        self.backend.no_padding()
        self.backend.no_truncation()

    def encode(self, text: str) -> list[int]:
        """The ids of a text with what its authors put around it."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """As `encode`, for many texts at once: faster than one by one."""
        return self.ids(self.literal_backend if self.literal else self.backend, texts, framed=True)

    def plain(self, text: str) -> list[int]:
        """The ids of a text alone: nothing is added, and no spelling is a special token."""
        return self.plain_batch([text])[0]

    def plain_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return self.ids(self.literal_backend, texts, framed=False)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        self.check(ids)
        mender = ByteMender(self.backend)
        whole = mender.all(ids) if mender.bytes else ids
        return self.backend.decode(list(whole), skip_special_tokens=True)

    def stream(self, after: Sequence[int] = ()) -> DecodeStream:
        """Text as its ids come in, following on the ids `after`, whose text is not given again."""
        self.check(after)
        kinds = decoder_kinds(self.backend)
        byte_level = kinds == ["ByteLevel"]
        stream = ByteStream(self.backend) if byte_level else PieceStream(self.backend, hold="ByteLevel" in kinds)
        for id in after:
            stream.push(id)
        return stream

    def token(self, id: int) -> str:
        """How an id is written in the vocabulary."""
        self.check([id])
        return self.backend.id_to_token(id) or ""

    def id(self, token: str) -> int:
        """The id of a token as it is written in the vocabulary."""
        found = self.backend.token_to_id(token)
        if found is None or found >= self.vocab:
            raise UserError(f"the vocabulary has no token {token!r}", meant=nearest(token, self.roles.named().values()))
        return found

    @cached_property
    def vocab(self) -> int:
        """How many rows a model's embedding needs: the largest id, and one."""
        return self.known or max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @property
    def pad(self) -> int | None:
        return self.role(self.roles.pad)

    @property
    def bos(self) -> int | None:
        return self.role(self.roles.bos)

    @property
    def eos(self) -> int | None:
        return self.role(self.roles.eos)

    @property
    def mask(self) -> int | None:
        return self.role(self.roles.mask)

    @property
    def unk(self) -> int | None:
        return self.role(self.roles.unk)

    def save(self, folder: Path | str) -> None:
        """Writes tokenizer.json and tokenizer_config.json, as Hugging Face's transformers reads them too."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        masked = self.roles.mask is not None  # models that fill masks have these names
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "split_special_tokens": self.literal,
            **{f"{role}_token": token for role, token in self.roles.named().items()},
            **({"cls_token": self.roles.bos, "sep_token": self.roles.eos} if masked else {}),
            "known_tokens": self.known,
        }
        write_text(folder / "tokenizer.json", self.backend.to_str(pretty=True))
        write_json(folder / "tokenizer_config.json", {k: value for k, value in settings.items() if value is not None})

    def __repr__(self) -> str:
        roles = ", ".join(f"{role}={token!r}" for role, token in self.roles.named().items())
        return f"Tokenizer({type(self.backend.model).__name__}, vocab={self.vocab}{', ' if roles else ''}{roles})"

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[object, ...]]:
        # the pipeline forgets on its way between processes whether it reads literally
        return Tokenizer, tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def literal_backend(self) -> Backend:
        """A copy, because a switch on the pipeline itself would be seen by other threads."""
        copy = Backend.from_str(self.backend.to_str())
        copy.encode_special_tokens = True
        return copy

    def ids(self, backend: Backend, texts: Sequence[str], framed: bool) -> list[list[int]]:
        try:
            found = [read.ids for read in backend.encode_batch_fast(list(texts), add_special_tokens=framed)]
        except Exception as error:  # the package raises nothing narrower
            halves = (at for text in texts for at, letter in enumerate(text) if "\ud800" <= letter <= "\udfff")
            if (half := next(halves, None)) is not None:
                said = f"the text has half of a surrogate pair at character {half}, which no encoding can write"
                raise UserError(said) from error
            raise UserError(f"the tokenizer cannot read this text: {error}") from error
        if self.known is None:
            return found
        known, unk = self.known, self.id(self.roles.unk or "")
        return [[id if id < known else unk for id in row] for row in found]

    def role(self, token: str | None) -> int | None:
        return None if token is None else self.backend.token_to_id(token)

    def check(self, ids: Sequence[int]) -> None:
        if ids and not (min(ids) >= 0 and max(ids) < self.vocab):
            wrong = next(id for id in ids if not 0 <= id < self.vocab)
            raise UserError(f"id {wrong} is not in the vocabulary", allowed=f"0 to {self.vocab - 1}")


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
