"""Text to ids and back, whole or one id at a time.

One `Tokenizer` serves every level, from characters to subwords, by a pipeline of the `tokenizers` package.
`tokenizer_training.py` learns one from texts, `tokenizer_readers.py` reads those of other libraries.

The rule for special tokens:

- `encode` puts around a text what its authors put there: BERT's [CLS] … [SEP], Llama's <s>.  Tokenizers trained here
  put nothing; a task adds `bos` and `eos` where it wants them.
- A special token that is spelled in the text, such as "[MASK]", is read as one where the checkpoint's authors read it
  so.  With `literal`, as in tokenizers trained here, a text is a text: no spelling becomes a special token.  Use
  `replace(tokenizer, literal=False)` to read the spellings.
- `plain` gives the ids of the text alone, always literally; `marked` with all special tokens that are spelled in it.
- `decode` leaves special tokens out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Encoding
from tokenizers import Tokenizer as Backend

from headway.data.decode_stream import ByteMender, ByteStream, DecodeStream, PieceStream, decoder_kinds
from headway.errors import UserError, listed, nearest
from headway.system import write_json, write_text

if TYPE_CHECKING:
    from headway.data.sentencepiece_model import SentencePieceNormalizer

CHAT_TEMPLATE, CHAT_TEMPLATE_JSON = "chat_template.jinja", "chat_template.json"  # the latter in older folders
CLASS_SEGMENT = 2  # behind those of two texts
LANGUAGE = re.compile(r"__([a-z]{2,3})__|([a-z]{2,3}_[A-Z][A-Za-z]{1,3})")  # a token that names one


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
    through and the model has no row for; they become `unk`.  `normalizer` replaces the pipeline's own, which comes
    near it and is what other libraries read.  `chat_template`: a Jinja program that writes messages as a text.
    """

    backend: Backend
    roles: Roles = Roles()
    literal: bool = False
    known: int | None = None
    normalizer: SentencePieceNormalizer | None = None
    chat_template: str | None = None

    def __post_init__(self) -> None:
        ids = {role: self.backend.token_to_id(token) for role, token in self.roles.named().items()}
        rows = {role for role, id in ids.items() if id is not None and (self.known is None or id < self.known)}
        played = {role: token for role, token in self.roles.named().items() if role in rows}
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
        return self.ids(texts, framed=True) if self.literal else self.special_ids(texts)

    def plain(self, text: str) -> list[int]:
        """The ids of a text alone: nothing is added, and no spelling is a special token."""
        return self.plain_batch([text])[0]

    def plain_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return self.ids(texts, framed=False)

    def marked(self, text: str) -> list[int]:
        """The ids of a text that spells its special tokens itself, as a chat template writes it: nothing is added."""
        return self.special_ids([text], framed=False)[0]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        self.check(ids)
        mender = ByteMender(self.backend)
        whole = mender.all(ids) if mender.bytes else ids
        try:
            return self.backend.decode(list(whole), skip_special_tokens=True)
        except BaseException as error:
            raise unreadable((), error) from error

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
    def languages(self) -> dict[str, int]:
        """The tokens that name a language, as in NLLB (fra_Latn), mBART (fr_XX) and M2M-100 (__fr__, known as fr)."""
        added = self.backend.get_added_tokens_decoder().items()
        found = ((LANGUAGE.fullmatch(token.content), id) for id, token in added if token.special and id < self.vocab)
        return {match[1] or match[2]: id for match, id in found if match}

    def language(self, code: str) -> int:
        """The token that names a language."""
        if not self.languages:
            said = f"the tokenizer names no languages, and {code!r} is asked for"
            raise UserError(said, do="leave the language out")
        if code not in self.languages:
            allowed, meant = listed(sorted(self.languages), 20), nearest(code, self.languages)
            raise UserError(f"the tokenizer names no language {code!r}", allowed=allowed, meant=meant)
        return self.languages[code]

    def in_language(self, rows: Sequence[Sequence[int]], code: str) -> list[list[int]]:
        """Rows of ids as of texts in another language: the token that names one names this."""
        named, known = self.language(code), {*self.languages.values()}
        return [[named if id in known else id for id in row] for row in rows]

    @cached_property
    def vocab(self) -> int:
        """How many rows a model's embedding needs: the largest id, and one."""
        return self.known or max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def ends_apart(self) -> bool:
        """Whether the last token of each text is of a segment of its own, as XLNet's class token is."""
        return self.literal_backend.encode("").type_ids[-1:] == [CLASS_SEGMENT]

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

    def save(self, folder: Path | str, more: Mapping[str, Any] | None = None) -> None:
        """Writes tokenizer.json, tokenizer_config.json and a chat template, as transformers reads them too.

        `more` are settings of what transformers makes of texts for a model.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        masked = self.roles.mask is not None  # models that fill masks have these names
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "split_special_tokens": self.literal,
            **{f"{role}_token": token for role, token in self.roles.named().items()},
            **({"cls_token": self.roles.bos, "sep_token": self.roles.eos} if masked else {}),
            **(more or {}),
            "known_tokens": self.known,
            "sentencepiece_normalizer": self.normalizer and self.normalizer.settings(),
        }
        write_text(folder / "tokenizer.json", self.backend.to_str(pretty=True))
        write_json(folder / "tokenizer_config.json", {k: value for k, value in settings.items() if value is not None})
        if self.chat_template is not None:
            write_text(folder / CHAT_TEMPLATE, self.chat_template)

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
        if self.normalizer is not None:
            copy.normalizer = None  # type: ignore[assignment]  # the package's setter takes it
        return copy

    def ids(self, texts: Sequence[str], framed: bool) -> list[list[int]]:
        """The ids of texts, literally."""
        try:
            normal = list(texts) if self.normalizer is None else [self.normalizer(text) for text in texts]
            return self.known_ids(self.literal_backend.encode_batch_fast(normal, add_special_tokens=framed))
        except BaseException as error:
            raise unreadable(texts, error) from error

    def special_ids(self, texts: Sequence[str], framed: bool = True) -> list[list[int]]:
        """The ids of texts with the special tokens that are spelled in them."""
        if self.normalizer is None:
            try:
                return self.known_ids(self.backend.encode_batch_fast(list(texts), add_special_tokens=framed))
            except BaseException as error:
                raise unreadable(texts, error) from error
        # what lies between special tokens is normalised by itself; the tokens are at the odd places
        parts = [self.special_spelling.split(text) for text in texts]
        found = iter(self.ids([part for row in parts for part in row[::2]], framed=False))
        before, after = frame_of(self.backend) if framed else ([], [])
        rows = [[[self.spelled_id(part)] if n % 2 else next(found) for n, part in enumerate(row)] for row in parts]
        return [[*before, *chain.from_iterable(row), *after] for row in rows]

    @cached_property
    def special_spelling(self) -> re.Pattern[str]:
        added = self.backend.get_added_tokens_decoder().items()
        tokens = [token.content for id, token in added if token.special and id < self.vocab]
        leading = [self.normalizer.leading] if self.normalizer and self.normalizer.leading else []
        return re.compile(f"({'|'.join([*leading, *map(re.escape, sorted(tokens, key=len, reverse=True))])})")

    def spelled_id(self, token: str) -> int:
        found = self.backend.token_to_id(token)
        return self.id(self.roles.unk or "") if found is None or found >= self.vocab else found

    def known_ids(self, encodings: Iterable[Encoding]) -> list[list[int]]:
        found = [encoding.ids for encoding in encodings]
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


def frame_of(backend: Backend) -> tuple[list[int], list[int]]:
    """The ids that the pipeline puts before and behind a text."""
    if backend.post_processor is None:
        return [], []
    template = json.loads(backend.post_processor.__getstate__()).get("single", [])
    names = [part["SpecialToken"]["id"] if "SpecialToken" in part else None for part in template]
    at = names.index(None) if None in names else 0
    ids = [-1 if name is None else backend.token_to_id(name) or 0 for name in names]
    return ids[:at], ids[at + 1 :]


def unreadable(texts: Sequence[str], error: BaseException) -> UserError:
    if not is_failure(error):
        raise error
    halves = (at for text in texts for at, letter in enumerate(text) if "\ud800" <= letter <= "\udfff")
    if (half := next(halves, None)) is not None:
        return UserError(f"the text has half of a surrogate pair at character {half}, which no encoding can write")
    return UserError(f"the tokenizer cannot read this text: {error}")


def is_failure(error: BaseException) -> bool:
    """Whether the package failed: it raises nothing narrower than Exception, and panics are none."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
