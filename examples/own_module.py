"""Train your own nn.Module: headway brings the data, the loss, the loop, the checkpoints and the evaluation.

A task calls its model with the inputs and a Context.  Texts of one batch are packed into one row, without padding:
`context.rows.lengths` says how long each is.
"""

import random

import torch
from torch import Tensor, nn

import headway

CLASSES, VOCAB = 2, 200


class BagOfWords(nn.Module):
    """The mean of the word vectors, and a linear layer on it."""

    def __init__(self, vocab: int = VOCAB, dim: int = 32, classes: int = CLASSES) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(vocab, dim), nn.Linear(dim, classes)

    def forward(self, ids: Tensor, context: headway.Context | None = None) -> Tensor:
        rows = None if context is None else context.rows
        texts = ids if rows is None else ids.flatten().split(list(rows.lengths))
        return self.out(torch.stack([self.embed(text).mean(0) for text in texts]))  # B K


def records(count: int, seed: int) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(["red", "green", "blue", "black", "white", "grey"], k=4)) for _ in range(count)]
    return [(text, "red" if "red" in text.split() else "none") for text in texts]


def main() -> None:
    module = BagOfWords()
    model = headway.train(
        records(400, 0),
        task="text-classification",
        model=module,
        out="bag-of-words",
        quiet=True,
        **{"train.steps": 150, "train.lr": 0.02, "data.vocab": 100},
    )
    assert model.model is module  # which has the trained weights
    print(model.predict("blue red white white").to_text())
    print(model.evaluate(records(100, 1)).to_text())
    again = headway.load("bag-of-words", module=BagOfWords())  # the folder holds weights, never code
    assert again.predict("blue red white white") == model.predict("blue red white white")


if __name__ == "__main__":
    main()
