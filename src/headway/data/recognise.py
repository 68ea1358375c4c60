"""What the files that a person hands over hold, and which task they are for.

.tsv, .csv and .jsonl files are tables, a .txt file is one document, a folder is all .txt files in it, and two files may
be parallel; each may be gzipped.  Images, sounds and numbers are tried first.  The choice is told in one sentence, with
the option that changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from headway.data.idx import recognise_idx
from headway.data.kinds import TEXTUAL, DataKind
from headway.data.numbers import recognise_numbers
from headway.data.recognise_media import recognise_media
from headway.data.records import DataQuery, ParallelFiles, RecognisedData, RecordSource, TextFile
from headway.data.table_preview import choose, described, preview_texts
from headway.data.text_lines import ARCHIVE_SUFFIXES, TABLE_SUFFIXES, check_file, check_format, line_count, suffix_of
from headway.errors import UserError, counted, listed

ALLOWED = (
    ".tsv, .csv, .jsonl or .txt, each also with .gz; a folder of .txt files, of images or of sounds; "
    "or two parallel files, as data.source and data.target"
)
OTHERS: tuple[Callable[[DataQuery], RecognisedData | None], ...] = (recognise_idx, recognise_media, recognise_numbers)


def recognise(
    paths: Sequence[Path],
    *,
    source: Path | None = None,
    target: Path | None = None,
    kind: DataKind | None = None,
    columns: Sequence[str | int] | None = None,
    label_from: str | None = None,
    rate: int | None = None,
    frames: int = 1,
    nameless: bool = False,
) -> RecognisedData:
    """What the files hold; a kind and columns (names, or numbers from 1) that are given win over their looks.

    `label_from` is a pattern that finds a class or a transcript in the names of images or sounds, `rate` that at which
    all sounds are wanted (else they must have one), and `frames` how many an animated image may have.  Images that are
    `nameless` need no classes: all that a folder holds are taken.
    """
    if source or target:
        return parallel(paths, source, target, kind)
    if not paths:
        raise UserError("no data was given", allowed=ALLOWED)
    for path in paths:
        check_path(path)
    query = DataQuery(tuple(paths), kind, tuple(columns or ()), label_from, rate, frames, nameless)
    for look in () if kind in TEXTUAL else OTHERS:
        if found := look(query):
            return found
    check_textual(query)
    files = [file for path in paths for file in unfolded(path)]
    suffixes = {meant_as(file, kind) for file in files}
    if suffixes == {".txt"}:
        return documents(paths, files, columns or ())
    if ".txt" in suffixes:
        raise UserError(f"{listed(map(str, files), 3)}: tables and texts cannot be read together")
    return tables(query, files)


def check_textual(query: DataQuery) -> None:
    """A UserError where something other than texts was asked for."""
    named = listed(map(str, query.paths), 3)
    if query.kind is not None and query.kind not in TEXTUAL:
        raise UserError(f"{named}: no {query.kind.value} are there", do="leave out data.task")
    if query.label_from is not None:
        raise UserError(f"{named}: classes are in names of images and sounds only", do="leave out data.label_from")


def recognise_validation(
    given: RecognisedData,
    paths: Sequence[Path],
    *,
    columns: Sequence[str | int] | None = None,
    label_from: str | None = None,
    nameless: bool = False,
) -> RecognisedData:
    """Validation data, read as the training data is."""
    if not isinstance(given.sources[0], ParallelFiles):
        columns = columns or given.columns or None
        return recognise(paths, kind=given.kind, columns=columns, label_from=label_from, nameless=nameless)
    if len(paths) != 2:
        said = f"data.validation is {listed(map(str, paths))}"
        raise UserError(said, allowed="two files, of sources and of targets, as data.source and data.target are")
    return recognise([], source=paths[0], target=paths[1], kind=given.kind)


def check_path(path: Path) -> None:
    """A UserError where nothing has this name, on the disk or within an archive, or it must be converted first."""
    if not path.exists() and not any(above.is_file() for above in path.parents):
        check_file(path)
    if path.is_file():
        check_format(path)


def parallel(paths: Sequence[Path], source: Path | None, target: Path | None, kind: DataKind | None) -> RecognisedData:
    if not (source and target):
        raise UserError("parallel files come in twos", do="give both data.source and data.target")
    if paths:
        raise UserError(
            f"{paths[0]} and parallel files cannot be read together", do="give it, or data.source and data.target"
        )
    if source == target:
        raise UserError(f"{source} is given as source and as target")
    if kind is DataKind.TEXTS:
        do = "give them without data.source and data.target to read texts"
        raise UserError(f"{source} and {target} are pairs", do=do)
    for file in (source, target):
        check_format(file)
    lines = [counted(line_count(file), "line") for file in (source, target)]
    kind = kind or DataKind.PAIRS
    same = f"{lines[0]} each" if lines[0] == lines[1] else " and ".join(lines)
    why = f"{source} and {target}: parallel files of {same}"
    return RecognisedData(kind, (ParallelFiles(source, target),), why)


def documents(paths: Sequence[Path], files: Sequence[Path], columns: Sequence[str | int]) -> RecognisedData:
    if columns:
        raise UserError(f"{files[0]} is a text without columns", do="leave out data.columns, or say data.task")
    named = listed(map(str, paths), 3)
    if len(files) == 1:
        said = f"{counted(line_count(files[0]), 'line')} of text"
    else:
        said = f"{counted(len(files), 'file')} of text, {sum(file.stat().st_size for file in files):,} bytes"
    why = f"{named}: {said}"
    return RecognisedData(DataKind.TEXTS, tuple(TextFile(file) for file in files), why)


def tables(query: DataQuery, files: Sequence[Path]) -> RecognisedData:
    """The first file decides; the others must have the same columns."""
    sources: list[RecordSource] = []
    told: list[str] = []
    lines = 0
    for file in files:
        lines += line_count(file)
        table = preview_texts(query, file, meant_as(file, DataKind.PAIRS))
        chosen = choose(table, query)
        lines -= table.header_lines
        sources.append(table.source(chosen.columns))
        told.append(described(table, chosen))
        query = replace(query, kind=chosen.kind, columns=query.columns or sources[0].columns)
    assert query.kind is not None
    said = f"{listed(map(str, files), 3)}: {counted(lines, 'line')} of {told[0]}"
    return RecognisedData(query.kind, tuple(sources), f"{said}")


def unfolded(path: Path) -> list[Path]:
    """A file, or the texts in a folder and the folders in it, in the order of their names."""
    if not path.is_dir():
        check_file(path)
        return [path]
    inside = sorted((file for file in path.rglob("*") if file.is_file()), key=lambda file: file.parts)
    texts = [file for file in inside if suffix_of(file) == ".txt"]
    if not texts:
        if not inside:
            raise UserError(f"the folder {path} is empty", allowed=ALLOWED)
        names = listed((str(file.relative_to(path)) for file in inside), 4)
        raise UserError(f"the folder {path} holds no .txt files, only {names}", do="name the files that are meant")
    return texts


def meant_as(file: Path, kind: DataKind | None) -> str:
    """The suffix that says how a file is read; a text that is asked to have columns has tabs between them."""
    suffix = suffix_of(file)
    if suffix == ".txt" and kind not in (None, DataKind.TEXTS):
        return ".tsv"
    if suffix in (".txt", *TABLE_SUFFIXES):
        return suffix
    if suffix in ARCHIVE_SUFFIXES:
        raise UserError(f"{file} is an archive", do="unpack it; single files may be packed with gzip")
    raise UserError(f"{file}: what a {suffix or 'file without a suffix'} holds is not known", allowed=ALLOWED)
