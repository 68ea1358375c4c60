"""Lessons: short experiments that run offline, each a file of `learn/lessons/`; the table of them, and how one is run.

A lesson file has a docstring, its introduction; a generator `steps` of explanation steps, whose arguments are sizes
with the full ones as defaults; and `FAST`, tiny sizes that show only that all of it runs.  Three of its steps have a
question whose answer is computed from the numbers of the run.  Every `yield` stands at the level of the function
itself, so that `notebook` can turn the function into cells.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from headway.errors import UserError, counted, nearest
from headway.figures import Plot, save_plot
from headway.learn.explanation import Explanation, ExplanationStep, Question
from headway.learn.rendering import text_of_step, to_html, wrapped

SEED = 0
PACKAGE = "headway.learn.lessons"
Sizes = Mapping[str, Any]


@dataclass(frozen=True)
class Lesson:
    title: str  # one sentence
    minutes: int  # that the full lesson takes at most on two cores
    topics: tuple[str, ...] = ()  # of headway explain, for the formulas


def find(name: str) -> Lesson:
    if name not in LESSONS:
        raise UserError(
            f"no lesson {name!r}", allowed=", ".join(LESSONS), do="headway lesson list", meant=nearest(name, LESSONS)
        )
    return LESSONS[name]


def module_of(name: str) -> ModuleType:
    find(name)
    return import_module(f"{PACKAGE}.{name.replace('-', '_')}")


def fast_sizes(name: str) -> dict[str, Any]:
    return dict(module_of(name).FAST)


def introduction(name: str) -> str:
    """The docstring of the lesson's file, one line for each paragraph, without its axes."""
    paragraphs = (module_of(name).__doc__ or "").strip().split("\n\n")
    told = [" ".join(paragraph.split()) for paragraph in paragraphs if not paragraph.startswith("Axes:")]
    return "\n\n".join(told)


@contextmanager
def seeded() -> Generator[None]:
    """The same random numbers in every run, and those of the caller as they were."""
    import torch

    with torch.random.fork_rng([]):
        torch.manual_seed(SEED)
        yield


def lesson_steps(name: str, sizes: Sizes) -> Iterator[ExplanationStep]:
    """The steps of a lesson, each computed when it is asked for."""
    steps: Callable[..., Iterator[ExplanationStep]] = module_of(name).steps
    with seeded():
        yield from steps(**sizes)


def explained(name: str, steps: Sequence[ExplanationStep], sizes: Sizes) -> Explanation:
    return Explanation(name, introduction(name), steps, options=sizes)


def take(name: str, sizes: Sizes) -> Explanation:
    """The whole lesson, computed."""
    return explained(name, list(lesson_steps(name, sizes)), sizes)


def questions(found: Explanation) -> list[Question]:
    return [step.question for step in found.steps if step.question is not None]


def figure_file(name: str, number: int) -> str:
    """The figure of a step, counted from 1."""
    return f"{name}-{number}.png"


def naming_figures(name: str, folder: Path) -> Callable[[int, Plot], str]:
    """What a text says where a step has a figure."""
    return lambda number, plot: f"(figure {folder / figure_file(name, number)}: {plot.title})"


def to_lesson_text(found: Explanation, folder: Path) -> str:
    note = naming_figures(found.topic, folder)
    steps = (text_of_step(number, step, note) for number, step in enumerate(found.steps, 1))
    return "\n\n".join([wrapped(found.summary), *steps, question_text(found)]) + "\n"


def question_text(found: Explanation) -> str:
    from headway.learn.quiz import asking

    asked = [wrapped(f"{number}. {asking(question)}") for number, question in enumerate(questions(found), 1)]
    told = f"headway lesson run {found.topic} --quiz asks them before it shows, and checks the answers."
    return "\n".join([counted(len(asked), "question"), *asked, wrapped(told)])


def to_data(found: Explanation) -> dict[str, Any]:
    """As plain data, for JSON, with its questions and their answers."""
    asked = [
        {"text": one.text, "choices": list(one.choices), "answer": one.answer, "tolerance": one.tolerance}
        for one in questions(found)
    ]
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in found.options.items()}
    return {"lesson": found.topic, **found.to_dict(), "options": plain, "questions": asked}


