"""How well answers meet references: one function for each measure, over plain lists, and `Scores` of what is asked.

What a model is for says how it is measured: pairs, classes, tags or texts (`score_…`), each also by length.  BLEU and
chrF are sacrebleu's own and run from 0 to 100, as they are published; every other share runs from 0 to 1.  None depends
on the order of the pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from headway.errors import UserError, nearest
from headway.metrics.scores import EDGES, Bucket, Classes, Scores, Texts, by_length, check, f1, share

# those of sacrebleu's that need neither another package nor a download
TOKENIZERS = ("13a", "intl", "char", "zh", "none")


class Signed(NamedTuple):
    """A score, and the signature that says how it was computed, for others to compare with."""

    score: float
    signature: str


def bleu(answers: Texts, references: Texts, *, tokenize: str = "13a") -> Signed:
    """sacrebleu's corpus BLEU, cased, on detokenised text; 0 where the texts together have no four words in a row."""
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in TOKENIZERS:
        said = f"BLEU knows no tokenizer {tokenize!r} here"
        raise UserError(said, allowed=", ".join(TOKENIZERS), meant=nearest(tokenize, TOKENIZERS))
    check(answers, references)
    # forced: the warning about tokenised text would be printed for each bucket again
    metric = BLEU(tokenize=tokenize, force=True)
    score = metric.corpus_score(list(answers), [list(references)]).score
    return Signed(score, metric.get_signature().format())


def chrf(answers: Texts, references: Texts) -> Signed:
    """sacrebleu's corpus chrF2: letters in runs of one to six, recall weighing twice."""
    from sacrebleu.metrics.chrf import CHRF

    check(answers, references)
    metric = CHRF()
    score = metric.corpus_score(list(answers), [list(references)]).score
    return Signed(score, metric.get_signature().format())


def exact(answers: Texts, references: Texts) -> float:
    """The share of answers that are their reference, letter by letter; for classes, the accuracy."""
    check(answers, references)
    return sum(a == r for a, r in zip(answers, references, strict=True)) / len(references)


def word_error_rate(answers: Texts, references: Texts) -> float:
    """Edits of words, separated by spaces, over the references' words; of phonemes, the phoneme error rate."""
    return error_rate([a.split() for a in answers], [r.split() for r in references])


def character_error_rate(answers: Texts, references: Texts) -> float:
    """Edits of letters over the references' letters."""
    return error_rate(answers, references)


