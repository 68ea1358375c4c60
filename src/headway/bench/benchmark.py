"""What was measured, and the arithmetic of its tables: medians, ratios to transformers, to the best peer, to limits.

A ratio is the other's median time divided by that of the contender: above 1 the contender is faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from math import ceil
from statistics import median
from typing import Any, NamedTuple

from headway.bench.peers import TRANSFORMERS
from headway.bench.suite import Case, Contender

BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 1.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
PRODUCTS = {"q8_0": "int8", "q4_0": "int8"}  # the precision in which the products of others are computed


class Timing(NamedTuple):
    """One run: CPU and wall-clock seconds, the peak of memory in bytes, and that above what was there before."""

    cpu: float
    wall: float
    peak: int
    above: int
    answer: Any = None
    samples: Mapping[str, Sequence[float]] = {}


@dataclass(frozen=True)
class MachineLimits:
    """GFLOP/s of matrix products by precision, and GB/s of reading memory."""

    gflops: Mapping[str, float]
    bandwidth: float

    def seconds(self, flops: float, weights: float, precision: str) -> float | None:
        """The least time for the products and for reading the weights; None where the precision has no measurement."""
        speed = self.gflops.get(PRODUCTS.get(precision, precision))
        if (not flops and not weights) or speed is None:
            return None
        return flops / speed / 1e9 + weights * BYTES[precision] / self.bandwidth / 1e9


@dataclass(frozen=True)
class Measured:
    """A contender's timings in a case, without the one that warms up; its agreement with headway in fp32."""

    name: str
    precision: str
    peer: str | None
    cpu: tuple[float, ...]
    wall: tuple[float, ...]
    peak: int  # of the whole process
    above: int  # what the first run needed beyond what was there before it
    agreement: float | None = None
    wall_clock: bool = False  # which of the times count
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])  # of all rounds

    @staticmethod
    def of(
        contender: Contender, timings: Sequence[Timing], agreement: float | None, *, wall_clock: bool = False
    ) -> Measured:
        first, *counted = timings
        return Measured(
            contender.name,
            contender.precision,
            None if contender.peer is None else contender.peer.name,
            tuple(one.cpu for one in counted),
            tuple(one.wall for one in counted),
            max(one.peak for one in timings),
            first.above,
            agreement,
            wall_clock,
            {name: tuple(second for one in counted for second in one.samples[name]) for name in first.samples},
        )

    @property
    def times(self) -> tuple[float, ...]:
        return self.wall if self.wall_clock else self.cpu

    @property
    def seconds(self) -> float:
        return median(self.times)

    def quantile(self, name: str, share: float) -> float:
        """The least sample that such a share of them does not exceed."""
        ordered = sorted(self.samples[name])
        return ordered[ceil(share * len(ordered)) - 1]

    @property
    def is_transformers(self) -> bool:
        return self.peer == TRANSFORMERS.name


@dataclass(frozen=True)
class CaseResult:
    """A case and its contenders' measurements."""

    name: str
    work: float
    unit: str
    flops: float
    weights: float
    measured: tuple[Measured, ...]

    @staticmethod
    def of(case: Case, measured: Sequence[Measured]) -> CaseResult:
        return CaseResult(case.name, case.work, case.unit, case.flops, case.weights, tuple(measured))

    def find(self, name: str) -> Measured | None:
        return next((one for one in self.measured if one.name == name), None)

    @property
    def transformers(self) -> Measured | None:
        """The first of its contenders: in fp32, used as most people do."""
        return next((one for one in self.measured if one.is_transformers), None)

    @property
    def best_peer(self) -> Measured | None:
        return min((one for one in self.measured if one.peer is not None), key=lambda one: one.seconds, default=None)

    @property
    def best_own(self) -> Measured | None:
        return min((one for one in self.measured if one.peer is None), key=lambda one: one.seconds, default=None)

    def ratio(self, one: Measured, other: Measured | None) -> float | None:
        return None if other is None else other.seconds / one.seconds

    def share_of_limit(self, one: Measured, limits: MachineLimits) -> float | None:
        """The least time that the machine needs, divided by the contender's."""
        least = limits.seconds(self.flops, self.weights, one.precision)
        return None if least is None else least / one.seconds

    def memory_ratio(self, one: Measured, other: Measured | None) -> float | None:
        return None if other is None else one.peak / other.peak


@dataclass(frozen=True)
class SuiteResult:
    """All of a suite: what was measured, on what, beside what load, and what was not measured."""

    name: str
    title: str
    cases: tuple[CaseResult, ...]
    comparison: str
    least: float
    memory: bool
    notes: str
    missing: Mapping[str, str]  # peers that are not installed, and the commands that do it
    failures: Mapping[str, str]
    limits: MachineLimits
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    load: tuple[float, float]  # average of processes that want a core, before and after
    rounds: int
    tiny: bool
    command: str
    date: str = field(default_factory=lambda: date.today().isoformat())
    commit: str = ""  # of headway; empty: not known

    def to_dict(self) -> dict[str, Any]:
        """Every measurement, and the ratios of each."""
        cases = [
            {**asdict(case), "measured": [self.measured_dict(case, one) for one in case.measured]}
            for case in self.cases
        ]
        return {**asdict(self), "cases": cases}

    def measured_dict(self, case: CaseResult, one: Measured) -> dict[str, Any]:
        return {
            **asdict(one),
            "seconds": one.seconds,
            "per_second": case.work / one.seconds,
            "ratio_to_transformers": case.ratio(one, case.transformers),
            "ratio_to_best_peer": case.ratio(one, case.best_peer),
            "share_of_limit": case.share_of_limit(one, self.limits),
        }

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> SuiteResult:
        """What `to_dict` gave."""
        whole: dict[str, Any] = {**values, "cases": tuple(case_of(case) for case in values["cases"])}
        whole |= {"limits": MachineLimits(**values["limits"]), "load": tuple(values["load"])}
        return SuiteResult(**whole)


def case_of(values: Mapping[str, Any]) -> CaseResult:
    whole: dict[str, Any] = {**values, "measured": tuple(measured_of(one) for one in values["measured"])}
    return CaseResult(**whole)


def measured_of(values: Mapping[str, Any]) -> Measured:
    """Without the ratios, which follow."""
    whole: dict[str, Any] = {name: values[name] for name in Measured.__dataclass_fields__ if name in values}
    whole |= {name: tuple(values[name]) for name in ("cpu", "wall")}
    whole["samples"] = {name: tuple(found) for name, found in values.get("samples", {}).items()}
    return Measured(**whole)
