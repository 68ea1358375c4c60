"""`headway run` and `headway generate`: a model folder and a text, and what the model makes of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from headway.errors import UserError

if TYPE_CHECKING:
    from headway.answer import Answer, Speaker, Wish

LINES = 32  # texts at a time


def run(
    folder: Path,
    texts: Sequence[str],
    wish: Wish,
    *,
    lines: bool,
    embed: bool,
    json: bool,
    heads: int | None = None,
    unsafe: bool,
) -> Iterator[str]:
    """The answers to texts, or to the lines of standard input, each as a line or more to print."""
    from headway.checkpoint import load

    if lines == bool(texts):
        raise UserError(
            "headway run needs a text", do='give it as in headway run MODEL "text", or --lines to read them'
        )
    speaker = load(folder, heads=heads, unsafe=unsafe).speaker()
    for batch in batched(line.rstrip("\n") for line in sys.stdin) if lines else [list(texts)]:
        for answer in embedded(speaker, batch) if embed else speaker.answer(batch, wish):
            yield dumps(answer, ensure_ascii=False) if json else shown(answer)


def generate(folder: Path, prompt: str, wish: Wish, out: TextIO, *, heads: int | None = None, unsafe: bool) -> None:
    """The prompt and its continuation, written as it comes."""
    from headway.checkpoint import load

    speaker = load(folder, heads=heads, unsafe=unsafe).speaker()
    if speaker.way() != speaker.go_on:
        raise UserError(f"the model in {folder} does not continue a text", do=f'try headway run {folder} "{prompt}"')
    out.write(prompt)
    for piece in speaker.pieces(prompt, wish):
        out.write(piece)
        out.flush()
    out.write("\n")


def embedded(speaker: Speaker, texts: list[str]) -> list[Answer]:
    return [{"input": text, "output": row.tolist()} for text, row in zip(texts, speaker.embed(texts), strict=True)]


def shown(answer: Answer) -> str:
    """An answer for people: continuations follow their prompt, fillings name their rivals."""
    output: Any = answer["output"]
    if "masks" in answer:
        rivals = [", ".join(f"{one['token']} {one['probability']:.3f}" for one in mask) for mask in answer["masks"]]
        return "\n".join([output, *(f"  {line}" for line in rivals)])
    if "probabilities" in answer:
        return "  ".join([output, *(f"{label} {p:.3f}" for label, p in answer["probabilities"].items())])
    if isinstance(output, str):
        return answer.get("text", output)
    if output and isinstance(output[0], list):
        return " ".join(f"{token}/{label}" for token, label in output)
    return " ".join(f"{x:.5f}" for x in output)


def batched(lines: Iterable[str]) -> Iterator[list[str]]:
    texts = iter(lines)
    while batch := list(islice(texts, LINES)):
        yield batch
