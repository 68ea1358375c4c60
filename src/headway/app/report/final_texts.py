"""A language model, measured once more: its loss by place, how it goes on or fills in, and what it looks at.

Axes:  N tokens of all rows   C width
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from headway.app.report.sight import NOTHING, SIGHTS, Example, Sights, alignments, pieces, self_maps, titled
from headway.app.training.measure import held_loss, perplexity
from headway.data.tokenizer import Tokenizer
from headway.generate.feed import remembered
from headway.generate.loop import generate
from headway.generate.sampling import Sample as Draw
from headway.generate.stopping import Stop
from headway.nn.head import word_head
from headway.nn.model import EncoderDecoder, Trunk
from headway.tasks.buckets import Bucket, by_length
from headway.tasks.causal import Causal
from headway.tasks.masked import Masked
from headway.tasks.scores import Scores
from headway.tasks.spans import Spans
from headway.tasks.task import Ragged, Task
from headway.train.loop import Sample

TOKENS = 100_000  # of validation, whose loss is told by place
PLACES = (4, 16, 64, 256, 1024)
PROMPT, FURTHER = 40, 60  # tokens that are read and written for a sample


@torch.inference_mode()
def of_texts(task: Task, held: Sequence[Any], model: nn.Module) -> tuple[Scores, list[Sample], Sights]:
    """Scores, samples, and what was looked at, of a language model by its batches for validation."""
    loss, count = held_loss(task.measured(), model, held), sum(batch.targets for batch in held)
    numbers = {"perplexity": perplexity(loss), "loss": loss}
    buckets: tuple[Bucket, ...] = ()
    samples, sights = list[Sample](), NOTHING
    if isinstance(task, Spans):
        samples, sights = restored(task, model, held[0])
    elif isinstance(task, Causal | Masked) and isinstance(model, Trunk):
        text = Example(max(map(ids_of, rows_of(held[0].read)), key=len))
        sights = self_maps(model, text, task.words)
        samples = continued(task, model, held[0]) if isinstance(task, Causal) else filled(task, model, held[0])
        buckets = by_place(model, held) if isinstance(task, Causal) else ()
    return Scores(numbers, count, "tokens", {}, buckets), samples, sights


def by_place(model: Trunk, held: Iterable[Any]) -> tuple[Bucket, ...]:
    """The loss by how many tokens were read before: one that has read more should know better."""
    head, room = word_head(model.head), TOKENS
    features, wanted, places = list[Tensor](), list[Tensor](), list[int]()
    for batch in held:
        features.append(model.features(batch.read.ids, batch.read.context).flatten(0, 1))  # N C
        wanted.append(batch.wanted)
        places += [place for row in rows_of(batch.read) for place in range(1, len(row) + 1)]
        room -= batch.targets
        if room < 0:
            break
    x, y = torch.cat(features), torch.cat(wanted)

    def score(tokens: Sequence[int]) -> dict[str, float]:
        chosen = torch.tensor(tokens)
        loss = head.loss(x[chosen], y[chosen]).item() / len(tokens)
        return {"perplexity": perplexity(loss), "loss": loss}

    return by_length(places, score, edges=PLACES)


def continued(task: Causal, model: Trunk, batch: Any) -> list[Sample]:
    """How the model goes on where validation texts begin, and how these go on."""
    rows = sorted(map(ids_of, rows_of(batch.read)), key=len)[-3:]
    prompts = [list(row[: min(PROMPT, max(1, len(row) // 2))]) for row in rows]
    found = generate(model, prompts, Draw(temperature=0.8), Stop(most=FURTHER, tokens=ends(task.words)))
    return [
        Sample(told(task.words, p), told(task.words, g.body), told(task.words, row[len(p) : len(p) + FURTHER]))
        for p, g, row in zip(prompts, found, rows, strict=True)
    ]


def filled(task: Masked, model: Trunk, batch: Any) -> list[Sample]:
    """What the model puts in the places that were masked."""
    features = model.features(batch.read.ids, batch.read.context).flatten(0, 1)  # N C
    picks = word_head(model.head)(features[batch.chosen]).argmax(-1).tolist()
    found, start = list[Sample](), 0
    for row in rows_of(batch.read)[:SIGHTS]:
        inside = [at for at, place in enumerate(batch.chosen.tolist()) if start <= place < start + len(row)]
        start += len(row)
        answer, wanted = ([ids[at] for at in inside] for ids in (picks, batch.wanted.tolist()))
        found.append(Sample(told(task.words, ids_of(row)), listed(task.words, answer), listed(task.words, wanted)))
    return found


def restored(task: Spans, model: nn.Module, batch: Any) -> tuple[list[Sample], Sights]:
    """What the model writes for the runs that were taken out, and what it looked at."""
    assert isinstance(model, EncoderDecoder)
    sources = [list(ids_of(row)) for row in rows_of(batch.source)[:SIGHTS]]
    wanted = batch.wanted.split([len(row) for row in rows_of(batch.read)])
    stop, begins = Stop(most=FURTHER, tokens=ends(task.words)), [[task.begin]] * len(sources)
    found = generate(model.decoder, begins, stop=stop, memory=remembered(model, sources))
    samples = [
        Sample(told(task.words, s), told(task.words, g.body), told(task.words, w.tolist()[:-1]))
        for s, g, w in zip(sources, found, wanted, strict=False)
    ]
    examples = [
        Example(tuple(source), g.tokens, task.begin, titled(sample))
        for source, g, sample in zip(sources, found, samples, strict=True)
    ]
    return samples, alignments(model, examples, task.words, task.words)


def rows_of(read: Ragged) -> list[Tensor]:
    """The ids of each row."""
    return list(read.ids.unbind(0)) if read.rows is None else list(read.ids[0].split(list(read.rows.lengths)))


def ids_of(row: Tensor) -> tuple[int, ...]:
    return tuple(row.tolist())


def ends(words: Tokenizer) -> tuple[int, ...]:
    return () if words.eos is None else (words.eos,)


def told(words: Tokenizer, ids: Iterable[int]) -> str:
    """A text with its special tokens to be seen: masks and marks stand among the words."""
    special = {id for id, token in words.backend.get_added_tokens_decoder().items() if token.special}
    runs = [list(run) for _, run in groupby(ids, special.__contains__)]
    return " ".join(" ".join(pieces(words, run)) if run[0] in special else words.decode(run) for run in runs).strip()


def listed(words: Tokenizer, ids: Iterable[int]) -> str:
    return ", ".join(piece.strip() for piece in pieces(words, ids))
