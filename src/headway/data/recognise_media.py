"""Images and sounds that a person gives: where the files are, and their classes, captions or transcripts.

A folder or a .tar archive holds the files.  Their classes are the folders in it, or in a table inside or beside it
(labels.csv), or in the names of files, where a pattern is given.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from headway.data.composed import JsonCells
from headway.data.idx import idx_inputs, image_files
from headway.data.images import Images
from headway.data.kinds import HEARD, PICTURED, SCORED, DataKind
from headway.data.media_columns import KINDS, NAMES, SCORED_KINDS, MediaColumn, find_names
from headway.data.media_sources import (
    ClassFolders,
    FileSet,
    FolderFiles,
    LabelFromName,
    MediaSource,
    MediaTable,
    Medium,
    TarFiles,
    UnlabelledFiles,
    hidden,
    named_like,
)
from headway.data.name_patterns import checked_pattern
from headway.data.records import DataQuery, RecognisedData
from headway.data.shards import digest
from headway.data.sidecars import SidecarFiles, archives_in, choose_sidecars
from headway.data.sounds import Sounds, commonest, rate_of
from headway.data.table import JsonLines, TextLists, row_count
from headway.data.table_preview import media_column
from headway.data.text_lines import MEDIA_SUFFIXES, PARTS, TABLE_SUFFIXES, MediaLocation, leads_outside, suffix_of
from headway.errors import UserError, counted, listed

HOMES = ("images", "image", "img", "photos", "pictures", "audio", "sounds", "clips", "recordings", "wavs", "wav")
ALLOWED = "class folders; a folder or .tar archive of files with a table (.csv, .tsv, .jsonl) in it or beside it"
TEXT_NOUNS = {  # what is said about a file, one and several
    DataKind.IMAGES: ("class", "classes"),
    DataKind.SOUNDS: ("class", "classes"),
    DataKind.CAPTIONS: ("caption", "captions"),
    DataKind.SPEECH: ("transcript", "transcripts"),
    DataKind.SCORED_IMAGES: ("value", "values"),
    DataKind.SCORED_SOUNDS: ("value", "values"),
}


def recognise_media(query: DataQuery) -> RecognisedData | None:
    """Images or sounds; None where something else was given."""
    if query.kind is not None and query.kind not in PICTURED | HEARD:
        return None
    tables, pools = [path for path in query.paths if is_table(path)], pools_at(query.paths)
    if not all(path in tables or pools_at([path]) for path in query.paths):
        return refuse_single(query)
    if len(tables) > 1 or (tables and len(pools) > 1):
        if not pools:
            return None
        raise UserError(f"{listed(map(str, query.paths), 3)}: which table belongs to which files?", allowed=ALLOWED)
    if not tables:
        first = pooled(query, pools[0])
        if len(pools) > 1 and isinstance(source := first.sources[0], SidecarFiles):
            return in_shards(first, source, pools)
        return joined([first, *(pooled(query, pool) for pool in pools[1:])])
    naming = find_names(query, tables[0])
    if naming is None:
        return None
    pool = pool_beside(naming, with_inner(pools))
    if not pool and not pools and query.kind is None and len(naming.others) > 1:
        return None  # a table of texts in which an image is mentioned
    return tabled(query, naming, pool)


def scored_medium(query: DataQuery) -> DataKind | None:
    """Scored images or sounds, by what files or the tables that name them hold; None where these are neither."""
    if image_files(query.paths)[0]:
        return DataKind.SCORED_IMAGES
    pools = pools_at(query.paths)
    for table in filter(is_table, query.paths):
        if found := media_column(query, table):
            naming = MediaColumn(*found)
            mentioned = not pools and len(naming.others) > 1 and pool_beside(naming, ()) is None
            return None if mentioned else SCORED_KINDS[naming.noun]
    return SCORED_KINDS[medium_in(query, pools[0])] if pools else None


def pools_at(paths: Sequence[Path]) -> list[FileSet]:
    """Folders and archives of images or sounds, and archives in folders."""
    return [pool for path in paths for pool in archives_in(path) or filter(None, [pool_at(path)])]


def refuse_single(query: DataQuery) -> None:
    """A file that is one image or one sound is nothing to learn from."""
    for path in query.paths:
        for noun, suffixes in MEDIA_SUFFIXES.items():
            if path.suffix.lower() in suffixes and path.is_file():
                raise UserError(f"{path} is one {noun}", do="give the folder that holds all of them")
    if query.kind is not None:
        nouns = "images" if query.kind in PICTURED else "sounds"
        raise UserError(f"{listed(map(str, query.paths), 3)}: no {nouns} are there", allowed=ALLOWED)


def pooled(query: DataQuery, pool: FileSet) -> RecognisedData:
    """One folder or archive: with a table in it or beside it, or by the names of folders or files."""
    if query.label_from is not None:
        checked_pattern(query.label_from)
        return by_names(query, pool)
    found = [hit for table in tables_of(pool) if (hit := find_names(query, table))]
    if not found and (inner := only_folder(pool)):
        return pooled(query, inner)
    if len(found) > 1:
        files = [str(hit.file) for hit in found]
        do = f"name one, as in headway train {files[0]}"
        raise UserError(f"{pool.path} has several tables: {listed(files)}", do=do)
    if found:
        return tabled(query, found[0], pool_beside(found[0], with_inner([pool])))
    if query.columns:
        raise UserError(f"{pool.path} has no table with columns", do="leave out data.columns")
    return by_names(query, pool)


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


def tabled(query: DataQuery, naming: MediaColumn, pool: FileSet | None) -> RecognisedData:
    """Files that a table names."""
    table = naming.file
    if pool is None:
        given = listed([str(path) for path in query.paths if path != table])
        said = f"{table} names {naming.noun}s such as {naming.names[0]!r}, and none of the first are "
        raise UserError(said + (f"in {given}" if given else "beside it"), do="give the folder or .tar that has them")
    kind, text = naming.choose(query)
    captions = kind is DataKind.CAPTIONS
    source = naming.preview.source((naming.column, text))
    if isinstance(source, JsonLines):
        keys = source.file, source.keys
        source = JsonCells(*keys) if kind in SCORED else TextLists(*keys, captions)
    names = list(named_like(pool, MEDIA_SUFFIXES[naming.noun]))
    medium, rates = exact(naming.noun, query, [pool.place(name) for name in names])
    within = isinstance(pool, TarFiles) and pool.path in table.parents
    own = within or pool.path.stem == table.name.partition(".")[0]
    strays = own or len([file for file in table.parent.iterdir() if is_table(file)]) == 1
    lines = row_count(table) - naming.preview.header_lines
    said = f"{counted(lines, 'line')} of {medium.noun}s{rates} and {TEXT_NOUNS[kind][1]}"
    why = f"{table}{'' if within else f' and {pool.path}'}: {said}"
    files = MediaTable(pool, medium, table=source, strays=strays, grouped=captions)
    return recognised(query, kind, files, why, names)


def by_names(query: DataQuery, pool: FileSet) -> RecognisedData:
    """Files whose own names or folders say a class or a text; images may do without."""
    noun = medium_in(query, pool)
    names = list(named_like(pool, MEDIA_SUFFIXES[noun]))
    medium, rates = exact(noun, query, [pool.place(name) for name in names])
    kinds = (query.kind,) if query.kind else KINDS[noun]
    kind = SCORED_KINDS[noun] if query.kind in SCORED else KINDS[noun][0]
    if query.label_from is not None:
        kind = query.kind or kind
        source = LabelFromName(pool, medium, pattern=query.label_from, spaced=kind is DataKind.SPEECH)
        said = texts_in_names(source, names, *TEXT_NOUNS[kind])
    elif query.nameless and kind is DataKind.IMAGES and query.kind in (None, kind):
        source, said = UnlabelledFiles(pool, medium), ""
    elif not several_folders(names) and (found := choose_sidecars(pool, names, kinds, NAMES)):
        kind = found.kind
        source = SidecarFiles(pool, medium, suffix=found.suffix, key=found.key)
        said = f" with a {TEXT_NOUNS[kind][0]} each, in a {found.suffix} file of the same name"
    else:
        source, said = ClassFolders(pool, medium), class_folders(query, pool, kind, names)
    why = f"{pool.path}: {counted(len(names), noun)}{rates}{said}"
    others = [path for name in pool.names() if (path := PurePosixPath(name)).suffix.lower() not in medium.suffixes]
    own = source.suffix if isinstance(source, SidecarFiles) else None
    others = [path for path in others if not path.name.startswith(".") and path.suffix != own]
    suffixes = listed(sorted({path.suffix or path.name for path in others}), 3)
    why += f" ({counted(len(others), 'other file')} not read: {suffixes})" if others else ""
    return recognised(query, kind, source, why, names)


def in_shards(first: RecognisedData, source: SidecarFiles, pools: Sequence[FileSet]) -> RecognisedData:
    """Archives or folders of one layout, which is that of the first."""
    said = f"{first.description}, and {counted(len(pools) - 1, 'more archive')} like it"
    return replace(first, sources=tuple(replace(source, pool=pool) for pool in pools), description=said)


def texts_in_names(source: LabelFromName, names: Sequence[str], text: str, texts: str) -> str:
    """What a pattern finds in the names of files, for a sentence; `text` and `texts` are what that is called."""
    said = [source.texts(PurePosixPath(name)) for name in names]
    found = Counter(one for found in said if not isinstance(found, str) for one in found)
    if not found:
        where = f"{PurePosixPath(names[0]).stem!r}, nor in other names in {source.pool.path}"
        raise UserError(f"data.label_from {source.pattern!r} finds nothing in {where}")
    count = f"{len(found)} {texts}" if len(found) > 1 else f"1 {text}"
    return f" with {count} in their names ({listed(found, 5)})"


def several_folders(names: Sequence[str]) -> bool:
    """Whether files are in more than one folder, which are then classes."""
    return len({PurePosixPath(name).parts[0] for name in names if "/" in name}) > 1


def class_folders(query: DataQuery, pool: FileSet, kind: DataKind, names: Sequence[str]) -> str:
    """The folders that are classes, for a sentence; a UserError where there are none, or they look like splits."""
    noun = "image" if kind in PICTURED else "sound"
    _, texts = KINDS[noun]
    folders = Counter(PurePosixPath(name).parts[0] for name in names if "/" in name and not leads_outside(name))
    if query.kind is texts or not folders:
        raise unlabelled(pool, counted(len(names), noun), texts if query.kind is texts else kind)
    if len(folders) > 1 and {folder.lower() for folder in folders} <= PARTS:
        first, *others = sorted(folders, key=lambda folder: "train" not in folder)
        raise UserError(
            f"the folders of {pool.path} ({listed(folders)}) look like parts of a data set, not like classes",
            do=f"give one of them, as in headway train {pool.path / first} --validation {pool.path / others[0]}",
        )
    empty = [folder for folder in pool.folders() if folder not in folders and not hidden(folder)]
    without = f" and {len(empty)} without {noun}s ({listed(empty, 5)})" if empty else ""
    return f" in {counted(len(folders), 'class folder')} ({listed(folders, 5)}){without}"


def unlabelled(pool: FileSet, count: str, kind: DataKind) -> UserError:
    text, texts = TEXT_NOUNS[kind]
    classes = text == "class"
    table = f"labels.csv (file,{text})" if classes else f"{texts}.tsv (file, tab, {text})"
    folders = "put each class into a folder of its own, or " if classes else ""
    without = ", or learn without classes, as in data.objective masked" if kind is DataKind.IMAGES else ""
    pattern = "([0-9.]+)_" if kind in SCORED else "([a-z]+)_"
    do = f"{folders}add {table}, or take it from their names, as in data.label_from {pattern!r}{without}"
    return UserError(f"{pool.path} holds {count} and nothing says the {texts}", do=do)


def recognised(query: DataQuery, kind: DataKind, source: MediaSource, why: str, names: Sequence[str]) -> RecognisedData:
    fingerprint = (digest((), repr(source.medium), query.label_from or "", *names),)
    source = replace(source, said=TEXT_NOUNS[kind][0])
    return RecognisedData(kind, (source,), why, query.paths, fingerprint, unlabelled=type(source) is UnlabelledFiles)


def joined(given: list[RecognisedData]) -> RecognisedData:
    """Several folders as one data set."""
    first, *others = given
    if any(other.kind is not first.kind for other in others):
        raise UserError(f"{first.description}; {others[0].description}: these cannot be read together")
    all_sources = [source for one in given for source in one.sources if isinstance(source, MediaSource)]
    sources = tuple(replace(source, medium=all_sources[0].medium) for source in all_sources)  # one rate for all sounds
    why = "; ".join(one.description for one in given)
    if len({source.medium for source in all_sources}) > 1:
        why += f" (sounds of other rates are resampled to that of {first.paths[0]})"
    return replace(
        first, sources=sources, description=why, fingerprint=tuple(text for one in given for text in one.fingerprint)
    )


def medium_in(query: DataQuery, pool: FileSet) -> str:
    """What the files are, image or sound; a UserError where they are both, or neither."""
    counts = {noun: len(list(named_like(pool, suffixes))) for noun, suffixes in MEDIA_SUFFIXES.items()}
    media = {"image": PICTURED, "sound": HEARD}
    nouns = [noun for noun, kinds in media.items() if query.kind in kinds] or [n for n in counts if counts[n]]
    if len(nouns) > 1:
        found = " and ".join(counted(counts[noun], noun) for noun in nouns)
        asked = "say which are meant with data.task images or data.task sounds"
        do = "give a folder of one of them" if query.kind in SCORED else asked
        raise UserError(f"{pool.path} holds {found}", do=do)
    if not nouns or not counts[nouns[0]]:
        what = f"{nouns[0]}s" if nouns else "images and no sounds"
        names = listed(pool.names(), 4)
        raise UserError(f"{pool.path} holds no {what}{f', only {names}' if names else ''}")
    return nouns[0]


def exact(noun: str, query: DataQuery, places: Sequence[MediaLocation | None]) -> tuple[Medium, str]:
    """The medium as requested, frames of films or the rate of most sounds; and, for a sentence, the rates of sounds."""
    if noun == "image":
        return Images(frames=query.frames), ""
    if query.rate is not None:
        return Sounds(), ""
    found = [rate for place in places if place and (rate := rate_of(place))]
    chosen = commonest(found)
    if chosen is None:
        return Sounds(), ""
    others = listed([f"{rate:,}" for rate in sorted(set(found) - {chosen})], 3)
    return Sounds(rate=chosen), f" of {chosen:,} Hz" + (f" (those of {others} Hz are resampled)" if others else "")


def pool_at(path: Path) -> FileSet | None:
    """A folder or an archive with images or sounds in it, and not more texts."""
    if path.suffix.lower() == ".tar" and path.is_file():
        return TarFiles(path)
    if not path.is_dir():
        return None
    counts = Counter(PurePosixPath(name).suffix.lower() for name in FolderFiles(path).names())
    most = max(sum(counts[suffix] for suffix in suffixes) for suffixes in MEDIA_SUFFIXES.values())
    return FolderFiles(path) if most and most >= counts[".txt"] else None


def tables_of(pool: FileSet) -> list[Path]:
    """Tables at the top of a pool, and beside an archive one of its name."""
    suffixes = [suffix for suffix in TABLE_SUFFIXES if suffix != ".json"]  # which settings have, too
    files = [pool.path / name for name in pool.names() if "/" not in name and suffix_of(Path(name)) in suffixes]
    if isinstance(pool, TarFiles):
        files += [file for suffix in suffixes if (file := pool.path.with_suffix(suffix)).is_file()]
    return files


def media_inputs(given: str, noun: str | None = None) -> list[str]:
    """The images, sounds or both that a folder, an archive or an IDX file holds, by names; others name themselves."""
    path, folder = Path(given), os.path.isdir(given)  # of a long text Path raises an error
    if not folder and not os.path.isfile(given):
        return [given]
    if noun != "sound" and (found := idx_inputs(path)):
        return found
    archive = path.suffix.lower() == ".tar"
    if not folder and not archive:
        return [given]
    suffixes = MEDIA_SUFFIXES[noun] if noun else [suffix for own in MEDIA_SUFFIXES.values() for suffix in own]
    pool = FolderFiles(path) if folder else TarFiles(path)
    names = [str(path / name) for name in named_like(pool, suffixes) if not leads_outside(name)]
    if not names:
        what = f"{noun}s" if noun else "images and no sounds"
        raise UserError(f"{path} holds no {what}", allowed=listed(suffixes, 20), do="give a folder that has some")
    return names


def is_table(path: Path) -> bool:
    return path.is_file() and suffix_of(path) in TABLE_SUFFIXES


def pool_beside(naming: MediaColumn, pools: Sequence[FileSet]) -> FileSet | None:
    """The folder or archive in which any of the first names of a table are found."""
    return next((p for p in around(naming.file, pools) if any(p.place(name) for name in naming.names)), None)


def around(table: Path, pools: Sequence[FileSet]) -> Iterator[FileSet]:
    """Where files of a table may be: what was given, and folders with usual names in it; else what is beside it."""
    archive = next((up for up in table.parents if up.suffix.lower() == ".tar"), None)
    if not pools and archive:
        pools = [TarFiles(archive)]
    elif not pools:
        stem = table.with_name(table.name.partition(".")[0])
        pools = [TarFiles(stem.with_suffix(".tar"))] if stem.with_suffix(".tar").is_file() else []
        pools = [*pools, FolderFiles(stem), FolderFiles(table.parent)]
    for pool in pools:
        yield pool
        for home in HOMES:
            yield TarFiles(pool.path, f"{home}/") if isinstance(pool, TarFiles) else FolderFiles(pool.path / home)
