"""What a result was made from, as one short name: a hash over the contents of files and over options."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from headway.errors import UserError


def digest(files: Iterable[Path], *texts: str | bytes) -> str:
    """64 hexadecimal digits for the bytes of these files, in this order, and these texts; names and dates do not count.

    Files are read piece by piece.  Their sizes and dates are not trusted instead: an edit may keep both.
    """
    parts = [b"file " + hash_of(path) for path in files]
    parts += [b"text " + hashlib.sha256(encoded(text)).digest() for text in texts]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def hash_of(path: Path) -> bytes:
    """The SHA-256 of a file; what is no file is not opened, for a pipe would never end."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is {'a folder' if path.is_dir() else 'a pipe or a device'}", allowed="a file")
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def encoded(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
