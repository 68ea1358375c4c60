"""What is said about an image or a sound in a small file beside it: 0001.jpg with 0001.cls, 0001.txt or 0001.json.

This is the layout of WebDataset, whose samples are the files of an archive with one name up to the first dot; folders
have it too.  A .cls is a class, a .txt a caption or a transcript (or a class, where few of them occur again and again),
and a .json an object with one of these.  Archives are read where they are, one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from headway.data.column_choice import look_like_labels
from headway.data.kinds import LABELLED, SCORED, DataKind
from headway.data.media_sources import FileSet, FolderFiles, TarFiles, UnlabelledFiles, named_like
from headway.data.table import as_text, flat, shortened, unique_keys
from headway.data.text_lines import MAX_LINE_BYTES
from headway.errors import UserError

SUFFIXES = (".cls", ".txt", ".json")
MAX_SAMPLED, MIN_SHARE = 50, 0.9  # files that are looked at, and the share that must have one beside them


@dataclass(frozen=True, kw_only=True)
class SidecarFiles(UnlabelledFiles):
    """Files with a file of the same name and this suffix beside each; of JSON the value of a key is read."""

    suffix: str
    key: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        own = self.pool.files(self.medium)
        if isinstance(self.pool, TarFiles):
            return own
        beside = (self.pool.place(sidecar(name, self.suffix)) for name in named_like(self.pool, self.medium.suffixes))
        return *own, *(place.file for place in beside if place)

    def texts(self, name: PurePosixPath) -> tuple[str, ...] | str:
        other = sidecar(str(name), self.suffix)
        try:
            text = read_sidecar(self.pool, other)
            if text is None:
                return f"has no {other} beside it"
            if self.suffix != ".json":
                return (text.strip(),)
            value = json.loads(text, object_pairs_hook=unique_keys)
            found = flat(value).get(self.key) if isinstance(value, dict) else None
            said = as_text(found)
            return (said,) if said is not None else f"has {shortened(found)} for {self.key!r} in {other}"
        except UserError as error:
            return f"has {other} beside it, which cannot be read: {error.said}"
        except (ValueError, RecursionError):
            return f"has {other} beside it, which is no {'JSON' if self.suffix == '.json' else 'text in UTF-8'}"


@dataclass(frozen=True)
class SidecarChoice:
    """The files beside others that say something about them, and what."""

    kind: DataKind
    suffix: str
    key: str = ""


def choose_sidecars(
    pool: FileSet, names: Sequence[str], kinds: Sequence[DataKind], words: dict[DataKind, frozenset[str]]
) -> SidecarChoice | None:
    """The files that stand beside nearly all of the first: of a class, or of a text; `words` are keys of JSON."""
    first = names[:MAX_SAMPLED]
    for suffix in SUFFIXES:
        places = [pool.place(sidecar(name, suffix)) for name in first]
        if sum(place is not None for place in places) < max(1, MIN_SHARE * len(first)):
            continue
        if suffix == ".json":
            keys = keys_of(pool, sidecar(first[0], suffix))
            for kind in kinds:
                if key := next((key for key in keys if key.rpartition(".")[2].casefold() in words[kind]), None):
                    return SidecarChoice(kind, suffix, key)
            continue
        if suffix == ".cls" and not {*kinds} & (LABELLED | SCORED):
            continue
        texts = [place.read(MAX_LINE_BYTES).decode("utf-8", "replace").strip() for place in places if place]
        classes = suffix == ".cls" or look_like_labels(texts, list(first))
        return SidecarChoice(kinds[0] if classes else kinds[-1], suffix)
    return None


def read_sidecar(pool: FileSet, name: str) -> str | None:
    place = pool.place(name)
    return None if place is None else place.read(MAX_LINE_BYTES).decode("utf-8-sig")


def keys_of(pool: FileSet, name: str) -> list[str]:
    """The keys of an object of JSON; none where it is none."""
    try:
        value = json.loads(read_sidecar(pool, name) or "null")
        return list(flat(value)) if isinstance(value, dict) else []
    except (ValueError, RecursionError):
        return []


def sidecar(name: str, suffix: str) -> str:
    """The name of the file beside one: all up to the first dot of its last part names the sample."""
    path = PurePosixPath(name)
    return str(path.with_name(path.name.partition(".")[0] + suffix))


def archives_in(folder: Path) -> list[TarFiles]:
    """The .tar archives at the top of a folder, where it holds no other data."""
    if not folder.is_dir():
        return []
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".tar" and path.is_file())
    return [TarFiles(path) for path in found] if found and not any(FolderFiles(folder).folders()) else []
