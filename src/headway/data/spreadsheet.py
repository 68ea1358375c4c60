"""Excel files (.xlsx) as rows of objects, by openpyxl, an extra: the first row names the columns.

Row by row, so that memory does not grow with the file.  Formulas are read as the values that were saved with them.
What a damaged or hostile file would unpack is bounded before it is opened.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError

from headway.data.text_lines import MAX_FILE_BYTES, Flaw, Problem, check_file
from headway.errors import UserError, listed

EXCEL = ".xlsx"
CSV = "save the sheet as .csv"


def read_sheet(file: Path, keys: tuple[str, ...] = ()) -> Iterator[tuple[int, dict[str, Any]] | Problem]:
    """The rows below the names of columns, by the numbers that Excel shows; with no keys, all columns."""
    with opened_sheet(file) as rows:
        names = column_names(file, next(rows, ()))
        blank = list[int]()  # rows that are no record unless others follow
        number = 1
        try:
            for number, cells in enumerate(rows, 2):
                if all(cell is None for cell in cells):
                    blank.append(number)
                    continue
                yield from (Problem(file, at, Flaw.EMPTY, "a blank line") for at in blank)
                blank.clear()
                pairs = zip(names, cells, strict=False)
                yield number, {name: plain(cell) for name, cell in pairs if name and (not keys or name in keys)}
        except damages() as error:
            said = f"the file is damaged, and what follows cannot be read: {type(error).__name__}"
            yield Problem(file, number + 1, Flaw.BROKEN, said)


def sheet_rows(file: Path) -> int:
    """How many rows are below the names of columns, blank ones at the end left out."""
    return sum(1 for _ in read_sheet(file))


def column_names(file: Path, cells: tuple[Any, ...]) -> list[str]:
    names = ["" if cell is None else str(cell).strip() for cell in cells]
    twice = next((name for at, name in enumerate(names) if name and name in names[:at]), None)
    if twice is not None:
        raise UserError(f"{file} has two columns {twice!r}", do="give each a name of its own")
    if not any(names):
        raise UserError(f"{file} has no names of columns in its first row", do="put them there, as in text and label")
    return names


def plain(value: Any) -> Any:
    """A cell as JSON would hold it: whole numbers without a fraction, dates as texts."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)


@contextmanager
def opened_sheet(file: Path) -> Generator[Iterator[tuple[Any, ...]]]:
    """The rows of the only sheet that holds something."""
    check_file(file)
    try:
        excel: Any = import_module("openpyxl")
    except ImportError:
        raise UserError(
            f"{file} is an Excel file, and openpyxl is not there", do="pip install 'headway[xlsx]'"
        ) from None
    with damage_refused(file), ZipFile(file) as packed:
        size = sum(one.file_size for one in packed.infolist())
    if size > MAX_FILE_BYTES:
        raise UserError(f"{file} unpacks to {size:,} bytes where {MAX_FILE_BYTES:,} are allowed", do=CSV)
    with damage_refused(file):
        book = excel.load_workbook(file, read_only=True, data_only=True)
    try:
        full = [one for one in book.worksheets if any(True for _ in one.iter_rows(max_row=1, values_only=True))]
        if len(full) > 1:
            said = f"{file} has {len(full)} sheets ({listed([one.title for one in full], 4)})"
            raise UserError(said, do="keep the one that is meant, or save it as .csv")
        if not full:
            raise UserError(f"{file} is empty")
        yield full[0].iter_rows(values_only=True)
    finally:
        book.close()


@contextmanager
def damage_refused(file: Path) -> Generator[None]:
    try:
        yield
    except damages() as error:
        raise UserError(f"{file} cannot be read as an Excel file: {type(error).__name__}", do=CSV) from None


def damages() -> tuple[type[Exception], ...]:
    """What reading a damaged file raises; openpyxl has errors of its own, and lets those of its parser through."""
    errors: Any = import_module("openpyxl.utils.exceptions")
    return (BadZipFile, ZlibError, KeyError, ValueError, SyntaxError, EOFError, errors.InvalidFileException)
