"""Reading a tokenizer from a folder or a file, ours or other libraries': tokenizer.json and binary formats.

llama2.c's tok*.bin has the longest token's length, then for each token a score, a length and its bytes.  Encoding joins
the two neighbours whose piece has the best score, until none is left.  A space comes before the first word, and
characters that are no token are spelled in bytes.

A foreign tokenizer.json is checked before it is used, since the pipeline of the `tokenizers` package believes what it
reads.  Some values end its process or never end (a table of normal forms that tells a length of 4 GB, 40 replacements
of a letter by two, words of 10⁹ letters), so they are bounded here.  Others panic at the first text: a short one is
tried.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers

from headway.data.decode_stream import BYTES, decoder_kinds
from headway.data.tokenizer import Roles, Tokenizer, is_failure
from headway.data.tokenizer_files import (
    MAX_VOCAB,
    MODEL_TYPE,
    check_vocab,
    choose,
    find_roles,
    flag_tokens,
    read_bytes,
    read_chat_template,
    read_settings,
    read_text,
)
from headway.data.tokenizer_training import TRAINERS, frame, merges_by_score
from headway.errors import UserError, malformed, nearest
from headway.system import read_json

if TYPE_CHECKING:
    from headway.data.sentencepiece_model import SentencePieceNormalizer

TARGET = "target"  # the folder of the tokenizer of the output, where that is another
LLAMA2C_SPECIAL = ("<unk>", "<s>", "</s>")  # the first three ids, however the file spells them
SLOTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
MAX_STEPS = 100  # of a slot; published pipelines have up to eight
MAX_GROWTH = 256  # times that a slot may lengthen a text
MAX_AFFIX = 1000  # characters that are put before a text
MAX_TEMPLATE = 100  # tokens that are put around a text
MAX_WORD = 1000  # characters of a word for WordPiece, whose time grows with their square
MAX_TOKENS, MAX_ADDED = 2**20, 100_000  # published vocabularies have up to 2^18, of which some thousand are added
MAX_TOKEN = 10_000  # characters of a token: a trie of a million is taken down by so many calls within each other
PROBE = "The cats aren't 3.14\tkilometres away…\n“Ünïcode”, e\u0301, 東京, नमस्ते 🙂 [MASK] </s> " + "a" * 40 + "1"
# Readers by module and function.  In a folder the first whose file is there is read.  Marian's vocab.json has no merges
# and belongs to its *.spm.
READERS = {
    "tokenizer.json": "tokenizer_readers:read_pipeline",
    "tekken.json": "tokenizer_merges:read_tekken",
    "merges.txt": "tokenizer_merges:read_merges",
    "*.model": "sentencepiece_tokenizer:read_sentencepiece",
    "*.model.v*": "sentencepiece_tokenizer:read_sentencepiece",
    "*.spm": "sentencepiece_tokenizer:read_sentencepiece",
    "dict.*.txt": "tokenizer_files:read_fairseq",
    "vocab.txt": "tokenizer_files:read_bert",
    "tok*.bin": "tokenizer_readers:read_llama2c",
    "vocab.json": "tokenizer_merges:read_vocab",
}


def load_tokenizer(path: Path | str, model_type: str | None = None) -> Tokenizer:
    """The tokenizer in a folder, or in a file and those beside it; of a model of this type, if none is said there."""
    token = MODEL_TYPE.set(model_type)
    try:
        found = found_tokenizer(Path(path))
    finally:
        MODEL_TYPE.reset(token)
    template = read_chat_template(Path(path) if Path(path).is_dir() else Path(path).parent)
    return found if template is None else replace(found, chat_template=template)


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
        for pattern, reader in READERS.items():
            if path.is_dir() and (found := sorted(path.glob(pattern))):
                return read_by(reader, choose(found, f"tokenizers ({pattern})"))
            if not path.is_dir() and path.match(pattern):
                return read_by(reader, path)
        if path.suffix == ".json" and not path.is_dir():
            return read_pipeline(path)
    said = "there is no tokenizer in this folder" if path.is_dir() else "not the name of a tokenizer's file"
    meant = None if path.exists() else nearest(str(path), TRAINERS)  # a folder, or what one is trained as
    raise UserError(f"{path}: {said}", allowed=", ".join([*TRAINERS, *READERS]), meant=meant)


def read_by(reader: str, file: Path) -> Tokenizer:
    module, _, name = reader.partition(":")
    return getattr(import_module(f"headway.data.{module}"), name)(file)


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
        from headway.data.tokenizer_merges import words_decoder

        backend.decoder = words_decoder()  # CLIP's, of which the file holds the first step alone
    for name in ("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"):
        tokens = settings.get(name)
        check_tokens(name, list(tokens.values()) if isinstance(tokens, dict) else tokens, MAX_ADDED, file.parent)
    flag_tokens(backend, settings)
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
    from headway.data.sentencepiece_model import SentencePieceNormalizer, whole_charsmap
    from headway.data.sentencepiece_tokenizer import LEADING_CODE

    steps = json.loads(backend.normalizer.__getstate__())
    maps = [step["precompiled_charsmap"] for step in steps.get("normalizers", []) if step["type"] == "Precompiled"]
    charsmap = base64.b64decode(maps[0]) if maps else b""
    if charsmap and not whole_charsmap(charsmap):
        raise UserError(f"{file}: its table of normal forms is broken")
    symbols, leading = told.get("symbols"), LEADING_CODE if told.get("leading") == LEADING_CODE else ""
    named = tuple(map(str, symbols)) if isinstance(symbols, list) else ()
    return SentencePieceNormalizer(charsmap, told.get("prefix") is True, told.get("squeeze") is True, named, leading)


def check_pipeline(values: Mapping[str, Any], file: Path) -> None:
    """Refuses what the package would not survive."""
    for slot in SLOTS:
        parts, growth = list(steps(values.get(slot))), 1.0
        if len(parts) > MAX_STEPS:
            raise UserError(f"{file}: the {slot} has {len(parts):,} steps", allowed=f"{MAX_STEPS} or fewer")
        for part in parts:
            growth *= lengthened(part)
            check_step(part, file)
        if growth > MAX_GROWTH:
            raise UserError(
                f"{file}: the {slot} makes a text {growth:.3g} times as long", allowed=f"{MAX_GROWTH} times"
            )
    model: Any = values.get("model")
    check_tokens("vocabulary", model.get("vocab") if isinstance(model, Mapping) else None, MAX_TOKENS, file)
    check_tokens("list of added tokens", values.get("added_tokens"), MAX_ADDED, file)
    longest = model.get("max_input_chars_per_word") if isinstance(model, Mapping) else None
    if longest is not None and not (isinstance(longest, int) and 0 <= longest <= MAX_WORD):
        raise UserError(f"{file}: max_input_chars_per_word is {longest!r:.60}", allowed=f"0 to {MAX_WORD}")


def check_tokens(what: str, tokens: object, most: int, file: Path) -> None:
    """Refuses more tokens, or longer ones, than the package reads in time: it goes down a letter at a time and back."""
    found: list[Any] = list(tokens) if isinstance(tokens, Mapping | list) else []
    if len(found) > most:
        raise UserError(f"{file}: the {what} has {len(found):,} tokens", allowed=f"{most:,} or fewer")
    spelled = found if isinstance(tokens, Mapping) else [spelling(one) for one in found]
    longest = max((len(one) for one in spelled if isinstance(one, str)), default=0)
    if longest > MAX_TOKEN:
        raise UserError(f"{file}: the {what} has a token of {longest:,} characters", allowed=f"{MAX_TOKEN:,} or fewer")


def spelling(token: Any) -> object:
    """How a token of a list is spelled: by itself, first of a pair with its score, or as an added token's content."""
    if isinstance(token, Mapping):
        return cast(Mapping[str, object], token).get("content")
    return token[0] if isinstance(token, list) and token else token


