"""The cache of rows of token ids: stores in the user's cache folder, named by the digest of what they are made from."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from platformdirs import user_cache_dir

from headway.data.shards import Shards, beside
from headway.errors import UserError
from headway.system import flush

MAX_AGE = 24 * 60 * 60  # seconds after which an unfinished folder was left by a crash


def cached_shards(key: str, make: Callable[[Path], object], place: Path | None = None) -> Shards:
    """The store of this key, which `make` writes into the folder that it is given where there is none yet.

    With a `place` it is made there, and the cache is read and left as it is.  A damaged one is made anew.  Of two
    processes that make the same one, the first to finish puts it there and both use it.
    """
    assert key == Path(key).name, key
    if (found := opened(wanted_folder() / "shards" / key)) is not None:  # one of no rows is found, too
        return found
    folder = (place or cache_folder()) / "shards" / key
    if (found := opened(folder)) is not None:  # the cache folder may be another one than was wished
        return found
    if folder.exists():
        warnings.warn(f"{folder} is damaged and is made anew", stacklevel=2)
    remove_leftovers(folder.parent)
    part = beside(folder)
    try:
        make(part)
        Shards(part)  # what is not whole must not get the name
        put(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Shards(folder)


def opened(folder: Path) -> Shards | None:
    """The store in a folder, or None where there is none that is whole."""
    try:
        return Shards(folder)
    except (UserError, OSError):
        return None


def put(part: Path, folder: Path) -> None:
    """Gives a whole store its name, unless a whole one has it already."""
    while True:
        try:
            os.rename(part, folder)
            break
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if opened(folder) is not None:
            break
        wreck = beside(folder)
        with suppress(FileNotFoundError):  # somebody else has taken it away
            os.rename(folder, wreck)
        shutil.rmtree(wreck, ignore_errors=True)
    flush(folder.parent)


def remove_leftovers(folder: Path) -> None:
    """Removes what a crash left unfinished a day ago or earlier."""
    for part in folder.glob("*.part"):
        with suppress(OSError):
            if time.time() - max(path.stat().st_mtime for path in (part, *part.iterdir())) > MAX_AGE:
                shutil.rmtree(part, ignore_errors=True)


def cache_folder() -> Path:
    """`wanted_folder`, or where that cannot be written, a temporary one that lasts as long as the process."""
    folder = wanted_folder()
    trouble = "no home folder is known"
    if folder.is_absolute():
        try:
            (folder / "shards").mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder / "shards"):
                return folder
        except OSError as error:
            trouble = error.strerror or str(error)
    warnings.warn(
        f"the cache folder {folder} cannot be written ({trouble}), so what is prepared now is not kept for the next "
        "run; set HEADWAY_CACHE to a folder of yours",
        stacklevel=3,
    )
    return Path(temporary_folder().name)


def wanted_folder() -> Path:
    """HEADWAY_CACHE, or the folder that this system has for caches; relative where no home folder is known."""
    given = os.environ.get("HEADWAY_CACHE")
    return Path(os.path.expanduser(given)).absolute() if given else Path(user_cache_dir("headway"))


@cache
def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="headway-")
