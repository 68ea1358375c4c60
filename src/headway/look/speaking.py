"""How models of texts read one text: a scene for each thing that such a model is for.

Axes:  T tokens   N tokens that are said something of   C width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.answer import Answer, Speaker, Wish
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.feed import context_of, vocab_of
from headway.generate.sampling import GREEDY
from headway.generate.task import Task
from headway.look.axis import Axis
from headway.look.outcome import Choices, Vector
from headway.look.said import Said
from headway.look.scene import Axes, Scene
from headway.look.words import reader, special, tokens
from headway.nn.context import EMPTY, Context
from headway.nn.head import MeanPool
from headway.nn.model import EncoderDecoder, Trunk


@dataclass(frozen=True)
class Terms:
    """How a text is read.

    A model that continues texts writes at most `most` tokens more (one, at least: the next); one that writes answers
    writes them to their end.  Either reads what another `said` in place of its own words.  `context` is how many tokens
    the model's config allows.
    """

    most: int
    context: int | None
    said: Said | None = None


Way = Callable[[Speaker, str, Terms], Scene]


def speaking(speaker: Speaker, text: str, terms: Terms) -> Scene:
    """What the model is for, done with one text."""
    ways: dict[Callable[[list[str], Wish], list[Answer]], Way] = {
        speaker.go_on: continuing,
        speaker.write: answering,
        speaker.fill: filling,
        speaker.classify: classifying,
        speaker.tag: tagging,
        speaker.embed_each: embedding,
    }
    return ways[speaker.way()](speaker, text, terms)


def continuing(speaker: Speaker, text: str, terms: Terms) -> Scene:
    """The text and what is said next, read as one: each token says which one follows."""
    model, words = speaker.trunk(), speaker.tokenizer
    prompt = fitting(words.encode(text), speaker, terms.context)

    def written() -> tuple[tuple[int, ...], str]:
        task = speaker.continuing([prompt], Wish(most=max(terms.most, 1)))
        [[found]] = task.found(GREEDY)
        return found.tokens, text + speaker.spoken(prompt, found, task.stop)

    own, whole = written()
    said, ids = followed(prompt, own, words, model, terms.said)
    read = torch.tensor([ids[:-1]])
    told = Choices(
        "next",
        tuple(range(len(ids) - 1)),
        tuple(ids[1:]),
        reader(words),
        lambda best: written()[1],
        model.head,
    )
    axes = Axes({"": tokens("text", ids[:-1], words)})
    return Scene(model, lambda: model.features(read)[0], told, axes, whole, said=said)


def answering(speaker: Speaker, text: str, terms: Terms) -> Scene:
    """A source and what is written for it."""
    model = speaker.model
    assert isinstance(model, EncoderDecoder)
    [source] = speaker.sources([text])
    longest = context_of(model.encoder)
    check_length(len(source), longest)
    read = tokens("source", source, speaker.tokenizer)
    writing = Writing(model, torch.tensor([source]), EMPTY, speaker.words, read, read, terms.said)
    return writing.by(lambda: speaker.writing([source], Wish()))


@dataclass(frozen=True, eq=False)
class Writing:
    """An encoder–decoder before its source; `words` are those it writes.

    `read` are the places of its encoder, if these have a name, and `memory` those that the decoder looks at.  It reads
    what another `said`, or else its own words.
    """

    model: EncoderDecoder
    source: Tensor
    context: Context
    words: Tokenizer
    read: Axis | None
    memory: Axis
    said: Said | None = None

    def by(self, make: Callable[[], Task]) -> Scene:
        """The scene of a task of writing, which is made anew, its source encoded, wherever it is written again."""

        def written() -> tuple[list[int], tuple[int, ...], str]:
            task = make()
            [[found]] = task.found(GREEDY)
            return task.prompts[0], found.tokens, task.stop.text(found.tokens)

        prompt, tokens, text = written()
        return self.after(prompt, tokens, text, lambda: written()[2])

    def after(self, prompt: list[int], own: Sequence[int], text: str, again: Callable[[], str]) -> Scene:
        """The scene in which the model writes its `own` tokens after the prompt with which the decoder begins."""
        model, words, first = self.model, self.words, len(prompt) - 1
        said, ids = followed(prompt, own, words, model.decoder, self.said)
        target = torch.tensor([ids[:-1]])

        def call() -> Tensor:
            return model.decoder.features(target, model.remember(self.source, self.context))[0, first:]  # N C

        at = tuple(range(first, len(ids) - 1))
        told = Choices("written", at, tuple(ids[first + 1 :]), reader(words), lambda best: again(), model.decoder.head)
        streams: dict[str, Axis] = {"decoder": tokens("prefix", ids[:-1], words)}
        streams |= {} if self.read is None else {"encoder": self.read}
        axes = Axes(streams, self.memory, tokens("target", ids[1:], words))
        return Scene(model, call, told, axes, text, said=said)


def followed(
    prompt: list[int], own: Sequence[int], words: Tokenizer, model: Trunk, said: Said | None
) -> tuple[Said, list[int]]:
    """What follows a prompt, its `own` words or what another said, and the tokens of both."""
    if said is None:
        return Said.of(own, words), [*prompt, *own]
    ids, longest = [*prompt, *said.ids(words, vocab_of(model))], context_of(model)
    if longest is not None and len(ids) - 1 > longest:  # whoever wrote it may have had more room
        told = f"what {said.by} wrote is read up to token {len(ids) - 1:,}, and the model has a context of {longest:,}"
        raise UserError(told, do="shorten the input, or let less be written")
    return said, ids


def filling(speaker: Speaker, text: str, terms: Terms) -> Scene:
    """What stands behind each mask; in a text without masks, how likely each token is where it stands."""
    model, words, mask = speaker.trunk(), speaker.tokenizer, speaker.tokenizer.mask
    ids = fitting(words.encode(text) if mask is None else speaker.masked(text, mask), speaker, terms.context)
    masks = [at for at, id in enumerate(ids) if id == mask]
    asked = masks or own(ids, words)

    def whole(best: Sequence[int]) -> str:
        said = dict(zip(asked, best, strict=True))
        return words.decode([said.get(at, id) for at, id in enumerate(ids)])

    said = None if masks else tuple(ids[at] for at in asked)
    told = Choices("fill", tuple(asked), said, reader(words), whole, model.head)
    return Scene(
        model, lambda: model.features(torch.tensor([ids]))[0, asked], told, Axes({"": tokens("text", ids, words)})
    )


def classifying(speaker: Speaker, text: str, terms: Terms) -> Scene:
    model, words = speaker.trunk(), speaker.tokenizer
    ids = fitting(words.encode(text), speaker, terms.context)
    told = Choices("classes", (None,), None, speaker.label, lambda best: speaker.label(best[0]), same)
    return Scene(model, lambda: model(torch.tensor([ids])), told, Axes({"": tokens("text", ids, words)}))


def tagging(speaker: Speaker, text: str, terms: Terms) -> Scene:
    model, words = speaker.trunk(), speaker.tokenizer
    ids = fitting(words.encode(text), speaker, terms.context)
    asked = own(ids, words)

    def whole(best: Sequence[int]) -> str:
        return " ".join(speaker.label(k) for k in best)

    told = Choices("tags", tuple(asked), None, speaker.label, whole, same)
    return Scene(model, lambda: model(torch.tensor([ids]))[0, asked], told, Axes({"": tokens("text", ids, words)}))


def embedding(speaker: Speaker, text: str, terms: Terms) -> Scene:
    model, words = speaker.trunk(), speaker.tokenizer
    ids = fitting(words.encode(text), speaker, terms.context)

    def call() -> Tensor:
        return F.normalize(MeanPool()(model.features(torch.tensor([ids]))), dim=-1)[0]  # C

    return Scene(model, call, Vector(), Axes({"": tokens("text", ids, words)}))


def fitting(ids: list[int], speaker: Speaker, context: int | None) -> list[int]:
    """The ids of a text, of which a model can read at least one and at most as many as it has places for."""
    start = speaker.start()
    ids = ids or ([] if start is None else [start])
    if not ids:
        raise UserError("an empty text, and the model has no token to begin with", do="give it a word or two")
    check_length(len(ids), context_of(speaker.trunk()) or context)
    return ids


def check_length(tokens: int, longest: int | None) -> None:
    if longest is not None and tokens > longest:
        said = f"the text has {tokens:,} tokens and the model a context of {longest:,}"
        raise UserError(said, do=f"shorten it to {longest:,} tokens")


def own(ids: Sequence[int], words: Tokenizer) -> list[int]:
    """Where the tokens of the text itself stand; all, where there are no others."""
    apart = special(words)
    return [at for at, id in enumerate(ids) if id not in apart] or list(range(len(ids)))


def same(logits: Tensor) -> Tensor:
    return logits
