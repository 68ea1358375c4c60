"""Tables: rows of cells in lines of text, and objects in lines of JSON or in columns, as records.

A .tsv file has no quotes: a sentence in it may begin with one.  In a .csv file (RFC 4180) a quoted cell may hold the
separator, line ends and doubled quotes; a quote inside an unquoted cell is a character like any other.  After broken
quotes reading resumes at the line after the one where the row began.
"""

from __future__ import annotations

import csv
import json
import posixpath
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from headway.data.columnar import read_columns, stored_rows
from headway.data.kinds import DataKind
from headway.data.records import FileSource, Record, flaw_of
from headway.data.spreadsheet import EXCEL, read_sheet, sheet_rows
from headway.data.text_lines import (
    COLUMNAR_SUFFIXES,
    CUT,
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    Flaw,
    Problem,
    TextLine,
    line_count,
    open_bytes,
    read_lines,
    suffix_of,
    without_last_blanks,
)
from headway.errors import UserError, counted, listed, nearest

MAX_QUOTED_LINES = 1000  # lines of a quoted cell: an unclosed quote takes no more with it, nor more than MAX_LINE_BYTES
SEPARATORS = (",", ";", "\t", "|")
LONE_CR, STAND_IN = re.compile(r"\r(?!\n)"), "\ufdd0"  # a noncharacter of Unicode: no text has it
TableRow: TypeAlias = tuple[int, tuple[str, ...]]  # the line where a row begins, and its cells
JsonRow: TypeAlias = tuple[int, dict[str, Any]]  # the line of an object

csv.field_size_limit(2**31 - 1)  # lines are bounded where they are read


@dataclass(frozen=True)
class Dialect:
    """How lines are split into cells: by a separator, `quoted` as in RFC 4180 or never."""

    separator: str = "\t"
    quoted: bool = False

    def rows(self, file: Path) -> Iterator[TableRow | Problem]:
        waiting = deque[TextLine]()  # lines after a broken quote, which are read again

        def following() -> Iterator[TextLine]:
            lines = without_last_blanks(read_lines(file))
            while line := waiting.popleft() if waiting else next(lines, None):
                yield line

        lines = following()
        for line in lines:
            taken = [line]
            quoted = self.quoted and '"' in line.text
            cells = self.cells(taken, lines) if quoted else line.bare.split(self.separator)
            if cells is None:
                waiting.extendleft(reversed(taken[1:]))
                said = "a cell begins with a quote that nothing closes before a separator or the end of a line"
                yield line.problem or Problem(file, line.number, Flaw.QUOTES, said)
            else:
                yield next((part.problem for part in taken if part.problem), (line.number, tuple(cells)))

    def cells(self, taken: list[TextLine], lines: Iterator[TextLine]) -> list[str] | None:
        """The cells of a row; None where its quotes are broken.  Lines that it needs are added to `taken`."""

        def texts() -> Iterator[str]:
            # csv ends a row at \r; here that is a character, unless \n follows
            yield LONE_CR.sub(STAND_IN, taken[0].text)
            size = len(taken[0].text)
            for line in islice(lines, MAX_QUOTED_LINES):
                taken.append(line)
                if (size := size + len(line.text)) > MAX_LINE_BYTES:
                    return
                yield LONE_CR.sub(STAND_IN, line.text)

        try:
            cells = next(csv.reader(texts(), delimiter=self.separator, strict=True))
        except csv.Error:
            return None
        return [cell.replace(STAND_IN, "\r") for cell in cells]


def sniff(file: Path, rows: int = 200) -> Dialect:
    """The quoted dialect by whose separator most of the first rows have the same number of columns, more than one."""

    def agreement(dialect: Dialect) -> float:
        widths = [len(row[1]) for row in islice(dialect.rows(file), rows) if not isinstance(row, Problem)]
        (width, share), *_ = Counter(widths).most_common(1) or [(1, 0)]
        return share / max(len(widths), 1) if width > 1 else 0.0

    return max((Dialect(separator, quoted=True) for separator in SEPARATORS), key=agreement)


