"""The sample of all cases that `make check` runs."""

from __future__ import annotations

from tests.conftest import sample

NAMES = [f"tests/a.py::test_{test}[{model}-{size}]" for test in range(40) for model in range(12) for size in range(3)]


def test_every_test_has_so_many_cases_or_all_it_has() -> None:
    single = "tests/a.py::test_alone"
    kept = sample([single, *NAMES], 2)
    assert single in kept
    assert all(sum(name.startswith(f"tests/a.py::test_{test}[") for name in kept) == 2 for test in range(40))
    assert sample(NAMES, 36) == set(NAMES)


def test_together_they_meet_every_model_and_size() -> None:
    kept = {name.partition("[")[2] for name in sample(NAMES, 2)}
    assert {case.partition("-")[0] for case in kept} == {str(model) for model in range(12)}
    assert {case.partition("-")[2] for case in kept} == {"0]", "1]", "2]"}


def test_it_is_always_the_same_in_whatever_order() -> None:
    assert sample(NAMES, 1) == sample(NAMES[::-1], 1)
    assert sample(NAMES, 1) < sample(NAMES, 2)
