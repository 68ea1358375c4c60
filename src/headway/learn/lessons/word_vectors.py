"""Word vectors from neighbours, then from both directions.

Which words stand beside a word says much about it. A skip-gram model (word2vec) has one vector for each word, trained
to name the words around it: words of one kind end up side by side. It has one vector for "bank" too, be it a river's or
a state's. Two recurrent language models over the same words, one that reads forward and one that reads backward (ELMo),
give "bank" another vector in each sentence. A small classifier then reads a learned mixture of their layers.

Axes:  B batch   T words   C width   L layers, the embedding first
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import Plot
from headway.learn.experiment import best, fit, loss_chart
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.nn.block import Identity, IgnoreContext
from headway.nn.embed import TokenEmbed
from headway.nn.head import LMHead
from headway.nn.recurrent import LSTMCell, RecurrentEncoder
from headway.nn.trunk import Trunk
from headway.ops.attend import softmax_over

FAST = {"training_steps": 2, "dim": 8, "drawn": 64}
CLASSES = {
    "animals": ("dog", "cat", "hen", "fox"),
    "what animals do": ("swam", "slept", "drank", "hid"),
    "wet": ("muddy", "deep", "cold", "clear"),
    "waters": ("rivers", "lakes", "streams", "ponds"),
    "people": ("clerk", "lawyer", "baker", "nurse"),
    "what people do": ("paid", "signed", "asked", "worked"),
    "rich": ("rich", "modern", "proud", "busy"),
    "communities": ("states", "cities", "towns", "counties"),
}
SENSES = (tuple(CLASSES)[:4], tuple(CLASSES)[4:])
FRAME = "the {} {} at the bank of {} {}"
NEUTRAL = ("visitor", "was", "other", "places")
WORDS = sorted({*FRAME.replace(" {}", "").split(), *NEUTRAL, *(word for some in CLASSES.values() for word in some)})
KINDS = {word: name for name, some in CLASSES.items() for word in some}
BANK = FRAME.split().index("bank")
WINDOW = 2  # neighbours on either side


def ids(sentence: str) -> list[int]:
    return [WORDS.index(word) for word in sentence.split()]


def sentences(batch: int, sides: Sequence[str] = ("before", "behind", "both", "both")) -> tuple[Tensor, Tensor]:
    """Sentences, B T, and which bank they are about, B; on which side of "bank" words tell it is drawn."""
    rows, senses = list[list[int]](), list[int]()
    for sense, *picks in torch.cat([torch.randint(2, (batch, 1)), torch.randint(4, (batch, 4))], 1).tolist():
        side = sides[int(torch.randint(len(sides), ()))]
        words = [CLASSES[kind][pick] for kind, pick in zip(SENSES[sense], picks, strict=True)]
        before = NEUTRAL[:2] if side == "behind" else words[:2]
        behind = NEUTRAL[2:] if side == "before" else words[2:]
        rows.append(ids(FRAME.format(*before, *behind)))
        senses.append(sense)
    return torch.tensor(rows), torch.tensor(senses)


def skip_gram_loss(model: Trunk, rows: Tensor) -> Tensor:
    """Each word names those up to WINDOW places before and behind it."""
    pairs = [(rows[:, :-far], rows[:, far:]) for far in range(1, WINDOW + 1)]
    words = torch.cat([a.flatten() for pair in pairs for a in pair])
    neighbours = torch.cat([b.flatten() for pair in pairs for b in reversed(pair)])
    return F.cross_entropy(model(words[None])[0], neighbours)


def nearest(vectors: Tensor) -> dict[str, str]:
    """The word of the largest cosine for each word that has a kind, among those."""
    known = list(KINDS)
    unit = F.normalize(vectors[[WORDS.index(word) for word in known]], dim=-1)
    cosines = (unit @ unit.T).fill_diagonal_(-1.0)
    return {word: known[int(at)] for word, at in zip(known, cosines.argmax(1), strict=True)}


class BidirectionalLM(nn.Module):
    """A language model in each direction, with one table of words and one output layer for both."""

    def __init__(self, vocab: int, dim: int, layers: int):
        super().__init__()
        self.embed, self.head = TokenEmbed(vocab, dim), LMHead(dim, vocab)
        self.forwards = nn.ModuleList(RecurrentEncoder(dim, dim, cell=LSTMCell) for _ in range(layers))
        self.backwards = nn.ModuleList(RecurrentEncoder(dim, dim, cell=LSTMCell) for _ in range(layers))

    def layers(self, rows: Tensor) -> Tensor:
        """[→h ; ←h] after the embedding, which is in both halves, and after each layer: B T → L B T 2C"""
        ahead = back = self.embed(rows)
        found = [torch.cat([ahead, back], -1)]
        for one, other in zip(self.forwards, self.backwards, strict=True):
            ahead, back = one(ahead), other(back.flip(1)).flip(1)
            found.append(torch.cat([ahead, back], -1))
        return torch.stack(found)

    def loss(self, rows: Tensor) -> Tensor:
        """The forward model names the next word, the backward model the one before."""
        ahead, back = self.layers(rows)[-1].chunk(2, -1)
        forward = F.cross_entropy(self.head(ahead[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        backward = F.cross_entropy(self.head(back[:, 1:]).flatten(0, 1), rows[:, :-1].flatten())
        return (forward + backward) / 2


class Mixture(nn.Module):
    """classes(γ Σ softmax(s)_l x_l): a classifier of a mixture of layers, L B C → B K."""

    def __init__(self, layers: int, width: int, classes: int = 2):
        super().__init__()
        self.weights, self.scale = nn.Parameter(torch.zeros(layers)), nn.Parameter(torch.ones(()))
        self.out = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.scale * torch.einsum("l,lbc->bc", softmax_over(self.weights, None), x))


def steps(training_steps: int = 400, dim: int = 24, layers: int = 2, drawn: int = 512) -> Iterator[ExplanationStep]:
    skip_gram = Trunk(TokenEmbed(len(WORDS), dim), IgnoreContext(Identity()), LMHead(dim, len(WORDS)))
    assert isinstance(skip_gram.embed, TokenEmbed)
    table = skip_gram.embed.token.weight

    def alike() -> float:
        found = nearest(table.detach())
        return sum(KINDS[word] == KINDS[other] for word, other in found.items()) / len(found)

    before = alike()
    first = fit(skip_gram, lambda: skip_gram_loss(skip_gram, sentences(64)[0]), training_steps, lr=1e-2)
    after, found = alike(), nearest(table.detach())
    shown = [(some[0], KINDS[some[0]], found[some[0]], KINDS[found[some[0]]]) for some in CLASSES.values()]
    yield ExplanationStep(
        "Skip-gram: a word names its neighbours.",
        [
            f"{training_steps} steps on sentences of {len(FRAME.split())} words, up to {WINDOW} neighbours on either "
            f"side. Of {len(KINDS)} words of {len(CLASSES)} kinds, for how many is the nearest one of the same kind?",
        ],
        [
            ValueTable("nearest words", ["word", "kind", "nearest", "its kind"], shown),
            ValueTable("nearest of the same kind", ["", "share"], [["before", before], ["trained", after]], ".3f"),
        ],
        question=Question('Of which kind is the word nearest to "dog"?', KINDS[found["dog"]], tuple(CLASSES)),
    )
    model = BidirectionalLM(len(WORDS), dim, layers)
    second = fit(model, lambda: model.loss(sentences(64)[0]), training_steps, lr=1e-2)
    pair = [FRAME.format("visitor", "was", *end) for end in (("muddy", "rivers"), ("rich", "states"))]
    with torch.no_grad():
        one, other = model.layers(torch.tensor([ids(sentence) for sentence in pair]))[:, :, BANK].unbind(1)  # L 2C
    halves = zip(("forward", "backward"), one.chunk(2, -1), other.chunk(2, -1), strict=True)
    apart = {name: (a - b).norm(dim=-1) / a.norm(dim=-1) for name, a, b in halves}  # L each
    layer_names = ["embedding", *(f"layer {at + 1}" for at in range(layers))]
    yield ExplanationStep(
        'Two language models: the vector of "bank" in two sentences.',
        [
            f"{pair[0]} / {pair[1]}. A language model of {layers} LSTM layers names the next word, another one the "
            "word before. The sentences differ behind the word only. The embedding, as skip-gram, has one vector.",
        ],
        [
            ValueTable(
                "distance of bank and bank, in lengths of the vector",
                ["after", *apart],
                list(zip(layer_names, *(one.tolist() for one in apart.values()), strict=True)),
                ".4f",
            )
        ],
        figure=Plot("training losses", [loss_chart("", {"skip-gram": first, "both directions": second})]),
        question=Question(
            "Which model gives the two banks different vectors?",
            best({name: float(one.max()) for name, one in apart.items()}),
            tuple(apart),
        ),
    )

    def vectors(rows: Tensor) -> dict[str, Tensor]:
        """The vectors of "bank", L B C each."""
        with torch.no_grad():
            both = model.layers(rows)[:, :, BANK]
            ahead, back = both.chunk(2, -1)
            return {"skip-gram": skip_gram.embed(rows)[None, :, BANK], "forward": ahead, "backward": back, "both": both}

    train, test = (sentences(drawn, ("before", "behind")) for _ in range(2))
    seen, held = vectors(train[0]), vectors(test[0])
    scores, shares = dict[str, float](), list[float]()
    for name, x in seen.items():
        probe = Mixture(len(x), x.shape[-1])
        fit(probe, lambda probe=probe, x=x: F.cross_entropy(probe(x), train[1]), training_steps, lr=1e-2)
        with torch.no_grad():
            scores[name] = float((probe(held[name]).argmax(-1) == test[1]).float().mean())
        shares = softmax_over(probe.weights.detach(), None).tolist()
    yield ExplanationStep(
        "Which bank is it? A classifier of a mixture of layers.",
        [
            f"Trained on {drawn} sentences, asked about {drawn} others. In half of them only what is before the word "
            "tells its sense, in the other half only what is behind it. The language models stay as they are.",
        ],
        [
            ValueTable("right sense", ["vectors of bank", "share"], list(scores.items()), ".3f"),
            ValueTable("mixture of both", ["layer", "weight"], list(zip(layer_names, shares, strict=True)), ".3f"),
        ],
        question=Question("Which vectors tell the sense most often?", best(scores), tuple(scores)),
        conclusion=f"One vector for all sentences: {scores['skip-gram']:.3f}; forward {scores['forward']:.3f}, "
        f"backward {scores['backward']:.3f}, both {scores['both']:.3f} of {drawn} sentences.",
    )
