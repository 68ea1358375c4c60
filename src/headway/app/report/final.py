"""A trained model, measured once more and on more: scores also by length, answers, and what it looked at for some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import nn

from headway.answer import Speaker, Wish
from headway.app.report.final_texts import of_texts
from headway.app.report.glimpses import looked_at
from headway.app.report.pictures import Picture, hidden_pictures
from headway.app.report.sight import NOTHING, PIECES, SIGHTS, Example, Sights, alignments, ribbons, self_maps, titled
from headway.app.training.assemble import ANSWERS, loaded_of
from headway.app.training.measure import held_loss, measures_for, named, pair_scores, spoken_scores, written, written_of
from headway.app.training.measure_described import caption_scores, compared, nearest_texts, retrieval_scores
from headway.app.training.plan import Plan
from headway.data.dates import Part
from headway.data.embedded import date_records
from headway.data.sources import Record
from headway.nn.model import EncoderDecoder, Trunk
from headway.tasks.buckets import quantile_edges
from headway.tasks.described import Captions
from headway.tasks.hidden import HiddenPatches
from headway.tasks.labels import Labels, Tags
from headway.tasks.matches import Matches
from headway.tasks.pairs import Pairs
from headway.tasks.scores import Scores
from headway.tasks.scoring import score_classes, score_pairs, score_tags
from headway.tasks.sensed import SensedLabels
from headway.tasks.senses import Sight
from headway.tasks.spoken import Spoken
from headway.tasks.views import TwoViews
from headway.train.loop import End, Sample

RECORDS = 1000  # held-out records that are answered
UNSEEN = 500  # dates in ways of writing that training has not seen


@dataclass(frozen=True)
class Final:
    """What was found.  `unseen` are scores on what is unlike anything in training, where the data knows such."""

    scores: Scores | None = None
    samples: tuple[Sample, ...] = ()
    sights: Sights = NOTHING
    unseen: Scores | None = None
    pictures: tuple[Picture, ...] = ()


def measured(made: Plan, end: End, model: nn.Module) -> Final:
    """The last word on a model; nothing, where nothing was held out."""
    model.eval()
    task = made.ready.task
    if not made.prepared.held:
        return Final()
    if isinstance(task, Pairs):
        return of_pairs(made, task, end, model)
    if isinstance(task, Labels | Tags):
        return of_names(made, task, end, model)
    if isinstance(task, SensedLabels):
        return of_classes(made, task, end, model)
    if isinstance(task, Captions) and isinstance(task.sense, Sight):
        return of_captions(made, end, model)
    if isinstance(task, Spoken | Captions):
        return of_speech(made, end, model)
    if isinstance(task, Matches):
        return of_matches(made, model)
    if isinstance(task, HiddenPatches | TwoViews):
        return of_nameless(made, task, model)
    scores, samples, sights = of_texts(task, made.prepared.held, model)
    return Final(scores, tuple(samples), sights)


def of_pairs(made: Plan, task: Pairs, end: End, model: nn.Module) -> Final:
    records = made.material.some_held(RECORDS)
    by = measures_for(records[:ANSWERS])  # as they were chosen for the run
    speaker = loaded_of(made, model).speaker()
    samples = told_already(end, records) or written(speaker, records, Wish())
    lengths = [len(row) for row in task.reader.encode_batch([sample.source for sample in samples])]
    answers, wanted = [sample.answer for sample in samples], [sample.wanted for sample in samples]
    scores = score_pairs(answers, wanted, lengths, by=by, edges=shares(lengths))
    unseen = unseen_dates(made, speaker, by) if made.material.embedded else None
    return Final(scores, tuple(samples), aligned(task, speaker, samples), unseen)


def unseen_dates(made: Plan, speaker: Speaker, by: Sequence[str]) -> Scores:
    """On dates in pairs of a language and a pattern that training has not seen."""
    records = list(date_records(made.recipe.seed, UNSEEN, Part.UNSEEN))
    return pair_scores(written(speaker, records, Wish()), by)


def of_names(made: Plan, task: Labels | Tags, end: End, model: nn.Module) -> Final:
    records = made.material.some_held(RECORDS)
    samples = told_already(end, records) or named(task.measured(), model, records)
    assert isinstance(model, Trunk)
    chosen = few(samples, lambda sample: True)
    rows = task.encode([records[at].handed for at in chosen])
    examples = [Example(tuple(row[0]), title=titled(samples[at])) for at, row in zip(chosen, rows, strict=True)]
    one = isinstance(task, Labels)
    sights = ribbons(model, examples, task.words) if one else self_maps(model, examples[0], task.words)
    lengths = [len(row) for row in task.words.encode_batch([sample.source for sample in samples])]
    answers, wanted = [sample.answer for sample in samples], [sample.wanted for sample in samples]
    scores = (score_classes if one else score_tags)(answers, wanted, lengths, edges=shares(lengths))
    return Final(scores, tuple(samples), sights)


def of_classes(made: Plan, task: SensedLabels, end: End, model: nn.Module) -> Final:
    records = made.material.some_held(RECORDS)
    samples = told_already(end, records) or named(task.measured(), model, records)
    scores = score_classes([sample.answer for sample in samples], [sample.wanted for sample in samples])
    return Final(replace(scores, things=task.unit if task.unit == "images" else "samples"), tuple(samples))


def of_speech(made: Plan, end: End, model: nn.Module) -> Final:
    records = made.material.some_held(RECORDS)
    samples = told_already(end, records) or written_of(loaded_of(made, model).observer(), records, Wish())
    return Final(spoken_scores(samples), tuple(samples))


def of_nameless(made: Plan, task: HiddenPatches | TwoViews, model: nn.Module) -> Final:
    """The loss on images without classes and, where some of them was hidden, a few of them."""
    held = made.prepared.held
    scores = Scores({"loss": held_loss(task.measured(), model, held)}, sum(one.targets for one in held), "images")
    records = made.material.some_held(SIGHTS)
    drawn = hidden_pictures(task.measured(), model, records) if isinstance(task, HiddenPatches) else ()
    return Final(scores, pictures=tuple(drawn))


def of_captions(made: Plan, end: End, model: nn.Module) -> Final:
    records, observer = made.material.some_held(RECORDS), loaded_of(made, model).observer()
    samples = told_already(end, records) or written_of(observer, records, Wish())
    return Final(caption_scores(samples, records), tuple(samples), looked_at(observer, records[:SIGHTS]))


def of_matches(made: Plan, model: nn.Module) -> Final:
    records = made.material.some_held(RECORDS)
    near = compared(loaded_of(made, model).observer(), records)
    return Final(retrieval_scores(near, records), tuple(nearest_texts(near, records)))


def shares(lengths: Sequence[int]) -> tuple[int, ...]:
    """Edges of lengths between which there are about equally many; one edge where all are equally long."""
    return tuple(edge for edge in quantile_edges(lengths) if edge < max(lengths)) or (max(lengths),)


def told_already(end: End, records: Sequence[Record]) -> list[Sample]:
    """The answers of the run's last evaluation, where it asked for all of these."""
    found = [] if end.found is None else list(end.found.samples)
    return found if len(found) == len(records) else []


