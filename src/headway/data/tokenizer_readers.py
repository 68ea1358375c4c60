"""Reading a tokenizer from a folder or a file, ours or other libraries': tokenizer.json and binary formats.

SentencePiece's *.model and *.spm (Llama, T5, ALBERT, Marian) are protobuf messages:

    ModelProto       1 pieces*  2 trainer  3 normalizer
    SentencePiece    1 piece  2 score  3 type
    TrainerSpec      3 model_type  24 treat_whitespace_as_suffix  35 byte_fallback
    NormalizerSpec   2 precompiled_charsmap  3 add_dummy_prefix  4 remove_extra_whitespaces  5 escape_whitespaces

llama2.c's tok*.bin has the longest token's length, then for each token a score, a length and its bytes.  Encoding joins
the two neighbours whose piece has the best score, until none is left.  A space comes before the first word, and
characters that are no token are spelled in bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from headway.data.tokenizer import BYTES, Roles, Tokenizer
from headway.data.tokenizer_files import (
    add_tokens,
    check_vocab,
    choose,
    find_roles,
    read_bert,
    read_bytes,
    read_fairseq,
    read_gpt2,
    read_settings,
    read_text,
    read_vocab,
)
from headway.data.tokenizer_training import NEVER, frame, merges_by_score, shields
from headway.errors import UserError
from headway.system import read_json

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
SPACE = "▁"
MAX_LEADING_SPACES = 2**16  # leading spaces that are stripped
# what transformers' classes put around a text where no tokenizer.json tells it: (bos, eos)
FRAMES = {
    "LlamaTokenizer": (True, False),
    "T5Tokenizer": (False, True),
    "MarianTokenizer": (False, True),
    "AlbertTokenizer": (True, True),
}
LLAMA2C_SPECIAL = ("<unk>", "<s>", "</s>")  # the first three ids, however the file spells them


def load_tokenizer(path: Path | str) -> Tokenizer:
    """The tokenizer in a folder, or in a file and those beside it."""
    path = Path(path)
    for pattern, read in READERS.items():
        if path.is_dir() and (found := sorted(path.glob(pattern))):
            return read(choose(found, f"tokenizers ({pattern})"))
        if not path.is_dir() and path.match(pattern):
            return read(path)
    if path.suffix == ".json" and not path.is_dir():
        return read_pipeline(path)
    said = "there is no tokenizer in this folder" if path.is_dir() else "not the name of a tokenizer's file"
    raise UserError(f"{path}: {said}", allowed=", ".join(READERS))


def read_pipeline(file: Path) -> Tokenizer:
    """tokenizer.json: a whole pipeline as data."""
    settings = read_settings(file.parent)
    model = read_json(file).get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if vocab is None:
        raise UserError(f"{file}: not a tokenizer: it has no model with a vocabulary")
    if isinstance(vocab, dict):
        check_vocab(vocab, file)
    try:
        backend = Backend.from_str(read_text(file))
    except Exception as error:  # the package raises nothing narrower
        raise UserError(f"{file}: not a tokenizer: {error}") from error
    known = settings.get("known_tokens")
    return Tokenizer(
        backend,
        find_roles(backend, settings),
        literal=settings.get("split_special_tokens") is True,
        known=known if isinstance(known, int) else None,
    )


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


def read_sentencepiece(file: Path) -> Tokenizer:
    """A text is literal, as for SentencePiece itself, unless a class of transformers is named beside the file."""
    spec = parse(read_bytes(file), file)
    settings = read_settings(file.parent)
    name = str(settings.get("tokenizer_class", "MarianTokenizer" if file.suffix == ".spm" else "")).removesuffix("Fast")
    spec, known = reordered(spec, file) if file.suffix == ".spm" else (spec, None)
    backend = pipeline(spec, file)
    backend.add_special_tokens([piece.text for piece in spec.pieces if piece.kind in (UNKNOWN, CONTROL)])
    add_tokens(backend, settings, file.parent)
    if name == "T5Tokenizer" and backend.token_to_id("<extra_id_0>") is None:
        count = settings.get("extra_ids", 100)  # T5 numbers its blanks backwards
        backend.add_special_tokens([f"<extra_id_{n}>" for n in reversed(range(count if isinstance(count, int) else 0))])
    roles = find_roles(backend, settings)
    bos, eos = FRAMES.get(name, (False, False))
    before = [roles.bos] if settings.get("add_bos_token", bos) is True and roles.bos else []
    after = [roles.eos] if settings.get("add_eos_token", eos) is True and roles.eos else []
    frame(backend, before, after)
    return Tokenizer(backend, roles, literal=name not in FRAMES, known=known)


def reordered(spec: SentencePieceModel, file: Path) -> tuple[SentencePieceModel, int | None]:
    """Marian's vocab.json numbers the pieces; those that it lacks come after it and are unknown to the model."""
    beside = file.with_name("vocab.json")
    if not beside.is_file():
        return spec, None
    vocab = check_vocab(read_json(beside), beside)
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise UserError(f"{beside}: its ids have holes", allowed=f"0 to {len(vocab) - 1}, each once")
    own = {piece.text: piece for piece in spec.pieces}
    named = [own.get(token, VocabPiece(token, NEVER, CONTROL)) for token in sorted(vocab, key=vocab.__getitem__)]
    rest = [piece for piece in spec.pieces if piece.text not in vocab]
    return spec._replace(pieces=(*named, *rest)), len(vocab)