@dataclass(frozen=True)
class Table(FileSource):
    """Columns `chosen` (from 0) of a table that is `width` columns wide; `names` are those of its header."""

    dialect: Dialect
    width: int
    chosen: tuple[int, ...]
    names: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[str | int, ...]:
        return tuple(self.names[at] if self.names else at + 1 for at in self.chosen)

    def read(self) -> Iterator[Record | Problem]:
        for row in self.dialect.rows(self.file):
            if isinstance(row, Problem):
                yield row
                continue
            line, cells = row
            if self.names and line == 1:
                continue
            if len(cells) == self.width:
                yield Record(tuple(cells[at] for at in self.chosen), self.file, line)
            elif cells == ("",):
                yield Problem(self.file, line, Flaw.EMPTY, "a blank line")
            else:
                said = f"{counted(len(cells), 'column')} where the file has {self.width}"
                yield Problem(self.file, line, Flaw.COLUMNS, said)

    def column(self, name: str) -> Table:
        at = column_index(self.file, self.names, self.width, name)
        return Table(self.file, self.dialect, self.width, (at,), self.names)

    def field_name(self, field: int) -> str:
        at = self.chosen[field]
        return f"column {at + 1} ({self.names[at]})" if self.names else f"column {at + 1}"


def column_index(
    file: Path, names: Sequence[str] | None, width: int, column: str | int, *, numbered: bool = True
) -> int:
    """The index of a column that is given by name or, where columns are `numbered`, by number from 1."""
    if isinstance(column, str) and names and column in names:
        return names.index(column)
    if str(column).isdecimal() and 0 < int(column) <= width and numbered:
        return int(column) - 1
    allowed = listed(name[:24] for name in names) if names else f"1 to {width}"
    noun = "column" if numbered else "key"
    raise UserError(f"{file} has no {noun} {column!r}", allowed=allowed, meant=nearest(str(column), names or ()))


@dataclass(frozen=True)
class JsonLines(FileSource):
    """Values of the chosen keys of an object on each line: texts, or what a subclass reads."""

    keys: tuple[str, ...]

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.keys

    def read(self) -> Iterator[Record | Problem]:
        for found in read_objects(self.file, self.keys):
            if isinstance(found, Problem):
                yield found
                continue
            line, value = found
            missing = next((key for key in self.keys if value.get(key) is None), None)
            if missing is not None:
                said = f"{missing!r} is null" if missing in value else f"no {missing!r} among its keys"
                yield Problem(self.file, line, Flaw.KEY, said)
            else:
                fields = self.fields(line, value)
                yield fields if isinstance(fields, Problem) else Record(fields, self.file, line)

    def column(self, name: str) -> JsonLines:
        return JsonLines(self.file, (name,))

    def fields(self, line: int, value: dict[str, Any]) -> tuple[str, ...] | Problem:
        texts: list[str] = []
        for key in self.keys:
            text = as_text(value[key])
            if text is None:
                said = f"{key!r} is {shortened(value[key])}, not a text, a whole number or a list of words"
                return Problem(self.file, line, Flaw.VALUE, said)
            texts.append(text)
        return tuple(texts)

    def field_name(self, field: int) -> str:
        return repr(self.keys[min(field, len(self.keys) - 1)])


@dataclass(frozen=True)
class TextLists(JsonLines):
    """Lines of JSON with the name of a file and what is said about it: a text or, where `several` may be, a list."""

    several: bool

    def fields(self, line: int, value: dict[str, Any]) -> tuple[str, ...] | Problem:
        name_key, text_key = self.keys
        name, texts = as_texts(value[name_key]), as_texts(value[text_key])
        if name is None or len(name) > 1:
            return Problem(self.file, line, Flaw.VALUE, f"{name_key!r} is {shortened(value[name_key])}, not a name")
        if texts is None or (len(texts) > 1 and not self.several):
            allowed = "a text or a list of texts" if self.several else "a text"
            said = f"{text_key!r} is {shortened(value[text_key])}, not {allowed}"
            return Problem(self.file, line, Flaw.VALUE, said)
        return *name, *texts


def grouped_by_file(rows: Iterable[Record | Problem]) -> Iterator[Record | Problem]:
    """All lines that name the same file as one record with several texts, where the first stands.

    A text that cannot be learned from is a record of its own, so that it alone is left out, and its line is reported.
    """
    found: list[tuple[Record | Problem, list[str]]] = []
    texts_of: dict[str, list[str]] = {}  # of each file
    for row in rows:
        if isinstance(row, Problem):
            found.append((row, []))
            continue
        name, *texts = row.fields
        bad = [text for text in texts if flaw_of(text, DataKind.TEXTS, 0)]
        found += [(replace(row, fields=(name, text)), []) for text in bad]
        if good := [text for text in texts if text not in bad]:
            file = posixpath.normpath(name)
            if file not in texts_of:
                found.append((replace(row, fields=(name,)), texts_of.setdefault(file, [])))
            texts_of[file] += good
    for row, texts in found:
        yield row if isinstance(row, Problem) else replace(row, fields=(*row.fields, *texts))


