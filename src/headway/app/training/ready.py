"""Data made ready to learn from, by its kind: tokenizers and a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.app.training.fit import JOINT
from headway.app.training.material import Material
from headway.app.training.words import MARKS, learned, level_of, marks_of
from headway.checkpoint import Loaded
from headway.data.preprocess import Preprocess
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.settings import begin_of
from headway.tasks.causal import Causal
from headway.tasks.labels import Labels, Tags
from headway.tasks.masked import Masked
from headway.tasks.pairs import Pairs
from headway.tasks.spans import Spans
from headway.tasks.task import Task
from headway.train.recipe import Recipe
from headway.zoo.presets import preset

LONGEST = 256  # tokens of a side or a text, unless given
SHORT = 5_000_000  # letters: a language model of less is learned letter by letter


@dataclass(frozen=True, eq=False)
class Ready:
    """A task with its words, and the settings that were chosen on the way."""

    task: Task
    reader: Tokenizer | None  # what is read and written in words
    writer: Tokenizer | None
    chosen: dict[str, Any] = field(default_factory=dict[str, Any])
    classes: int = 0
    needs: Mapping[str, Any] = field(default_factory=dict[str, Any])  # sizes of the model that follow from the data
    preprocess: Preprocess | None = None


Make = Callable[[Recipe, Material, Loaded | None], Ready]


def pairs(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    data, smoothing = recipe.data, given(recipe.train.smoothing, 0.1)
    reader, writer, chosen = started(start) if start else two_sides(recipe, material)
    begin = beginning(start, writer)
    longest = given(data.longest, LONGEST)
    task = Pairs(reader, writer, begin, smoothing, longest, data.prefix)
    return Ready(task, reader, writer, {**chosen, "train.smoothing": smoothing, "data.longest": longest})


def two_sides(recipe: Recipe, material: Material) -> tuple[Tokenizer, Tokenizer, dict[str, Any]]:
    """One tokenizer for both sides where they are written alike, else one for each."""
    data = recipe.data
    left = data.tokenizer or level_of(side(material, 0))
    right = data.target_tokenizer or data.tokenizer or level_of(side(material, 1))
    if left != right and data.tokenizer is None and data.target_tokenizer is None and joint_only(recipe):
        left = right = "bpe" if "bpe" in (left, right) else "characters"
    chosen = {"data.tokenizer": left, "data.target_tokenizer": right}
    if left == right:
        both = (text for record in material.train() for text in record.fields)
        words = learned(left, both, data.vocab, before=False, after=True)
        return words, words, {**chosen, "data.vocab": words.vocab}
    reader = learned(left, side(material, 0), data.vocab, before=False, after=True)
    writer = learned(right, side(material, 1), data.vocab, before=False, after=True)
    return reader, writer, chosen


def joint_only(recipe: Recipe) -> bool:
    """Whether the preset that was asked for reads and writes with one table of words."""
    return recipe.model.preset is not None and preset(recipe.model.preset).architecture in JOINT


def labels(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    return classes(recipe, material, start, Labels, sorted(set(known(recipe, material))))


def tags(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    return classes(
        recipe, material, start, Tags, sorted({tag for text in known(recipe, material) for tag in text.split()})
    )


def known(recipe: Recipe, material: Material) -> Iterator[str]:
    """The labels of all records; those of a validation file are not among them, and must be known without it."""
    yield from side(material, 1)
    if not recipe.data.validation:
        yield from (record.fields[1] for record in material.held())


def classes(
    recipe: Recipe, material: Material, start: Loaded | None, kind: type[Labels] | type[Tags], names: list[str]
) -> Ready:
    check_classes(material, names)
    words, chosen = one_side(recipe, material, start, "wordpiece", frame=True)
    smoothing, longest = given(recipe.train.smoothing, 0.0), given(recipe.data.longest, LONGEST)
    task = kind(words, tuple(names), smoothing, longest)
    return Ready(task, words, words, {**chosen, "train.smoothing": smoothing, "data.longest": longest}, len(names))


def check_classes(material: Material, names: Sequence[str]) -> None:
    if len(names) < 2:
        raise UserError(f"every label in {material.name} is {names[0]!r}", do="give data with two classes or more")


def causal(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    words, chosen = one_side(recipe, material, start, text_level(material), frame=False)
    return Ready(Causal(words), words, words, chosen)


def masked(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    words, chosen = one_side(recipe, material, start, "wordpiece", frame=True)
    return Ready(Masked(words), words, words, chosen)


def spans(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    words, chosen = one_side(recipe, material, start, "bpe", frame=False, after=True, marks=MARKS)
    return Ready(Spans(words, beginning(start, words), marks_of(words)), words, words, chosen)


def one_side(
    recipe: Recipe,
    material: Material,
    start: Loaded | None,
    usual: str,
    *,
    frame: bool,
    after: bool = False,
    marks: int = 0,
) -> tuple[Tokenizer, dict[str, Any]]:
    if start and (start.tokenizer or start.preprocess is None):  # one that names classes of sounds has no words yet
        reader, _, chosen = started(start)
        return reader, chosen
    level = recipe.data.tokenizer or usual
    words = learned(level, texts(material), recipe.data.vocab, before=frame, after=frame or after, marks=marks)
    return words, {"data.tokenizer": level, "data.vocab": words.vocab - marks}


def beginning(start: Loaded | None, words: Tokenizer) -> int:
    """The token that a text in these words is written after, in the model that a run goes on from or in a new one."""
    return begin_of(start.kept if start else {}, words.bos)


def started(start: Loaded) -> tuple[Tokenizer, Tokenizer, dict[str, Any]]:
    """The tokenizers of the model that a run goes on from."""
    if start.tokenizer is None:
        raise UserError("the model to start from has no tokenizer", do="add tokenizer.json to its folder")
    return start.tokenizer, start.writer or start.tokenizer, {}


def texts(material: Material) -> Iterator[str]:
    """What is read; of an image or a sound, whose first field is a hash, what is said about it."""
    for record in material.train():
        yield from record.fields[:1] if record.place is None else record.fields[1:]


def side(material: Material, field: int) -> Iterator[str]:
    return (record.fields[field] for record in material.train())


def text_level(material: Material) -> str:
    """Letters for a short text, byte pairs for a long one."""
    return "characters" if shorter(side(material, 0), SHORT) else "bpe"


def shorter(texts: Iterable[str], letters: int) -> bool:
    for text in texts:
        letters -= len(text)
        if letters < 0:
            return False
    return True


def given(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value
