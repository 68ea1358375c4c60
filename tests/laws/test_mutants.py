"""No law without a defect that it was seen to catch (`make proof`), and no defect without a law."""

from __future__ import annotations

from tests.laws.mutants import MUTANTS, laws


def test_every_law_has_a_mutant() -> None:
    assert sorted(set(laws()) - {mutant.law for mutant in MUTANTS}) == []


def test_every_mutant_has_a_law() -> None:
    assert sorted({mutant.law for mutant in MUTANTS} - set(laws())) == []


def test_every_mutant_can_be_planted() -> None:
    for mutant in MUTANTS:
        with mutant.planted():
            pass
