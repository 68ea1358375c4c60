"""Train a model on a file with one call, then use it, evaluate it, and train the same by hand."""

import random
from pathlib import Path

import torch

import headway

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def pairs(count: int) -> list[tuple[str, str]]:
    """Sequences of words, and the same in reverse."""
    draw = random.Random(0)
    texts = [draw.choices(WORDS, k=draw.randint(2, 4)) for _ in range(count)]
    return [(" ".join(words), " ".join(reversed(words))) for words in texts]


class Losses:
    """A callback has any of the methods on_step, on_log, on_evaluate, on_save and on_message."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_step(self, result, seconds: float) -> None:
        self.values.append(result.loss / result.targets)


def main() -> None:
    Path("pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs(500)), encoding="utf-8")
    losses = Losses()
    settings = {"task": "translation", "model": "transformer-nano", "layers": 1}
    model = headway.train("pairs.tsv", **settings, steps=60, out="reverser", callbacks=[losses], quiet=True)
    print(f"loss {losses.values[0]:.2f} → {losses.values[-1]:.2f}")
    print(model.predict("one two three", beam=4).to_text())
    print(model.evaluate("pairs.tsv", task="translation").to_text())
    print(headway.load("reverser").predict(["one two", "six ten"], max_new_tokens=4))

    # the same by hand: records → rows → batches → loss → step
    batches = headway.batches("pairs.tsv", **settings, steps=20)
    module = batches.model.model
    optimiser = torch.optim.AdamW(module.parameters(), lr=3e-3)
    for batch in batches:
        optimiser.zero_grad()
        loss = batches.task.loss(module, batch) / batch.targets
        loss.backward()
        optimiser.step()
    print(f"by hand, {len(batches)} steps: loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
