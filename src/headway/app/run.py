"""`headway run` and `headway generate`: a model folder and a text, and what the model makes of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from headway.data.batched import batched
from headway.errors import UserError

if TYPE_CHECKING:
    from headway.answer import Answer, Speaker, Wish
    from headway.observer import Listener, Observer

LINES = 32  # texts at a time
CLASSES = 5  # that are told to people


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
    draft: Path | None = None,
) -> Iterator[str]:
    """The answers to texts, or to the lines of standard input, each as a line or more to print."""
    from headway.checkpoint import load

    if lines == bool(texts):
        raise UserError(
            "headway run needs something to answer",
            do='give a text or a file, as in headway run MODEL "text", or --lines to read them',
        )
    speaker = load(folder, heads=heads, unsafe=unsafe).answerer()
    wish = drafted(speaker, wish, draft, unsafe=unsafe)
    for batch in batched((line.rstrip("\n") for line in sys.stdin), LINES) if lines else [list(texts)]:
        for answer in embedded(speaker, batch) if embed else speaker.answer(batch, wish):
            yield dumps(answer, ensure_ascii=False) if json else shown(answer)


def generate(
    folder: Path,
    text: str,
    wish: Wish,
    out: TextIO,
    *,
    heads: int | None = None,
    unsafe: bool,
    draft: Path | None = None,
) -> None:
    """What the model writes, as it comes: behind the text where it continues, by itself where it answers."""
    from headway.answer import Speaker
    from headway.checkpoint import load
    from headway.generate.beam import Beam

    speaker = load(folder, heads=heads, unsafe=unsafe).answerer()
    if not isinstance(speaker, Speaker) or speaker.way() not in (speaker.go_on, speaker.write):
        raise UserError(f"the model in {folder} does not write from texts", do=f'try headway run {folder} "{text}"')
    wish = drafted(speaker, wish, draft, unsafe=unsafe)
    if isinstance(wish.how, Beam):  # which words are the best is known in the end
        out.write(shown(speaker.answer([text], wish)[0]) + "\n")
        return
    out.write(text if speaker.way() == speaker.go_on else "")
    for piece in speaker.pieces(text, wish):
        out.write(piece)
        out.flush()
    out.write("\n")


def drafted(speaker: Speaker | Observer | Listener, wish: Wish, draft: Path | None, *, unsafe: bool) -> Wish:
    """The wish with the draft model in a folder, which must have the same words."""
    from headway.answer import Speaker
    from headway.checkpoint import load

    if draft is None:
        return wish
    if not isinstance(speaker, Speaker):
        raise UserError("a draft model guesses texts, and this model reads none", do="leave --draft out")
    smaller = load(draft, unsafe=unsafe)
    words, writer = smaller.tokenizer, smaller.writer
    for theirs, ours in ((words, speaker.tokenizer), (writer or words, speaker.words)):
        if theirs is not None and theirs.backend.get_vocab() != ours.backend.get_vocab():
            raise UserError(f"the draft model in {draft} has other tokens", do="take one with the same tokenizer")
    return replace(wish, draft=smaller.model)


def rounded(number: float) -> str:
    """As many digits as a number has that is kept in four bytes."""
    return f"{number:.6g}"


def embedded(speaker: Speaker | Observer | Listener, texts: list[str]) -> list[Answer]:
    return [{"input": text, "output": row.tolist()} for text, row in zip(texts, speaker.embed(texts), strict=True)]


def shown(answer: Answer) -> str:
    """An answer for people: continuations follow their prompt, fillings name their rivals, several have scores."""
    output: Any = answer["output"]
    if "masks" in answer:
        rivals = [", ".join(f"{one['token']} {one['probability']:.3f}" for one in mask) for mask in answer["masks"]]
        return "\n".join([output, *(f"  {line}" for line in rivals)])
    if "probabilities" in answer:
        likely = islice(answer["probabilities"].items(), CLASSES)
        return "  ".join([output, *(f"{label} {p:.3f}" for label, p in likely)])
    if "best" in answer:
        begun = answer["text"][: -len(output) or None] if "text" in answer else ""
        return "\n".join(f"{one['score']:8.3f}  {begun}{one['output']}" for one in answer["best"])
    if "columns" in answer:
        return "\n".join(",".join(map(str, row)) for row in [answer["columns"], *(map(rounded, row) for row in output)])
    if isinstance(output, str):
        return answer.get("text", output)
    if output and isinstance(output[0], list):
        return " ".join(f"{token}/{label}" for token, label in output)
    return " ".join(f"{x:.5f}" for x in output)
