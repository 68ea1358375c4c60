"""The command in a process of its own, forked from the one that has imported everything: milliseconds, not seconds."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from runpy import run_path

import torch

from headway.cli.main import main
from headway.system import Disk
from headway.training.store import Snapshot, Store
from tests.train.runs import write_data

# a run so small that its steps take milliseconds
TINY = [
    *("--preset", "transformer-nano", "--model.dim", "16", "--model.heads", "2", "--model.layers", "1"),
    *("--data.tokenizer", "words", "--train.dropout", "0.1", "--train.batch", "100", "--train.threads", "1"),
]
# a whole command of six steps
SIX = ["train", "pairs.tsv", *TINY, "--train.steps", "6", "--train.evaluate-every", "6", "--train.log-every", "1"]


@dataclass(frozen=True)
class Place:
    """A folder to work in, with a home and a cache beside it that belong to nobody else."""

    folder: Path

    def start(self, *words: str, before: Callable[[], None] | None = None, **more: str) -> Child:
        def program() -> int:
            if before:
                before()
            return main(words)

        return Child(self, program, more)

    def __call__(self, *words: str, before: Callable[[], None] | None = None, **more: str) -> Done:
        """What a command prints and returns; `before` is done in its process first, `more` are variables."""
        return self.start(*words, before=before, **more).wait()

    def script(self, file: Path) -> Done:
        """What a program in Python prints and returns."""

        def program() -> int:
            run_path(str(file), run_name="__main__")
            return 0

        return Child(self, program, {}).wait()

    def tree(self) -> dict[str, bytes | None]:
        """Every file and folder of work, home, cache and temporary files."""
        found = sorted(self.folder.parent.rglob("*"))
        return {str(path): path.read_bytes() if path.is_file() else None for path in found if path.suffix != ".told"}


def empty_place(folder: Path) -> Place:
    for name in ("work", "home", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    return Place(folder / "work")


def made_place(folder: Path) -> Place:
    """A place with the data of `write_data`."""
    place = empty_place(folder)
    write_data(place.folder)
    return place


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """What a refused command says: a sentence, and perhaps a tip, and no traceback."""
        lines = self.err.splitlines()
        assert self.code in (1, 2), (self.code, self.err)
        assert "Traceback" not in self.err
        assert lines[0].startswith("error: ")
        assert all(line.startswith(("  tip: ", "  allowed: ")) for line in lines[1:]), self.err
        return self.err


class Child:
    """A command or a program that runs; its output goes to files, which no process can keep open against us."""

    def __init__(self, place: Place, program: Callable[[], int], more: Mapping[str, str]):
        self.place, number = place, time.monotonic_ns()
        warm()
        self.files = [place.folder.parent / f"{number}.{stream}.told" for stream in ("out", "err")]
        for file in self.files:
            file.touch()  # it may be killed before it does anything
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 99
            try:
                settle(place, self.files, more)
                code = program()
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    def kill(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill_all(self, number: int) -> None:
        """The process and its workers, as a terminal does."""
        os.killpg(self.pid, number)

    def wait(self) -> Done:
        _, status = os.waitpid(self.pid, 0)
        return Done(os.waitstatus_to_exitcode(status), *(file.read_text(encoding="utf-8") for file in self.files))

    def running(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


@cache
def warm() -> None:
    """Imports once, here, what every child would import for itself."""
    ours = ("headway.training.run", "headway.inspect.presentation", "headway.look.html_page")
    theirs = ("sacrebleu", "safetensors.torch", "tokenizers", "torch._dynamo", "torch.utils.tensorboard")
    for name in (*ours, *theirs, "matplotlib.figure", "matplotlib.backends.backend_svg"):
        import_module(name)


def settle(place: Place, files: list[Path], more: Mapping[str, str]) -> None:
    """Makes the forked process like one that a shell has started."""
    os.setsid()
    os.chdir(place.folder)
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADWAY_", "XDG_"))}
    os.environ.clear()
    os.environ.update({**kept, "HOME": str(place.folder.parent / "home"), "TMPDIR": str(place.folder.parent / "tmp")})
    os.environ.update(more)
    tempfile.tempdir = None


def until(condition: Callable[[], bool], child: Child) -> None:
    """Waits for something that a running child does, however busy the machine is."""
    while not condition() and child.running():
        time.sleep(0.002)


def lines_of(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


class Full(Disk):
    """A disk that writes once more, and then never."""

    def __init__(self, number: int) -> None:
        self.number, self.writes = number, iter(range(100))

    def write(self, handle: int, data: memoryview) -> int:
        if next(self.writes) > 0:
            raise OSError(self.number, os.strerror(self.number))
        return super().write(handle, data)


def full_after(saves: int, number: int = errno.ENOSPC) -> Callable[[], None]:
    """A disk that has room for so many checkpoints, and for half of the next one's first file."""

    def plant() -> None:
        save, begun = Store.save, iter(range(100))

        def saved(self: Store, snapshot: Snapshot, protect: Collection[int] = ()) -> Path:
            full = next(begun) >= saves
            return save(replace(self, disk=Full(number)) if full else self, snapshot, protect)

        Store.save = saved  # type: ignore[method-assign]

    return plant


def left(place: Place, name: str) -> list[bytes]:
    return [(place.folder / name / file).read_bytes() for file in ("metrics.jsonl", "model.safetensors")]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
