"""What a model is for says how it is measured: pairs, classes, tags or texts, each as `Scores`, also by length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from headway.errors import UserError, nearest
from headway.metrics import text as measures
from headway.metrics.buckets import EDGES, Bucket, by_length
from headway.metrics.scores import Scores
from headway.metrics.text import Classes, Signed

PairMeasure = Callable[[Sequence[str], Sequence[str]], float | Signed]
PAIR_MEASURES: dict[str, PairMeasure] = {
    "bleu": measures.bleu,
    "chrf": measures.chrf,
    "exact": measures.exact,
    "word_error_rate": measures.word_error_rate,
    "character_error_rate": measures.character_error_rate,
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
    chosen = {**PAIR_MEASURES, "bleu": partial(measures.bleu, tokenize=tokenize)}

    def told(a: Sequence[str], r: Sequence[str]) -> dict[str, float | Signed]:
        return {name: chosen[name](a, r) for name in by}

    whole = told(answers, references)
    signatures = {name: score.signature for name, score in whole.items() if isinstance(score, Signed)}
    buckets = bucketed(answers, references, lengths, lambda a, r: unsigned(told(a, r)), edges)
    return Scores(unsigned(whole), len(references), "pairs", signatures, buckets)


def score_classes(
    answers: Sequence[str],
    references: Sequence[str],
    lengths: Sequence[int] | None = None,
    *,
    edges: Sequence[int] = EDGES,
) -> Scores:
    """Of one class for each text."""

    def told(a: Sequence[str], r: Sequence[str]) -> dict[str, float]:
        return {"accuracy": measures.exact(a, r), "f1": Classes.of(a, r).macro_f1}

    numbers, buckets = told(answers, references), bucketed(answers, references, lengths, told, edges)
    return Scores(numbers, len(references), "texts", {}, buckets, Classes.of(answers, references))


def score_tags(
    answers: Sequence[str],
    references: Sequence[str],
    lengths: Sequence[int] | None = None,
    *,
    edges: Sequence[int] = EDGES,
) -> Scores:
    """Of one tag for each word, separated by spaces; spans are counted where tags are written as BIO."""
    bio = any(tag[:2] in ("B-", "I-") for tag in measures.tags(references))

    def told(a: Sequence[str], r: Sequence[str]) -> dict[str, float]:
        of_spans = {"span_f1": measures.span_f1(a, r)} if bio else {}
        return {**of_spans, "token_accuracy": measures.token_accuracy(a, r)}

    numbers, buckets = told(answers, references), bucketed(answers, references, lengths, told, edges)
    classes = Classes.of(measures.tags(answers), measures.tags(references))
    return Scores(numbers, len(references), "sentences", {}, buckets, classes)


def score_texts(
    losses: Sequence[float], tokens: Sequence[int], byte_counts: Sequence[int], *, edges: Sequence[int] = EDGES
) -> Scores:
    """Of predicted texts: each one's summed loss in nats, its tokens, and its bytes; by length in tokens."""

    def told(rows: Sequence[int]) -> dict[str, float]:
        summed = [losses[row] for row in rows]
        words, size = ([column[row] for row in rows] for column in (tokens, byte_counts))
        return {
            "perplexity": measures.perplexity(summed, words),
            "byte_perplexity": measures.perplexity(summed, size),
            "bits_per_byte": measures.bits_per_byte(summed, size),
            "loss": measures.mean_loss(summed, words),
        }

    if not len(losses) == len(tokens) == len(byte_counts):
        said = f"{len(losses)} losses, {len(tokens)} counts of tokens and {len(byte_counts)} of bytes"
        raise UserError(said, do="give one of each for each text")
    return Scores(told(range(len(losses))), len(losses), "texts", {}, by_length(tokens, told, edges=edges))


def score_words(
    losses: Sequence[float],
    asked: Sequence[int],
    right: Sequence[int],
    lengths: Sequence[int],
    *,
    edges: Sequence[int] = EDGES,
) -> Scores:
    """Of words hidden in texts: each text's summed loss in nats, how many words were asked for and how many right."""

    def told(rows: Sequence[int]) -> dict[str, float]:
        summed = [losses[row] for row in rows]
        words, found = ([column[row] for row in rows] for column in (asked, right))
        return {
            "perplexity": measures.perplexity(summed, words),
            "token_accuracy": measures.share(sum(found), sum(words)),
            "loss": measures.mean_loss(summed, words),
        }

    if not len(losses) == len(asked) == len(right) == len(lengths):
        said = f"{len(losses)} losses, {len(asked)} and {len(right)} counts of words and {len(lengths)} lengths"
        raise UserError(said, do="give one of each for each text")
    return Scores(told(range(len(losses))), len(losses), "texts", {}, by_length(lengths, told, edges=edges))


def bucketed(
    answers: Sequence[str],
    references: Sequence[str],
    lengths: Sequence[int] | None,
    told: Callable[[Sequence[str], Sequence[str]], Mapping[str, float]],
    edges: Sequence[int],
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
