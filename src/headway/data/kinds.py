"""What data is for, by its shape."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """Each is named after the task that it is for."""

    PAIRS = "translation"  # two texts
    LABELS = "classification"  # a text and its label
    TAGS = "tagging"  # words and as many tags
    TEXTS = "language"  # documents


TASKS = {kind.value: kind for kind in Kind}
