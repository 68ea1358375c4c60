"""What headway asks of the operating system: complete files, memory that is kept, and facts about the machine.

A file is written under another name, flushed to the disk, then renamed: a crash at any instruction leaves the old file,
or the new one, and at worst a leftover whose name ends in `.part`.

Training allocates and frees buffers of many megabytes in each step.  By default glibc's malloc returns large ones to
the system at once and requests them again, each page to be cleared anew; kept, they cost nothing.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import re
import resource
import signal
import stat
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from headway.errors import UserError, nearest

SignalHandler = Callable[[int, FrameType | None], None]
OUT_OF_MEMORY = ("allocate memory", "not enough memory", "out of memory")  # as torch says it
AUTO, CPU = "auto", "cpu"
DEVICES = (AUTO, CPU, "cuda", "mps", "xpu")
DEVICE_NAME = re.compile(r"auto|cpu|(cuda|mps|xpu)(:\d{1,3})?")
DEVICES_TEXT = "auto, cpu, cuda, cuda:N, mps or xpu"
THREADS = "OMP_NUM_THREADS"  # which torch reads when it is loaded
PR_SET_PDEATHSIG = 1
CHECKPOINTS = "checkpoints"  # in the folder of a model: what its training goes on from, until it is done


class Terminated(BaseException):
    """SIGTERM, where it ends a command as Ctrl-C does."""


@contextmanager
def handled(number: signal.Signals, handler: SignalHandler) -> Generator[None]:
    """Calls a handler on a signal in the main thread, unless the calling program has a handler of its own.

    That the signal is ignored is no handler: a shell without job control, as in a script, starts `command &` so that
    it ignores SIGINT, and a command that did so for good could not be asked to end.
    """
    before, main = signal.getsignal(number), threading.current_thread() is threading.main_thread()
    own = main and before in (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)
    if own:
        signal.signal(number, handler)
    try:
        yield
    finally:
        if own:
            signal.signal(number, before)


def sigterm_raises() -> AbstractContextManager[None]:
    """Raises `Terminated` on SIGTERM, so that temporary folders and threads end in order."""
    return handled(signal.SIGTERM, raising(Terminated()))


def raising(error: BaseException) -> SignalHandler:
    def handler(number: int, frame: object) -> None:
        raise error

    return handler


def regular(path: Path) -> Path:
    """The path of a file, refused where reading would never end or wait for another program: a pipe, a device.

    A file that is not there is for its reader to tell.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return path
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UserError(f"{path} is a pipe, a socket or a device", allowed="a regular file")
    return path


def check_inside(folder: Path) -> None:
    """Refuses a folder of a run in which a link leads out of it, or a pipe or device stands: it is written to."""
    for place in (folder, folder / CHECKPOINTS):
        for entry in os.scandir(place) if place.is_dir() else ():
            path = Path(entry.path)
            if entry.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
                said = f"{path} is a link to {os.readlink(path)}, outside of the run's folder"
                raise UserError(said, do="put the file itself there, or remove the link")
            regular(path)


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a file beside `path`, and puts it in its place when it is safely on the disk."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.touch()
        mode = part.stat().st_mode  # as every new file; some libraries write files that nobody else may read
        write(part)
        part.chmod(mode)
        flush(part)
        os.replace(part, path)
        flush(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    def write(part: Path) -> None:
        # a name of a file may have bytes that are no UTF-8; JSON and YAML read what stands for them back as they were
        part.write_text(text, encoding="utf-8", errors="backslashreplace")

    write_whole(path, write)


def write_json(path: Path, value: object) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object, in which no name stands twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(name for name, _ in pairs if name in seen or seen.add(name))
            raise UserError(f"{path}: {twice!r} stands there twice", do="keep one of them")
        return found

    try:
        value = json.loads(regular(path).read_text(encoding="utf-8"), object_pairs_hook=once)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder", allowed="a file that holds a JSON object") from None
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} holds {type(value).__name__}", allowed="a JSON object")
    return value


