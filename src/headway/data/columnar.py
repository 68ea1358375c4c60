"""Parquet and Arrow files as rows of objects, read by column and batch by batch, by pyarrow, an extra.

Of a Parquet file only the columns in use are read, page by page; an Arrow file (`.arrow`, `.feather`; the file and the
stream layout) is mapped.  Memory holds a batch, whatever the size of the file or of its row groups.  Classes that
`datasets` stores as numbers get the names that the file has for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from headway.data.text_lines import Flaw, Problem, check_file, inside, suffix_of
from headway.errors import UserError

BATCH_ROWS = 512
FILE_MAGIC = b"ARROW1"  # of Arrow's file layout; the stream layout begins with a length
NOUNS = {".parquet": "a Parquet file", ".arrow": "an Arrow file", ".feather": "an Arrow file"}
Batch: TypeAlias = Any  # pyarrow.RecordBatch: pyarrow need not be installed
Names: TypeAlias = dict[str, list[str]]  # of the classes of a column


def read_columns(file: Path, keys: tuple[str, ...] = ()) -> Iterator[tuple[int, dict[str, Any]] | Problem]:
    """The rows, counted from 1, with the columns that are named or on the way to a path; with no keys, all columns."""
    with opened(file) as (batches, schema, _):
        names = class_names(schema)
        row = 0
        try:
            for batch in batches(keys):
                batch.validate(full=True)  # what is mapped may point anywhere
                columns = [(name, names.get(name), batch.column(at)) for at, name in enumerate(batch.schema.names)]
                for at in range(batch.num_rows):
                    row += 1
                    yield row, {name: named(column[at].as_py(), own) for name, own, column in columns}
        except (*failures(), UnicodeDecodeError, ValueError, OverflowError) as error:
            said = f"the file is damaged, and what follows cannot be read: {one_line(error)}"
            yield Problem(file, row + 1, Flaw.BROKEN, said)


def stored_rows(file: Path) -> int:
    """How many rows the file says it has."""
    with opened(file) as (_, _, rows):
        return rows()


@contextmanager
def opened(
    file: Path,
) -> Generator[tuple[Callable[[tuple[str, ...]], Iterable[Batch]], Any, Callable[[], int]]]:
    """The batches of some columns, the schema, and the count of rows of a file."""
    noun = NOUNS[suffix_of(file)]
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        said = f"{file} is {noun}, and pyarrow, which reads it, is not installed"
        raise UserError(said, do="pip install 'headway[parquet]'") from None
    member = inside(file)
    if member is None:
        check_file(file)
    try:
        with arrow.BufferReader(member.read()) if member else arrow.memory_map(str(file)) as source:
            if suffix_of(file) == ".parquet":
                table = parquet.ParquetFile(source, pre_buffer=False, buffer_size=2**16)
                yield partial(parquet_batches, table), table.schema_arrow, lambda: table.metadata.num_rows
            else:
                reader = arrow_reader(arrow, source)
                count = partial(sum, (batch.num_rows for batch in arrow_batches(arrow, source, ())))
                yield partial(arrow_batches, arrow, source), reader.schema, count
    except (*failures(), ValueError) as error:
        if isinstance(error, UserError):
            raise
        said = f"{file} cannot be read as {noun}: {one_line(error)}"
        raise UserError(said, do="get it again, or convert it to .csv or .jsonl") from None


def parquet_batches(table: Any, keys: tuple[str, ...]) -> Iterable[Batch]:
    return table.iter_batches(batch_size=BATCH_ROWS, columns=list(keys) or None)


def arrow_reader(arrow: Any, source: Any, options: Any = None) -> Any:
    source.seek(0)
    layout = arrow.ipc.open_file if source.read(len(FILE_MAGIC)) == FILE_MAGIC else arrow.ipc.open_stream
    source.seek(0)
    return layout(source, options=options)


def arrow_batches(arrow: Any, source: Any, keys: tuple[str, ...]) -> Iterator[Batch]:
    """Batches of at most as many rows as of Parquet; a column is read whole where any part of it is named."""
    reader = arrow_reader(arrow, source)
    names: list[str] = reader.schema.names
    if keys:
        fields = [at for at, name in enumerate(names) if any(f"{key}.".startswith(f"{name}.") for key in keys)]
        reader = arrow_reader(arrow, source, arrow.ipc.IpcReadOptions(included_fields=fields))
    numbered = hasattr(reader, "num_record_batches")  # in the file layout
    for batch in map(reader.get_batch, range(reader.num_record_batches)) if numbered else reader:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def class_names(schema: Any) -> Names:
    """The names of classes that `datasets` wrote into a file, by column."""
    written = (schema.metadata or {}).get(b"huggingface", b"{}")
    with suppress(ValueError, AttributeError, TypeError, RecursionError):
        features = json.loads(written).get("info", {}).get("features", {})
        return {
            key: list(map(str, feature["names"]))
            for key, feature in features.items()
            if isinstance(feature, dict) and isinstance(feature.get("names"), list)
        }
    return {}


def named(value: Any, names: list[str] | None) -> Any:
    """A class by its name, where it has one: datasets write -1 where a class is not known."""
    if names is None or not isinstance(value, int) or isinstance(value, bool):
        return value
    if value < 0:
        return None
    return names[value] if value < len(names) else value


def failures() -> tuple[type[Exception], ...]:
    """What pyarrow raises of a file that is none, or is damaged."""
    arrow: Any = import_module("pyarrow")
    return arrow.ArrowException, OSError


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
