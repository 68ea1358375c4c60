"""Learning a vocabulary from texts.

Each function takes texts, the size of the vocabulary (special and byte tokens included) and the special tokens, which
get the first ids in the order of `Roles`.  The same texts give the same tokenizer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from headway.data.levels import BYTES, NEVER, byte_bpe, characters, unigram, wordpiece, words
from headway.data.tokenizer import Roles, Tokenizer
from headway.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

LOSSLESS = Roles(pad="<pad>", bos="<s>", eos="</s>", mask="<mask>")  # nothing is unknown, so there is no unk
LOSSY = Roles(pad="<pad>", bos="<s>", eos="</s>", mask="<mask>", unk="<unk>")
BERT = Roles(pad="[PAD]", bos="[CLS]", eos="[SEP]", mask="[MASK]", unk="[UNK]")

LONGEST = 64  # letters of a word that are weighed together; a longer one is weighed in parts
ROUNDS = 2  # of expectation and maximisation
WIDEST = 16  # letters of a piece
SEEDS = 8  # substrings that are weighed for each piece that is kept


def train_bpe(texts: Iterable[str], vocab: int, roles: Roles = LOSSLESS) -> Tokenizer:
    """Byte-level byte pair encoding."""
    from tokenizers import pre_tokenizers, trainers

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    need(vocab, len(roles.named()) + len(alphabet), "256 bytes and the special tokens")
    backend = byte_bpe({}, [])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        show_progress=False,
        initial_alphabet=alphabet,
        special_tokens=list(roles.named().values()),
    )
    backend.train_from_iterator(texts, trainer)
    return finished(backend, roles)


def train_wordpiece(texts: Iterable[str], vocab: int, roles: Roles = BERT) -> Tokenizer:
    """WordPiece.  Lost in it: white space, control characters, unknown letters."""
    from tokenizers import trainers

    unk = needed(roles, "WordPiece")
    counts = count_words(wordpiece({}, unk, lower=False), texts)
    letters = sorted({letter for word in counts for letter in word})
    # The trainer numbers letters in an order that changes from run to run, and breaks ties by number; so it gets them
    # in ours.
    start = [*roles.named().values(), *letters, *(f"##{letter}" for letter in letters)]
    need(vocab, len(start), f"{len(letters)} letters, at the beginning of a word and within, and the special tokens")
    learner = wordpiece({}, unk, lower=False)
    trainer = trainers.WordPieceTrainer(vocab_size=vocab, show_progress=False, special_tokens=start)
    learner.train_from_iterator(repeated(counts), trainer)
    return finished(wordpiece(learner.get_vocab(with_added_tokens=False), unk, lower=False), roles)


def train_unigram(texts: Iterable[str], vocab: int, roles: Roles = LOSSY) -> Tokenizer:
    """Unigram pieces with the spaces before them; unknown letters are spelled in bytes."""

    unk = needed(roles, "Unigram")
    first = [*roles.named().values(), *BYTES]
    counts = count_words(unigram([(unk, 0.0)], 0), texts)
    letters = sorted({letter for word in counts for letter in word} - set(first))
    need(vocab, len(first) + len(letters), f"{len(letters)} letters, 256 bytes and the special tokens")
    scored = thinned(counts, letters, vocab - len(first))
    return finished(unigram([(token, NEVER) for token in first] + scored, first.index(unk)), roles)


def train_characters(texts: Iterable[str], vocab: int, roles: Roles = LOSSLESS) -> Tokenizer:
    """The most frequent characters; others become `unk` if there is one, and are spelled in bytes if not."""
    first = [*roles.named().values(), *(BYTES if roles.unk is None else ())]
    need(vocab, len(first) + 1, "a character, the special tokens and, where there is no unk, 256 bytes")
    counts = Counter(letter for text in texts for letter in text)
    return finished(characters(numbered(first, counts, vocab), roles.unk), roles)


def train_words(texts: Iterable[str], vocab: int, roles: Roles = LOSSY) -> Tokenizer:
    """The most frequent words and runs of signs.  Lost in it: white space, and the words beyond."""
    unk = needed(roles, "word level")
    first = list(roles.named().values())
    need(vocab, len(first) + 1, "a word and the special tokens")
    counts = count_words(words({}, unk), texts)
    return finished(words(numbered(first, counts, vocab), unk), roles)


class Train(Protocol):
    def __call__(self, texts: Iterable[str], vocab: int, roles: Roles = ...) -> Tokenizer: ...


TRAINERS: dict[str, Train] = {
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


def need(vocab: int, least: int, told: str) -> None:
    if vocab < least:
        raise UserError(f"a vocabulary of {vocab} is too small", allowed=f"{least} or more, for {told}")


def needed(roles: Roles, level: str) -> str:
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


def repeated(counts: Counter[str]) -> Iterator[list[str]]:
    """Each word as often as it was counted, in one order for all runs."""
    return ([word] * count for word, count in sorted(counts.items()))


def numbered(first: Sequence[str], counts: Counter[str], vocab: int) -> dict[str, int]:
    """The first tokens, then the most frequent others; the equally frequent by spelling."""
    ranked = sorted((word for word in counts if word not in first), key=lambda word: (-counts[word], word))
    return {token: id for id, token in enumerate([*first, *ranked][:vocab])}


def thinned(counts: Counter[str], letters: Sequence[str], room: int) -> list[tuple[str, float]]:
    """The letters and the substrings that serve best, `room` in all, with their log-probabilities, best first.

    As in SentencePiece, many substrings are weighed and the least likely left out, again and again.  The package's own
    trainer does this too, but sums in no fixed order, and now and then chooses another piece.
    """
    amounts: Counter[str] = Counter()
    for word, count in sorted(counts.items()):
        for start in range(len(word)):
            for end in range(start + 2, min(len(word), start + WIDEST) + 1):
                amounts[word[start:end]] += count * (end - start)
    often = (piece for piece, amount in amounts.items() if amount > len(piece))
    longer = sorted(often, key=lambda piece: (-amounts[piece], piece))[: SEEDS * room]
    while len(letters) + len(longer) > room:
        kept = max(room - len(letters), len(longer) * 3 // 4)
        longer = [piece for piece, _ in weighed(counts, [*letters, *longer]) if len(piece) > 1][:kept]
    return weighed(counts, [*letters, *longer])


def weighed(counts: Counter[str], pieces: Sequence[str]) -> list[tuple[str, float]]:
    """The pieces with their log-probabilities, best first, by expectation and maximisation."""
    parts: Counter[str] = Counter()
    for word, count in sorted(counts.items()):
        for start in range(0, len(word), LONGEST):
            parts[word[start : start + LONGEST]] += count
    longest = max(map(len, pieces), default=0)
    weights = dict.fromkeys(pieces, 0.0)
    for word, count in parts.items():
        for _, _, piece in spans(word, weights, longest):
            weights[piece] += count
    weights = shared_out(weights)
    for _ in range(ROUNDS):
        expected = dict.fromkeys(pieces, 0.0)
        for word, count in parts.items():
            for piece, share in shares(word, weights, longest):
                expected[piece] += count * share
        weights = shared_out(expected)
    scored = [(piece, math.log(weight)) for piece, weight in weights.items()]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))


def shared_out(amounts: dict[str, float]) -> dict[str, float]:
    """Amounts as parts of the whole; none is nothing."""
    total, least = sum(amounts.values()), min((value for value in amounts.values() if value > 0), default=1.0)
    return {piece: max(value, least * 1e-3) / max(total, least) for piece, value in amounts.items()}


def shares(word: str, weights: dict[str, float], longest: int) -> Iterator[tuple[str, float]]:
    """How likely each piece is at each place of a word: forward × piece × backward / whole."""
    n, found = len(word), spans(word, weights, longest)
    forward, backward = [1.0] + [0.0] * n, [0.0] * n + [1.0]
    for start, end, piece in found:
        forward[end] += forward[start] * weights[piece]
    for start, end, piece in reversed(found):
        backward[start] += backward[end] * weights[piece]
    if forward[n] > 0:  # a long word of rare letters may underflow; it weighs nothing
        yield from ((p, forward[s] * weights[p] * backward[e] / forward[n]) for s, e, p in found)


def spans(word: str, pieces: Container[str], longest: int) -> list[tuple[int, int, str]]:
    """Where pieces stand in a word: start, end, piece."""
    n = len(word)
    return [
        (start, end, piece)
        for start in range(n)
        for end in range(start + 1, min(n, start + longest) + 1)
        if (piece := word[start:end]) in pieces
    ]
