"""The server under load and abuse: small in `make test-long`, at full size and with defects in `make proof`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.laws.defects.planting import Mutant
from tests.serve import proofs
from tests.serve.defects import MUTANTS
from tests.serve.proofs import Place


@dataclass(frozen=True)
class Proof:
    run: Callable[..., None]
    small: dict[str, Any]
    full: dict[str, Any]


METHODS = ("GET", "POST", "OPTIONS")
PROOFS = {
    "load": Proof(
        proofs.each_request_ends_once,
        {"clients": 8, "requests": 3, "burst": 30},
        {"clients": 64, "requests": 5, "burst": 200},
    ),
    "leaving": Proof(
        proofs.nothing_runs_for_those_who_left,
        {"resets": 6, "closes": 6, "drops": 6, "seconds": 2.0},
        {"resets": 50, "closes": 50, "drops": 20, "seconds": 2.0},
    ),
    "signals": Proof(proofs.signals_cut_nothing, {"processes": 1}, {"processes": 5}),
    "fuzz": Proof(proofs.fuzzed_bodies_are_refused, {"examples": 50}, {"examples": 5000}),
    "bait": Proof(proofs.large_deep_and_tricky_bodies_are_refused, {"size": 20_000}, {"size": 1_900_000}),
    "slow": Proof(proofs.slow_clients_are_left, {"each": 2}, {"each": 20}),
    "keys": Proof(proofs.no_route_answers_without_the_key, {"methods": METHODS[:1]}, {"methods": METHODS}),
    "soak": Proof(
        proofs.nothing_grows_or_is_left,
        {"seconds": 8, "growth": 64 * 2**20},  # it has not seen everything yet
        {"seconds": 20 * 60, "growth": 16 * 2**20},  # less than 400 bytes for each of some 50,000 requests
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PROOFS)
def test_small(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    PROOFS[name].run(Place(folders, tmp_path), **PROOFS[name].small)


@pytest.mark.proof
@pytest.mark.parametrize("name", PROOFS)
def test_full(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    PROOFS[name].run(Place(folders, tmp_path), **PROOFS[name].full)


@pytest.mark.proof
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.defect)
def test_a_defect_turns_its_proof_red(mutant: Mutant, folders: dict[str, Path], tmp_path: Path) -> None:
    proof, launcher = PROOFS[mutant.law], ("-m", "tests.serve.defects", mutant.defect)
    with mutant.planted(), pytest.raises(AssertionError):
        proof.run(Place(folders, tmp_path, launcher), **proof.small)


def test_every_proof_has_a_defect() -> None:
    assert {mutant.law for mutant in MUTANTS} == set(PROOFS)
