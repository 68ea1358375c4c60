"""What a person hands over, and what it is therefore for.

.tsv, .csv and .jsonl files are tables, a .txt file is one document, a folder is all .txt files in it, and two files may
be parallel; each may be packed with gzip.  Images, sounds and numbers are looked for first, in files of their own.  The
choice is told in one sentence, with the option that changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from headway.data.columns import choose, described
from headway.data.given import GOAL, Asked, Given
from headway.data.heads import read_head
from headway.data.kinds import TEXTUAL, Kind
from headway.data.lines import check_file, line_count, suffix_of
from headway.data.recognise_idx import recognise_idx
from headway.data.recognise_media import recognise_media
from headway.data.recognise_numbers import recognise_numbers
from headway.data.sources import Document, Parallel, Source, counted
from headway.errors import UserError, listed

__all__ = ["Given", "Kind", "recognise"]

ALLOWED = (
    ".tsv, .csv, .jsonl or .txt, each also with .gz; a folder of .txt files, of images or of sounds; "
    "or --source FILE --target FILE"
)
OTHERS: tuple[Callable[[Asked], Given | None], ...] = (recognise_idx, recognise_media, recognise_numbers)
PACKED = (".zip", ".bz2", ".xz", ".zst", ".tar", ".tgz", ".7z")


def recognise(
    paths: Sequence[Path],
    *,
    source: Path | None = None,
    target: Path | None = None,
    kind: Kind | None = None,
    columns: Sequence[str | int] | None = None,
    label_from: str | None = None,
    rate: int | None = None,
    frames: int = 1,
    nameless: bool = False,
) -> Given:
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
        check_there(path)
    asked = Asked(tuple(paths), kind, tuple(columns or ()), label_from, rate, frames, nameless)
    for look in () if kind in TEXTUAL else OTHERS:
        if found := look(asked):
            return found
    if kind is not None and kind not in TEXTUAL:
        raise UserError(f"{listed(map(str, paths), 3)}: nothing there is for {GOAL[kind]}", do="leave out --task")
    if label_from is not None:
        raise UserError(
            f"{listed(map(str, paths), 3)}: classes are in names of images and sounds only",
            do="leave out --data.label-from",
        )
    files = [file for path in paths for file in unfolded(path)]
    suffixes = {meant_as(file, kind) for file in files}
    if suffixes == {".txt"}:
        return documents(paths, files, columns or ())
    if ".txt" in suffixes:
        raise UserError(f"{listed(map(str, files), 3)}: tables and texts cannot be read together")
    return tables(files, kind, columns or ())


def check_there(path: Path) -> None:
    """A UserError where nothing has this name, on the disk or within an archive."""
    if not path.exists() and not any(above.is_file() for above in path.parents):
        check_file(path)


def parallel(paths: Sequence[Path], source: Path | None, target: Path | None, kind: Kind | None) -> Given:
    if not (source and target):
        raise UserError("parallel files come in twos", do="give both --source FILE and --target FILE")
    if paths:
        raise UserError(
            f"{paths[0]} and parallel files cannot be read together", do="give it, or --source and --target"
        )
    if source == target:
        raise UserError(f"{source} is given as source and as target")
    if kind is Kind.TEXTS:
        raise UserError(f"{source} and {target} are pairs", do="give them without --source and --target to read texts")
    lines = [counted(line_count(file), "line") for file in (source, target)]
    kind = kind or Kind.PAIRS
    same = f"{lines[0]} each" if lines[0] == lines[1] else " and ".join(lines)
    why = f"{source} and {target}: parallel files of {same}, so {GOAL[kind]} (change with --task)"
    return Given(kind, (Parallel(source, target),), why)


def documents(paths: Sequence[Path], files: Sequence[Path], columns: Sequence[str | int]) -> Given:
    if columns:
        raise UserError(f"{files[0]} is a text without columns", do="leave out --columns, or say --task")
    named = listed(map(str, paths), 3)
    if len(files) == 1:
        said = f"{counted(line_count(files[0]), 'line')} of text"
    else:
        said = f"{counted(len(files), 'file')} of text, {sum(file.stat().st_size for file in files):,} bytes"
    why = f"{named}: {said}, so {GOAL[Kind.TEXTS]} (change with --task)"
    return Given(Kind.TEXTS, tuple(Document(file) for file in files), why)


def tables(files: Sequence[Path], kind: Kind | None, columns: Sequence[str | int]) -> Given:
    """The first file decides; the others must have the same columns."""
    sources: list[Source] = []
    told: list[str] = []
    lines = 0
    for file in files:
        lines += line_count(file)
        head = read_head(file, meant_as(file, Kind.PAIRS), columns)
        chosen = choose(head, kind, columns)
        lines -= head.names is not None and head.dialect is not None
        sources.append(head.source(chosen.columns))
        told.append(described(head, chosen))
        kind, columns = chosen.kind, columns or sources[0].columns
    assert kind is not None
    said = f"{counted(lines, 'line')} of {told[0]}"
    return Given(kind, tuple(sources), f"{listed(map(str, files), 3)}: {said}, so {GOAL[kind]} (change with --task)")


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


def meant_as(file: Path, kind: Kind | None) -> str:
    """The suffix that says how a file is read; a text that is asked to have columns has tabs between them."""
    suffix = suffix_of(file)
    if suffix == ".txt" and kind not in (None, Kind.TEXTS):
        return ".tsv"
    if suffix in (".txt", ".tsv", ".csv", ".jsonl"):
        return suffix
    if suffix in PACKED:
        raise UserError(f"{file} is an archive", do="unpack it; single files may be packed with gzip")
    raise UserError(f"{file}: what a {suffix or 'file without a suffix'} holds is not known", allowed=ALLOWED)