def flush(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # mallopt's names for them, in malloc.h
LARGE = 2**26  # bytes; kept too, buffers of 200 MB were 1.3 times as fast, but left gaps of twice their size
NEVER = 2**31 - 1  # the largest that mallopt takes


def keep_memory() -> bool:
    """Lets glibc keep freed memory for reuse; False, without effect, where there is no glibc.

    Call it before the first large tensors.  The process then holds its peak memory.
    """
    # some versions refuse more than 32 MB
    mapped = any(set_malloc(MMAP_THRESHOLD, size) for size in (LARGE, LARGE // 2))
    return mapped and set_malloc(TRIM_THRESHOLD, NEVER)


def share_arena() -> bool:
    """Lets all threads allocate from one arena; False, without effect, where there is no glibc.

    Call it before the first thread.  With an arena for each, what one thread frees is of no use to the others: a server
    under load grew by 2 MiB a minute, and did not stop.
    """
    return set_malloc(ARENA_MAX, 1)


def set_malloc(name: int, value: int) -> bool:
    """Sets a parameter of glibc's malloc; False where it is refused, or there is no glibc."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    return hasattr(libc, "gnu_get_libc_version") and libc.mallopt(name, value) == 1  # musl has no such version


def peak_memory() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident_memory() -> int:
    """The memory that this process has now, in bytes; where the system does not tell, the most that it has had."""
    return next(iter(held_memory()[1:]), peak_memory())


def memory_limit() -> int | None:
    """The memory in bytes that this process can have at most: the machine's, its cgroup's, or its rlimit's.

    An rlimit counts addresses, of which libraries hold some already.  None where the system does not tell.
    """
    limits = [*physical_memory(), *cgroup_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))]
    addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
    if addresses != resource.RLIM_INFINITY:
        limits.append(max(0, addresses - sum(held_memory()[:1])))
    return min(limits, default=None)


def physical_memory() -> list[int]:
    try:
        return [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):
        return []


def cgroup_limits(told: Path, root: Path) -> list[int]:
    """The limits of the cgroups (version 1 or 2) that a file like /proc/self/cgroup names, and of those above them."""
    found = list[int]()
    for line in lines_of(told):
        _, controllers, name = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        top, file = (root, "memory.max") if controllers == "" else (root / "memory", "memory.limit_in_bytes")
        group = Path(name.lstrip("/"))
        for part in (group, *group.parents):  # in a container the root stands for the group itself
            found += [int(text) for text in lines_of(top / part / file)[:1] if text.isdigit()]
    return found


def held_memory() -> list[int]:
    """Bytes of addresses that this process has, and of memory behind them; empty where the system does not tell."""
    pages = " ".join(lines_of(Path("/proc/self/statm"))).split()
    return [int(number) * os.sysconf("SC_PAGE_SIZE") for number in pages[:2]]


def lines_of(path: Path) -> list[str]:
    """The lines of a file of the system; none where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


@contextmanager
def memory_errors(do: str) -> Generator[None]:
    """Where memory runs out within, as Python, torch or the system say it, that is told with what to do about it."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        lacking = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        if not lacking and not any(text in str(error) for text in OUT_OF_MEMORY):
            raise
        limit = memory_limit()
        there = "" if limit is None else f": this process can have {gibibytes(limit)}"
        raise UserError(f"out of memory{there}", do=do) from error


def gibibytes(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"


@contextmanager
def processor_limit(seconds: float, error: Exception) -> Generator[None]:
    """Raises an error where Python code takes more of the processor's time than this; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, raising(error))
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


SPIN_COUNT = "GOMP_SPINCOUNT"
WAITING = ("OMP_WAIT_POLICY", SPIN_COUNT, "KMP_BLOCKTIME")  # variables that say how threads wait for one another
SPINS = 1000  # before a thread sleeps; two threads of a tiny GPT: 0.9 × the speed of long spinning on idle cores


def spin_briefly() -> None:
    """Lets torch's threads sleep soon while they wait for one another, unless the user has said how they wait.

    By default they spin for long, which costs all of them their speed as soon as another process wants a core; asleep
    at once (OMP_WAIT_POLICY=PASSIVE), small models lose half of theirs on idle cores (`bench/threads.py`).  OpenMP
    reads this once, when torch is loaded; after that nothing is changed.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in WAITING):
        os.environ[SPIN_COUNT] = str(SPINS)


def describe_waiting() -> str:
    """How torch's threads wait, as far as it was said."""
    return ", ".join(f"{name}={os.environ[name]}" for name in WAITING if name in os.environ) or "spinning"


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_threads(processes: int) -> str:
    """Gives each process to be started its share of the cores, unless a number of threads is set; the number."""
    return os.environ.setdefault(THREADS, str(max(1, usable_cores() // processes)))


def die_with_parent() -> None:
    """Lets the system end this process, once it is started, by SIGTERM where its parent is killed; on Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def check_device(name: str) -> None:
    """Refuses what is no name of a device, without torch; whether it is there, `dtype.py` knows."""
    if not DEVICE_NAME.fullmatch(name):
        raise UserError(f"there is no device {name!r}", allowed=DEVICES_TEXT, meant=nearest(name, DEVICES))


def describe_cores() -> str:
    wished = os.environ.get("OMP_NUM_THREADS")
    return f"{usable_cores()} usable of {os.cpu_count()}" + (f", OMP_NUM_THREADS={wished}" if wished else "")


def describe_python() -> str:
    return f"{platform.python_version()} on {platform.system()} {platform.machine()}"


def describe_processor() -> str:
    """The processor's name, where the system knows it."""
    lines = lines_of(Path("/proc/cpuinfo"))
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


# ---- a disk, between any two of whose methods the machine may stop


class Disk:
    """The operating system's own; tests pass one that fails, or that forgets what was not flushed."""

    def make(self, folder: Path) -> None:
        os.mkdir(folder)

    def create(self, file: Path) -> int:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)

    def write(self, handle: int, data: memoryview) -> int:
        """The number of bytes written, at least one."""
        return os.write(handle, data)

    def flush(self, handle: int) -> None:
        """Waits until a file's bytes are on the disk."""
        os.fsync(handle)

    def flush_folder(self, folder: Path) -> None:
        """Waits until the directory entries of a folder are on the disk."""
        try:
            flush(folder)
        except OSError as error:
            if error.errno != errno.EINVAL:  # from file systems that cannot flush folders at all
                raise

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, file: Path) -> None:
        os.unlink(file)

    def remove_folder(self, folder: Path) -> None:
        os.rmdir(folder)


DISK = Disk()


def make_folders(disk: Disk, folder: Path) -> None:
    """Makes a folder and its missing parents, each flushed before the next."""
    if not folder.is_dir():
        make_folders(disk, folder.parent)
        disk.make(folder)
    with suppress(PermissionError):  # the parent may not be readable
        disk.flush_folder(folder.parent)


def remove_tree(disk: Disk, path: Path) -> None:
    """Deletes a folder and its contents; a symbolic link is deleted, its target stays."""
    if path.is_symlink() or not path.is_dir():
        disk.remove(path)
    else:
        for name in sorted(os.listdir(path)):
            remove_tree(disk, path / name)
        disk.remove_folder(path)
