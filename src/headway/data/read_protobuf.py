"""Protobuf's wire format, as far as a file of known fields needs it.

A length is believed when that many bytes are left; nothing is copied.  What is wrong is a ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def last(fields: dict[int, list[Any]], number: int, default: Any) -> Any:
    return fields.get(number, [default])[-1]


def gather(data: memoryview) -> dict[int, list[Any]]:
    """A message's fields by number: whole numbers for varints, views of the bytes for all others."""
    found: dict[int, list[Any]] = {}
    for number, value in fields(data):
        found.setdefault(number, []).append(value)
    return found


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            length, at = varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a field of wire type {wire}")
        if length > len(data) - at:
            raise ValueError(f"a field says it has {length} bytes where {len(data) - at} are left")
        yield key >> 3, data[at : at + length]
        at += length


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, lowest first, and where it ends."""
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number that does not end")