def steps(part: object) -> Iterator[Mapping[str, Any]]:
    """The steps of a slot, those of sequences within it one by one."""
    waiting = [part]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            step = cast(Mapping[str, Any], one)
            yield step
            for name in ("normalizers", "pretokenizers", "processors", "decoders"):
                inner = step.get(name)
                waiting += cast(list[object], inner) if isinstance(inner, list) else []


def lengthened(step: Mapping[str, Any]) -> float:
    """How many times as long a step makes a text at most: a letter that is not ASCII is two of its bytes or more."""
    if step.get("type") == "ByteLevel":
        return 2.0
    pattern, content = step.get("pattern"), step.get("content")
    if step.get("type") != "Replace" or not isinstance(content, str):
        return 1.0
    spelled: Any = cast(Mapping[str, Any], pattern).get("String") if isinstance(pattern, Mapping) else None
    return max(1.0, len(content) / (len(spelled) or 1 if isinstance(spelled, str) else 1))


def check_step(step: Mapping[str, Any], file: Path) -> None:
    match step:
        case {"type": "Precompiled", "precompiled_charsmap": table}:
            from headway.data.sentencepiece_model import whole_charsmap

            if isinstance(table, str) and not whole_charsmap(base64.b64decode(table)):
                raise UserError(f"{file}: its table of normal forms is broken")
        case {"type": "Prepend", "prepend": str(text)} if len(text) > MAX_AFFIX:
            raise UserError(f"{file}: Prepend has {len(text):,} characters", allowed=f"{MAX_AFFIX} or fewer")
        case {"type": "TemplateProcessing"}:
            special: Any = step.get("special_tokens")
            inside = special.values() if isinstance(special, Mapping) else ()
            lists = [
                step.get("single"),
                step.get("pair"),
                *(one.get("ids") for one in inside if isinstance(one, Mapping)),
            ]
            longest = max(len(one) for one in lists if isinstance(one, list)) if any(lists) else 0
            if longest > MAX_TEMPLATE:
                said = f"{file}: TemplateProcessing has a list of {longest:,} tokens"
                raise UserError(said, allowed=f"{MAX_TEMPLATE} or fewer")
        case _:
            pass


def load_pipeline(text: str, file: Path) -> Backend:
    """The pipeline of a text that was checked; one that panics at a short text is refused."""
    with silent():
        try:
            backend = Backend.from_str(text)
        except BaseException as error:
            raise refused(error, file) from error
        backend.no_padding()
        backend.no_truncation()
        try:
            backend.decode(backend.encode(PROBE).ids)
            for ids in stripped_tokens(backend) if '"Strip"' in text else ():
                backend.decode(ids)
        except Exception:
            pass
        except BaseException as error:
            raise refused(error, file) from error
    return backend


def stripped_tokens(backend: Backend) -> Iterator[list[int]]:
    """Tokens of one repeated character, alone and twice: a decoder that strips it at both ends panics where they meet.

    A panic at a later text would write to standard error by itself, and muting that mutes other threads too.
    """
    repeated = (number for token, number in backend.get_vocab().items() if len(set(token)) == 1)
    yield from ([number] * count for number in repeated for count in (1, 2))


def refused(error: BaseException, file: Path) -> UserError:
    if not is_failure(error):
        raise error
    return UserError(f"{file}: not a tokenizer: {error!s:.200}")


@contextmanager
def silent() -> Generator[None]:
    """Without what a panic writes to the process's standard error by itself."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


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
