"""Look inside a model: each result has to_text, to_dict and to_figure, and shows itself in a notebook."""

import random
from pathlib import Path

import headway

LETTERS = "abcdefgh"


def copies(count: int) -> list[tuple[str, str]]:
    draw = random.Random(0)
    texts = [" ".join(draw.choices(LETTERS, k=draw.randint(3, 6))) for _ in range(count)]
    return [(text, text) for text in texts]


def main() -> None:
    model = headway.train(
        copies(500), task="seq2seq", model="transformer-nano", layers=1, steps=80, out="copier", quiet=True
    )
    recording = model.attend("a b c d")  # in a notebook: the page of `headway look`
    print(recording.outcome.text, list(recording.sites))

    heads = headway.inspect.heads(model, "a b c d")
    print(heads.to_text())
    print(sorted(heads.to_dict()))

    Path("copies.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in copies(40)), encoding="utf-8")
    importance = headway.inspect.importance(model, "copies.tsv", task="translation")
    print(importance.to_text())
    importance.to_figure().savefig("importance.png")


if __name__ == "__main__":
    main()