def pipeline(spec: SentencePieceModel, file: Path) -> Backend:
    backend = Backend(model(spec, file))
    backend.normalizer = normalizers.Sequence(normal(spec, file))
    inner = any(SPACE in piece.text[1:] for piece in spec.pieces if piece.kind == NORMAL)
    # where no piece crosses words, words can be read one by one, and remembered
    apart = [] if inner else [pre_tokenizers.Split(SPACE, "merged_with_next")]
    guard = shields(scored(spec)) if spec.kind == UNIGRAM else []
    if apart or guard:
        backend.pre_tokenizer = pre_tokenizers.Sequence([*apart, *guard])
    strip = [decoders.Strip(" ", MAX_LEADING_SPACES if spec.squeeze else 1, 0)] if spec.prefix or spec.squeeze else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return backend


def model(spec: SentencePieceModel, file: Path) -> models.Model:
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


def scored(spec: SentencePieceModel) -> list[tuple[str, float]]:
    """Pieces with their scores; a user's own piece is longer than it is likely, so that it is always taken."""
    best = max((piece.score for piece in spec.pieces if piece.kind == NORMAL), default=0.0)

    def score(piece: VocabPiece) -> float:
        if piece.kind == USER:
            return len(piece.text) * best - 0.1
        return piece.score if piece.kind == NORMAL else NEVER

    return [(piece.text, score(piece)) for piece in spec.pieces]


def normal(spec: SentencePieceModel, file: Path) -> list[normalizers.Normalizer]:
    steps: list[normalizers.Normalizer] = []
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
        if at and unit >> 31:  # a leaf: no way on, but for the root, whose offset is taken whatever it is
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


def read_llama2c(file: Path) -> Tokenizer:
    scores: dict[str, float] = {}
    for id, (token, score) in enumerate(entries(read_bytes(file), file)):
        name = LLAMA2C_SPECIAL[id] if id < len(LLAMA2C_SPECIAL) else token
        if name in scores:
            raise UserError(f"{file}: {name!r} occurs twice")
        scores[name] = score
    if tuple(scores)[: len(LLAMA2C_SPECIAL) + len(BYTES)] != (*LLAMA2C_SPECIAL, *BYTES):
        raise UserError(f"{file}: not a tokenizer of llama2.c: its 256 byte tokens are not where they belong")
    vocab = check_vocab({token: id for id, token in enumerate(scores)}, file)
    pieces = {token: score for token, score in scores.items() if token not in {*LLAMA2C_SPECIAL, *BYTES}}
    backend = Backend(models.BPE(vocab, merges_by_score(pieces), unk_token="<unk>", byte_fallback=True))
    backend.normalizer = normalizers.Prepend(" ")
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    backend.add_special_tokens(list(LLAMA2C_SPECIAL))
    frame(backend, ["<s>"], [])
    return Tokenizer(backend, Roles(bos="<s>", eos="</s>", unk="<unk>"), literal=True)


def entries(data: bytes, file: Path) -> Iterator[tuple[str, float]]:
    """Tokens and their scores; a length is believed when the file has that many bytes left."""
    if len(data) < 4:
        raise UserError(f"{file}: not a tokenizer of llama2.c: it ends after {len(data)} bytes")
    (longest,) = struct.unpack_from("<i", data)
    at = 4
    while at < len(data):
        if len(data) - at < 8:
            raise UserError(f"{file}: cut off in the middle of a token, at byte {at}")
        score, length = struct.unpack_from("<fi", data, at)
        at += 8
        if not 0 < length <= min(longest, len(data) - at) or score != score:
            raise UserError(f"{file}: not whole: at byte {at} it tells of a token of {length} bytes, scored {score}")
        try:
            yield data[at : at + length].decode(), score
        except UnicodeDecodeError as error:
            raise UserError(f"{file}: the token at byte {at} is not in UTF-8") from error
        at += length


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
