"""How a model is asked about data: by the task that it was trained for, as its folder tells it."""

from __future__ import annotations

from typing import TypeVar

from headway.answer import PLAIN
from headway.app.perplexity import Probe, causal_probe, masked_probe, span_probe
from headway.app.training.words import marks_of
from headway.checkpoint import Loaded
from headway.generate.feed import context_of
from headway.generate.settings import begin_of
from headway.nn.frames import Shortening
from headway.nn.head import Classifier, CTCHead, TokenClassifier, main_of
from headway.nn.model import EncoderDecoder, Trunk
from headway.tasks.causal import Causal
from headway.tasks.described import Captions
from headway.tasks.forecast import Forecasting
from headway.tasks.labels import Labels, Tags
from headway.tasks.masked import Masked
from headway.tasks.pairs import Pairs
from headway.tasks.sensed import SensedLabels
from headway.tasks.senses import Vectors
from headway.tasks.spans import Spans
from headway.tasks.spoken import Spoken
from headway.tasks.task import some

USUAL = 512  # tokens that are read at once by a model that has no limit

Naming = TypeVar("Naming", Labels, Tags)


def pairs(loaded: Loaded) -> Pairs:
    speaker = loaded.speaker()
    begin, prefix = begin_of(loaded.kept, speaker.words.bos), loaded.kept.get("prefix") or ""
    return Pairs(speaker.tokenizer, speaker.words, begin, 0.0, context_for(loaded), prefix)


def labels(loaded: Loaded) -> Labels:
    return naming(loaded, Labels)


def tags(loaded: Loaded) -> Tags:
    return naming(loaded, Tags)


def naming(loaded: Loaded, task: type[Naming]) -> Naming:
    speaker, model = loaded.speaker(), loaded.model
    assert isinstance(model, Trunk)
    head = main_of(model.head)
    assert isinstance(head, Classifier | TokenClassifier)
    names = tuple(speaker.label(k) for k in range(head.out.out_features))
    return task(speaker.tokenizer, names, longest=context_for(loaded))


def sensed(loaded: Loaded) -> SensedLabels:
    observer = loaded.observer()
    return SensedLabels(observer.sense, tuple(observer.labels))


def rows(loaded: Loaded) -> Forecasting:
    observer = loaded.observer()
    assert isinstance(observer.sense, Vectors)
    return Forecasting(observer.sense, tuple(loaded.kept.get("columns", ())))


def described(loaded: Loaded) -> Spoken | Captions | None:
    """What a model writes about images or sounds; None where its folder does not tell which words it has for them."""
    observer, model = loaded.observer(), loaded.model
    words = observer.words
    if words is None:
        return None
    if isinstance(model, EncoderDecoder):
        longest = context_of(model.decoder) or USUAL
        return Captions(observer.sense, words, longest, begin_of(loaded.kept, words.bos)).measured()
    assert isinstance(model, Trunk)
    head, embed = main_of(model.head), model.embed
    assert isinstance(head, CTCHead)
    if head.out_features != words.vocab + 1:  # others than ours count the blank among their words
        return None
    return Spoken(observer.sense, words, embed.factor if isinstance(embed, Shortening) else 1)


def causal(loaded: Loaded) -> Probe:
    speaker = loaded.speaker()
    ends = speaker.stop(PLAIN).tokens
    return causal_probe(Causal(speaker.tokenizer), context_for(loaded), some(speaker.start()), list(ends[:1]))


def masked(loaded: Loaded) -> Probe:
    return masked_probe(Masked(loaded.speaker().tokenizer), context_for(loaded))


def spans(loaded: Loaded) -> Probe:
    speaker = loaded.speaker()
    task = Spans(speaker.tokenizer, begin_of(loaded.kept, speaker.words.bos), marks_of(speaker.tokenizer))
    return span_probe(task, context_for(loaded))


def context_for(loaded: Loaded) -> int:
    """Tokens that the model reads at once: its table of positions, or what its config says."""
    trunk = loaded.model.encoder if isinstance(loaded.model, EncoderDecoder) else loaded.model
    assert isinstance(trunk, Trunk)
    rooms = (context_of(trunk), getattr(loaded.config, "context", None), USUAL)
    return next(room for room in rooms if room is not None)
