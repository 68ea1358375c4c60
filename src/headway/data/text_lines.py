"""Files as lines of text and as ranges of bytes, the suffixes they are known by, and the problems in them.

A line ends at \n or \r\n and nowhere else: U+2028, \x0b and \x85 are characters of a text like any other.  A byte order
mark before the first line is dropped.  Compressed files are known by their first bytes.  No more than one line is in
memory, and of a line never more than MAX_LINE_BYTES bytes, whatever an archive unpacks to.

A .tar archive is read in place: its index says where each member begins, and nothing is unpacked.  A path that
continues behind an archive, `set.tar/cat/1.jpg`, names a member.
"""

from __future__ import annotations

import gzip
import json
import os
import posixpath
import tarfile
import zlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from glob import glob, has_magic
from io import BufferedIOBase, BytesIO
from pathlib import Path
from unicodedata import category

from headway.data.bounded_gzip import BoundedGzip
from headway.errors import UserError, nearest
from headway.system import regular

MAX_FILE_BYTES = 2**29  # bytes that are ever read at once
BLOCK = 512  # bytes of a block of an archive
MAX_LINE_BYTES = 2**24  # bytes of a line that are ever held
MIN_CARRIAGE_RETURNS = 3  # and no line end, in a file whose lines they end; fewer may be characters of a text
MAX_LAST_BLANKS = 1000  # lines at the end of a file that are let pass
# What files hold, by suffix (in lower case, without .gz).
ALIASES = {".ndjson": ".jsonl", ".tab": ".tsv", ".md": ".txt", ".markdown": ".txt"}
COLUMNAR_SUFFIXES = (".parquet", ".arrow", ".feather", ".xlsx")
OBJECT_SUFFIXES = (".jsonl", ".json", *COLUMNAR_SUFFIXES)  # of rows that are objects
TABLE_SUFFIXES = (".csv", ".tsv", *OBJECT_SUFFIXES)
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SOUND_SUFFIXES = (".wav", ".flac", ".ogg", ".mp3")
MEDIA_SUFFIXES = {"image": IMAGE_SUFFIXES, "sound": SOUND_SUFFIXES}
ARCHIVE_SUFFIXES = (".zip", ".bz2", ".xz", ".zst", ".tar", ".tgz", ".7z")
CONVERSIONS = {  # of formats that are not read, by pandas
    ".xls": ('read_excel("{name}").to_csv("{stem}.csv", index=False)', "an Excel file"),
}
PARTS = frozenset(  # of a data set, by name
    ["train", "training", "val", "valid", "validation", "test", "testing", "dev", "eval"]
)
GZIP, BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
UTF16 = (b"\xff\xfe", b"\xfe\xff")
BREAKS = ("Cc", "Zl", "Zp")  # Unicode's categories of what would break a line or move a cursor
CUT = (EOFError, gzip.BadGzipFile, zlib.error)  # what a damaged archive raises while it is read


class Flaw(StrEnum):
    """The kinds of problems, as a list of them is headed."""

    COLUMNS = "wrong columns"
    EMPTY = "empty"
    ENCODING = "not UTF-8"
    NUL = "NUL character"
    QUOTES = "broken quotes"
    JSON = "not JSON"
    KEY = "missing key"
    VALUE = "not a text"
    LONG = "too long"
    COUNTS = "unequal words and tags"
    UNPAIRED = "unequal files"
    BROKEN = "damaged archive"
    DUPLICATE = "duplicate"
    ANOTHER = "same source, another target"
    LEAK = "in training and validation"
    FEW = "missing records"
    ONE_CLASS = "one class only"
    CLASS = "class that training lacks"
    MISSING = "missing file"
    UNNAMED = "in no class"
    IMAGE = "unreadable image"
    ANIMATED = "animated image"
    LARGE = "too large"
    SOUND = "unreadable sound"
    NUMBER = "not a number"


# what may be given, and what to do, by what is wrong
REMEDIES: Mapping[Flaw, tuple[str | None, str]] = {
    Flaw.ENCODING: (None, "save the file as UTF-8"),
    Flaw.JSON: (None, 'write one object on each line, as in {"text": "…", "label": "…"}'),
    Flaw.IMAGE: ("JPEG, PNG, GIF, BMP, WebP, TIFF and PPM images", "save it again as PNG or JPEG, or remove it"),
    Flaw.SOUND: ("WAV, FLAC, Ogg and MP3 sounds", "convert it, as in ffmpeg -i FILE new.wav, or remove it"),
    Flaw.ANIMATED: ("images of one frame", "save one frame as an image of its own, or remove it"),
    Flaw.LARGE: (None, "scale an image down, cut a sound into pieces, or remove it"),
    Flaw.MISSING: (None, "check the name, or get the file again"),
}


