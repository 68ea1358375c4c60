"""What data is for, by its shape."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """Each is named after the task that it is for."""

    PAIRS = "translation"  # two texts
    LABELS = "classification"  # a text and its label
    TAGS = "tagging"  # words and as many tags
    TEXTS = "language"  # documents
    IMAGES = "images"  # an image and its class
    CAPTIONS = "captions"  # an image and texts about it
    SOUNDS = "sounds"  # a sound and its class
    SPEECH = "speech"  # a sound and what is said in it
    SERIES = "series"  # numbers in an order, and a label
    SETS = "sets"  # vectors in no order, and a label
    FORECAST = "forecast"  # rows of numbers over time


TASKS = {kind.value: kind for kind in Kind}
TEXTUAL = frozenset({Kind.PAIRS, Kind.LABELS, Kind.TAGS, Kind.TEXTS})  # records are words
PICTURED = frozenset({Kind.IMAGES, Kind.CAPTIONS})  # records name an image
HEARD = frozenset({Kind.SOUNDS, Kind.SPEECH})  # records name a sound
NUMERIC = frozenset({Kind.SERIES, Kind.SETS, Kind.FORECAST})  # records are numbers
LABELLED = frozenset({Kind.LABELS, Kind.IMAGES, Kind.SOUNDS, Kind.SERIES, Kind.SETS})  # the second field is a class
STREAMED = frozenset({Kind.TEXTS, Kind.FORECAST})  # records go on from one to the next
ENDLESS = frozenset({Kind.TEXTS}) | NUMERIC  # what is not measured in characters
