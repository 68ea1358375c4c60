"""`headway explain`: topics worked through, as text, JSON, a page, LaTeX or a quiz."""

from __future__ import annotations

import sys
from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from headway.console import WIDTH
from headway.errors import UserError
from headway.learn.topic_inputs import TopicInputs

INPUTS = Group("Inputs of your own (each topic takes some of them)", sort_key=10)
Inputs = Annotated[TopicInputs, Parameter(name="*", group=INPUTS, allow_leading_hyphen=True)]
NO_INPUTS = TopicInputs()


def explain(
    topic: str | None = None,
    /,
    *presets: str,
    inputs: Inputs = NO_INPUTS,
    quiz: bool = False,
    json: bool = False,
    html: Path | None = None,
    latex: bool = False,
    source: bool = False,
) -> None:
    """Work through a formula or an architecture step by step, with its numbers; without a topic, list the topics.

    headway explain attention
    headway explain attention --x "0 1 1; 1 0 1" --heads 3 --unscaled
    headway explain memory --n 100000 --heads 64 --bits 16
    headway explain diff bert gpt2

    Parameters
    ----------
    topic
        The topic: attention, scaling, positions, equivariance, heads, norms, ffn, moe, gru, memory, shapes, block or
        diff.
    presets
        The presets that shapes, block and diff are about.
    quiz
        Ask before steps are shown, and print a score; answers are lines of standard input.
    json
        Print the numbers as JSON, and nothing else.
    html
        Write a page: one self-contained file.
    latex
        Print a LaTeX document.
    source
        Print where the code of the topic is, as file:line.
    """
    forms = {"quiz": quiz, "json": json, "html": html is not None, "latex": latex}
    if sum(forms.values()) > 1:
        raise UserError(" and ".join(f"{name}=" for name, on in forms.items() if on) + " exclude each other")
    if topic is None:
        print_topics(json)
    elif source:
        print_sources(topic, json)
    else:
        print_explanation(topic, presets, inputs, quiz=quiz, json=json, html=html, latex=latex)


def print_topics(json: bool) -> None:
    from textwrap import fill

    from headway.learn.explain import list_topics

    topics = list_topics()
    if json:
        print(dumps(topics, indent=1, ensure_ascii=False))
        return
    wide = max(map(len, topics)) + 2
    for name, sentence in topics.items():
        print(fill(f"{name:{wide}}{sentence}", WIDTH, subsequent_indent=" " * wide))
    print("\nheadway explain TOPIC works through one; --quiz asks before it shows.")


def print_sources(topic: str, json: bool) -> None:
    from headway.learn.explain import sources

    found = sources(topic)
    if json:
        print(dumps([vars(one) for one in found], indent=1))
    else:
        print(*(f"{one.place}  {one.name}" for one in found), sep="\n")


def print_explanation(
    topic: str, presets: tuple[str, ...], inputs: TopicInputs, *, quiz: bool, json: bool, html: Path | None, latex: bool
) -> None:
    from headway.learn import explain as topics
    from headway.learn import rendering

    if html is not None and not html.parent.is_dir():
        raise UserError(f"the folder {html.parent} does not exist", do="make it, or name another file in html=")
    if html is not None and html.is_dir():
        raise UserError(f"{html} is a folder", do="give html= the name of a file, as in page.html")
    found = topics.explain(topic, *presets, **inputs.given())
    if json:
        print(dumps(found.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))
    elif html is not None:
        from headway.system import write_text

        write_text(html, rendering.to_html(found))
        print(f"wrote {html}")
    elif latex:
        print(rendering.to_latex(found), end="")
    elif quiz:
        from headway.learn.quiz import quiz as ask

        ask(found, sys.stdin, lambda text: print(text, flush=True))
    else:
        print(rendering.to_text(found))