def aligned(task: Pairs, speaker: Speaker, samples: Sequence[Sample]) -> Sights:
    assert isinstance(speaker.model, EncoderDecoder)
    chosen = [samples[at] for at in few(samples, lambda sample: len(task.reader.encode(sample.source)) <= PIECES)]
    if not chosen:
        return NOTHING
    answers = speaker.answer([sample.source for sample in chosen], Wish(most=2 * PIECES))
    rows = task.encode([(sample.source, sample.wanted) for sample in chosen])
    examples = [
        Example(tuple(row[0]), tuple(answer["tokens"]), task.begin, titled(sample))
        for row, answer, sample in zip(rows, answers, chosen, strict=True)
    ]
    return alignments(speaker.model, examples, task.reader, task.writer)


def few(samples: Sequence[Sample], suited: Callable[[Sample], bool]) -> list[int]:
    """The places of a few samples: right ones, and one that is wrong, as far as there are any."""
    places = [at for at, sample in enumerate(samples) if suited(sample)] or list(range(len(samples)))
    right = [at for at in places if samples[at].answer == samples[at].wanted]
    wrong = [at for at in places if samples[at].answer != samples[at].wanted]
    return (right[: SIGHTS - 1] + wrong)[:SIGHTS] if wrong else right[:SIGHTS]