def read_objects(file: Path, keys: tuple[str, ...] = ()) -> Iterator[JsonRow | Problem]:
    """The objects of a file, with the numbers of their lines or rows; those of columns with the columns of `keys`."""
    if suffix_of(file) in COLUMNAR_SUFFIXES:
        for found in (read_sheet if suffix_of(file) == EXCEL else read_columns)(file, keys):
            yield found if isinstance(found, Problem) else (found[0], flat(found[1]))
        return
    if suffix_of(file) == ".json":
        for number, value in enumerate(read_value(file), 1):
            said = f"{shortened(value)} is no JSON object"
            yield (number, flat(value)) if isinstance(value, dict) else Problem(file, number, Flaw.JSON, said)
        return
    for line in without_last_blanks(read_lines(file)):
        yield line.problem or read_object(line, file)


def read_value(file: Path) -> list[Any]:
    """The list that a .json file is, or the one list among the values of its object; read as a whole."""
    try:
        with open_bytes(file) as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except CUT:
        raise UserError(f"{file} is damaged", do="get the file again") from None
    do = "write a list of objects, or one object on each line of a .jsonl file"
    if len(data) > MAX_FILE_BYTES:
        raise UserError(f"{file} has more than {MAX_FILE_BYTES:,} bytes, and is read as a whole", do=do)
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        known: dict[type[Exception], str] = {UnicodeDecodeError: "it is not UTF-8", RecursionError: "nested too deeply"}
        raise UserError(f"{file} is not JSON: {known.get(type(error), error)}", do=do) from None
    lists = [one for one in value.values() if isinstance(one, list)] if isinstance(value, dict) else [value]
    if len(lists) != 1 or not isinstance(lists[0], list):
        raise UserError(f"{file} is one JSON value and no list of objects", do=do)
    if not lists[0]:
        raise UserError(f"{file} is empty")
    return lists[0]


def written_lines(file: Path) -> Iterator[TextLine]:
    """The lines of a table as they are written, where its rows are lines."""
    return iter(()) if suffix_of(file) in (".json", *COLUMNAR_SUFFIXES) else read_lines(file)


def row_count(file: Path) -> int:
    """Lines or rows; a UserError where there are none."""
    if suffix_of(file) in COLUMNAR_SUFFIXES:
        return sheet_rows(file) if suffix_of(file) == EXCEL else stored_rows(file)
    return len(read_value(file)) if suffix_of(file) == ".json" else line_count(file)


def read_object(line: TextLine, file: Path) -> JsonRow | Problem:
    if not line.bare:
        return Problem(file, line.number, Flaw.EMPTY, "a blank line")
    try:
        value = json.loads(line.text, object_pairs_hook=unique_keys)
        value = flat(value) if isinstance(value, dict) else value
    except (ValueError, RecursionError) as error:
        said = str(error).partition(": line ")[0]
        at = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        return Problem(file, line.number, Flaw.JSON, f"not JSON: {said or 'nested too deeply'}{at}")
    if not isinstance(value, dict):
        return Problem(file, line.number, Flaw.JSON, f"{shortened(value)} is no JSON object")
    return line.number, value


def flat(value: dict[str, Any]) -> dict[str, Any]:
    """What is nested by its path: {"translation": {"de": "ja"}} as {"translation.de": "ja"}."""

    def pairs(inner: dict[str, Any], before: str) -> Iterator[tuple[str, Any]]:
        for key, one in inner.items():
            if one and isinstance(one, dict):
                yield from pairs(one, f"{before}{key}.")
            else:
                yield f"{before}{key}", one

    nested = any(isinstance(one, dict) for one in value.values())
    return unique_keys(list(pairs(value, ""))) if nested else value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def as_text(value: object) -> str | None:
    """A text as it is, a whole number or a boolean as JSON writes them, words of a list joined by spaces."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return json.dumps(value)
    if isinstance(value, list) and all(map(is_word, value)):
        return " ".join(map(str, value))
    return None


def is_word(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value.split() == [value])


def as_texts(value: Any) -> tuple[str, ...] | None:
    """A text, a whole number as JSON writes it, or a list of texts."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, int):
        return (json.dumps(value),)
    if isinstance(value, list) and value and all(isinstance(text, str) for text in value):
        return tuple(value)
    return None


def shortened(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=lambda one: type(one).__name__)
    return text if len(text) <= 40 else f"{text[:39]}…"
