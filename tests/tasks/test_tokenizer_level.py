"""The level that is chosen for texts writes them as they are."""

from __future__ import annotations

import pytest

from headway.tasks.text_tasks import Framing, level_of, trained

NOTATION = ["AH0 B EY1", "K AE1 T S", "D AO1 G", "AH0 K AE1 T"] * 40
TEXTS = {
    "a notation": (NOTATION, "words", ""),
    "brackets": (
        [f"{text} (he)" for text in NOTATION],
        "characters",
        "words would write '( he )' for '(he)'",
    ),
    "an apostrophe": (
        [f"{text} isn't" for text in NOTATION],
        "characters",
        'words would write "isn \' t" for "isn\'t"',
    ),
    "brackets in long texts": (
        [" ".join([text] * 6) + " (he)" for text in NOTATION],
        "bpe",
        "words would write '( he )' for '(he)'",
    ),
    "more white space": ([text.replace(" ", "  ") for text in NOTATION], "words", ""),
}


@pytest.mark.parametrize("case", TEXTS)
def test_the_level_writes_what_it_reads(case: str) -> None:
    texts, level, note = TEXTS[case]
    assert level_of(texts) == (level, note)
    tokenizer = trained(level, texts, None, Framing(eos=True))
    assert [tokenizer.decode(tokenizer.encode(text)).split() for text in texts] == [text.split() for text in texts]
