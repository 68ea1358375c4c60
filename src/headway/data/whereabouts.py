"""Where images and sounds are that somebody hands over, and the tables that belong to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from headway.data.lines import suffix_of
from headway.data.listings import MEDIA, Naming
from headway.data.pools import Folder, Pool, Tar

TABLES = (".csv", ".tsv", ".jsonl")
HOMES = ("images", "image", "img", "photos", "pictures", "audio", "sounds", "clips", "recordings", "wavs", "wav")


def pool_at(path: Path) -> Pool | None:
    """A folder or an archive with images or sounds in it, and not more texts."""
    if path.suffix.lower() == ".tar" and path.is_file():
        return Tar(path)
    if not path.is_dir():
        return None
    suffixes = Counter(PurePosixPath(name).suffix.lower() for name in Folder(path).names())
    most = max(sum(suffixes[suffix] for suffix in medium.suffixes) for medium in MEDIA)
    return Folder(path) if most and most >= suffixes[".txt"] else None


def tables_of(pool: Pool) -> list[Path]:
    """Tables at the top of a pool, and beside an archive one of its name."""
    inside = [pool.path / name for name in pool.names() if "/" not in name and is_named_table(PurePosixPath(name))]
    if not isinstance(pool, Tar):
        return inside
    return inside + [file for suffix in TABLES if (file := pool.path.with_suffix(suffix)).is_file()]


def pool_beside(naming: Naming, pools: Sequence[Pool]) -> Pool | None:
    """The folder or archive in which any of the first names of a table are found."""
    return next((p for p in around(naming.file, pools) if any(p.place(name) for name in naming.names)), None)


def around(table: Path, pools: Sequence[Pool]) -> Iterator[Pool]:
    """Where files of a table may be: what was given, and folders with usual names in it; else what stands beside."""
    archive = next((up for up in table.parents if up.suffix.lower() == ".tar"), None)
    if not pools and archive is None:
        stem = table.with_name(table.name.partition(".")[0])
        pools = [Tar(stem.with_suffix(".tar"))] if stem.with_suffix(".tar").is_file() else []
        pools = [*pools, Folder(stem), Folder(table.parent)]
    for pool in pools or ([Tar(archive)] if archive else []):
        yield pool
        yield from (Tar(pool.path, f"{home}/") if isinstance(pool, Tar) else Folder(pool.path / home) for home in HOMES)


def is_table(path: Path) -> bool:
    return path.is_file() and is_named_table(path)


def is_named_table(path: PurePosixPath | Path) -> bool:
    return suffix_of(Path(path)) in TABLES
