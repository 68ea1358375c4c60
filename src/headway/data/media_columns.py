"""Which columns of a table name images or sounds, and what is said about each: a class, a text or a number.

Columns are requested, or found by their names, or by their values: short values of which a few stand again and again
are classes, numbers of which there are many are to be predicted, and all others are captions or transcripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.data.column_choice import MIN_SCORE_SHARE, are_scores, look_like_labels, share_of_numbers, spelled
from headway.data.kinds import SCORED, DataKind
from headway.data.records import DataQuery
from headway.data.table_preview import (
    BESIDES,
    CAPTION,
    LABEL,
    SCORE,
    TEXT,
    TRANSCRIPT,
    TablePreview,
    media_column,
)
from headway.errors import UserError, listed

# by medium: with a class, with texts; and with a number
KINDS = {"image": (DataKind.IMAGES, DataKind.CAPTIONS), "sound": (DataKind.SOUNDS, DataKind.SPEECH)}
SCORED_KINDS = {"image": DataKind.SCORED_IMAGES, "sound": DataKind.SCORED_SOUNDS}
NAMES = {
    DataKind.IMAGES: LABEL,
    DataKind.SOUNDS: LABEL,
    DataKind.CAPTIONS: CAPTION | TEXT,
    DataKind.SPEECH: TRANSCRIPT | TEXT,
    DataKind.SCORED_IMAGES: SCORE,
    DataKind.SCORED_SOUNDS: SCORE,
}


@dataclass(frozen=True)
class MediaColumn:
    """A table one of whose columns names images or sounds."""

    preview: TablePreview
    column: int
    noun: str  # image or sound

    @property
    def file(self) -> Path:
        return self.preview.file

    @property
    def names(self) -> list[str]:
        """The first names."""
        return self.preview.values(self.column)[:50]

    @property
    def others(self) -> tuple[int, ...]:
        """Columns that may say something about the files."""
        return tuple(at for at in self.preview.columns_besides(BESIDES) if at != self.column)

    def choose(self, query: DataQuery) -> tuple[DataKind, int]:
        """The kind, and the column that says it: by the names of columns; else, where one is left, by its values."""
        table, scored = self.preview, SCORED_KINDS[self.noun]
        others = tuple(table.find(column) for column in query.columns[1:]) or self.others
        kinds = (query.kind,) if query.kind else (*KINDS[self.noun], scored)
        for kind in kinds:
            named = [at for at in others if table.name(at) in NAMES[kind]]
            if len(named) == 1 and (query.kind or kind is not scored or are_scores(table, named[0], labels=False)):
                return (kind if query.kind else self.by_values(kind, named[0])), named[0]
        if len(others) != 1:
            others = self.suited(others, query.kind)
        if len(others) != 1:
            raise self.undecided(others)
        (text,) = others
        if query.kind:
            return query.kind, text
        classes = text not in table.lists and look_like_labels(table.values(text), table.values(self.column))
        return self.by_values(kinds[0 if classes else 1], text), text

    def by_values(self, kind: DataKind, column: int) -> DataKind:
        """The kind of a column without a name that says it is a text: another one, where it has numbers to predict."""
        classes, _ = KINDS[self.noun]
        named = self.preview.name(column) in NAMES[kind]
        may_be = kind is classes or not named
        return SCORED_KINDS[self.noun] if may_be and self.has_scores(column, kind is classes) else kind

    def has_scores(self, column: int, labels: bool) -> bool:
        """Whether a column has numbers to predict; any are where they are no classes, as a text is no number."""
        if column in self.preview.lists:
            return False
        numbers = share_of_numbers(self.preview.values(column)) >= MIN_SCORE_SHARE
        return numbers if not labels else are_scores(self.preview, column, labels=True)

    def suited(self, others: Sequence[int], kind: DataKind | None) -> tuple[int, ...]:
        """Of several columns those of numbers, where these are asked for; else, of JSON, those of no fractions."""
        table = self.preview
        if kind in SCORED:
            return tuple(at for at in others if share_of_numbers(table.values(at)) >= MIN_SCORE_SHARE)
        return tuple(at for at in others if table.dialect or not self.has_scores(at, labels=True))

    def undecided(self, others: Sequence[int]) -> UserError:
        table = self.preview
        names = table.names or tuple(range(1, table.width + 1))
        example = spelled([names[self.column], names[others[-1]] if others else "…"])
        said = f"{table.file} names files and nothing says what else in it is meant ({listed(map(str, names))})"
        return UserError(said, do=f"choose two columns, as in data.columns {example}")


def find_names(query: DataQuery, file: Path) -> MediaColumn | None:
    """The column that names files; None where there is none, or where other data is wanted."""
    found = media_column(query, file)
    kinds = (None, *KINDS[found[2]], SCORED_KINDS[found[2]]) if found else ()
    return MediaColumn(*found) if found and query.kind in kinds else None