@dataclass(frozen=True)
class Problem:
    """What is wrong at a line, or with a whole file (line 0); `lines` is how many it spoils, this one included."""

    file: Path
    line: int
    what: Flaw
    said: str
    lines: int = 1

    def __str__(self) -> str:
        return f"{spot(self.file, self.line)}: {self.said}"

    def error(self, do: str | None = None, more: str = "") -> UserError:
        """What is said where reading ends at it; `more` follows what is wrong."""
        allowed, mend = REMEDIES.get(self.what, (None, None))
        return UserError(f"{self}{more}", allowed=allowed, do="; ".join(filter(None, (mend, do))) or None)


def spot(file: Path, line: int) -> str:
    """Where a record stands, as editors read it; line 0 is a file that is one record."""
    return f"{shown(file)}:{line}" if line else shown(file)


def shown(path: Path) -> str:
    """A path in one line: what would break it is escaped."""
    return "".join(
        letter.encode("unicode_escape").decode("ascii") if category(letter) in BREAKS else letter
        for letter in str(path)
    )


@dataclass(frozen=True, slots=True)
class TextLine:
    """`text` keeps its end; where there is a problem it is the nearest that can be shown."""

    number: int
    text: str
    problem: Problem | None = None

    @property
    def bare(self) -> str:
        """Without its end."""
        return self.text[:-2] if self.text.endswith("\r\n") else self.text.removesuffix("\n")


def read_lines(file: Path) -> Iterator[TextLine]:
    """All lines; a damaged archive ends in a line with a problem."""
    number = 0
    with open_bytes(file) as stream:
        try:
            while raw := stream.readline(MAX_LINE_BYTES):
                number += 1
                if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
                    size = MAX_LINE_BYTES + drain(stream)
                    said = f"a line of {size:,} bytes; a line may have {MAX_LINE_BYTES:,}"
                    yield TextLine(number, "", Problem(file, number, Flaw.LONG, said))
                else:
                    yield decode(unmarked(raw, file) if number == 1 else raw, file, number)
        except CUT as error:
            yield TextLine(number + 1, "", cut(file, number + 1, error))


def without_last_blanks(lines: Iterator[TextLine]) -> Iterator[TextLine]:
    """The lines without the blank ones that end a file, as long as there are few of them."""
    blanks: list[TextLine] = []
    for line in lines:
        blanks.append(line)
        if line.problem or line.bare or len(blanks) > MAX_LAST_BLANKS:
            yield from blanks
            blanks.clear()


@contextmanager
def open_bytes(file: Path) -> Generator[BufferedIOBase]:
    """The bytes of a file, or of a member of an archive (set.tar/labels.csv), unpacked where they are packed."""
    if member := inside(file):
        yield BytesIO(member.read())
        return
    check_file(file)
    with file.open("rb") as raw:
        if raw.peek(2)[:2] == GZIP:
            with BoundedGzip(raw, str(file)) as stream:
                yield stream
        elif file.suffix == ".gz":
            raise UserError(f"{file} is not a gzip file", do="take .gz off its name if it is plain text")
        else:
            yield raw


def check_file(file: Path) -> None:
    """A UserError where there is nothing to read."""
    if file.is_dir():
        raise UserError(f"{file} is a folder", allowed="a file")
    check_exists(file)
    if not file.is_file():
        raise UserError(f"{file} can be read only once", allowed="a file on the disk")


def check_exists(path: Path) -> None:
    """A UserError where there is neither a file nor a folder, with the name of one that was perhaps meant."""
    if path.is_symlink() and not path.exists():
        raise UserError(f"{path} is a link to {path.readlink()}, which is not there", do="give the file itself")
    if not path.exists():
        if has_magic(str(path)):
            raise UserError(f"{path} finds no file", do="check the names with ls, and put quotes around the pattern")
        beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        like = nearest(path.name, beside)
        raise UserError(f"{path} does not exist", meant=like and str(path.with_name(like)))


def expanded(path: Path) -> list[Path]:
    """The files that a pattern such as data/*.parquet finds, in the order of their names; else the path as it is."""
    if not has_magic(str(path)) or os.path.exists(path):
        return [path]
    found = [Path(name) for name in sorted(glob(str(path), recursive=True))]
    return found or [path]


def check_format(file: Path) -> None:
    """A UserError that says how to convert a file of a format that is not read."""
    if conversion := CONVERSIONS.get(suffix_of(file)):
        code, what = conversion
        call = code.format(name=file, stem=file.with_suffix(""))
        raise UserError(f"{file} is {what}, which is not read directly", do=f"convert it with pandas.{call}")


def unmarked(raw: bytes, file: Path) -> bytes:
    """The beginning of a file without a mark of the byte order."""
    if raw.startswith(UTF16):
        raise UserError(f"{file} is in UTF-16", do="save it as UTF-8")
    if b"\n" not in raw and raw.count(b"\r") >= MIN_CARRIAGE_RETURNS:
        said = f"{file} ends its lines with carriage returns alone, as old Macs did"
        raise UserError(said, do="save it with Unix line ends (LF)")
    return raw.removeprefix(BOM)


