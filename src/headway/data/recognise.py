"""What the files that a person gives hold, and which task they are for.

.tsv, .csv, .jsonl, .json, .parquet, .arrow and .xlsx files are tables, a .txt or .md file is one document, a folder is
all of them in it, and two files may be parallel; each text may be gzipped.  Tagged words (CoNLL), images, sounds
and numbers are tried first.  One sentence describes the choice, with the option that changes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path

from headway.data.column_choice import SHOWN, choose, described, doubted_header, refuse_mixed
from headway.data.composed_columns import recognise_composed
from headway.data.conll import recognise_conll
from headway.data.conversations import recognise_conversations
from headway.data.kinds import NUMERIC, TEXTUAL, DataKind
from headway.data.records import DataQuery, ParallelFiles, RecognisedData, RecordSource, TextFile, as_number
from headway.data.shards import hash_of
from headway.data.table import Table, row_count
from headway.data.table_preview import media_column, preview_rows, preview_texts
from headway.data.text_lines import (
    ARCHIVE_SUFFIXES,
    COLUMNAR_SUFFIXES,
    OBJECT_SUFFIXES,
    PARTS,
    TABLE_SUFFIXES,
    check_file,
    check_format,
    expanded,
    line_count,
    read_lines,
    suffix_of,
)
from headway.errors import UserError, counted, listed

ALLOWED = (
    ".tsv, .csv, .jsonl, .json, .txt, .md or .conll, each also with .gz; .parquet, .arrow or .xlsx; "
    "a folder of .txt or .md files, of images or of sounds; or two parallel files, as data.source and data.target"
)
MAX_NUMBERS = 200  # lines of a text that are looked at


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
    header: str | None = None,
    group: str | None = None,
) -> RecognisedData:
    """What the files hold; a kind and columns (names, or numbers from 1) that are given win over their looks.

    `label_from` is a pattern that finds a class or a transcript in the names of images or sounds, `rate` that at which
    all sounds are wanted (else they must have one), and `frames` how many an animated image may have.  Images that are
    `nameless` need no classes: all that a folder holds are taken.  `header` is yes or no where the first line of a
    table is not to be judged by its looks.  The column `group` is none of those that are looked at.
    """
    if source or target:
        if header is not None:
            raise no_table(f"{source} and {target}")
        return parallel(paths, source, target, kind)
    if not paths:
        raise UserError("no data was given", allowed=ALLOWED)
    paths = [one for path in paths for one in expanded(path)]
    for path in paths:
        check_path(path)
    query = DataQuery(tuple(paths), kind, tuple(columns or ()), label_from, rate, frames, nameless, header, group)
    found = recognise_files(query)
    if header is not None and not any(suffix in (".csv", ".tsv") for _, suffix in query.samples):
        raise no_table(listed(map(str, paths), 3))
    return found


def recognise_files(query: DataQuery) -> RecognisedData:
    if query.kind is DataKind.SCORES:
        query = replace(query, kind=scored_kind(query))
    paths, kind, columns, label_from = query.paths, query.kind, query.columns, query.label_from
    if found := recognise_conll(query):
        return found
    if kind not in TEXTUAL and (found := recognise_media_or_numbers(query)):
        return found
    named = listed(map(str, paths), 3)
    if kind is not None and kind not in TEXTUAL:
        raise UserError(f"{named}: no {kind.value} are there", do="leave out data.task")
    if label_from is not None:
        raise UserError(f"{named}: classes are in names of images and sounds only", do="leave out data.label_from")
    files = [file for path in paths for file in unfolded(path)]
    if found := recognise_conversations(query, files):
        return found
    if found := recognise_composed(query, files):
        return found
    suffixes = {meant_as(file, kind) for file in files}
    if suffixes == {".txt"}:
        return documents(paths, files, columns)
    if ".txt" in suffixes:
        said = f"{listed(map(str, files), 3)}: tables and texts cannot be read together"
        raise UserError(said, do="give the tables, or the texts")
    return tables(query, files)


def scored_kind(query: DataQuery) -> DataKind:
    """What is scored where numbers are asked for: images, sounds or series where files hold them, else texts."""
    suffixes = {suffix_of(path) for path in query.paths}
    plain = suffixes <= {*TABLE_SUFFIXES, ".txt"} and all(path.is_file() for path in query.paths)
    if not plain or any(suffix_of(path) != ".txt" and media_column(query, path) for path in query.paths):
        from headway.data.recognise_media import scored_medium  # late: texts need no code of media

        return scored_medium(query) or DataKind.SCORES
    if suffixes <= {".csv", ".tsv"}:
        from headway.data.numbers import has_only_numbers  # late, too

        return DataKind.SCORED_SERIES if has_only_numbers(query, query.paths[0]) else DataKind.SCORES
    return DataKind.SCORES


def no_table(named: str) -> UserError:
    return UserError(f"{named}: there is no .csv or .tsv table that could have a header", do="leave out data.header")


def recognise_media_or_numbers(query: DataQuery) -> RecognisedData | None:
    """Images, sounds or numbers.  Their modules are imported where names or values of files point to them."""
    paths, kind = query.paths, query.kind
    suffixes = {suffix_of(path) for path in paths}
    plain = kind in (None, *NUMERIC) and suffixes <= {".txt", *TABLE_SUFFIXES} and all(path.is_file() for path in paths)
    if not plain or (kind is None and len(paths) == 1 and suffixes != {".txt"} and media_column(query, paths[0])):
        from headway.data.idx import recognise_idx
        from headway.data.recognise_media import recognise_media

        if found := recognise_idx(query) or recognise_media(query):
            return found
    if plain and (kind or suffixes <= {*OBJECT_SUFFIXES} or any_number(query)):
        from headway.data.numbers import recognise_numbers

        return recognise_numbers(query)
    return None


def any_number(query: DataQuery) -> bool:
    """Whether any of the first cells of tables is a number, or all first lines of texts are."""
    if {suffix_of(file) for file in query.paths} == {".txt"}:
        return all(map(is_column_of_numbers, query.paths))
    tables = [file for file in query.paths if suffix_of(file) in (".csv", ".tsv")]
    previews = (preview_rows(query, file, suffix_of(file)) for file in tables)
    alone = len(tables) == len(query.paths)
    return alone and any(as_number(cell) is not None for preview in previews for row in preview.rows for cell in row)


def is_column_of_numbers(file: Path) -> bool:
    lines = [line.text for line in islice(read_lines(file), MAX_NUMBERS) if line.text.strip()]
    return len(lines) > 1 and all(as_number(line) is not None for line in lines)


def recognise_held_back(
    given: RecognisedData,
    paths: Sequence[Path],
    option: str = "data.validation",
    *,
    columns: Sequence[str | int] | None = None,
    label_from: str | None = None,
    nameless: bool = False,
    header: str | None = None,
    group: str | None = None,
) -> RecognisedData:
    """Validation or test data, read as the training data is; a UserError where it is the training data."""
    if isinstance(given.sources[0], ParallelFiles):
        if len(paths) != 2:
            said = f"{option} is {listed(map(str, paths))}"
            raise UserError(said, allowed="two files, of sources and of targets, as data.source and data.target are")
        found = recognise([], source=paths[0], target=paths[1], kind=given.kind)
    else:
        columns = columns or given.columns or None
        found = recognise(
            paths,
            kind=given.kind,
            columns=columns,
            label_from=label_from,
            nameless=nameless,
            header=header,
            group=group,
        )
    if is_same_data(given, found):
        said = f"{option} {listed(map(str, paths))} is the training data, so its scores would say nothing"
        held = ": a share of the data is then held out" if option == "data.validation" else ""
        raise UserError(said, do=f"give other records, or leave it out{held}")
    refuse_other_task(given, found, option)
    return found


def is_same_data(given: RecognisedData, found: RecognisedData) -> bool:
    """Whether every file is one of the others, or has the same lines, where it has lines."""
    own = {identity(file) for file in given.files}
    others = given.files if given.kind in TEXTUAL | NUMERIC else ()
    same = (identity(file) in own or any(have_same_lines(file, other) for other in others) for file in found.files)
    return bool(found.files) and all(same)


def identity(file: Path) -> object:
    """The same for all names of a file; a member of an archive has its path alone."""
    return (file.stat().st_dev, file.stat().st_ino) if file.exists() else file


def have_same_lines(file: Path, other: Path) -> bool:
    """Whether two files say the same, packed or not; reading ends where they differ."""
    if {suffix_of(file), suffix_of(other)} & {*COLUMNAR_SUFFIXES}:
        return hash_of(file) == hash_of(other)
    pairs = zip_longest(read_lines(file), read_lines(other))
    return all(left and right and left.bare == right.bare for left, right in pairs)


def refuse_other_task(given: RecognisedData, found: RecognisedData, option: str) -> None:
    """Columns that look like another kind of data than those of training, with nothing in common."""
    first, other = given.sources[0], found.sources[0]
    if given.kind not in SHOWN or not isinstance(first, Table) or not isinstance(other, Table):
        return
    (ours, known), (theirs, values) = looks(first), looks(other)
    if ours is given.kind and theirs and theirs is not ours and not known & values:
        said = f"{option} {other.file} looks like {theirs.value}, and the training data like {given.kind.value}"
        raise UserError(said, do="give data of the same task")


def looks(table: Table) -> tuple[DataKind | None, set[str]]:
    """What a table would be taken for by itself, and the values of the last column that is read."""
    query = DataQuery((table.file,))
    try:
        preview = preview_rows(query, table.file, meant_as(table.file, DataKind.PAIRS))
        return choose(preview, query)[0], set(preview.values(table.chosen[-1]))
    except UserError:
        return None, set()


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
    same = f"{lines[0]} each" if lines[0] == lines[1] else " and ".join(lines)
    why = f"{source} and {target}: parallel files of {same}"
    return RecognisedData(kind or DataKind.PAIRS, (ParallelFiles(source, target),), why)


def documents(paths: Sequence[Path], files: Sequence[Path], columns: Sequence[str | int]) -> RecognisedData:
    if columns:
        raise UserError(f"{files[0]} is a text without columns", do="leave out data.columns, or say data.task")
    named = listed(map(str, paths), 3)
    if len(files) == 1:
        said = f"{counted(line_count(files[0]), 'line')} of text"
    else:
        said = f"{counted(len(files), 'file')} of text, {sum(file.stat().st_size for file in files):,} bytes"
    return RecognisedData(DataKind.TEXTS, tuple(TextFile(file) for file in files), f"{named}: {said}")


def tables(query: DataQuery, files: Sequence[Path]) -> RecognisedData:
    """The first file decides; the others must have the same columns."""
    sources: list[RecordSource] = []
    descriptions: list[str] = []
    doubts: list[str | None] = []
    lines = 0
    for file in files:
        lines += row_count(file)
        suffix = meant_as(file, DataKind.PAIRS)
        table = preview_texts(query, file, suffix)
        kind, columns = choose(table, query)
        refuse_mixed(table, query, suffix, columns)
        lines -= table.header_lines
        sources.append(table.source(columns))
        descriptions.append(SHOWN[kind] + described(table, columns))
        doubts.append(doubted_header(table, query))
        query = replace(query, kind=kind, columns=query.columns or sources[0].columns)
    assert query.kind is not None
    said = f"{listed(map(str, files), 3)}: {counted(lines, 'line')} of {descriptions[0]}"
    return RecognisedData(query.kind, tuple(sources), said, other_header=doubts[0])


def unfolded(path: Path) -> list[Path]:
    """A file, or the texts in a folder and the folders in it, in the order of their names; else the tables in it."""
    if not path.is_dir():
        check_file(path)
        return [path]
    from headway.data.media_sources import walked  # late: other texts need no code of media

    files = (path / name for name in walked(path))
    # os.path says no where Path raises an error: of what may not be looked at
    inside = sorted((file for file in files if os.path.isfile(file)), key=lambda file: file.parts)
    either = [file for file in inside if suffix_of(file) == ".txt"]
    texts = [file for file in either if not is_markdown(file)]  # a README beside texts or tables is none of them
    if not texts and (stored := [file for file in inside if suffix_of(file) in COLUMNAR_SUFFIXES]):
        refuse_splits(path, stored)
        return stored
    if not (texts := texts or either):
        if not inside:
            raise UserError(f"the folder {path} is empty", allowed=ALLOWED)
        names = listed((str(file.relative_to(path)) for file in inside), 4)
        raise UserError(
            f"the folder {path} holds no .txt or .md files, only {names}", do="name the files that are meant"
        )
    return texts


def is_markdown(file: Path) -> bool:
    return file.name.lower().removesuffix(".gz").endswith((".md", ".markdown"))


def refuse_splits(folder: Path, files: Sequence[Path]) -> None:
    """Files that are named like parts of a data set, as `datasets` writes them, are not all for training."""
    parts = dict.fromkeys(re.split(r"[-_.]", file.stem.lower())[0] for file in files)
    if len(parts) > 1 and parts.keys() <= PARTS:
        first, *others = sorted(parts, key=lambda part: "train" not in part)
        raise UserError(
            f"the files of {folder} ({listed(parts)}) look like parts of a data set",
            do=f"give one, as in headway train '{folder / first}*' --validation '{folder / others[0]}*'",
        )


def meant_as(file: Path, kind: DataKind | None) -> str:
    """The suffix that says how a file is read; a .txt that is to have columns has tabs between them."""
    suffix = suffix_of(file)
    if suffix == ".txt" and kind not in (None, DataKind.TEXTS):
        return ".tsv"
    if suffix in (".txt", *TABLE_SUFFIXES):
        return suffix
    if suffix in ARCHIVE_SUFFIXES:
        raise UserError(f"{file} is an archive", do="unpack it; single files may be packed with gzip")
    raise UserError(f"{file}: what a {suffix or 'file without a suffix'} holds is not known", allowed=ALLOWED)
