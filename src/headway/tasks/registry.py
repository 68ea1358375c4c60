"""All tasks, in the order in which they are asked whether a model or data is theirs.

The names are here as text, so that help and mistakes answer without torch; a task is imported when it is needed.  A
task of your own needs no entry: hand its class to `headway.train` and `headway.load`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from headway.errors import UserError, listed, nearest

if TYPE_CHECKING:
    from headway.data.kinds import DataKind
    from headway.data.records import RecognisedData
    from headway.tasks.base import Task
    from headway.tasks.model_parts import ModelParts


class TaskEntry(NamedTuple):
    """Where a task is, and what it learns from."""

    path: str  # module:class
    word: str = ""  # for its kind of data, which --task takes too
    data: str = ""  # its member of `DataKind`
    goal: str = ""  # ends the sentence that says what such data is for
    objective: str | None = None  # where data of one kind may be learned from in several ways
    unlabelled: tuple[str, ...] = ()  # architectures of a task whose records say nothing about their samples


TASKS = {
    "whisper": TaskEntry("whisper:WhisperTranscription", "speech", "SPEECH", "speech recognition"),
    "forecasting": TaskEntry("forecasting:Forecasting", "forecast", "ROWS", "forecasting"),
    "seq2seq": TaskEntry("seq2seq:Seq2Seq", "translation", "PAIRS", "translation"),
    "text-classification": TaskEntry(
        "text_classification:TextClassification", "classification", "LABELS", "classification"
    ),
    "tagging": TaskEntry("tagging:Tagging", "tagging", "TAGS", "tagging"),
    "causal-lm": TaskEntry("causal_lm:CausalLM", "language", "TEXTS", "a language model", "causal"),
    "masked-lm": TaskEntry("masked_lm:MaskedLM", "language", "TEXTS", "a language model", "masked"),
    "span-corruption": TaskEntry("span_corruption:SpanCorruption", "language", "TEXTS", "a language model", "span"),
    "image-classification": TaskEntry(
        "media_classification:ImageClassification", "images", "IMAGES", "image classification"
    ),
    "masked-image": TaskEntry(
        "masked_image:MaskedImage", "images", "IMAGES", "masked learning from images", "masked", ("mae", "simmim")
    ),
    "simclr": TaskEntry(
        "simclr:SimCLR", "images", "IMAGES", "contrastive learning from images", "contrastive", ("simclr",)
    ),
    "captioning": TaskEntry("captioning:Captioning", "captions", "CAPTIONS", "captioning", "text"),
    "image-text-contrastive": TaskEntry(
        "image_text:ImageTextContrastive", "captions", "CAPTIONS", "captioning", "contrastive"
    ),
    "sound-classification": TaskEntry(
        "media_classification:SoundClassification", "sounds", "SOUNDS", "sound classification"
    ),
    "ctc": TaskEntry("ctc_speech:CTC", "speech", "SPEECH", "speech recognition"),
    "speech-seq2seq": TaskEntry("captioning:SpeechSeq2Seq", "speech", "SPEECH", "speech recognition", "text"),
    "series-classification": TaskEntry(
        "media_classification:SeriesClassification", "series", "SERIES", "classification of series"
    ),
    "set-classification": TaskEntry("media_classification:SetClassification", "sets", "SETS", "classification of sets"),
    "media-embedding": TaskEntry("embedding:MediaEmbedding"),
    "text-embedding": TaskEntry("embedding:TextEmbedding"),
}
BY_DATA = {entry.word: entry for entry in reversed(TASKS.values()) if entry.word}  # the usual task of a kind of data
DATA_WORDS = tuple(reversed(BY_DATA))  # what --task takes, beside the names of tasks


def task_class(name: str) -> type[Task]:
    """The task of a name."""
    if name not in TASKS:
        raise UserError(f"no task {name!r}", allowed=listed(TASKS, 20), meant=nearest(name, TASKS))
    module, _, cls = TASKS[name].path.partition(":")
    return getattr(import_module(f"headway.tasks.{module}"), cls)


def tasks_for(data_kind: DataKind | None) -> list[type[Task]]:
    """The tasks of a kind of data, the usual one first; all of them where the kind is not known."""
    kept = [name for name, entry in TASKS.items() if data_kind is None or entry.data == data_kind.name]
    return [task_class(name) for name in kept]


def unlabelled_tasks() -> dict[str, TaskEntry]:
    """The tasks that learn from samples of which nothing is said."""
    return {name: entry for name, entry in TASKS.items() if entry.unlabelled}


def task_of(parts: ModelParts, name: str | None = None, data_kind: DataKind | None = None) -> Task:
    """The task of a model: the one its folder names, or the first whose head it has; data decides between several."""
    from headway.tasks.model_parts import CUSTOM

    if name in TASKS and (data_kind is None or parts.architecture == CUSTOM):
        found = task_class(name).from_model(parts)
        if found is not None:
            return found
    # a task is imported when its turn comes
    for name in sorted(TASKS, key=lambda name: data_kind is None or TASKS[name].data != data_kind.name):
        if (found := task_class(name).from_model(parts)) is not None:
            return found
    raise UserError(f"there is no way to run a {type(parts.model).__name__}", do="give a model that a task knows")


def data_kind(word: str | None) -> DataKind | None:
    """The kind of data that a task's name, or its word for data, stands for."""
    from headway.data.kinds import DataKind

    if word is None:
        return None
    entry = TASKS.get(word) or BY_DATA.get(word)
    if entry is None or not entry.data:
        raise UserError(
            f"data.task {word} is not known", allowed=", ".join(DATA_WORDS), meant=nearest(word, DATA_WORDS)
        )
    return DataKind[entry.data]


def data_entry(kind: DataKind) -> TaskEntry:
    """The usual task of a kind of data."""
    return next(entry for entry in BY_DATA.values() if entry.data == kind.name)


def sentence(data: RecognisedData) -> str:
    """What data is and what it is therefore for."""
    if data.unlabelled:
        return f"{data.description}, to be learned from without classes (change with --objective)"
    return f"{data.description}, so {data_entry(data.kind).goal} (change with --task)"