def decode(raw: bytes, file: Path, number: int) -> TextLine:
    try:
        return TextLine(number, raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        said = f"byte {error.start + 1} of the line is 0x{raw[error.start]:02X}, which is not UTF-8"
        return TextLine(number, raw.decode("utf-8", "replace"), Problem(file, number, Flaw.ENCODING, said))


def cut(file: Path, number: int, error: Exception) -> Problem:
    how = "ends too early" if isinstance(error, EOFError) else "is damaged"
    return Problem(file, number, Flaw.BROKEN, f"the archive {how}: what follows cannot be read")


def drain(stream: BufferedIOBase) -> int:
    """Reads to the end of a line and says how many bytes that was."""
    size = 0
    while raw := stream.readline(2**16):
        size += len(raw)
        if raw.endswith(b"\n"):
            break
    return size


def suffix_of(file: Path) -> str:
    name = Path(file.name.lower().removesuffix(".gz"))
    return ALIASES.get(name.suffix, name.suffix)


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


@dataclass(frozen=True, slots=True)
class MediaLocation:
    """`size` bytes of a file from `start` on, or all of it.  `name` is that of a member of an archive.

    A `shape` says that these are the numbers themselves, one byte each, and no coded image.
    """

    file: Path
    name: str = ""
    start: int = 0
    size: int | None = None
    shape: tuple[int, ...] = ()

    @property
    def path(self) -> Path:
        """What a person would call it."""
        return self.file / self.name if self.name else self.file

    @property
    def bytes(self) -> int:
        return self.file.stat().st_size if self.size is None else self.size

    def read(self, most: int = MAX_FILE_BYTES) -> bytes:
        """The bytes; a UserError where they are gone, or more than `most`."""
        try:
            if (size := self.bytes) > most:
                do = REMEDIES[Flaw.LARGE][1]
                raise UserError(f"{self.path} has {size:,} bytes where {most:,} are allowed", do=do)
            with regular(self.file).open("rb") as file:
                file.seek(self.start)
                return file.read(size)
        except FileNotFoundError:
            raise UserError(f"{self.path} does not exist", do=REMEDIES[Flaw.MISSING][1]) from None
        except OSError as error:
            do = "give a file that you may read"
            raise UserError(f"{self.path} cannot be read: {error.strerror}", do=do) from None

    def spelled(self) -> str:
        """A text that `parsed` reads, for stores of places on disk."""
        return json.dumps([str(self.file), self.name, self.start, self.size, self.shape])

    @staticmethod
    def parsed(text: str) -> MediaLocation:
        file, name, start, size, shape = json.loads(text)
        return MediaLocation(Path(file), name, start, size, tuple(shape))


def members(archive: Path) -> Mapping[str, MediaLocation]:
    """The files in a .tar archive by name, in its order; also those whose names lead outside it."""
    try:
        stamp = archive.stat()
    except FileNotFoundError:
        raise UserError(f"{archive} does not exist") from None
    return indexed(archive, stamp.st_size, stamp.st_mtime_ns)


def leads_outside(name: str) -> bool:
    """Whether a member's name is that of no file in its archive: /etc/x.png, ../x.png."""
    return name.startswith(("/", "../"))


def on_disk(path: Path) -> Path:
    """The file that is read for a path: the archive, where the path goes on behind one."""
    return next((up for up in path.parents if up.suffix.lower() == ".tar" and up.is_file()), path)


def inside(path: Path) -> MediaLocation | None:
    """The member that a path names, where it goes on behind an archive; None for other paths."""
    archive = on_disk(path)
    if archive == path:
        return None
    name, found = path.relative_to(archive).as_posix(), members(archive)
    if name not in found:
        raise UserError(f"{archive} has no {name}", meant=nearest(name, found))
    return found[name]


@lru_cache(16)
def indexed(archive: Path, size: int, changed: int) -> Mapping[str, MediaLocation]:
    """The index of an archive of this size that was last changed then."""
    found: dict[str, MediaLocation] = {}
    try:
        with tarfile.open(archive, "r:") as tar:  # r: takes no compressed ones, in which no place can be looked up
            for member in tar:
                if member.islnk() or member.issym() or member.issparse():
                    raise UserError(
                        f"{archive}: {member.name} is a link or has gaps, and cannot be read in place",
                        do="pack it again with tar --dereference --hard-dereference",
                    )
                if member.isfile():
                    name = posixpath.normpath(member.name)
                    found[name] = MediaLocation(archive, name, member.offset_data, member.size)
            end = tar.offset
    except UserError:
        raise
    except (tarfile.TarError, EOFError, ValueError) as error:
        with archive.open("rb") as file:
            packed = file.read(2) == GZIP
        do = "unpack it with gunzip: a packed archive has no places to look up" if packed else "get the archive again"
        raise UserError(f"{archive} cannot be read as a .tar archive: {error}", do=do) from None
    if MediaLocation(archive, start=end, size=BLOCK).read() != bytes(BLOCK):  # where reading stopped, zeros must end it
        said = f"{archive} is cut off or damaged after {len(found):,} of its files"
        raise UserError(said, do="get the archive again")
    return found
