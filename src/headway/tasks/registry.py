"""All tasks, in the order in which they are asked whether a model or data is theirs.

The names are here as text, so that help and mistakes answer without torch; a task is imported when it is needed.  A
task of your own needs no entry: hand its class to `headway.train` and `headway.load`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from headway.errors import UserError, nearest

if TYPE_CHECKING:
    from headway.data.kinds import DataKind
    from headway.data.records import RecognisedData


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
    "text-pair-classification": TaskEntry(
        "text_pairs:TextPairClassification", "entailment", "PAIR_LABELS", "classification of text pairs"
    ),
    "text-regression": TaskEntry("text_regression:TextRegression", "regression", "SCORES", "regression"),
    "text-pair-regression": TaskEntry(
        "text_regression:TextPairRegression", "similarity", "PAIR_SCORES", "regression of text pairs"
    ),
    "multi-label-classification": TaskEntry(
        "multi_label:MultiLabelClassification", "multi-label", "LABEL_SETS", "multi-label classification"
    ),
    "question-answering": TaskEntry(
        "question_answering:QuestionAnswering", "questions", "ANSWERS", "extractive question answering"
    ),
    "tagging": TaskEntry("tagging:Tagging", "tagging", "TAGS", "tagging"),
    "causal-lm": TaskEntry("causal_lm:CausalLM", "language", "TEXTS", "a language model", "causal"),
    "chat-lm": TaskEntry("chat:ChatLM", "chat", "CONVERSATIONS", "a chat model"),
    "preference-lm": TaskEntry("preferences:PreferenceLM", "preferences", "PREFERENCES", "learning from preferences"),
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
    "image-regression": TaskEntry(
        "media_regression:ImageRegression", "image-regression", "SCORED_IMAGES", "regression of images"
    ),
    "sound-regression": TaskEntry(
        "media_regression:SoundRegression", "sound-regression", "SCORED_SOUNDS", "regression of sounds"
    ),
    "series-regression": TaskEntry(
        "media_regression:SeriesRegression", "series-regression", "SCORED_SERIES", "regression of series"
    ),
    "media-embedding": TaskEntry("embedding:MediaEmbedding", goal="embeddings"),
    "text-embedding": TaskEntry("embedding:TextEmbedding", goal="embeddings"),
}
# how a sentence names a setting: by its dotted name, or as an option where a command says it
SPELLING: ContextVar[Callable[[str], str]] = ContextVar("SPELLING", default=str)
BY_DATA = {entry.word: entry for entry in reversed(TASKS.values()) if entry.word}  # the usual task of a kind of data
DATA_WORDS = tuple(reversed(BY_DATA))  # what --task takes, beside the names of tasks


def unlabelled_tasks() -> dict[str, TaskEntry]:
    """The tasks that learn from samples of which nothing is said."""
    return {name: entry for name, entry in TASKS.items() if entry.unlabelled}


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
    """What data is and what it is therefore for, with the setting that changes it."""
    spell = SPELLING.get()
    if data.unlabelled:
        return f"{data.description}, to be learned from without classes (change with {spell('data.objective')})"
    change = spell("data.task")
    if data.other_header:
        taken = "record" if data.other_header == "no" else "header"
        change += f", or with {spell('data.header')} {data.other_header} if the first line is a {taken}"
    return f"{data.description}, so {data_entry(data.kind).goal} (change with {change})"
