"""How well answers meet references: one function for each measure, over plain lists, and `Scores` of what is asked.

What a model is for says how it is measured: pairs, classes, tags or texts (`score_…`), each also by length.  BLEU and
chrF are sacrebleu's own and run from 0 to 100, as they are published; every other share runs from 0 to 1.  None depends
on the order of the pairs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headway.errors import UserError, nearest
from headway.metrics.intervals import Numbers, Rows, Share, Statistic, Sums, alike, columns, ratio
from headway.metrics.scores import EDGES, Classes, Scores, Texts, by_length, check, f1

SPAN_MARKS = ("B", "I", "E", "S")  # of a word in a span: begin, inside, end, single
# those of sacrebleu's that need neither another package nor a download
TOKENIZERS = ("13a", "intl", "char", "zh", "none")


def bleu(answers: Texts, references: Texts, *, tokenize: str = "13a") -> Sums:
    """sacrebleu's corpus BLEU, cased, on detokenised text; 0 where the texts together have no four words in a row."""
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in TOKENIZERS:
        said = f"BLEU knows no tokenizer {tokenize!r} here"
        raise UserError(said, allowed=", ".join(TOKENIZERS), meant=nearest(tokenize, TOKENIZERS))
    # forced: the warning about tokenised text would be printed for each evaluation again
    return sacrebleu_score(BLEU(tokenize=tokenize, force=True), answers, references)


def chrf(answers: Texts, references: Texts) -> Sums:
    """sacrebleu's corpus chrF2: letters in runs of one to six, recall weighing twice."""
    from sacrebleu.metrics.chrf import CHRF

    return sacrebleu_score(CHRF(), answers, references)


def sacrebleu_score(metric: Any, answers: Texts, references: Texts) -> Sums:
    """A metric of sacrebleu's as what it is, a function of counts that are summed over segments.

    Its `corpus_score` extracts, adds and computes just so; a test compares them.
    """
    check(answers, references)
    counts = metric._extract_corpus_statistics(list(answers), [list(references)])

    def of(totals: Sequence[float]) -> float:
        return metric._compute_score_from_stats(list(totals)).score

    return Sums(np.array(counts).T, of, metric.get_signature().format())


def exact(answers: Texts, references: Texts) -> Share:
    """The share of answers that are their reference, letter by letter; for classes, the accuracy."""
    check(answers, references)
    return Share(np.array([a == r for a, r in zip(answers, references, strict=True)]))


def word_errors(answers: Texts, references: Texts) -> Sums:
    """Edits of words, separated by spaces, over the references' words; of phonemes, the phoneme error rate."""
    return edits([a.split() for a in answers], [r.split() for r in references])