def error_rate(answers: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """All edits over all tokens of the references; above 1 where the answers are much longer."""
    check(answers, references)
    edits = sum(edit_distance(a, r) for a, r in zip(answers, references, strict=True))
    total = sum(map(len, references))
    return edits / total if total else (math.inf if edits else 0.0)


def edit_distance(a: Sequence[str], b: Sequence[str]) -> int:
    """The fewest tokens to insert, delete or replace that turn `a` into `b`.

    d(i, j) = min(d(i−1, j) + 1, d(i, j−1) + 1, d(i−1, j−1) + (aᵢ ≠ bⱼ)), row by row
    """
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def span_f1(answers: Texts, references: Texts) -> float:
    """F1 of whole spans in BIO tags, separated by spaces: a span counts where its kind and both its ends are right.

    Where nothing was to be found and nothing was, it is 1.
    """
    check_tags(answers, references)
    found, wanted = ([spans(row.split()) for row in rows] for rows in (answers, references))
    right = sum(len(a & r) for a, r in zip(found, wanted, strict=True))
    sizes = sum(map(len, found)), sum(map(len, wanted))
    return f1(right, *sizes) if any(sizes) else 1.0


def token_accuracy(answers: Texts, references: Texts) -> float:
    """The share of words with the right tag."""
    check_tags(answers, references)
    return exact(tags(answers), tags(references))


def spans(row: Sequence[str]) -> set[tuple[str, int, int]]:
    """Kind, first word and end of each span; an I without a beginning begins a span, as CoNLL's own script reads it."""
    found, kind, start = set[tuple[str, int, int]](), "", 0
    for at, tag in enumerate([*row, "O"]):
        mark, _, name = tag.partition("-")
        if kind and (mark != "I" or name != kind):
            found.add((kind, start, at))
            kind = ""
        if not kind and mark in ("B", "I"):
            kind, start = name, at
    return found


def tags(rows: Texts) -> list[str]:
    """The tags of all rows, one after the other."""
    return [tag for row in rows for tag in row.split()]


def perplexity(losses: Sequence[float], counts: Sequence[int]) -> float:
    """exp(loss per token), from summed losses; with counts of bytes, per byte."""
    mean = mean_loss(losses, counts)
    return math.inf if mean > 700 else math.exp(mean)  # a float ends at exp(709)


def bits_per_byte(losses: Sequence[float], byte_counts: Sequence[int]) -> float:
    """What writing a byte of the text would take, if the model's probabilities were the code."""
    return mean_loss(losses, byte_counts) / math.log(2)


def mean_loss(losses: Sequence[float], counts: Sequence[int]) -> float:
    """Summed losses, in nats, over summed counts; not a number where the counts are 0."""
    if len(losses) != len(counts):
        raise UserError(f"{len(losses)} losses and {len(counts)} counts", do="give one count for each loss")
    if not counts or min(counts) < 0:
        raise UserError(
            f"{len(counts)} losses have no mean over these counts", allowed="one count or more, each 0 or more"
        )
    return math.fsum(losses) / sum(counts) if any(counts) else math.nan


def check_tags(answers: Texts, references: Texts) -> None:
    check(answers, references)
    for row, (a, r) in enumerate(zip(answers, references, strict=True), 1):
        if len(a.split()) != len(r.split()):
            said = f"row {row} has {len(a.split())} tags for {len(r.split())} words"
            raise UserError(said, do="give one tag for each word")
    if not any(map(str.split, references)):
        raise UserError("there is nothing to measure: no row has a tag", do="give one word or more")


PairMeasure = Callable[[Sequence[str], Sequence[str]], float | Signed]
PAIR_MEASURES: dict[str, PairMeasure] = {
    "bleu": bleu,
    "chrf": chrf,
    "exact": exact,
    "word_error_rate": word_error_rate,
    "character_error_rate": character_error_rate,
}


def score_pairs(
    answers: Sequence[str],
    references: Sequence[str],
    lengths: Sequence[int] | None = None,
    *,
    by: Sequence[str] = ("bleu", "chrf", "exact"),
    tokenize: str = "13a",
    edges: Sequence[int] = EDGES,
) -> Scores:
    """Of texts written from texts; `lengths` are the sources', `tokenize` is BLEU's."""
    wrong = next((name for name in by if name not in PAIR_MEASURES), None)
    if wrong is not None or not by:
        said = f"pairs are not measured by {wrong!r}" if wrong else "no measure is given"
        raise UserError(said, allowed=", ".join(PAIR_MEASURES), meant=nearest(wrong or "", PAIR_MEASURES))
    chosen = {**PAIR_MEASURES, "bleu": partial(bleu, tokenize=tokenize)}

    def told(a: Sequence[str], r: Sequence[str]) -> dict[str, float | Signed]:
        return {name: chosen[name](a, r) for name in by}

    whole = told(answers, references)
    signatures = {name: score.signature for name, score in whole.items() if isinstance(score, Signed)}
    buckets = bucketed(answers, references, lengths, lambda a, r: unsigned(told(a, r)), edges)
    return Scores(unsigned(whole), len(references), "pairs", signatures, buckets)


def score_classes(answers: Texts, references: Texts, lengths: Sequence[int] | None = None) -> Scores:
    """Of one class for each text."""

    def told(a: Sequence[str], r: Sequence[str]) -> dict[str, float]:
        return {"accuracy": exact(a, r), "f1": Classes.of(a, r).macro_f1}

    numbers, buckets = told(answers, references), bucketed(answers, references, lengths, told)
    return Scores(numbers, len(references), "texts", {}, buckets, Classes.of(answers, references))


def score_tags(answers: Texts, references: Texts, lengths: Sequence[int] | None = None) -> Scores:
    """Of one tag for each word, separated by spaces; spans are counted where tags are written as BIO."""
    bio = any(tag[:2] in ("B-", "I-") for tag in tags(references))

    def told(a: Sequence[str], r: Sequence[str]) -> dict[str, float]:
        of_spans = {"span_f1": span_f1(a, r)} if bio else {}
        return {**of_spans, "token_accuracy": token_accuracy(a, r)}

    numbers, buckets = told(answers, references), bucketed(answers, references, lengths, told)
    classes = Classes.of(tags(answers), tags(references))
    return Scores(numbers, len(references), "sentences", {}, buckets, classes)


def score_texts(
    losses: Sequence[float], tokens: Sequence[int], byte_counts: Sequence[int], *, edges: Sequence[int] = EDGES
) -> Scores:
    """Of predicted texts: each one's summed loss in nats, its tokens, and its bytes; by length in tokens."""

    def told(summed: Sequence[float], words: Sequence[int], size: Sequence[int]) -> dict[str, float]:
        return {
            "perplexity": perplexity(summed, words),
            "byte_perplexity": perplexity(summed, size),
            "bits_per_byte": bits_per_byte(summed, size),
            "loss": mean_loss(summed, words),
        }

    said = f"{len(losses)} losses, {len(tokens)} counts of tokens and {len(byte_counts)} of bytes"
    return score_columns((losses, tokens, byte_counts), tokens, told, edges, said)


def score_words(
    losses: Sequence[float],
    asked: Sequence[int],
    right: Sequence[int],
    lengths: Sequence[int],
    *,
    edges: Sequence[int] = EDGES,
) -> Scores:
    """Of words hidden in texts: each text's summed loss in nats, how many words were asked for and how many right."""

    def told(summed: Sequence[float], words: Sequence[int], found: Sequence[int]) -> dict[str, float]:
        return {
            "perplexity": perplexity(summed, words),
            "token_accuracy": share(sum(found), sum(words)),
            "loss": mean_loss(summed, words),
        }

    said = f"{len(losses)} losses, {len(asked)} and {len(right)} counts of words and {len(lengths)} lengths"
    return score_columns((losses, asked, right), lengths, told, edges, said)


def score_columns(
    columns: Sequence[Sequence[Any]],
    lengths: Sequence[int],
    told: Callable[..., Mapping[str, float]],
    edges: Sequence[int],
    said: str,
) -> Scores:
    """Of texts of which columns say numbers; `said` is how many there are of each."""
    if len({*map(len, columns), len(lengths)}) > 1:
        raise UserError(said, do="give one of each for each text")

    def score(rows: Sequence[int]) -> Mapping[str, float]:
        return told(*([column[row] for row in rows] for column in columns))

    return Scores(score(range(len(lengths))), len(lengths), "texts", {}, by_length(lengths, score, edges=edges))


def bucketed(
    answers: Sequence[str],
    references: Sequence[str],
    lengths: Sequence[int] | None,
    told: Callable[[Sequence[str], Sequence[str]], Mapping[str, float]],
    edges: Sequence[int] = EDGES,
) -> tuple[Bucket, ...]:
    if lengths is None:
        return ()
    if len(lengths) != len(references):
        raise UserError(f"{len(lengths)} lengths for {len(references)} pairs", do="give one length for each source")

    def score(rows: Sequence[int]) -> Mapping[str, float]:
        return told([answers[row] for row in rows], [references[row] for row in rows])

    return by_length(lengths, score, edges=edges)


def unsigned(scores: Mapping[str, float | Signed]) -> dict[str, float]:
    return {name: score.score if isinstance(score, Signed) else score for name, score in scores.items()}
