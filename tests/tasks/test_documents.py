"""A document is tokenized some pieces at a time, by threads: its ids are those of its pieces one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.tasks.causal_lm import CausalLM
from headway.tasks.language_modelling import PIECES_TOGETHER
from tests.tasks.learners import LETTERS

PIECES = [f"line {n} of a text{' and more' * (n % 7)}\n" for n in range(3 * PIECES_TOGETHER + 5)]


@pytest.mark.parametrize("count", [0, 1, PIECES_TOGETHER, len(PIECES)])
def test_the_ids_are_those_of_the_pieces(count: int) -> None:
    task = CausalLM(LETTERS)
    before, after = task.frame
    alone = [id for piece in PIECES[:count] for id in LETTERS.plain(piece)]
    assert list(task.document(PIECES[:count])[0]) == [*before, *alone, *after]


def test_no_more_than_some_pieces_are_read_ahead() -> None:
    read = list[str]()

    def pieces() -> Iterator[str]:
        for piece in PIECES:
            read.append(piece)
            yield piece

    ids = iter(CausalLM(LETTERS).document(pieces())[0])
    next(ids)
    next(ids)
    assert len(read) <= PIECES_TOGETHER
