"""Equal to the reference, family by family; `make proof` writes the same numbers into docs/PARITY.md."""

from __future__ import annotations

import pytest

from tests.interop.parity import Case, compare
from tests.interop.table import CASES


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_numbers_are_the_references(case: Case) -> None:
    found = compare(case)
    assert {quantity: value for quantity, value in found.items() if not value <= case.limit} == {}
    assert found["export"] == 0