def edits(answers: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> Sums:
    """All edits over all tokens of the references; above 1 where the answers are much longer."""
    check(answers, references)
    counts = [edit_distance(a, r) for a, r in zip(answers, references, strict=True)]

    def of(totals: Sequence[float]) -> float:
        wrong, total = totals
        return wrong / total if total else (math.inf if wrong else 0.0)

    return Sums(columns(counts, [len(r) for r in references]), of)


def word_error_rate(answers: Texts, references: Texts) -> float:
    return word_errors(answers, references).value()


def character_error_rate(answers: Texts, references: Texts) -> float:
    return edits(answers, references).value()


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


def span_counts(answers: Texts, references: Texts) -> Sums:
    """F1 of whole spans in BIO tags, separated by spaces: a span counts where its kind and both its ends are right.

    Where nothing was to be found and nothing was, it is 1.
    """
    check_tags(answers, references)
    found, wanted = ([spans(row.split()) for row in rows] for rows in (answers, references))
    right = [len(a & r) for a, r in zip(found, wanted, strict=True)]

    def of(totals: Sequence[float]) -> float:
        return f1(*totals) if any(totals[1:]) else 1.0

    return Sums(columns(right, [len(row) for row in found], [len(row) for row in wanted]), of)


def span_f1(answers: Texts, references: Texts) -> float:
    return span_counts(answers, references).value()


def right_tags(answers: Texts, references: Texts) -> Sums:
    """The share of words with the right tag."""
    check_tags(answers, references)
    pairs = [(a.split(), r.split()) for a, r in zip(answers, references, strict=True)]
    right = [sum(x == y for x, y in zip(a, r, strict=True)) for a, r in pairs]
    return Sums(columns(right, [len(r) for _, r in pairs]), ratio)


@dataclass(frozen=True, eq=False)
class MacroF1(Statistic):
    """The mean of F1 over the classes that were asked for or answered, each counting the same."""

    answers: Texts
    references: Texts

    @property
    def count(self) -> int:
        return len(self.references)

    def value(self) -> float:
        return Classes.of(self.answers, self.references).macro_f1

    def subset(self, rows: Rows) -> Self:
        return replace(self, answers=[self.answers[at] for at in rows], references=[self.references[at] for at in rows])

    def joined(self, others: Sequence[Statistic]) -> Self:
        parts = alike(self, others)
        answers = [one for part in parts for one in part.answers]
        return replace(self, answers=answers, references=[one for part in parts for one in part.references])

    def resampled(self, counts: Numbers) -> Numbers:
        pairs = sorted(zip(self.answers, self.references, strict=True))
        answers, references = (np.array(side) for side in zip(*pairs, strict=True))

        def summed(chosen: NDArray[np.bool_]) -> Numbers:
            return counts[:, chosen].sum(1)

        total, classes = np.zeros(len(counts)), np.zeros(len(counts))
        for label in sorted({*self.answers, *self.references}):
            answered, asked = answers == label, references == label
            right, either = summed(answered & asked), summed(answered) + summed(asked)
            total += np.divide(2 * right, either, out=np.zeros_like(right), where=either > 0)
            classes += either > 0
        return total / classes


def spans(row: Sequence[str]) -> set[tuple[str, int, int]]:
    """Kind, first word and end of each span of BIO or BIOES tags.

    An I or an E without a beginning begins a span, as CoNLL's own script and seqeval read it.
    """
    found, kind, start, last = set[tuple[str, int, int]](), None, 0, "O"
    for at, tag in enumerate([*row, "O"]):
        mark, _, name = tag.partition("-")
        goes_on = mark in ("I", "E") and (name or "_") == kind and last not in ("E", "S")
        if kind is not None and not goes_on:
            found.add((kind, start, at))
            kind = None
        if kind is None and mark in SPAN_MARKS:
            kind, start = name or "_", at
        last = mark
    return found


def entity_rates(answers: Texts, references: Texts) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 of the spans of each kind, and how many were asked for."""
    counts = {which: Counter[str]() for which in ("right", "found", "wanted")}
    for a, r in zip(answers, references, strict=True):
        found, wanted = spans(a.split()), spans(r.split())
        for which, several in (("right", found & wanted), ("found", found), ("wanted", wanted)):
            counts[which].update(kind for kind, _, _ in several)
    rates = dict[str, dict[str, float]]()
    for kind in sorted({*counts["found"], *counts["wanted"]}):
        right, found, wanted = (counts[which][kind] for which in ("right", "found", "wanted"))
        shares = {"precision": right / found if found else 0.0, "recall": right / wanted if wanted else 0.0}
        rates[kind] = {**shares, "f1": f1(right, found, wanted), "count": wanted}
    return rates


def has_spans(references: Texts) -> bool:
    """Whether tags are written as BIO or BIOES."""
    return any(tag[:2] in ("B-", "I-", "E-", "S-") for tag in tags(references))


def tags(rows: Texts) -> list[str]:
    """The tags of all rows, one after the other."""
    return [tag for row in rows for tag in row.split()]


def perplexity(losses: Sequence[float], counts: Sequence[int]) -> float:
    """exp(loss per token), from summed losses; with counts of bytes, per byte."""
    return capped_exp(mean_loss(losses, counts))


def capped_exp(number: float) -> float:
    return math.inf if number > 700 else math.exp(number)  # a float ends at exp(709)


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


PairMeasure = Callable[[Sequence[str], Sequence[str]], Statistic]
PAIR_MEASURES: dict[str, PairMeasure] = {
    "bleu": bleu,
    "chrf": chrf,
    "exact": exact,
    "word_error_rate": word_errors,
    "character_error_rate": edits,
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
    return scores_of({name: chosen[name](answers, references) for name in by}, "pairs", lengths, edges=edges)


def score_classes(answers: Texts, references: Texts, lengths: Sequence[int] | None = None) -> Scores:
    """Of one class for each text."""
    classes = Classes.of(answers, references)
    found = {"accuracy": exact(answers, references), "f1": MacroF1(answers, references)}
    return scores_of(found, "texts", lengths, classes=classes)


def score_tags(answers: Texts, references: Texts, lengths: Sequence[int] | None = None) -> Scores:
    """Of one tag for each word, separated by spaces; spans are counted where tags are written as BIO."""
    found: dict[str, Statistic] = {"token_accuracy": right_tags(answers, references)}
    if has_spans(references):
        found = {"span_f1": span_counts(answers, references), **found}
    return scores_of(found, "sentences", lengths, classes=Classes.of(tags(answers), tags(references)))


def score_texts(
    losses: Sequence[float],
    tokens: Sequence[int],
    byte_counts: Sequence[int],
    lengths: Sequence[int] | None = None,
    *,
    edges: Sequence[int] = EDGES,
) -> Scores:
    """Of predicted runs of text: each one's summed loss in nats, its tokens and its bytes.

    Lengths are those of the texts in tokens; without them each run is a text.
    """
    if len({len(losses), len(tokens), len(byte_counts)}) > 1:
        said = f"{len(losses)} losses, {len(tokens)} counts of tokens and {len(byte_counts)} of bytes"
        raise UserError(said, do="give one of each for each text")
    by_token, by_byte = columns(losses, tokens), columns(losses, byte_counts)
    found = {
        "perplexity": mean_of(by_token, capped_exp, sizes=tokens),
        "byte_perplexity": mean_of(by_byte, capped_exp, sizes=tokens),
        "bits_per_byte": mean_of(by_byte, lambda nats: nats / math.log(2), sizes=tokens),
        "loss": mean_of(by_token, sizes=tokens),
    }
    return scores_of(found, "tokens", tokens if lengths is None else lengths, edges=edges)


def score_words(
    losses: Sequence[float],
    asked: Sequence[int],
    right: Sequence[int],
    lengths: Sequence[int],
    *,
    edges: Sequence[int] = EDGES,
) -> Scores:
    """Of tokens hidden in runs of text: each run's summed loss in nats, how many were asked for and how many right."""
    if len({len(losses), len(asked), len(right), len(lengths)}) > 1:
        said = f"{len(losses)} losses, {len(asked)} and {len(right)} counts of words and {len(lengths)} lengths"
        raise UserError(said, do="give one of each for each text")
    found = {
        "perplexity": mean_of(columns(losses, asked), capped_exp, sizes=asked),
        "token_accuracy": mean_of(columns(right, asked), sizes=asked),
        "loss": mean_of(columns(losses, asked), sizes=asked),
    }
    return scores_of(found, "hidden tokens", lengths, edges=edges)


def score_losses(losses: Sequence[float], counts: Sequence[int], things: str, names: Sequence[str]) -> Scores:
    """Of losses alone, summed over runs of so many `things` each: "loss", and "perplexity" where it is named."""
    summed = columns(losses, counts)
    found = {"loss": mean_of(summed, sizes=counts), "perplexity": mean_of(summed, capped_exp, sizes=counts)}
    return scores_of({name: found[name] for name in names}, things)


def score_cosines(cosines: Sequence[float]) -> Scores:
    """How near vectors are to those of the same inputs in fp32."""
    return scores_of({"cosine": mean_of(columns(cosines, [1.0] * len(cosines)))}, "vectors")


def mean_of(
    summed: NDArray[np.int64] | Numbers,
    then: Callable[[float], float] = float,
    *,
    sizes: Sequence[int] | None = None,
) -> Sums:
    """A function of the mean: of sums in the first column over those in the second; `sizes` is what `Sums` has."""
    counted = None if sizes is None else np.array(sizes, np.int64)
    return Sums(summed, lambda totals: then(ratio(totals)), sizes=counted)


def scores_of(
    found: Mapping[str, Statistic],
    things: str,
    lengths: Sequence[int] | None = None,
    *,
    edges: Sequence[int] = EDGES,
    classes: Classes | None = None,
) -> Scores:
    """The scores of statistics over the same records, also by length."""
    first = next(iter(found.values()))
    if lengths is not None and len(lengths) != first.count:
        raise UserError(f"{len(lengths)} lengths for {first.count} pairs", do="give one length for each source")
    numbers = {name: one.value() for name, one in found.items()}
    buckets = () if lengths is None else by_length(lengths, found, edges=edges)
    signatures = {name: one.signature for name, one in found.items() if one.signature}
    return Scores(numbers, first.n, things, signatures, buckets, classes, statistics=found, lengths=lengths)
