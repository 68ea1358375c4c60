"""SentencePiece models: a protobuf message, read field by field, and made into a pipeline of `tokenizers`.

ModelProto       1 pieces*  2 trainer  3 normalizer
SentencePiece    1 piece  2 score  3 type
TrainerSpec      3 model_type  24 treat_whitespace_as_suffix  35 byte_fallback
NormalizerSpec   2 precompiled_charsmap  3 add_dummy_prefix  4 remove_extra_whitespaces  5 escape_whitespaces
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.data.levels import NEVER, frame, merges_by_score, shields
from headway.data.read_protobuf import gather, last
from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_files import add_tokens, check_vocab, find_roles, read_bytes, settings
from headway.errors import UserError
from headway.files import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import Model
    from tokenizers.normalizers import Normalizer

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
SPACE = "▁"
ALL = 2**16  # leading spaces that are stripped
# what transformers' classes put around a text where no tokenizer.json tells it: (bos, eos)
FRAMES = {
    "LlamaTokenizer": (True, False),
    "T5Tokenizer": (False, True),
    "MarianTokenizer": (False, True),
    "AlbertTokenizer": (True, True),
}


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class Spec:
    """A whole model file."""

    pieces: tuple[Piece, ...]
    kind: int = UNIGRAM
    fallback: bool = False
    charsmap: bytes = b""
    prefix: bool = True
    squeeze: bool = True


def read_sentencepiece(file: Path) -> Tokenizer:
    """A text is literal, as for SentencePiece itself, unless a class of transformers is named beside the file."""
    spec = parse(read_bytes(file), file)
    told = settings(file.parent)
    name = str(told.get("tokenizer_class", "MarianTokenizer" if file.suffix == ".spm" else "")).removesuffix("Fast")
    spec, known = reordered(spec, file) if file.suffix == ".spm" else (spec, None)
    backend = pipeline(spec, file)
    backend.add_special_tokens([piece.text for piece in spec.pieces if piece.kind in (UNKNOWN, CONTROL)])
    add_tokens(backend, told, file.parent)
    if name == "T5Tokenizer" and backend.token_to_id("<extra_id_0>") is None:
        count = told.get("extra_ids", 100)  # T5 numbers its blanks backwards
        backend.add_special_tokens([f"<extra_id_{n}>" for n in reversed(range(count if isinstance(count, int) else 0))])
    roles = find_roles(backend, told)
    bos, eos = FRAMES.get(name, (False, False))
    before = [roles.bos] if told.get("add_bos_token", bos) is True and roles.bos else []
    after = [roles.eos] if told.get("add_eos_token", eos) is True and roles.eos else []
    frame(backend, before, after)
    return Tokenizer(backend, roles, literal=name not in FRAMES, known=known)


def reordered(spec: Spec, file: Path) -> tuple[Spec, int | None]:
    """Marian's vocab.json numbers the pieces; those that it lacks come after it and are unknown to the model."""
    beside = file.with_name("vocab.json")
    if not beside.is_file():
        return spec, None
    vocab = check_vocab(read_json(beside), beside)
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise UserError(f"{beside}: its ids have holes", allowed=f"0 to {len(vocab) - 1}, each once")
    own = {piece.text: piece for piece in spec.pieces}
    named = [own.get(token, Piece(token, NEVER, CONTROL)) for token in sorted(vocab, key=vocab.__getitem__)]
    rest = [piece for piece in spec.pieces if piece.text not in vocab]
    return Spec((*named, *rest), spec.kind, spec.fallback, spec.charsmap, spec.prefix, spec.squeeze), len(vocab)


def pipeline(spec: Spec, file: Path) -> Backend:
    from tokenizers import Tokenizer as Pipeline
    from tokenizers import decoders, normalizers, pre_tokenizers

    backend = Pipeline(model(spec, file))
    backend.normalizer = normalizers.Sequence(normal(spec, file))
    inner = any(SPACE in piece.text[1:] for piece in spec.pieces if piece.kind == NORMAL)
    # where no piece crosses words, words can be read one by one, and remembered
    apart = [] if inner else [pre_tokenizers.Split(SPACE, "merged_with_next")]
    guard = shields(scored(spec)) if spec.kind == UNIGRAM else []
    if apart or guard:
        backend.pre_tokenizer = pre_tokenizers.Sequence([*apart, *guard])
    strip = [decoders.Strip(" ", ALL if spec.squeeze else 1, 0)] if spec.prefix or spec.squeeze else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return backend


