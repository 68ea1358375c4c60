"""The levels of text, each as a pipeline of the `tokenizers` package around a vocabulary.

Training learns a vocabulary and reading finds one in a file; both end here.  A piece that text must never become (a
control token, a byte token) stands in the vocabulary all the same, because its id does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.pre_tokenizers import PreTokenizer

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))  # what byte fallback calls its tokens
NEVER = -1e6  # the score of a piece that no text becomes; finite, because JSON has no infinity

Merges = Sequence[tuple[str, str]]


def byte_bpe(vocab: Mapping[str, int], merges: Merges, prefix_space: bool = False) -> Backend:
    """GPT-2's level: pairs of bytes are merged inside words.  Nothing is lost."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    backend = Tokenizer(models.BPE(dict(vocab), list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = decoders.ByteLevel()
    return backend


def characters(vocab: Mapping[str, int], unk: str | None) -> Backend:
    """Each character is a token.  Others become `unk`; without one they are spelled in bytes and nothing is lost."""
    from tokenizers import Tokenizer, decoders, models

    fallback = unk is None
    backend = Tokenizer(models.BPE(dict(vocab), [], unk_token=unk, byte_fallback=fallback, fuse_unk=False))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return backend


def words(vocab: Mapping[str, int], unk: str) -> Backend:
    """Each run of letters or of signs is a token.  Lost: how much white space there was and where; unknown words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    backend = Tokenizer(models.WordLevel(dict(vocab), unk))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return backend


def wordpiece(
    vocab: Mapping[str, int], unk: str, *, lower: bool, accents: bool | None = None, chinese: bool = True
) -> Backend:
    """BERT's level: the longest known beginning of a word, then of its rest.  `accents=None` strips them with `lower`.

    Lost: white space, control characters and unknown words; with `lower`, case and accents.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    backend = Tokenizer(models.WordPiece(dict(vocab), unk_token=unk, max_input_chars_per_word=100))
    strip = None if accents is None else not accents
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=strip, lowercase=lower
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend


def unigram(pieces: Sequence[tuple[str, float]], unk: int) -> Backend:
    """The most likely pieces; a space is the first letter of its word, and what is unknown is spelled in bytes."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    backend = Tokenizer(models.Unigram(list(pieces), unk, byte_fallback=True))
    apart = [pre_tokenizers.Split(Regex(r" ?\S+|\s"), "isolated"), *shields(pieces)]
    backend.pre_tokenizer = pre_tokenizers.Sequence(apart)
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return backend


def shields(pieces: Sequence[tuple[str, float]]) -> list[PreTokenizer]:
    """What keeps a unigram model from reading the spelling of a control token as that token.

    A bad score does not, where a letter of the spelling is unknown: that letter scores worse still.  So the spelling is
    cut beside an unknown letter, where no piece could have gone across.
    """
    from tokenizers import Regex, pre_tokenizers

    letters = {piece for piece, score in pieces if len(piece) == 1 and score > NEVER}
    barred = [piece for piece, score in pieces if score <= NEVER and not letters.issuperset(piece)]
    cuts = "|".join(cut(piece, letters) for piece in barred if len(piece) > 1)
    return [pre_tokenizers.Split(Regex(cuts), "merged_with_previous")] if cuts else []


def cut(spelling: str, letters: Container[str]) -> str:
    """A pattern for the first part of a spelling, where the second follows."""
    places = range(1, len(spelling))
    edges = (at for at in places if (spelling[at - 1] in letters) != (spelling[at] in letters))
    at = next(edges, 1)
    return f"{re.escape(spelling[:at])}(?={re.escape(spelling[at:])})"


def suffix_bpe(vocab: Mapping[str, int], merges: Merges, unk: str) -> Backend:
    """subword-nmt's level: `</w>` marks the end of a word.  Lost: how much white space there was; unknown letters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    backend = Tokenizer(models.BPE(dict(vocab), list(merges), unk_token=unk, end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    return backend


def merges_by_score(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """The pairs of pieces that make a piece, best piece first.

    SentencePiece and llama2.c keep no list of merges: whatever joins into the piece of the best score is joined next.
    """
    pairs = [
        (-scores[piece], at, piece)
        for piece in scores
        for at in range(1, len(piece))
        if piece[:at] in scores and piece[at:] in scores
    ]
    return [(piece[:at], piece[at:]) for _, at, piece in sorted(pairs)]


def frame(backend: Backend, before: Sequence[str], after: Sequence[str]) -> None:
    """Lets `encode` put special tokens around a text; a second text follows as in BERT's pairs, with segment 1."""
    from tokenizers import processors

    if not before and not after:
        return
    ids = [(token, backend.token_to_id(token)) for token in dict.fromkeys([*before, *after])]
    single, second = [*before, "$A", *after], ["$B:1", *(f"{token}:1" for token in after)]
    framed = processors.TemplateProcessing(single=single, pair=[*single, *second], special_tokens=ids)
    # a template that was there, such as the byte level's, knows nothing of the frame
    backend.post_processor = framed


def decoder_kinds(backend: Backend) -> list[str]:
    """The names of the decoder's steps, in order."""
    if backend.decoder is None:
        return []
    told = json.loads(backend.decoder.__getstate__())
    return [step["type"] for step in told.get("decoders", [told])]
