"""What all routes of a server share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from headway.serve.api_errors import ApiError
from headway.serve.counters import Counters
from headway.serve.served_models import ModelPool


@dataclass(frozen=True)
class RequestLimits:
    """What a request may hold at most; each is checked before a model works on it."""

    json_bytes: int = 2 * 2**20
    chat_bytes: int = 16 * 2**20  # of a conversation, which may hold images
    json_depth: int = 32
    upload_bytes: int = 32 * 2**20
    upload_files: int = 32
    body_seconds: float = 60.0  # to send the body in
    prompt_characters: int = 400_000  # of all texts of a request together
    attention_characters: int = 2_000  # each may be a token, and the cost grows with the square of their number
    image_pixels: int = 25_000_000
    audio_seconds: float = 900.0


@dataclass(frozen=True)
class ServerState:
    pool: ModelPool
    folder: Path  # for uploaded files
    limits: RequestLimits = RequestLimits()
    counters: Counters = field(default_factory=Counters)


def check_characters(texts: Iterable[str], limit: int, param: str) -> None:
    count = sum(map(len, texts))
    if count > limit:
        said = f"{param} has {count:,} characters where {limit:,} are allowed"
        raise ApiError(400, said, param=param, code="context_length_exceeded")