def model(spec: Spec, file: Path) -> Model:
    from tokenizers import models

    unknown = [id for id, piece in enumerate(spec.pieces) if piece.kind == UNKNOWN]
    if len(unknown) != 1:
        raise UserError(f"{file}: has {len(unknown)} pieces for the unknown", allowed="one")
    if spec.kind == UNIGRAM:
        return models.Unigram(scored(spec), unknown[0], byte_fallback=spec.fallback)
    if any(piece.kind in (USER, UNUSED) for piece in spec.pieces):
        raise UserError(f"{file}: user-defined and unused pieces are not supported in BPE models")
    scores = {piece.text: piece.score for piece in spec.pieces if piece.kind == NORMAL}
    vocab = {piece.text: id for id, piece in enumerate(spec.pieces)}
    unk = spec.pieces[unknown[0]].text
    return models.BPE(
        vocab, merges_by_score(scores), unk_token=unk, byte_fallback=spec.fallback, fuse_unk=not spec.fallback
    )


def scored(spec: Spec) -> list[tuple[str, float]]:
    """Pieces with their scores; a user's own piece is longer than it is likely, so that it is always taken."""
    best = max((piece.score for piece in spec.pieces if piece.kind == NORMAL), default=0.0)

    def score(piece: Piece) -> float:
        if piece.kind == USER:
            return len(piece.text) * best - 0.1
        return piece.score if piece.kind == NORMAL else NEVER

    return [(piece.text, score(piece)) for piece in spec.pieces]


def normal(spec: Spec, file: Path) -> list[Normalizer]:
    from tokenizers import Regex, normalizers

    steps: list[Normalizer] = []
    if spec.charsmap:
        if not whole_charsmap(spec.charsmap):
            raise UserError(f"{file}: its table of normal forms is broken")
        steps.append(normalizers.Precompiled(spec.charsmap))
    if spec.squeeze:
        steps += [normalizers.Replace(Regex(f"^ +|[ {SPACE}]+$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if spec.prefix:
        steps.append(normalizers.Prepend(SPACE))
    return [*steps, normalizers.Replace(" ", SPACE)]


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
        if unit >> 31:  # a leaf: no way on
            continue
        to = at ^ ((unit >> 10) << ((unit & 0x200) >> 6))
        if to | 0xFF >= len(units):
            return False
        text = texts[(start := units[to] & 0x7FFF_FFFF) : start + 1]
        if unit & 0x100 and (not text or text[0] & 0xC0 == 0x80):
            return False
    try:
        return bool(texts.decode())
    except UnicodeDecodeError:
        return False


def parse(data: bytes, file: Path) -> Spec:
    try:
        message = gather(memoryview(data))
        trainer, rules = gather(last(message, 2, memoryview(b""))), gather(last(message, 3, memoryview(b"")))
        pieces = tuple(piece(gather(part)) for part in message.get(1, []))
        spec = Spec(
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


def check_pieces(pieces: tuple[Piece, ...], file: Path) -> None:
    seen: set[str] = set()
    for piece in pieces:
        if not piece.text or piece.text in seen:
            raise UserError(f"{file}: the piece {piece.text!r} is empty or stands there twice")
        if piece.kind not in range(1, 7) or piece.score != piece.score:
            raise UserError(f"{file}: the piece {piece.text!r} has kind {piece.kind} and score {piece.score}")
        seen.add(piece.text)


def piece(fields: dict[int, list[Any]]) -> Piece:
    (score,) = struct.unpack("<f", last(fields, 2, memoryview(bytes(4))))
    return Piece(bytes(last(fields, 1, memoryview(b""))).decode(), score, int(last(fields, 3, NORMAL)))
