"""Tokenizer models as pipelines of the `tokenizers` package around a vocabulary, and training them on texts.

Each trainer takes texts, the size of the vocabulary (special and byte tokens included) and the special tokens, which
get the first ids in the order of `Roles`.  The same texts give the same tokenizer.

Training learns a vocabulary and reading finds one in a file; both use the same pipelines.  A piece that text must never
become (a control token, a byte token) is in the vocabulary all the same, because its id is.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from headway.data.decode_stream import BYTES
from headway.data.tokenizer import Roles, Tokenizer
from headway.errors import UserError

NEVER = -1e6  # the score of a piece that no text becomes; finite, because JSON has no infinity

Merges = Sequence[tuple[str, str]]
LOSSLESS = Roles(pad="<pad>", bos="<s>", eos="</s>", mask="<mask>")  # nothing is unknown, so there is no unk
LOSSY = Roles(pad="<pad>", bos="<s>", eos="</s>", mask="<mask>", unk="<unk>")
BERT = Roles(pad="[PAD]", bos="[CLS]", eos="[SEP]", mask="[MASK]", unk="[UNK]")
MAX_WORD = 64  # characters of a word that are scored together; a longer one is scored in parts
EM_ROUNDS = 2
MAX_PIECE = 16  # characters of a piece
SEEDS = 8  # candidate substrings for each piece that is kept


def train_bpe(texts: Iterable[str], vocab: int, roles: Roles = LOSSLESS) -> Tokenizer:
    """Byte-level byte pair encoding."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    check_size(vocab, len(roles.named()) + len(alphabet), "256 bytes and the special tokens")
    backend = byte_bpe({}, [])
    special = list(roles.named().values())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, show_progress=False, initial_alphabet=alphabet, special_tokens=special
    )
    backend.train_from_iterator(texts, trainer)
    return finished(backend, roles)


def train_wordpiece(texts: Iterable[str], vocab: int, roles: Roles = BERT) -> Tokenizer:
    """WordPiece.  Lost: white space, control characters, unknown characters."""
    unk = required_unk(roles, "WordPiece")
    counts = count_words(wordpiece({}, unk, lower=False), texts)
    letters = sorted({letter for word in counts for letter in word})
    # The trainer numbers characters in an order that differs between runs, and breaks ties by number: it gets ours.
    start = [*roles.named().values(), *letters, *(f"##{letter}" for letter in letters)]
    check_size(
        vocab, len(start), f"{len(letters)} characters, at the beginning of a word and within, and the special tokens"
    )
    learner = wordpiece({}, unk, lower=False)
    trainer = trainers.WordPieceTrainer(vocab_size=vocab, show_progress=False, special_tokens=start)
    repeated = ([word] * count for word, count in sorted(counts.items()))  # in one order for all runs
    learner.train_from_iterator(repeated, trainer)
    return finished(wordpiece(learner.get_vocab(with_added_tokens=False), unk, lower=False), roles)


def train_unigram(texts: Iterable[str], vocab: int, roles: Roles = LOSSY) -> Tokenizer:
    """Unigram pieces with the spaces before them; unknown characters are spelled in bytes."""

    unk = required_unk(roles, "Unigram")
    first = [*roles.named().values(), *BYTES]
    counts = count_words(unigram([(unk, 0.0)], 0), texts)
    letters = sorted({letter for word in counts for letter in word} - set(first))
    check_size(vocab, len(first) + len(letters), f"{len(letters)} characters, 256 bytes and the special tokens")
    scored = pruned(counts, letters, vocab - len(first))
    return finished(unigram([(token, NEVER) for token in first] + scored, first.index(unk)), roles)


def train_characters(texts: Iterable[str], vocab: int, roles: Roles = LOSSLESS) -> Tokenizer:
    """The most frequent characters; others become `unk` if there is one, and are spelled in bytes if not."""
    first = [*roles.named().values(), *(BYTES if roles.unk is None else ())]
    check_size(vocab, len(first) + 1, "a character, the special tokens and, where there is no unk, 256 bytes")
    counts = Counter(letter for text in texts for letter in text)
    return finished(characters(numbered(first, counts, vocab), roles.unk), roles)