def write_lesson(found: Explanation, folder: Path) -> list[Path]:
    """The text, the page and the figures of a lesson in a folder, which is made."""
    from headway.system import write_text

    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{found.topic}.txt", folder / f"{found.topic}.html"]
    write_text(files[0], to_lesson_text(found, folder))
    write_text(files[1], to_html(found, "headway lesson"))
    for number, step in enumerate(found.steps, 1):
        if step.figure is not None:
            files.append(folder / figure_file(found.topic, number))
            save_plot(step.figure, files[-1])
    return files


def markdown_table() -> str:
    """The lessons as a table, for docs/LESSONS.md."""
    rows = [
        f"| `{name}` | {one.title} | {one.minutes} | {', '.join(f'`{topic}`' for topic in one.topics) or '–'} |"
        for name, one in LESSONS.items()
    ]
    head = ["| lesson | what it shows | minutes at most | formulas: `headway explain` |", "| --- | --- | ---: | --- |"]
    return "\n".join([*head, *rows])


LESSONS: dict[str, Lesson] = {
    "three-ways": Lesson("Recurrent, convolution and attention side by side: chains, reach, one task.", 2),
    "complexity": Lesson(
        "Time, memory, sequential steps and path lengths, measured beside the theory.", 2, ("memory",)
    ),
    "bottleneck-by-length": Lesson("One vector for a sentence, or attention: accuracy by length.", 2),
    "layer-counts": Lesson("Fully connected (D²N² weights), convolution, attention: who sees whom.", 1),
    "why-scale": Lesson("Scores divided by √D or not: saturation, gradients, and what is learned.", 1, ("scaling",)),
    "masks": Lesson("Causal, window and prefix masks; leaks, and a model that cheats without.", 1, ("attention",)),
    "heads-at-equal-size": Lesson("One head blurs two places that several heads keep apart.", 1, ("heads",)),
    "position-kinds": Lesson(
        "No positions and five kinds of them, also on rows longer than in training.", 2, ("positions",)
    ),
    "permutation": Lesson("Self-attention permutes with its inputs, and what ends that.", 1, ("equivariance",)),
    "gru-to-attention": Lesson("Five rungs from a gated recurrent unit to many heads, each trained.", 2, ("gru",)),
    "pre-and-post-norm": Lesson("A deep stack: identity path, gradients by layer, what trains.", 2, ("norms",)),
    "norms-and-ffn": Lesson("LayerNorm or RMSNorm, MLP or SwiGLU, at equal size, with seeds.", 2, ("norms", "ffn")),
    "experts": Lesson("Mixture of experts: parameters × E, compute × A, who does what.", 1, ("moe",)),
    "bert-or-gpt": Lesson("One stack becomes BERT or GPT by its mask and its objective.", 1, ("diff",)),
    "training-direction": Lesson("A model does what its training showed it, not what its mask allows.", 1),
    "patches-are-convolution": Lesson("Patches and a strided convolution, weights exchanged: equal output.", 1),
    "pixels-to-windows": Lesson("Memory of attention over pixels, patches and windows by image size.", 1, ("memory",)),
    "receptive-field": Lesson("Which pixels a unit depends on, by gradient and depth: CNN and attention.", 1),
    "product-or-convolution": Lesson("Matrix products and convolutions at equal FLOPs; ViT beside ResNet.", 1),
    "vit-or-resnet": Lesson("ViT against ResNet over the number of training images.", 3),
    "word-vectors": Lesson("Word vectors from neighbours (word2vec), then of two directions (ELMo).", 1),
    "contextual-embeddings": Lesson('One word, two sentences: static and contextual vectors of "it".', 1),
    "pretrain-and-freeze": Lesson("Pre-train, then fine-tune, freeze or cut the encoder.", 2),
    "kinds-of-attention": Lesson("Content- or location-based, soft or hard attention.", 1, ("attention",)),
    "feature-superposition": Lesson("More features than dimensions: directions by sparsity.", 1),
    "retrieval-as-attention": Lesson("Query, keys and values of a small search, made soft.", 1, ("attention",)),
    "latent-directions": Lesson("Directions in the latent space of an autoencoder move images.", 1),
    "not-similarity-search": Lesson("Attention is not a similarity search: a counter-example.", 1, ("attention",)),
    "encoder-decoder-wiring": Lesson(
        "Every decoder layer reads the last encoder output, by intervention.", 1, ("block",)
    ),
    "linear-scores": Lesson("A literally linear score function gives every query the same weights.", 1, ("attention",)),
}
