"""llama2.c's tokenizers: the longest token's length, then for each token a score, a length and its bytes.

Encoding joins, again and again, the two neighbours whose piece has the best score.  A space comes before the first
word, and characters that are no token are spelled in bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from headway.data.levels import BYTES, frame, merges_by_score
from headway.data.tokenizer import Roles, Tokenizer
from headway.data.tokenizer_files import check_vocab, read_bytes
from headway.errors import UserError

SPECIAL = ("<unk>", "<s>", "</s>")  # the first three ids, however the file spells them


def read_llama2c(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer as Pipeline
    from tokenizers import decoders, models, normalizers

    scores: dict[str, float] = {}
    for id, (token, score) in enumerate(entries(read_bytes(file), file)):
        name = SPECIAL[id] if id < len(SPECIAL) else token
        if name in scores:
            raise UserError(f"{file}: {name!r} stands there twice")
        scores[name] = score
    if tuple(scores)[: len(SPECIAL) + len(BYTES)] != (*SPECIAL, *BYTES):
        raise UserError(f"{file}: not a tokenizer of llama2.c: its 256 byte tokens are not where they belong")
    vocab = check_vocab({token: id for id, token in enumerate(scores)}, file)
    pieces = {token: score for token, score in scores.items() if token not in {*SPECIAL, *BYTES}}
    backend = Pipeline(models.BPE(vocab, merges_by_score(pieces), unk_token="<unk>", byte_fallback=True))
    backend.normalizer = normalizers.Prepend(" ")
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    backend.add_special_tokens(list(SPECIAL))
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