def train_words(texts: Iterable[str], vocab: int, roles: Roles = LOSSY) -> Tokenizer:
    """The most frequent words and runs of punctuation.  Lost: white space, and the words beyond."""
    unk = required_unk(roles, "word level")
    first = list(roles.named().values())
    check_size(vocab, len(first) + 1, "a word and the special tokens")
    counts = count_words(words({}, unk), texts)
    return finished(words(numbered(first, counts, vocab), unk), roles)


class TrainTokenizer(Protocol):
    def __call__(self, texts: Iterable[str], vocab: int, roles: Roles = ...) -> Tokenizer: ...


TRAINERS: dict[str, TrainTokenizer] = {
    "bpe": train_bpe,
    "wordpiece": train_wordpiece,
    "unigram": train_unigram,
    "characters": train_characters,
    "words": train_words,
}


def finished(backend: Backend, roles: Roles) -> Tokenizer:
    """The tokenizer, once it is sure that no text spells a special token."""
    tokenizer = Tokenizer(backend, roles, literal=True)
    for role, token in roles.named().items():
        if tokenizer.id(token) in tokenizer.plain(token) and role != "unk":
            raise UserError(
                f"text that says {token!r} would become the {role} token at this level",
                do=f"spell it as text is not, such as '<{role}>' or '[{role.upper()}]'",
            )
    return tokenizer


def check_size(vocab: int, smallest: int, tokens: str) -> None:
    if vocab < smallest:
        raise UserError(f"a vocabulary of {vocab} is too small", allowed=f"{smallest} or more, for {tokens}")


def required_unk(roles: Roles, level: str) -> str:
    if roles.unk is None:
        raise UserError(f"{level} needs a token for what is unknown", do="give one, such as Roles(unk='<unk>')")
    return roles.unk


def count_words(backend: Backend, texts: Iterable[str]) -> Counter[str]:
    """How often the pipeline sees each word."""
    counts: Counter[str] = Counter()
    for text in texts:
        normal = backend.normalizer.normalize_str(text) if backend.normalizer else text
        counts.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal))
    return counts


def numbered(first: Sequence[str], counts: Counter[str], vocab: int) -> dict[str, int]:
    """The first tokens, then the most frequent others; the equally frequent by spelling."""
    ranked = sorted((word for word in counts if word not in first), key=lambda word: (-counts[word], word))
    return {token: id for id, token in enumerate([*first, *ranked][:vocab])}


def pruned(counts: Counter[str], letters: Sequence[str], room: int) -> list[tuple[str, float]]:
    """The characters and the best substrings, `room` in all, with their log-probabilities, best first.

    As in SentencePiece, many substrings are weighed and the least likely left out, again and again.  The package's own
    trainer does this too, but sums in no fixed order, and now and then chooses another piece.
    """
    amounts: Counter[str] = Counter()
    for word, count in sorted(counts.items()):
        for start in range(len(word)):
            for end in range(start + 2, min(len(word), start + MAX_PIECE) + 1):
                amounts[word[start:end]] += count * (end - start)
    often = (piece for piece, amount in amounts.items() if amount > len(piece))
    longer = sorted(often, key=lambda piece: (-amounts[piece], piece))[: SEEDS * room]
    while len(letters) + len(longer) > room:
        count = max(room - len(letters), len(longer) * 3 // 4)
        longer = [piece for piece, _ in scored_by_em(counts, [*letters, *longer]) if len(piece) > 1][:count]
    return scored_by_em(counts, [*letters, *longer])


def scored_by_em(counts: Counter[str], pieces: Sequence[str]) -> list[tuple[str, float]]:
    """The pieces with their log-probabilities, best first, by expectation maximisation."""
    parts: Counter[str] = Counter()
    for word, count in sorted(counts.items()):
        for start in range(0, len(word), MAX_WORD):
            parts[word[start : start + MAX_WORD]] += count
    longest = max(map(len, pieces), default=0)
    weights = dict.fromkeys(pieces, 0.0)
    for word, count in parts.items():
        for _, _, piece in spans(word, weights, longest):
            weights[piece] += count
    weights = normalised(weights)
    for _ in range(EM_ROUNDS):
        expected = dict.fromkeys(pieces, 0.0)
        for word, count in parts.items():
            for piece, share in posteriors(word, weights, longest):
                expected[piece] += count * share
        weights = normalised(expected)
    scored = [(piece, math.log(weight)) for piece, weight in weights.items()]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))


