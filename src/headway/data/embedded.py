"""The embedded data set as records: `dates`, where no file has that name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from headway.data.dates import Part, written
from headway.data.sources import Record

NAME = "dates"


def is_embedded(paths: Sequence[str | Path]) -> bool:
    """Whether the embedded data set is meant, and no file of that name."""
    return [str(path) for path in paths] == [NAME] and not Path(NAME).exists()


def date_records(seed: int, count: int, part: Part) -> Iterator[Record]:
    """The first `count` dates of a part, each made when it is asked for: who looks at a few pays for a few."""
    found = (written(seed, index, part=part) for index in range(count))
    return (Record((one.text, one.iso), Path(NAME), at) for at, one in enumerate(found, 1))
