"""Train on records of your own: anything that yields tuples of texts."""

import random
from collections.abc import Iterator

import headway

GOOD, BAD = ("good", "fine", "lovely", "bright"), ("bad", "dull", "poor", "grey")
THINGS = ("film", "book", "day", "song", "meal")


class Reviews:
    """A data set: a database, an API or a generator may stand behind it."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed

    def __iter__(self) -> Iterator[tuple[str, str]]:
        draw = random.Random(self.seed)
        for _ in range(self.count):
            label, words = draw.choice([("up", GOOD), ("down", BAD)])
            yield f"a {draw.choice(words)} {draw.choice(THINGS)} and a {draw.choice(words)} one", label


def main() -> None:
    model = headway.train(
        Reviews(400, seed=0),
        task="text-classification",
        model="bert-tiny",
        out="reviews-model",
        quiet=True,
        **{"train.steps": 40, "train.lr": 1e-3, "data.vocab": 100, "model.layers": 1},
    )
    print(model.predict("a lovely song and a bright one").to_text())
    found = headway.evaluate(model, Reviews(100, seed=1))
    print(found.to_text())
    assert found.scores.numbers["accuracy"] > 0.9


if __name__ == "__main__":
    main()