def normalised(amounts: dict[str, float]) -> dict[str, float]:
    """Amounts as probabilities, none of them 0."""
    total, least = sum(amounts.values()), min((value for value in amounts.values() if value > 0), default=1.0)
    return {piece: max(value, least * 1e-3) / max(total, least) for piece, value in amounts.items()}


def posteriors(word: str, weights: dict[str, float], longest: int) -> Iterator[tuple[str, float]]:
    """The posterior of each piece at each position of a word: forward × piece × backward / whole."""
    n, found = len(word), spans(word, weights, longest)
    forward, backward = [1.0] + [0.0] * n, [0.0] * n + [1.0]
    for start, end, piece in found:
        forward[end] += forward[start] * weights[piece]
    for start, end, piece in reversed(found):
        backward[start] += backward[end] * weights[piece]
    if forward[n] > 0:  # a long word of rare characters may underflow; it counts nothing
        yield from ((p, forward[s] * weights[p] * backward[e] / forward[n]) for s, e, p in found)


def spans(word: str, pieces: Container[str], longest: int) -> list[tuple[int, int, str]]:
    """Where pieces occur in a word: start, end, piece."""
    n = len(word)
    return [
        (start, end, piece)
        for start in range(n)
        for end in range(start + 1, min(n, start + longest) + 1)
        if (piece := word[start:end]) in pieces
    ]


def byte_bpe(vocab: Mapping[str, int], merges: Merges, prefix_space: bool = False) -> Backend:
    """GPT-2's level: pairs of bytes are merged inside words.  Nothing is lost."""
    backend = Backend(models.BPE(dict(vocab), list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = decoders.ByteLevel()
    return backend


def characters(vocab: Mapping[str, int], unk: str | None) -> Backend:
    """Each character is a token.  Others become `unk`; without one they are spelled in bytes and nothing is lost."""
    fallback = unk is None
    backend = Backend(models.BPE(dict(vocab), [], unk_token=unk, byte_fallback=fallback, fuse_unk=False))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return backend


def words(vocab: Mapping[str, int], unk: str) -> Backend:
    """Each run of letters or of punctuation is a token.  Lost: amount and place of white space; unknown words."""
    backend = Backend(models.WordLevel(dict(vocab), unk))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return backend


def wordpiece(
    vocab: Mapping[str, int], unk: str, *, lower: bool, accents: bool | None = None, chinese: bool = True
) -> Backend:
    """BERT's level: the longest known beginning of a word, then of its rest.  `accents=None` strips them with `lower`.

    Lost: white space, control characters and unknown words; with `lower`, case and accents.
    """
    backend = Backend(models.WordPiece(dict(vocab), unk_token=unk, max_input_chars_per_word=100))
    strip = None if accents is None else not accents
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=strip, lowercase=lower
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend


def unigram(pieces: Sequence[tuple[str, float]], unk: int) -> Backend:
    """The most likely pieces; a space is the first character of its word, and what is unknown is spelled in bytes."""
    backend = Backend(models.Unigram(list(pieces), unk, byte_fallback=True))
    apart = [pre_tokenizers.Split(Regex(r" ?\S+|\s"), "isolated"), *shields(pieces)]
    backend.pre_tokenizer = pre_tokenizers.Sequence(apart)
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return backend


def shields(pieces: Sequence[tuple[str, float]]) -> list[pre_tokenizers.PreTokenizer]:
    """What keeps a unigram model from reading the spelling of a control token as that token.

    A bad score does not, where a letter of the spelling is unknown: that letter scores worse still.  So the spelling is
    cut beside an unknown letter, where no piece could have gone across.
    """
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
    """subword-nmt's level: `</w>` marks the end of a word.  Lost: amount of white space; unknown characters."""
    backend = Backend(models.BPE(dict(vocab), list(merges), unk_token=unk, end_of_word_suffix="</w>"))
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
    if not before and not after:
        return
    ids = [(token, backend.token_to_id(token)) for token in dict.fromkeys([*before, *after])]
    single, second = [*before, "$A", *after], ["$B:1", *(f"{token}:1" for token in after)]
    # replaces a template that was there, such as the byte level's, which knows nothing of the frame
    backend.post_processor = processors.TemplateProcessing(single=single, pair=[*single, *second], special_tokens=ids)
