"""Teach one T5 several tasks in one training: a prefix in front of each source says what to do with it."""

import random
from pathlib import Path

import headway

WORDS = ["sea", "lamp", "river", "winter", "evening", "mountain", "clockwork", "strawberry"]
TASKS = {
    "sort": lambda words: " ".join(sorted(words)),
    "longest": lambda words: max(words, key=len),
    "count": lambda words: str(len(words)),
}


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Sources with their prefixes, as in "count: lamp road", and their targets; the tasks take turns."""
    draw, found = random.Random(seed), []
    for at in range(count):
        name, words = list(TASKS)[at % len(TASKS)], draw.sample(WORDS, k=draw.randint(2, 4))
        found.append((f"{name}: {' '.join(words)}", TASKS[name](words)))
    return found


def main() -> None:
    learned = pairs(3000, seed=0)
    Path("tasks.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in learned), encoding="utf-8")
    model = headway.train(
        "tasks.tsv",
        task="seq2seq",
        model="t5-tiny",
        out="tasks-model",
        quiet=True,
        dim=64,
        hidden=256,
        layers=2,
        head_dim=16,
        tokenizer="words",
        dropout=0.0,
        steps=400,
        batch=800,
        lr=3e-3,
        evaluate_every=400,
    )
    unseen = [pair for pair in pairs(1200, seed=1) if pair not in set(learned)]
    for name in TASKS:
        mine = [pair for pair in unseen if pair[0].startswith(f"{name}:")]
        exact = headway.evaluate(model, mine).scores.numbers["exact"]
        source = f"{name}: winter sea mountain"
        print(f"{source} → {model.predict(source).to_text():20}  {exact:6.1%} right of n = {len(mine)} unseen")
        assert exact > 0.9, name


if __name__ == "__main__":
    main()
