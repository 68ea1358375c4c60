"""Where words begin, for every way in which vocabularies mark it."""

from __future__ import annotations

import pytest

from headway.tasks.text_tracing import word_starts

CASES = {
    "WordPiece": (["[CLS]", "un", "##able", "cat", ".", "[SEP]"], None, (0, 5), "WordPiece", (0, 1, 3, 4, 5)),
    "byte-level BPE": (["The", " cat", "s", " don", "'t", "."], None, (), "BPE", (0, 1, 3, 5)),
    "SentencePiece": (["He", "llo", "you"], ["▁He", "llo", "▁you"], (), "Unigram", (0, 2)),
    "ends of words": (["lo", "wer", "cat"], ["lo", "wer</w>", "cat</w>"], (), "BPE", (0, 2)),
    "subword-nmt": (["lo", "wer", "cat"], ["lo@@", "wer", "cat"], (), "WordLevel", (0, 2)),
    "whole words": (["the", "cat", "sat"], None, (), "WordLevel", (0, 1, 2)),
    "characters": (list("a cat."), None, (), "WordLevel", (0, 1, 5)),
    "nothing": ([], None, (), "BPE", ()),
}


@pytest.mark.parametrize("name", CASES)
def test_words_begin_where_the_vocabulary_says(name: str) -> None:
    labels, spelled, marked, model, expected = CASES[name]
    assert word_starts(labels, spelled or labels, marked, model) == expected
