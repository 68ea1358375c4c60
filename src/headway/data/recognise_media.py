"""Images and sounds that a person hands over: where the files are, and their classes, captions or transcripts.

A folder or a .tar archive holds the files.  Their classes are the folders in it, or in a table inside or beside it
(labels.csv), or in the names of files, where a pattern is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from headway.data.images import Images
from headway.data.kinds import HEARD, PICTURED, DataKind
from headway.data.media_sources import (
    ClassFolders,
    FileSet,
    LabelFromName,
    MediaSource,
    Medium,
    TarFiles,
    UnlabelledFiles,
    hidden,
    named_like,
)
from headway.data.media_tables import (
    KINDS,
    MEDIA,
    MediaColumn,
    MediaTable,
    find_names,
    is_table,
    pool_at,
    pool_beside,
    tables_of,
)
from headway.data.records import DataQuery, RecognisedData
from headway.data.shards import digest
from headway.data.sounds import Sounds, rate_of
from headway.data.splits import checked_pattern
from headway.data.table_preview import words
from headway.data.text_lines import MediaLocation, leads_outside, line_count
from headway.errors import UserError, counted, listed

PARTS = words("train training val valid validation test testing dev eval")
ALLOWED = "class folders; a folder or .tar archive of files with a table (.csv, .tsv, .jsonl) in it or beside it"
MAX_RATE_HEADERS = 256  # headers that are read to know the rate of sounds
TOLD = {DataKind.IMAGES: "class", DataKind.SOUNDS: "class", DataKind.CAPTIONS: "caption", DataKind.SPEECH: "transcript"}
PLURAL = {
    DataKind.IMAGES: "classes",
    DataKind.SOUNDS: "classes",
    DataKind.CAPTIONS: "captions",
    DataKind.SPEECH: "transcripts",
}


def recognise_media(asked: DataQuery) -> RecognisedData | None:
    """Images or sounds; None where something else was handed over."""
    if asked.kind is not None and asked.kind not in PICTURED | HEARD:
        return None
    pools, tables = [pool for path in asked.paths if (pool := pool_at(path))], [p for p in asked.paths if is_table(p)]
    if len(pools) + len(tables) < len(asked.paths):
        return refuse_single(asked)
    if len(tables) > 1 or (tables and len(pools) > 1):
        return None if not pools else refuse_many(asked)
    if tables:
        naming = find_names(asked, tables[0])
        pool = naming and pool_beside(naming, with_inner(pools))
        if naming and not pool and not pools and asked.kind is None and len(naming.others) > 1:
            return None  # a table of texts in which an image is mentioned
        return naming and tabled(asked, naming, pool)
    given = [pooled(asked, pool) for pool in pools]
    return joined(given) if given else None


def pooled(asked: DataQuery, pool: FileSet) -> RecognisedData:
    """One folder or archive: with a table in it or beside it, or by the names of folders or files."""
    if asked.label_from is not None:
        return by_file_names(asked, pool, checked_pattern(asked.label_from))
    found = [hit for table in tables_of(pool) if (hit := find_names(asked, table))]
    if not found and (inner := only_folder(pool)):
        return pooled(asked, inner)
    if len(found) > 1:
        files = [str(hit.file) for hit in found]
        do = f"name one, as in headway train {files[0]}"
        raise UserError(f"{pool.path} has several tables: {listed(files)}", do=do)
    if found:
        return tabled(asked, found[0], pool_beside(found[0], with_inner([pool])))
    if asked.columns:
        raise UserError(f"{pool.path} has no table with columns", do="leave out data.columns")
    return by_folders(asked, pool)


def only_folder(pool: FileSet) -> FileSet | None:
    """The folder that all files are in, where it is no class itself: it has folders or a table."""
    names = [name for name in pool.names() if not hidden(name) and not leads_outside(name)]
    folders = [folder for folder in pool.folders() if not hidden(folder)]
    if len(folders) != 1 or not all("/" in name for name in names):
        return None
    inner = pool.folder(folders[0])
    return inner if tables_of(inner) or any(name.count("/") > 1 for name in names) else None


def with_inner(pools: Sequence[FileSet]) -> list[FileSet]:
    """Also the folder that all files of one are in."""
    return [found for pool in pools for found in (pool, only_folder(pool)) if found]


def tabled(asked: DataQuery, naming: MediaColumn, pool: FileSet | None) -> RecognisedData:
    table = naming.file
    if pool is None:
        given = listed([str(path) for path in asked.paths if path != table])
        said = f"{table} names {naming.medium.noun}s such as {naming.names[0]!r}, and none of the first are "
        raise UserError(said + (f"in {given}" if given else "beside it"), do="give the folder or .tar that has them")
    kind, source = naming.records(asked)
    medium = exact(naming.medium, asked, [pool.place(name) for name in naming.names])
    within = isinstance(pool, TarFiles) and pool.path in table.parents
    own = within or pool.path.stem == table.name.partition(".")[0]
    strays = own or len([file for file in table.parent.iterdir() if is_table(file)]) == 1
    lines = line_count(table) - naming.preview.header_lines
    said = f"{counted(lines, 'line')} of {medium.noun}s{at_rate(medium)} and {PLURAL[kind]}"
    why = f"{table}{'' if within else f' and {pool.path}'}: {said}"
    names = list(named_like(pool, medium))
    return given_by(asked, kind, MediaTable(pool, medium, table=source, strays=strays), why, names)


def by_folders(asked: DataQuery, pool: FileSet) -> RecognisedData:
    medium = medium_in(asked, pool)
    kind, texts = KINDS[medium.noun]
    names = list(named_like(pool, medium))
    if asked.nameless and kind is DataKind.IMAGES and asked.kind in (None, kind):
        return without_names(asked, pool, medium, names)
    folders = Counter(PurePosixPath(name).parts[0] for name in names if "/" in name and not leads_outside(name))
    if asked.kind is texts or not folders:
        raise unlabelled(pool, medium, len(names), texts if asked.kind is texts else kind)
    if len(folders) > 1 and {folder.lower() for folder in folders} <= PARTS:
        first, *others = sorted(folders, key=lambda folder: "train" not in folder)
        raise UserError(
            f"the folders of {pool.path} ({listed(folders)}) look like parts of a data set, not like classes",
            do=f"give one of them, as in headway train {pool.path / first} --validation {pool.path / others[0]}",
        )
    medium = exact(medium, asked, [pool.place(name) for name in names[:MAX_RATE_HEADERS]])
    classes = f"{counted(len(folders), 'class folder')} ({listed(folders, 5)}){without(pool, folders, medium)}"
    said = f"{counted(len(names), medium.noun)}{at_rate(medium)} in {classes}"
    why = f"{pool.path}: {said}{beside(pool, medium)}"
    return given_by(asked, kind, ClassFolders(pool, medium), why, names)


def without_names(asked: DataQuery, pool: FileSet, medium: Medium, names: Sequence[str]) -> RecognisedData:
    """All images of a folder or archive, whatever folders they are in."""
    said = f"{counted(len(names), medium.noun)}{beside(pool, medium)}"
    medium = exact(medium, asked, ())
    return given_by(asked, DataKind.IMAGES, UnlabelledFiles(pool, medium), f"{pool.path}: {said}", names)


def by_file_names(asked: DataQuery, pool: FileSet, pattern: str) -> RecognisedData:
    medium = medium_in(asked, pool)
    kind = asked.kind or KINDS[medium.noun][0]
    names = list(named_like(pool, medium))
    medium = exact(medium, asked, [pool.place(name) for name in names[:MAX_RATE_HEADERS]])
    source = LabelFromName(pool, medium, pattern=pattern, spaced=kind is DataKind.SPEECH)
    texts = Counter(text for name in names if (text := source.text(PurePosixPath(name).stem)) is not None)
    if not texts:
        first = PurePosixPath(names[0]).stem
        raise UserError(f"data.label_from {pattern!r} finds nothing in {first!r}, nor in other names in {pool.path}")
    shown = f"{len(texts)} {PLURAL[kind]}" if len(texts) > 1 else f"1 {TOLD[kind]}"
    said = f"{counted(len(names), medium.noun)}{at_rate(medium)} with {shown} in their names ({listed(texts, 5)})"
    return given_by(asked, kind, source, f"{pool.path}: {said}{beside(pool, medium)}", names)


def given_by(asked: DataQuery, kind: DataKind, source: MediaSource, why: str, names: Sequence[str]) -> RecognisedData:
    told = digest((), repr(source.medium), asked.label_from or "", *names)
    unlabelled = type(source) is UnlabelledFiles
    return RecognisedData(kind, (replace(source, said=TOLD[kind]),), why, asked.paths, (told,), unlabelled)


def exact(medium: Medium, asked: DataQuery, places: Sequence[MediaLocation | None]) -> Medium:
    """The medium with what was asked of it: frames of films, or the one rate of sounds that are not resampled."""
    if isinstance(medium, Images):
        return replace(medium, frames=asked.frames)
    assert isinstance(medium, Sounds)
    if asked.rate is not None:
        return medium
    rates = Counter(rate for place in places if place and (rate := rate_of(place)))
    return replace(medium, rate=rates.most_common(1)[0][0] if rates else None)


def medium_in(asked: DataQuery, pool: FileSet) -> Medium:
    """What the files are; a UserError where they are two things, or none."""
    counts = {medium: sum(1 for _ in named_like(pool, medium)) for medium in MEDIA}
    wanted = [medium for medium in MEDIA if asked.kind in KINDS[medium.noun]] or [m for m in MEDIA if counts[m]]
    if len(wanted) > 1:
        told = " and ".join(counted(counts[medium], medium.noun) for medium in wanted)
        raise UserError(f"{pool.path} holds {told}", do="say which are meant with data.task images or data.task sounds")
    if not wanted or not counts[wanted[0]]:
        what = f"{wanted[0].noun}s" if wanted else "images and no sounds"
        names = listed(pool.names(), 4)
        raise UserError(f"{pool.path} holds no {what}{f', only {names}' if names else ''}")
    return wanted[0]


def unlabelled(pool: FileSet, medium: Medium, count: int, kind: DataKind) -> UserError:
    classes = kind in (DataKind.IMAGES, DataKind.SOUNDS)
    table = f"labels.csv (file,{TOLD[kind]})" if classes else f"{PLURAL[kind]}.tsv (file, tab, {TOLD[kind]})"
    folders = "put each class into a folder of its own, or " if classes else ""
    without = ", or learn without classes, as in data.objective masked" if kind is DataKind.IMAGES else ""
    do = f"{folders}add {table}, or take it from their names, as in data.label_from '([a-z]+)_'{without}"
    return UserError(f"{pool.path} holds {counted(count, medium.noun)} and nothing says the {PLURAL[kind]}", do=do)


def joined(given: list[RecognisedData]) -> RecognisedData:
    """Several folders as one data set."""
    first, *others = given
    if any(other.kind is not first.kind for other in others):
        raise UserError(f"{first.description}; {others[0].description}: these cannot be read together")
    kept = [source for one in given for source in one.sources if isinstance(source, MediaSource)]
    sources = tuple(replace(source, medium=kept[0].medium) for source in kept)  # one rate for all sounds
    why = "; ".join(one.description for one in given)
    return replace(first, sources=sources, description=why, told=tuple(text for one in given for text in one.told))


def refuse_single(asked: DataQuery) -> None:
    """A file that is one image or one sound is nothing to learn from."""
    for path in asked.paths:
        for medium in MEDIA:
            if path.suffix.lower() in medium.suffixes and path.is_file():
                raise UserError(f"{path} is one {medium.noun}", do="give the folder that holds all of them")
    if asked.kind is not None:
        noun = "images" if asked.kind in PICTURED else "sounds"
        raise UserError(f"{listed(map(str, asked.paths), 3)}: no {noun} are there", allowed=ALLOWED)


def refuse_many(asked: DataQuery) -> None:
    raise UserError(f"{listed(map(str, asked.paths), 3)}: which table belongs to which files?", allowed=ALLOWED)


def beside(pool: FileSet, medium: Medium) -> str:
    """Files that are not read, for a sentence."""
    others = [p for name in pool.names() if (p := PurePosixPath(name)).suffix.lower() not in medium.suffixes]
    others = [path for path in others if not path.name.startswith(".")]
    kinds = listed(sorted({path.suffix or path.name for path in others}), 3)
    return f" ({counted(len(others), 'other file')} not read: {kinds})" if others else ""


def without(pool: FileSet, classes: Container[str], medium: Medium) -> str:
    """Folders in which nothing to learn from is, for a sentence."""
    empty = [folder for folder in pool.folders() if folder not in classes and not hidden(folder)]
    return f" and {len(empty)} without {medium.noun}s ({listed(empty, 5)})" if empty else ""


def at_rate(medium: Medium) -> str:
    return f" of {medium.rate:,} Hz" if isinstance(medium, Sounds) and medium.rate else ""
