"""Translate English into Italian and into French: sentences of a little grammar, a small Transformer for each language.

Adjectives follow their nouns and agree with them, and Italian needs no pronoun: words change places and number.
"""

import random
from datetime import date, timedelta
from pathlib import Path

from babel.dates import format_date

import headway

# English, Italian, French
WHO = [("I", "", "je"), ("we", "", "nous"), ("they", "", "ils")]
VERBS = [  # for each of these
    ("see", ("vedo", "vediamo", "vedono"), ("vois", "voyons", "voient")),
    ("find", ("trovo", "troviamo", "trovano"), ("trouve", "trouvons", "trouvent")),
    ("paint", ("dipingo", "dipingiamo", "dipingono"), ("peins", "peignons", "peignent")),
]
NOUNS = [  # two that are masculine, two that are feminine
    ("sky", "il cielo", "le ciel"),
    ("book", "il libro", "le livre"),
    ("house", "la casa", "la maison"),
    ("moon", "la luna", "la lune"),
]
COLOURS = [  # masculine, feminine
    ("white", ("bianco", "bianca"), ("blanc", "blanche")),
    ("black", ("nero", "nera"), ("noir", "noire")),
    ("green", ("verde", "verde"), ("vert", "verte")),
]
LANGUAGES = {"italian": (1, "it", "il"), "french": (2, "fr", "le")}  # column, locale, the word before a date


def pairs(language: str, count: int, seed: int) -> dict[str, str]:
    """So many English sentences with their translations: "we see the green sky on 4 March 2021"."""
    column, locale, on = LANGUAGES[language]
    draw, found = random.Random(seed), {}
    while len(found) < count:
        who, noun = draw.randrange(len(WHO)), draw.randrange(len(NOUNS))
        verb, colour = draw.choice(VERBS), draw.choice(COLOURS)
        day = date(2020, 1, 1) + timedelta(days=draw.randrange(3652))
        english, theirs = (format_date(day, "d MMMM y", locale=one) for one in ("en", locale))
        words = (WHO[who][column], verb[column][who], NOUNS[noun][column], colour[column][noun // 2], on, theirs)
        found[f"{WHO[who][0]} {verb[0]} the {colour[0]} {NOUNS[noun][0]} on {english}"] = " ".join(filter(None, words))
    return found


def main() -> None:
    for language in LANGUAGES:
        learned = pairs(language, 2000, seed=0)
        unseen = [pair for pair in pairs(language, 500, seed=1).items() if pair[0] not in learned]
        file = Path(f"english-{language}.tsv")
        file.write_text("".join(f"{a}\t{b}\n" for a, b in learned.items()), encoding="utf-8")
        model = headway.train(
            file,
            task="translation",
            model="transformer-nano",
            out=f"english-{language}-model",
            quiet=True,
            **{"data.tokenizer": "words", "train.steps": 150, "train.evaluate_every": 150, "train.dropout": 0.0},
        )
        print(model.predict("we see the white moon on 14 July 2025").to_text())
        found = headway.evaluate(model, unseen)
        exact = found.scores.numbers["exact"]
        print(f"English to {language}: {exact:.1%} of n = {len(unseen)} sentences that it has not seen, word for word")
        assert exact > 0.9


if __name__ == "__main__":
    main()
