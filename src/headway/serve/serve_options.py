"""How models are loaded and used: numbers that are checked before anything heavy is imported."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.errors import UserError


@dataclass(frozen=True)
class EngineLimits:
    """How much an engine does at once: rows that are decoded, requests that wait, and tokens of a row."""

    slots: int = 4
    queue: int = 16
    context: int | None = None  # None: what the model can read at once, or 4,096
    chunk: int = 256  # tokens of prompts that are read in a pass, beside one of each row that is decoded
    prefix_bytes: int = 256 * 2**20  # of keys and values that are kept of earlier requests

    def __post_init__(self) -> None:
        least = {"slots": 1, "queue": 0, "context": 2, "chunk": 1, "prefix_bytes": 0}
        for name, lowest in least.items():
            if (value := getattr(self, name)) is not None and value < lowest:
                raise UserError(f"{name}={value}", allowed=f"{lowest} or more")


@dataclass(frozen=True)
class ServeOptions:
    """`memory` bounds the GiB of all loaded weights and KV caches, `timeout` the seconds of a request."""

    dtype: str | None = None
    limits: EngineLimits = field(default_factory=EngineLimits)
    timeout: float = 300.0
    memory: float | None = None

    def __post_init__(self) -> None:
        for name in ("timeout", "memory"):
            if (value := getattr(self, name)) is not None and not 0 < value < 1e9:
                raise UserError(f"{name}={value:g}", allowed="a number above 0")

    @property
    def bytes(self) -> int | None:
        return None if self.memory is None else int(self.memory * 2**30)
