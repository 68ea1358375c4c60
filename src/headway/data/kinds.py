"""What records of data hold, and what is true of each kind."""

from __future__ import annotations

from enum import Enum


class DataKind(Enum):
    """What a record holds."""

    PAIRS = "text pairs"
    LABELS = "labelled texts"
    PAIR_LABELS = "labelled text pairs"
    SCORES = "scored texts"
    PAIR_SCORES = "scored text pairs"
    LABEL_SETS = "texts with several labels"
    ANSWERS = "questions with answers in a context"
    TAGS = "tagged words"
    TEXTS = "texts"
    CONVERSATIONS = "conversations"
    PREFERENCES = "preferences"
    IMAGES = "labelled images"
    CAPTIONS = "captioned images"
    SOUNDS = "labelled sounds"
    SPEECH = "transcribed sounds"
    SERIES = "labelled series of numbers"
    SETS = "labelled sets of vectors"
    SCORED_IMAGES = "scored images"
    SCORED_SOUNDS = "scored sounds"
    SCORED_SERIES = "scored series of numbers"
    ROWS = "rows of numbers over time"


DIALOGUE = frozenset({DataKind.CONVERSATIONS, DataKind.PREFERENCES})  # records are messages
# the fields are made of several cells of a table: two texts, a number, labels, answers
COMPOSED = frozenset(
    {DataKind.PAIR_LABELS, DataKind.SCORES, DataKind.PAIR_SCORES, DataKind.LABEL_SETS, DataKind.ANSWERS}
)
TEXTUAL = frozenset({DataKind.PAIRS, DataKind.LABELS, DataKind.TAGS, DataKind.TEXTS}) | COMPOSED | DIALOGUE  # words
PICTURED = frozenset({DataKind.IMAGES, DataKind.CAPTIONS, DataKind.SCORED_IMAGES})  # records name an image
HEARD = frozenset({DataKind.SOUNDS, DataKind.SPEECH, DataKind.SCORED_SOUNDS})  # records name a sound
# records are numbers
NUMERIC = frozenset({DataKind.SERIES, DataKind.SETS, DataKind.ROWS, DataKind.SCORED_SERIES})
# the second field is a number
SCORED = frozenset(
    {
        *(DataKind.SCORES, DataKind.PAIR_SCORES),
        *(DataKind.SCORED_IMAGES, DataKind.SCORED_SOUNDS, DataKind.SCORED_SERIES),
    }
)
# the second field is a class
LABELLED = frozenset(
    {DataKind.LABELS, DataKind.PAIR_LABELS, DataKind.IMAGES, DataKind.SOUNDS, DataKind.SERIES, DataKind.SETS}
)
# kinds that a table which names images or sounds, or a table of numbers, may be
ALTERNATIVES = (PICTURED, HEARD, NUMERIC - {DataKind.SETS})
STREAMED = frozenset({DataKind.TEXTS, DataKind.ROWS})  # records go on from one to the next
ENDLESS = frozenset({DataKind.TEXTS}) | DIALOGUE | NUMERIC  # what is not measured in characters


def are_alternatives(first: DataKind, second: DataKind) -> bool:
    """Whether the same images, sounds or series may be taken for either, by the values that are said of them."""
    return bool({first, second} & SCORED) and any({first, second} <= kinds for kinds in ALTERNATIVES)
