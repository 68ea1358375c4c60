"""What stands on causal decoders in Hugging Face's layout: words, classes of whole texts, or nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from headway.interop.config_reader import Options
from headway.interop.encoders import classes, labels
from headway.interop.keymap import Rule
from headway.zoo import bloom, gemma, gpt2, gpt_neox, llama, olmo, olmo2

C = TypeVar("C", gpt2.Config, llama.Config, gemma.Config, olmo.Config, olmo2.Config, gpt_neox.Config, bloom.Config)
OUTPUT, SCORE = "lm_head.weight", "score.weight"
HEAD = (Rule(OUTPUT, "head.weight", outside=True), Rule(SCORE, "head.out.weight", outside=True))


def read_top(o: Options, name: str, words: str, *, tied: bool) -> dict[str, Any]:
    """The top that `architectures` tells; `name` is how the classes begin, `words` that of the language model.

    A bare decoder whose output is its table of words is a language model.  Other names than transformers' own are
    those of language models.
    """
    bare, rows = f"{name}Model", f"{name}ForSequenceClassification"
    given = next(iter(o.take("architectures", list[str]())), words)
    if given in (f"{name}ForTokenClassification", f"{name}ForQuestionAnswering", f"{name}DoubleHeadsModel"):
        o.architecture(words, bare, rows)
    top = {bare: "words" if tied else "none", rows: "rows"}.get(given, "words")
    return {"top": top, "classes": classes(o)} if top == "rows" else {"top": top}


class Topped(Protocol):
    """The config of a decoder that has one of several tops."""

    @property
    def top(self) -> str: ...
    @property
    def classes(self) -> int: ...


def write_top(c: Topped, model_type: str, name: str, words: str) -> dict[str, Any]:
    names = {"words": words, "none": f"{name}Model", "rows": f"{name}ForSequenceClassification"}
    return {"model_type": model_type, "architectures": [names[c.top]], **labels(c.top, c.classes)}


def settle(c: C, names: Collection[str]) -> C:
    """A file of a bare decoder may hold its output."""
    return replace(c, top="words") if c.top == "none" and OUTPUT in names else c


def prefixes(prefix: str, top: str) -> tuple[str, ...]:
    """What may stand before the names of a decoder: nothing, where it is written bare."""
    return ("", prefix) if top == "none" else (prefix, "")
