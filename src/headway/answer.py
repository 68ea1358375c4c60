"""What a model is for: text in, the model's own kind of answer out.

A causal model continues, a masked one fills masks, an encoder–decoder writes, an encoder embeds, classifies or tags.
Which of these is seen from the model's own head; texts of a batch are answered as they would be alone.

Axes:  B batch   T tokens   C width   V vocabulary   K classes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.beam import Beam
from headway.generate.feed import remembered
from headway.generate.loop import generate, stream
from headway.generate.request import Generated
from headway.generate.sampling import GREEDY, Choice
from headway.generate.stopping import Stop
from headway.nn.context import Context
from headway.nn.head import Beside, Classifier, LMHead, MeanPool, MLMHead, TokenClassifier
from headway.nn.model import EncoderDecoder, Trunk
from headway.nn.rows import Rows

Answer = dict[str, Any]


@dataclass(frozen=True)
class Wish:
    """How to write, where the model writes; `best` is how many fillings of a mask to name."""

    how: Choice | Beam = GREEDY
    most: int = 64
    stop: tuple[str, ...] = ()
    best: int = 5


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
        head = self.model.head
        head = head.main if isinstance(head, Beside) else head
        ways = {LMHead: self.go_on, MLMHead: self.fill, Classifier: self.classify, TokenClassifier: self.tag}
        return next((way for kind, way in ways.items() if isinstance(head, kind)), self.embed_each)

    def go_on(self, texts: list[str], wish: Wish) -> list[Answer]:
        model = self.trunk()
        stop = self.stop(wish)
        prompts = self.tokenizer.encode_batch(texts)
        found = generate(model, prompts, wish.how, stop, bos=self.start())
        answers = [told(one, self.spoken(prompt, one, stop)) for prompt, one in zip(prompts, found, strict=True)]
        return [{**answer, "text": text + answer["output"]} for text, answer in zip(texts, answers, strict=True)]

    def spoken(self, prompt: list[int], found: Generated, stop: Stop) -> str:
        """The text that follows the prompt's: a word's first space belongs to it here, which it loses by itself."""
        out = self.tokenizer.stream(prompt)
        text = "".join([*(out.push(token) for token in found.body), out.end()])
        return text[: min((text.index(string) for string in stop.strings if string in text), default=None)]

    def pieces(self, text: str, wish: Wish) -> Iterator[str]:
        """The continuation of one text, piece by piece as it is written; a stop string is not held back."""
        if isinstance(wish.how, Beam):
            raise UserError("a beam cannot be written as it comes", do="sample, or take the likeliest token")
        prompt = self.tokenizer.encode(text)
        out, stop = self.tokenizer.stream(prompt), self.stop(wish)
        with torch.inference_mode():
            for [step] in stream(self.trunk(), [prompt], wish.how, stop, bos=self.start()):
                if step.token not in stop.tokens:
                    yield out.push(step.token)
        yield out.end()

    def write(self, texts: list[str], wish: Wish) -> list[Answer]:
        model = self.model
        assert isinstance(model, EncoderDecoder)
        memory, stop = remembered(model, self.tokenizer.encode_batch(texts)), self.stop(wish)
        begin = self.tokens.get("decoder_start_token_id")
        begin = self.start() if begin is None else begin
        if begin is None:
            raise UserError(
                "the model does not say with which token it begins to write", do="set decoder_start_token_id"
            )
        found = generate(model.decoder, [[begin]] * len(texts), wish.how, stop, memory=memory)
        return [told(one, stop.text(one.tokens)) for one in found]

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
        """A text's ids, its masks read as such also where a tokenizer takes every text literally."""
        if not self.tokenizer.literal:
            return self.tokenizer.encode(text)
        first, *others = self.tokenizer.plain_batch(text.split(self.tokenizer.token(mask)))
        return [*first, *(id for piece in others for id in (mask, *piece))]

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
        rows = self.tokenizer.encode_batch(texts)
        ids, keep = padded(rows, self.tokenizer.pad or 0)
        picks = self.model(ids, Context(keep=keep)).argmax(-1)  # B T
        return [
            {"output": [[self.tokenizer.token(i), self.label(k)] for i, k in zip(row, pick, strict=False)]}
            for row, pick in zip(rows, picks.tolist(), strict=True)
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

    def stop(self, wish: Wish) -> Stop:
        ends = self.tokens.get("eos_token_id", self.tokenizer.eos)
        ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
        words = self.tokenizer if self.writer is None else self.writer
        return Stop(most=wish.most, tokens=tuple(ends), strings=wish.stop, decode=words.decode)

    def word(self, id: int) -> str:
        return self.tokenizer.decode([id]) or self.tokenizer.token(id)

    def label(self, k: int) -> str:
        return self.labels[k] if k < len(self.labels) else str(k)

    def named(self, chances: Tensor) -> Answer:
        scores = {self.label(k): p for k, p in enumerate(chances.tolist())}
        return {"output": self.label(int(chances.argmax())), "probabilities": scores}


def told(found: Generated, text: str) -> Answer:
    tokens, logprobs = list(found.tokens), list(found.logprobs)
    return {"output": text, "tokens": tokens, "logprobs": logprobs, "reason": str(found.reason)}


def padded(rows: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Ids of different lengths as one B T, and the mask of what is real, B 1 T."""
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    ids = nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=pad)
    lengths = torch.tensor([len(row) for row in rows])
    return ids, (torch.arange(ids.shape[1]) < lengths[:, None])[:, None]
