"""Static against contextual embeddings: what does "it" mean?

"The dog did not cross the street because it was too tired" or "too wide": one word decides what "it" stands for. A
table of word vectors gives "it" one vector for all sentences. An encoder gives it another one in each. We train a
small encoder to name the noun that "it" stands for, and compare its vectors of "it" layer by layer.

Axes:  B batch   T words   C width
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import CurveChart, HeatMap, Plot
from headway.learn.experiment import curve, fit
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.learn.lesson_models import block, language_model
from headway.nn.attention import SelfAttention
from headway.nn.block import Stack
from headway.nn.embed import SinusoidalPosition
from headway.nn.trace import record
from headway.nn.trunk import Trunk
from headway.ops.attention_map import Readable

FAST = {"training_steps": 2, "dim": 8}
ANIMALS, PLACES = ("dog", "cat", "hen", "fox"), ("street", "road", "river", "field")
OF_ANIMALS, OF_PLACES = ("tired", "hungry", "scared", "old"), ("wide", "busy", "long", "deep")
FRAME = "the {} did not cross the {} because it was too {}"
WORDS = sorted({*FRAME.replace("{} ", "").replace(" {}", "").split(), *ANIMALS, *PLACES, *OF_ANIMALS, *OF_PLACES})
IT = FRAME.split().index("it")


def ids(sentence: str) -> list[int]:
    return [WORDS.index(word) for word in sentence.split()]


def sentences(batch: int) -> tuple[Tensor, Tensor]:
    """Sentences, B T, and the noun that "it" stands for, B."""
    rows, nouns = list[list[int]](), list[int]()
    for animal, place, kind, which in torch.randint(4, (batch, 4)).tolist():
        of_animal = which < 2
        noun = ANIMALS[animal] if of_animal else PLACES[place]
        rows.append(ids(FRAME.format(ANIMALS[animal], PLACES[place], (OF_ANIMALS if of_animal else OF_PLACES)[kind])))
        nouns.append(WORDS.index(noun))
    return torch.tensor(rows), torch.tensor(nouns)


def layers_at_it(model: Trunk, sentence: str) -> list[Tensor]:
    """The vector of "it" after the embedding and after each layer."""
    assert isinstance(model.stack, Stack)
    x = model.embed(torch.tensor([ids(sentence)]))
    found = [x[0, IT]]
    for layer in model.stack.blocks:
        x = layer(x)
        found.append(x[0, IT])
    return found


def steps(training_steps: int = 300, dim: int = 32, layers: int = 3) -> Iterator[ExplanationStep]:
    blocks = [block(SelfAttention(dim, 2), dim) for _ in range(layers)]
    model = language_model(len(WORDS), dim, blocks, SinusoidalPosition(dim))
    static = nn.Sequential(nn.Embedding(len(WORDS), dim), nn.Linear(dim, len(WORDS)))

    def loss(answer: nn.Module) -> Tensor:
        rows, nouns = sentences(64)
        return F.cross_entropy(answer(rows)[:, IT], nouns)

    for one in (model, static):
        fit(one, lambda one=one: loss(one), training_steps)
    rows, nouns = sentences(512)
    with torch.no_grad():
        right = {
            name: float((one(rows)[:, IT].argmax(-1) == nouns).float().mean())
            for name, one in (("static", static), ("contextual", model))
        }
    yield ExplanationStep(
        'Which noun does "it" stand for?',
        [
            f"{len(ANIMALS)} animals, {len(PLACES)} places, 8 adjectives; {training_steps} steps; 512 new draws. The "
            'model reads the word vector of "it" alone, the contextual one the vector that the encoder makes of it.',
        ],
        [ValueTable("right noun", ["embedding of it", "share"], list(right.items()), ".3f")],
        question=Question("Which embedding finds the noun?", max(right, key=lambda name: right[name]), tuple(right)),
    )
    pair = [FRAME.format("dog", "street", adjective) for adjective in ("tired", "wide")]
    with torch.no_grad():
        vectors = [layers_at_it(model, sentence) for sentence in pair]
        cosines = [float(F.cosine_similarity(a, b, 0)) for a, b in zip(*vectors, strict=True)]
        said = [WORDS[int(model(torch.tensor([ids(sentence)]))[0, IT].argmax())] for sentence in pair]
    names = ["embedding", *(f"layer {at + 1}" for at in range(layers))]
    yield ExplanationStep(
        'The vector of "it" in two sentences, layer by layer.',
        [f'{pair[0]} / {pair[1]}: the cosine of the two vectors of "it". The word and its place are the same.'],
        [
            ValueTable("cosine of it and it", ["after", "cosine"], list(zip(names, cosines, strict=True)), ".6f"),
            ValueTable("the model's noun", ["sentence ends in", "it is the"], [["tired", said[0]], ["wide", said[1]]]),
        ],
        figure=Plot(
            "cosine of the vectors of it in two sentences",
            [CurveChart("", [curve("it, tired and it, wide", range(layers + 1), cosines)], "layer (0: embedding)")],
        ),
        question=Question("What is the cosine of the two vectors after the embedding?", cosines[0]),
    )
    with torch.no_grad(), record(model, "*.weights") as trace:
        model(torch.tensor([ids(sentence) for sentence in pair]))
    sites = list(trace.values)
    maps = [seen for site in sites if isinstance(seen := trace[site], Readable)]
    looks = torch.stack([seen.full()[:, :, IT].mean(1) for seen in maps]).detach()  # L 2 T
    words = [*pair[0].split()[:-1], "tired/wide"]
    told = looks[:, :, -1].max(0).values
    yield ExplanationStep(
        'What "it" looks at.',
        ['Weights of the row of "it", mean of the heads; rows are layers, for each sentence. Look at the last word.'],
        [
            ValueTable(
                "largest weight on the adjective",
                ["sentence ends in", "weight"],
                [["tired", float(told[0])], ["wide", float(told[1])]],
                ".3f",
            )
        ],
        figure=Plot(
            "attention of it",
            [
                HeatMap(
                    f"too {word}",
                    looks[:, at].tolist(),
                    [f"layer {n + 1}" for n in range(layers)],
                    words,
                    limits=(0.0, 1.0),
                )
                for at, word in enumerate(("tired", "wide"))
            ],
        ),
        question=Question(
            'In the sentence that ends in "wide", which noun does the model name?',
            said[1] if said[1] in ("dog", "street") else "neither",
            ("dog", "street", "neither"),
        ),
        conclusion=f'Cosine {cosines[0]:.4f} after the embedding, {cosines[-1]:.4f} after layer {layers}; "it" is the '
        f"{said[0]} that is tired and the {said[1]} that is wide.",
    )
