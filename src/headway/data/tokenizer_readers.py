"""Reading a tokenizer from a folder or a file, ours or other libraries': tokenizer.json and binary formats.

llama2.c's tok*.bin has the longest token's length, then for each token a score, a length and its bytes.  Encoding joins
the two neighbours whose piece has the best score, until none is left.  A space comes before the first word, and
characters that are no token are spelled in bytes.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers

from headway.data.decode_stream import BYTES, decoder_kinds
from headway.data.pipeline_checks import check_pipeline, load_pipeline
from headway.data.sentencepiece_model import SentencePieceNormalizer, whole_charsmap
from headway.data.sentencepiece_tokenizer import LEADING_CODE, read_sentencepiece
from headway.data.tokenizer import Roles, Tokenizer
from headway.data.tokenizer_files import (
    MAX_VOCAB,
    MODEL_TYPE,
    check_vocab,
    choose,
    find_roles,
    read_bert,
    read_bytes,
    read_fairseq,
    read_settings,
    read_text,
)
from headway.data.tokenizer_merges import read_merges, read_tekken, read_vocab, words_decoder
from headway.data.tokenizer_training import TRAINERS, frame, merges_by_score
from headway.errors import UserError, malformed, nearest
from headway.system import read_json

TARGET = "target"  # the folder of the tokenizer of the output, where that is another
LLAMA2C_SPECIAL = ("<unk>", "<s>", "</s>")  # the first three ids, however the file spells them


def load_tokenizer(path: Path | str, model_type: str | None = None) -> Tokenizer:
    """The tokenizer in a folder, or in a file and those beside it; of a model of this type, if none is said there."""
    token = MODEL_TYPE.set(model_type)
    try:
        return found_tokenizer(Path(path))
    finally:
        MODEL_TYPE.reset(token)


def read_tokenizers(folder: Path, model_type: str | None = None) -> tuple[Tokenizer | None, Tokenizer | None]:
    """The tokenizers of the input and, where it is another, of the output; None where there is none."""
    source, target = folder / "source.spm", folder / "target.spm"  # Marian's
    if source.is_file() and target.is_file():
        return load_tokenizer(source), load_tokenizer(target)
    other = load_tokenizer(folder / TARGET) if (folder / TARGET).is_dir() else None
    found = any(any(folder.glob(pattern)) for pattern in READERS)
    return load_tokenizer(folder, model_type) if found else None, other


def found_tokenizer(path: Path) -> Tokenizer:
    with malformed(str(path)):
        for pattern, read in READERS.items():
            if path.is_dir() and (found := sorted(path.glob(pattern))):
                return read(choose(found, f"tokenizers ({pattern})"))
            if not path.is_dir() and path.match(pattern):
                return read(path)
        if path.suffix == ".json" and not path.is_dir():
            return read_pipeline(path)
    said = "there is no tokenizer in this folder" if path.is_dir() else "not the name of a tokenizer's file"
    meant = None if path.exists() else nearest(str(path), TRAINERS)  # a folder, or what one is trained as
    raise UserError(f"{path}: {said}", allowed=", ".join([*TRAINERS, *READERS]), meant=meant)


def read_pipeline(file: Path) -> Tokenizer:
    """tokenizer.json: a whole pipeline as data."""
    settings = read_settings(file.parent)
    values = read_json(file)
    model = values.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if vocab is None:
        raise UserError(f"{file}: not a tokenizer: it has no model with a vocabulary")
    if isinstance(vocab, dict):
        check_vocab(vocab, file)
    with malformed(str(file)):
        check_pipeline(values, file)
    backend = load_pipeline(read_text(file), file)
    if getattr(backend.model, "end_of_word_suffix", None) and decoder_kinds(backend) == ["ByteLevel"]:
        backend.decoder = words_decoder()  # CLIP's, of which the file holds the first step alone
    known = settings.get("known_tokens")
    if known is not None and not (type(known) is int and 0 < known <= MAX_VOCAB):
        raise UserError(f"{file.parent}: known_tokens is {known!r:.60}", allowed=f"1 to {MAX_VOCAB}")
    return Tokenizer(
        backend,
        find_roles(backend, settings),
        literal=settings.get("split_special_tokens") is True,
        known=known,
        normalizer=saved_normalizer(backend, settings, file),
    )


def saved_normalizer(backend: Backend, settings: Mapping[str, Any], file: Path) -> SentencePieceNormalizer | None:
    """SentencePiece's normal form, where a tokenizer was saved here with it; its charsmap is that of the pipeline."""
    told = settings.get("sentencepiece_normalizer")
    if not isinstance(told, dict) or backend.normalizer is None:
        return None
    steps = json.loads(backend.normalizer.__getstate__())
    maps = [step["precompiled_charsmap"] for step in steps.get("normalizers", []) if step["type"] == "Precompiled"]
    charsmap = base64.b64decode(maps[0]) if maps else b""
    if charsmap and not whole_charsmap(charsmap):
        raise UserError(f"{file}: its table of normal forms is broken")
    symbols, leading = told.get("symbols"), LEADING_CODE if told.get("leading") == LEADING_CODE else ""
    named = tuple(map(str, symbols)) if isinstance(symbols, list) else ()
    return SentencePieceNormalizer(charsmap, told.get("prefix") is True, told.get("squeeze") is True, named, leading)


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
    "tekken.json": read_tekken,
    "merges.txt": read_merges,
    "*.model": read_sentencepiece,
    "*.model.v*": read_sentencepiece,
    "*.spm": read_sentencepiece,
    "dict.*.txt": read_fairseq,
    "vocab.txt": read_bert,
    "tok*.bin": read_llama2c,
    "vocab.json": read_vocab,
}
