"""What a model is for: text in, the model's own kind of answer out.

A causal model continues, a masked one fills masks, an encoder–decoder writes, an encoder embeds, classifies or tags.
Which of these is seen from the model's own head; texts of a batch are answered as they would be alone.

Axes:  B batch   T tokens   C width   V vocabulary   K classes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.beam import Beam
from headway.generate.feed import remembered, vocab_of
from headway.generate.request import Generated
from headway.generate.rules import FREE, Rules
from headway.generate.sampling import GREEDY, Choice
from headway.generate.settings import begin_of, longest, rules_of, shortest, tokens
from headway.generate.speculative import Draft, DraftModel, LookUp
from headway.generate.stopping import Stop
from headway.generate.task import Task
from headway.nn.context import Context
from headway.nn.head import Classifier, LMHead, MeanPool, MLMHead, TokenClassifier, main_of
from headway.nn.model import EncoderDecoder, Trunk
from headway.nn.rows import Rows
from headway.tasks.labels import spelled
from headway.tasks.task import around

Answer = dict[str, Any]


MOST = 64  # new tokens, where neither the wish nor the model says otherwise


@dataclass(frozen=True, eq=False)
class Wish:
    """How to write, where the model writes; `best` is how many fillings of a mask to name.

    `draft` guesses tokens ahead: a `LookUp`, or a smaller model of the same kind and words.
    """

    how: Choice | Beam = GREEDY
    most: int | None = None
    stop: tuple[str, ...] = ()
    best: int = 5
    draft: LookUp | nn.Module | None = None


PLAIN = Wish()


@dataclass(frozen=True, eq=False)
class Speaker:
    """A model with its words: `tokens` are ids by their roles in the checkpoint's config, `labels` its classes.

    `writer` has the words of what it writes, where these are others than those it reads.
    """

    model: nn.Module
    tokenizer: Tokenizer
    tokens: Mapping[str, Any] = field(default_factory=dict[str, Any])
    labels: Sequence[str] = ()
    writer: Tokenizer | None = None

    def answer(self, texts: Sequence[str], wish: Wish = PLAIN) -> list[Answer]:
        """The answer to each text, as plain data with the input under `input`."""
        if not texts:
            return []
        with torch.inference_mode():
            found = self.way()(list(texts), wish)
        return [{"input": text, **answer} for text, answer in zip(texts, found, strict=True)]

    def way(self) -> Callable[[list[str], Wish], list[Answer]]:
        """What the model is for, by its shape."""
        if isinstance(self.model, EncoderDecoder):
            return self.write
        if not isinstance(self.model, Trunk):
            raise UserError(f"there is no way to run a {type(self.model).__name__}")
        head = main_of(self.model.head)
        ways = {LMHead: self.go_on, MLMHead: self.fill, Classifier: self.classify, TokenClassifier: self.tag}
        return next((way for kind, way in ways.items() if isinstance(head, kind)), self.embed_each)

    def go_on(self, texts: list[str], wish: Wish) -> list[Answer]:
        prompts = self.tokenizer.encode_batch(texts)
        task = self.continuing(prompts, wish)
        answers = [
            told([(one, self.spoken(prompt, one, task.stop)) for one in many], wish)
            for prompt, many in zip(prompts, task.found(wish.how), strict=True)
        ]
        return [{**answer, "text": text + answer["output"]} for text, answer in zip(texts, answers, strict=True)]

    def spoken(self, prompt: list[int], found: Generated, stop: Stop) -> str:
        """The text that follows the prompt's: a word's first space belongs to it here, which it loses by itself."""
        out = self.tokenizer.stream(prompt)
        text = "".join([*(out.push(token) for token in found.body), out.end()])
        return text[: stop.found(text)]

    def write(self, texts: list[str], wish: Wish) -> list[Answer]:
        return self.texts(self.writing(self.sources(texts), wish), wish)

    def texts(self, task: Task, wish: Wish) -> list[Answer]:
        """What is written in a task."""
        return [told([(one, task.stop.text(one.tokens)) for one in many], wish) for many in task.found(wish.how)]

    def pieces(self, text: str, wish: Wish = PLAIN) -> Iterator[str]:
        """What the model writes for one text, piece by piece as it comes; what may begin a stop string is held back."""
        if isinstance(wish.how, Beam):
            raise UserError("a beam cannot be written as it comes", do="sample, or take the likeliest token")
        if self.way() == self.write:
            task, out = self.writing(self.sources([text]), wish), self.words.stream()
        else:
            prompt = self.tokenizer.encode(text)
            task, out = self.continuing([prompt], wish), self.tokenizer.stream(prompt)
        held, stop = "", task.stop
        with torch.inference_mode():
            for [step] in task.steps(wish.how):
                held += "" if step.token in stop.tokens else out.push(step.token)
                sure = stop.certain(held)
                yield held[:sure]
                held = held[sure:]
        held += out.end()
        yield held[: stop.found(held)]

    def continuing(self, prompts: list[list[int]], wish: Wish) -> Task:
        """The task of continuing texts."""
        draft = wish.draft
        if isinstance(draft, nn.Module):
            if not isinstance(draft, Trunk):
                raise UserError("the draft model does not continue texts", do="take a smaller model of the same kind")
            draft = DraftModel(draft)
        model, stop = self.trunk(), self.stop(wish)
        return Task(model, prompts, stop, self.rules(model, begins=False), draft, bos=self.start())

    def writing(self, sources: list[list[int]], wish: Wish) -> Task:
        """The task of writing from sources."""
        model, draft = self.model, wish.draft
        assert isinstance(model, EncoderDecoder)
        if isinstance(draft, LookUp) and self.writer is None:
            draft = replace(draft, beside=tuple(map(tuple, sources)))  # answers often repeat what they read
        if isinstance(draft, nn.Module):
            if not isinstance(draft, EncoderDecoder):
                raise UserError("the draft model has no encoder", do="take a smaller model of the same kind")
            draft = DraftModel(draft.decoder, memory=remembered(draft, sources))
        return self.writing_from(remembered(model, sources), len(sources), wish, draft)

    def writing_from(self, memory: Context, rows: int, wish: Wish, draft: Draft | None = None) -> Task:
        """The task of writing so many texts with something encoded before the decoder's eyes."""
        model, begin = self.model, begin_of(self.tokens, self.words.bos)
        assert isinstance(model, EncoderDecoder)
        stop, rules = self.stop(wish, begun=1), self.rules(model.decoder, begins=True)
        return Task(model.decoder, [[begin]] * rows, stop, rules, draft, memory)

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """What an encoder–decoder reads: texts behind the prefix that it was trained with, where there was one."""
        prefix = self.tokens.get("prefix") or ""
        return self.tokenizer.encode_batch([prefix + text for text in texts])

    def fill(self, texts: list[str], wish: Wish) -> list[Answer]:
        mask = self.tokenizer.mask
        if mask is None:
            raise UserError("this model's tokenizer has no mask token", do="embed the text instead, with --embed")
        ids, keep = padded([self.masked(text, mask) for text in texts], self.tokenizer.pad or 0)
        asked = (ids == mask) & keep[:, 0]
        if not asked.any(1).all():
            spelled = self.tokenizer.token(mask)
            raise UserError(
                f"{texts[int((~asked.any(1)).nonzero()[0])]!r} has no {spelled} to fill", do=f"put {spelled} in"
            )
        model = self.trunk()
        chances = model.head(model.features(ids, Context(keep=keep))[asked]).softmax(-1)  # … V
        return self.filled(ids, asked, keep, chances.topk(min(wish.best, chances.shape[-1])))

    def masked(self, text: str, mask: int) -> list[int]:
        """A text's ids between those that frame it, as in training: [CLS] and [SEP].

        Its masks are read as such also where a tokenizer takes every text literally.
        """
        if not self.tokenizer.literal:
            return self.tokenizer.encode(text)
        before, after = around(self.tokenizer)
        first, *others = self.tokenizer.plain_batch(text.split(self.tokenizer.token(mask)))
        return [*before, *first, *(id for piece in others for id in (mask, *piece)), *after]

    def filled(self, ids: Tensor, asked: Tensor, keep: Tensor, top: Any) -> list[Answer]:
        best = ids.masked_scatter(asked, top.indices[:, 0])
        answers, at = list[Answer](), 0
        for row, count in enumerate(asked.sum(1).tolist()):
            named = zip(top.indices[at : at + count].tolist(), top.values[at : at + count].tolist(), strict=True)
            masks = [[{"token": self.word(i), "probability": p} for i, p in zip(*one, strict=True)] for one in named]
            answers.append({"output": self.tokenizer.decode(best[row][keep[row, 0]].tolist()), "masks": masks})
            at += count
        return answers

    def classify(self, texts: list[str], wish: Wish) -> list[Answer]:
        ids, keep = padded(self.tokenizer.encode_batch(texts), self.tokenizer.pad or 0)
        chances = self.model(ids, Context(keep=keep)).softmax(-1)  # B K
        return [self.named(row) for row in chances]

    def tag(self, texts: list[str], wish: Wish) -> list[Answer]:
        """The class of each word, read where it was learned, at the word's first piece."""
        words = [text.split() for text in texts]
        rows = [spelled(some, self.tokenizer) for some in words]
        ids, keep = padded([row.ids for row in rows], self.tokenizer.pad or 0)
        picks = self.model(ids, Context(keep=keep)).argmax(-1)  # B T
        return [
            {"output": [[word, self.label(pick[at])] for word, at in zip(one, row.firsts, strict=True)]}
            for one, row, pick in zip(words, rows, picks.tolist(), strict=True)
        ]

    def embed_each(self, texts: list[str], wish: Wish) -> list[Answer]:
        return [{"output": vector.tolist()} for vector in self.embed(texts)]

    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> Tensor:
        """The mean of each text's features, of length 1, B C: computed on packed rows, so padding costs nothing."""
        model = self.model.encoder if isinstance(self.model, EncoderDecoder) else self.trunk()
        ids = [row or [self.tokenizer.pad or 0] for row in self.tokenizer.encode_batch(texts)]
        rows = Rows.of([len(row) for row in ids])
        features = model.features(torch.tensor([[i for row in ids for i in row]]), Context(rows=rows))
        return F.normalize(MeanPool()(features, Context(rows=rows)), dim=-1)

    def trunk(self) -> Trunk:
        assert isinstance(self.model, Trunk)
        return self.model

    def start(self) -> int | None:
        given = self.tokens.get("bos_token_id")
        return self.tokenizer.bos if given is None else given

    @property
    def words(self) -> Tokenizer:
        """The words of what it writes."""
        return self.tokenizer if self.writer is None else self.writer

    def stop(self, wish: Wish, begun: int = 0) -> Stop:
        """Where an answer ends; a model that begins to write by itself counts the tokens it has `begun` with."""
        ends = tokens(self.tokens, "eos_token_id") if "eos_token_id" in self.tokens else (self.words.eos,)
        most = wish.most or longest(self.tokens if begun else {}, begun, MOST)
        least = shortest(self.tokens if begun else {}, begun, most)
        given = tuple(end for end in ends if end is not None)
        return Stop(most, given, wish.stop, least, self.words.decode, self.words.stream)

    def rules(self, model: Trunk, *, begins: bool) -> Rules:
        found = rules_of(self.tokens, vocab_of(model), begins=begins)
        return FREE if found == FREE else found

    def word(self, id: int) -> str:
        return self.tokenizer.decode([id]) or self.tokenizer.token(id)

    def label(self, k: int) -> str:
        return self.labels[k] if k < len(self.labels) else str(k)

    def named(self, chances: Tensor) -> Answer:
        scores = {self.label(k): p for k, p in enumerate(chances.tolist())}
        return {"output": self.label(int(chances.argmax())), "probabilities": scores}


def told(found: list[tuple[Generated, str]], wish: Wish) -> Answer:
    """The best of what was found for one text, and all of it where a beam was asked for several."""
    many = [
        {"output": text, "tokens": list(one.tokens), "logprobs": list(one.logprobs), "reason": str(one.reason)}
        for one, text in found
    ]
    if not isinstance(wish.how, Beam) or wish.how.best == 1:
        return many[0]
    return {**many[0], "best": [{"score": one.score, **each} for (one, _), each in zip(found, many, strict=True)]}


def padded(rows: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Ids of different lengths as one B T, and the mask of what is real, B 1 T."""
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    ids = nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=pad)
    lengths = torch.tensor([len(row) for row in rows])
    return ids, (torch.arange(ids.shape[1]) < lengths[:, None])[:, None]
