"""What a person hands over, and what it is therefore for.

.tsv, .csv and .jsonl files are tables, a .txt file is one document, a folder is all .txt files in it, and two files may
be parallel; each may be packed with gzip.  The choice is told in one sentence, with the option that changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.data.columns import choose, described
from headway.data.heads import read_head
from headway.data.kinds import Kind
from headway.data.lines import CUT, check_file, open_bytes
from headway.data.sources import Document, Parallel, Source, counted
from headway.errors import UserError, listed

__all__ = ["Given", "Kind", "recognise"]

ALLOWED = ".tsv, .csv, .jsonl or .txt, each also with .gz; a folder of .txt files; or --source FILE --target FILE"
MEANT = {".ndjson": ".jsonl", ".tab": ".tsv"}  # other spellings
GOAL = {kind: kind.value for kind in Kind} | {Kind.TEXTS: "a language model"}
PACKED = (".zip", ".bz2", ".xz", ".zst", ".tar", ".tgz", ".7z")


@dataclass(frozen=True)
class Given:
    """Data that was recognised.  `why` is the sentence that tells it."""

    kind: Kind
    sources: tuple[Source, ...]
    why: str

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(file for source in self.sources for file in source.files)

    @property
    def columns(self) -> tuple[str | int, ...]:
        """Names, or numbers from 1, of the columns in use; none where files have no columns."""
        return self.sources[0].columns


def recognise(
    paths: Sequence[Path],
    *,
    source: Path | None = None,
    target: Path | None = None,
    kind: Kind | None = None,
    columns: Sequence[str | int] | None = None,
) -> Given:
    """What the files hold; a kind and columns (names, or numbers from 1) that are given win over their looks."""
    if source or target:
        return parallel(paths, source, target, kind)
    if not paths:
        raise UserError("no data was given", allowed=ALLOWED)
    files = [file for path in paths for file in unfolded(path)]
    suffixes = {meant_as(file, kind) for file in files}
    if suffixes == {".txt"}:
        return documents(paths, files, columns or ())
    if ".txt" in suffixes:
        raise UserError(f"{listed(map(str, files), 3)}: tables and texts cannot be read together")
    return tables(files, kind, columns or ())


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
        names = listed((str(file.relative_to(path)) for file in inside), 4)
        found = f", only {names}" if inside else ""
        raise UserError(f"the folder {path} holds no .txt files{found}", do="name the files that are meant")
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


def suffix_of(file: Path) -> str:
    name = Path(file.name.lower().removesuffix(".gz"))
    return MEANT.get(name.suffix, name.suffix)


def line_count(file: Path) -> int:
    """Lines as they are ended; a UserError where there are none."""
    count, last = 0, b""
    with open_bytes(file) as stream:
        try:
            while data := stream.read1(2**20):  # read(n) of a damaged archive gives nothing of the last n bytes
                count += data.count(b"\n")
                last = data[-1:]
        except CUT:
            return count + 1  # the line at which reading will tell it
    if not last and not count:
        raise UserError(f"{file} is empty")
    return count + (last != b"\n")
