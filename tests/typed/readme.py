"""README's first lines of Python; `make check` checks their types strictly."""

from __future__ import annotations

import headway


def main() -> None:
    model = headway.train("pairs.tsv", task="translation", steps=100)  # every setting of the command; or minutes=20
    print(model.predict("a small dog").to_text())
    print(model.evaluate("test.tsv").to_text())
    model.attend("a small dog").save("page.html")  # in a notebook, model.attend("…") shows the page
    print(headway.inspect.heads(model, "a small dog").to_text())
