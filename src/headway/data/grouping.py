"""Groups of records that are on the same side of a split: of a speaker, a patient, a document.

A score on speakers that training has heard says little of others.  The group of a record is in a column of its table,
or in the name of its file.  `splits.py` chooses the groups that are held out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from headway.data.name_patterns import checked_pattern, find, found_text
from headway.data.records import RecognisedData, Record, RecordSource
from headway.data.splits import media_sources
from headway.data.text_lines import Flaw, Problem
from headway.errors import UserError, listed


@dataclass(frozen=True)
class GroupedRecords(RecordSource):
    """The records of a source, each with its group."""

    source: RecordSource

    @property
    def files(self) -> tuple[Path, ...]:
        return self.source.files

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.source.columns

    def field_name(self, field: int) -> str:
        return self.source.field_name(field)


@dataclass(frozen=True)
class GroupsInColumn(GroupedRecords):
    """The group of a record is in its line of another column of its table."""

    others: RecordSource

    def read(self) -> Iterator[Record | Problem]:
        """Both are in the order of their lines; a line that has only a problem in the other column is one."""
        cells, cell = iter(self.others.read()), None
        for found in self.source.read():
            if isinstance(found, Problem):
                yield found
                continue
            while cell is None or cell.line < found.line:
                cell = next(cells)
            if isinstance(cell, Problem):
                yield cell
            elif not (group := cell.fields[0].strip()):
                yield Problem(cell.file, cell.line, Flaw.EMPTY, f"{self.others.field_name(0)}, the group, is empty")
            else:
                yield replace(found, group=group)


@dataclass(frozen=True)
class GroupsInNames(GroupedRecords):
    """The group of an image or a sound is what a pattern finds in the name of its file, without its last suffix."""

    pattern: str

    def read(self) -> Iterator[Record | Problem]:
        for found in self.source.read():
            if isinstance(found, Problem) or found.place is None:
                yield found
                continue
            match = find(re.search, self.pattern, found.place.path.stem)
            if match and (group := found_text(match)):
                yield replace(found, group=group)
            else:
                said = f"{found.place.path.name} is a name in which {self.pattern!r} finds no group"
                yield Problem(found.file, found.line, Flaw.UNNAMED, said)


def with_groups(given: RecognisedData, column: str | None, pattern: str | None) -> RecognisedData:
    """Data whose records know their group, by a column or by a pattern that finds it in names of files."""
    if column is not None:
        found = [(source, source.column(column)) for source in given.sources]
        sources = tuple(GroupsInColumn(source, other) for source, other in found if other is not None)
        if len(sources) < len(found):
            said = f"{listed(map(str, given.paths or given.files), 3)}: there is no table with a column for data.group"
            raise UserError(said, do="leave it out, or give data.group_from, a pattern for names of images and sounds")
    else:
        checked = checked_pattern(pattern or "")
        sources = tuple(GroupsInNames(source, checked) for source in media_sources(given))
        if len(sources) < len(given.sources):
            said = "data.group_from finds groups in names of images and sounds, and these are others"
            raise UserError(said, do="leave it out, or give data.group, a column of a table")
    return replace(given, sources=sources, fingerprint=(*given.fingerprint, "groups", column or "", pattern or ""))
