"""A model is asked in one way, whoever asks: eval, importance, dictionary, and a training that goes on from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headway.answer import Wish
from headway.app import asking
from headway.app.perplexity import Probe
from headway.app.purpose import purpose_for
from headway.app.training.ready import beginning
from headway.checkpoint import Loaded
from headway.data.kinds import Kind
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.tasks.spans import Spans
from headway.tasks.task import Task
from tests.app.folders import LABELS, TAGS, words

KINDS = {
    "pairs": (Kind.PAIRS, "Pairs"),
    "spans": (Kind.TEXTS, "Spans"),
    "causal": (Kind.TEXTS, "Causal"),
    "masked": (Kind.TEXTS, "Masked"),
    "labels": (Kind.LABELS, "Labels"),
    "tags": (Kind.TAGS, "Tags"),
}


def asked(loaded: Loaded, kind: Kind) -> Task | Probe:
    """By the purpose's task or, of texts, by its probe: by one of them alone."""
    purpose = purpose_for(loaded, kind, Path("model"))
    [ask] = [way for way in (purpose.task, purpose.probe) if way is not None]
    return ask(loaded)


@pytest.mark.parametrize("name", KINDS)
def test_a_model_is_asked_for_what_it_was_trained_for(name: str, models: dict[str, Loaded]) -> None:
    kind, told = KINDS[name]
    found = asked(models[name], kind)
    assert type(found.task if isinstance(found, Probe) else found).__name__ == told
    assert isinstance(found, Probe) == (kind is Kind.TEXTS)


def test_classes_are_the_models_own(models: dict[str, Loaded]) -> None:
    assert asking.labels(models["labels"]).labels == LABELS
    assert asking.tags(models["tags"]).labels == TAGS
    nameless = replace(models["tags"], kept={})
    assert asking.tags(nameless).labels == ("0", "1", "2")


@pytest.fixture(scope="module")
def other() -> Tokenizer:
    """Words whose first token has another number than in those that are read."""
    known = words("characters", after=True)
    return replace(known, roles=replace(known.roles, bos=known.token(known.vocab - 1)))


@pytest.mark.parametrize(
    ("kept", "begin"),
    [({"decoder_start_token_id": 7, "bos_token_id": 5}, 7), ({"bos_token_id": 5}, 5), ({"bos_token_id": None}, None)],
)
def test_whoever_writes_begins_with_the_same_token(
    kept: dict[str, int | None], begin: int | None, models: dict[str, Loaded], other: Tokenizer
) -> None:
    """As the model says it, and else with the first token of the words that are written, not of those that are read."""
    loaded = replace(models["spans"], kept=kept, writer=other)
    assert loaded.tokenizer is not None
    assert other.bos not in (None, loaded.tokenizer.bos)
    expected = other.bos if begin is None else begin
    assert loaded.speaker().writing([[3]], Wish()).prompts == [[expected]]
    assert asking.pairs(loaded).begin == expected
    spans = asking.spans(loaded).task
    assert isinstance(spans, Spans)
    assert spans.begin == expected
    assert beginning(loaded, other) == expected
    assert beginning(None, other) == other.bos


def test_a_model_that_cannot_begin_is_told(models: dict[str, Loaded]) -> None:
    known = models["spans"].vocabulary()
    mute = replace(models["spans"], kept={}, tokenizer=replace(known, roles=replace(known.roles, bos=None)))
    asks = (
        lambda: asking.pairs(mute),
        lambda: asking.spans(mute),
        lambda: beginning(mute, mute.vocabulary()),
        lambda: mute.speaker().writing([[3]], Wish()),
    )
    for ask in asks:
        with pytest.raises(UserError, match="with which token it begins to write; set decoder_start_token_id"):
            ask()
