"""What a benchmark is made of: a suite has cases, contenders that do the same work, and a comparison of their answers.

Everything here is light: contenders import torch and their libraries when they are prepared, in processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from headway.bench.answers import Comparison
from headway.bench.peers import Peer

FP32 = "fp32"
BF16 = ("avx512_bf16", "amx_bf16", "bf16")  # features of processors with products in bf16


@dataclass(frozen=True)
class Case:
    """A piece of work that is timed: how much of what it is, and what the machine must do for it at least.

    `flops` are those of matrix products, and `weights` the numbers that are read from memory, of as many bytes as the
    precision has: no contender can be faster than the processor and the memory are.
    """

    name: str
    work: float
    unit: str
    flops: float = 0.0
    weights: float = 0.0
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Workspace:
    """Where the weights and inputs of a suite are, and how they are used."""

    folder: Path
    sizes: Mapping[str, int]
    threads: int = 1

    def given(self, *names: str) -> dict[str, Any]:
        """Some of the sizes, as arguments of a config."""
        return {name: self.sizes[name] for name in names}


class SampledAnswer(NamedTuple):
    """What a run answers, and times in seconds within it by what they are of, such as those of each request."""

    answer: Any
    samples: Mapping[str, Sequence[float]]


Run = Callable[[Case], Any]


@dataclass(frozen=True)
class Contender:
    """A way to do the work of a suite.

    `prepare` loads all that is not timed and returns what is; `convert` writes the files that it loads, if they are not
    those of the suite, in a process of its own.  A contender without a `peer` is headway.
    """

    name: str
    prepare: Callable[[Workspace], Run]
    precision: str = FP32
    peer: Peer | None = None
    convert: Callable[[Workspace], None] | None = None
    cases: tuple[str, ...] | None = None  # all, unless some would take too long or too much memory
    same_weights: bool = True  # its answers can be compared with the others'
    cpu: tuple[str, ...] = ()  # features of the processor of which it needs one


@dataclass(frozen=True)
class Suite:
    """Contenders in the same work: `write` makes weights and inputs of the given sizes in a folder."""

    name: str
    title: str
    write: Callable[[Workspace], None]
    cases: Callable[[Mapping[str, int]], tuple[Case, ...]]
    contenders: tuple[Contender, ...]
    sizes: Mapping[str, int]
    tiny: Mapping[str, int]  # sizes that show that all of it works
    comparison: Comparison
    memory: bool = False  # whether peak memory is part of the result
    wall_clock: bool = False  # what is compared: the time that a client waits, or that of the processor
    notes: str = ""

    def contender(self, name: str) -> Contender:
        return next(one for one in self.contenders if one.name == name)
