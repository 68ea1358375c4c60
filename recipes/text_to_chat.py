"""From a text to a chat model: pretraining, instructions, preferences.

A small GPT reads sentences that name a day in words and in digits.  Conversations teach it to answer when it is asked
for a date, in a short form or in a long one.  Preferences then make the short one the likelier.

Run it in an empty folder: it writes three models there, which `headway chat` and `headway look` take.
"""

import json
import random
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from pathlib import Path

from babel.dates import format_date

import headway

FORMS = ("d MMMM y", "MMMM d, y")


def days(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Days, each as people write it and as year, month and day: "March 4, 2021", "2021-03-04"."""
    draw = random.Random(seed)
    for _ in range(count):
        day = date(1950, 1, 1) + timedelta(days=draw.randrange(36500))
        yield format_date(day, draw.choice(FORMS), locale="en"), day.isoformat()


def question(day: str) -> str:
    return f"Which date is {day}?"


def answers(digits: str) -> tuple[str, str]:
    """A short answer and a long one."""
    return digits, f"That is the day {digits}."


def lines(file: str, records: Iterable[dict[str, object]]) -> str:
    Path(file).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


def main() -> None:
    draw = random.Random(1)
    text = "".join(f"{words} {draw.choice(answers(digits))}\n" for words, digits in days(20000, seed=1))
    Path("days.txt").write_text(text, encoding="utf-8")
    headway.train(
        "days.txt", model="gpt-nano", out="text-model", quiet=True, steps=2000, **{"data.tokenizer": "characters"}
    )

    asked = ({"prompt": question(words), "completion": draw.choice(answers(digits))} for words, digits in days(2000, 2))
    chats = lines("chats.jsonl", asked)
    chat = headway.train(chats, model="text-model", out="chat-model", quiet=True, steps=600)

    pairs = (
        {"prompt": question(words), "chosen": short, "rejected": long}
        for words, digits in days(300, 3)
        for short, long in [answers(digits)]
    )
    preferred = lines("preferred.jsonl", pairs)
    final = headway.train(preferred, model="chat-model", out="final-model", quiet=True, steps=60)

    known = {words for seed, count in ((1, 20000), (2, 2000), (3, 300)) for words, _ in days(count, seed)}
    unseen = {words: digits for words, digits in days(300, seed=4) if words not in known}
    for name, model in (("instructions", chat), ("preferences", final)):
        written = [answer.to_text() for answer in model.predict([question(words) for words in unseen])]
        right = sum(digits in one for one, digits in zip(written, unseen.values(), strict=True))
        short = sum(one == answers(digits)[0] for one, digits in zip(written, unseen.values(), strict=True))
        print(f"after {name}: {right} of {len(unseen)} unseen days are right, {short} of them in the short form")


if __name__ == "__main__":
    main()
