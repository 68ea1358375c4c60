"""The processes of a run: how they meet, what they exchange besides gradients, and how all of them end when one does.

`joined` reads the variables of torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and makes the process group of
torch.distributed: gloo between CPUs, nccl between CUDA devices.  Without them a process is alone, and nothing of
torch.distributed is imported.  Process 0 prints and writes; the others' standard output goes nowhere.

An exchange waits as long as it must, since process 0 may evaluate for hours.  So a thread of each process counts its
heartbeats in the store of the rendezvous: process 0 watches all others, and they watch it.  Whoever misses another one
for `MISSED` of its own beats ends, so that a machine that sleeps, or processes that are stopped together, miss nobody.

A process that fails says why in the store and waits until process 0 has printed that.  Texts in the store are JSON.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from headway.errors import LostProcessError, UserError

if TYPE_CHECKING:
    import torch

JOIN_SECONDS = 60.0  # until all processes have come
EXCHANGE_LIMIT = timedelta(days=30)  # heartbeats tell who is gone, so no exchange has a limit of its own
BEAT_SECONDS, MISSED = 1.0, 30
STORE_BEATS = 20  # without an answer of the store
GOODBYE_SECONDS = 5.0  # until another process has read why this one fails
RANK, WORLD_SIZE = "RANK", "WORLD_SIZE"
LOCAL_RANK, LOCAL_SIZE = "LOCAL_RANK", "LOCAL_WORLD_SIZE"  # among the processes of this machine
QUIET = "TORCH_CPP_LOG_LEVEL"  # which torch reads when it is loaded
ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"
FAILED, TOLD, DONE = "headway/failed", "headway/told", "done"
GLOO = "gloo"  # in what its errors say


class World:
    """All processes of a run; this class is that of a process alone."""

    rank, size, local_size = 0, 1, 1

    @property
    def first(self) -> bool:
        """Whether this process prints and writes."""
        return self.rank == 0

    def totals(self, *numbers: float) -> list[float]:
        """The sum of each number over all processes."""
        return list(numbers)

    def highest(self, number: int) -> int:
        return number

    def told(self, text: str = "") -> str:
        """The text of process 0, in every process."""
        return text

    def gathered(self, text: str) -> list[str]:
        """The text of each process, in every process."""
        return [text]

    def send(self, tensors: Sequence[torch.Tensor]) -> None:
        """Gives tensors of all processes the values of those of process 0."""

    def add(self, tensors: Sequence[torch.Tensor]) -> None:
        """Gives tensors the sum of those of all processes."""

    def advise(self, text: str) -> None:
        """Says what people can do after a process was lost."""

    def check_same(self, mine: Mapping[str, str]) -> None:
        """Refuses a process where what is compared differs from that of process 0."""
        theirs: dict[str, str] = json.loads(self.told(json.dumps(dict(mine))))
        different = [name for name in {**theirs, **mine} if theirs.get(name) != mine.get(name)]
        if different:
            said = f"{different[0]} of process {self.rank} is not that of process 0"
            raise UserError(said, do="give all processes the same data, the same recipe and the same headway")
        self.totals()  # where another process refuses, this one waits here to be ended


ALONE = World()


class JoinedWorld(World):
    """One of several processes."""

    def __init__(self, rank: int, size: int, local_rank: int, local_size: int):
        self.rank, self.size, self.local_size = rank, size, local_size
        self.speaks_alone = rank == 1 or (rank > 0 and local_rank == 0)  # for its machine, where process 0 is silent
        self.advice = ""

    def advise(self, text: str) -> None:
        self.advice = text

    def totals(self, *numbers: float) -> list[float]:
        import torch

        total = torch.tensor(numbers or [0.0], dtype=torch.float64, device="cpu")
        self.add([total])
        return total.tolist()[: len(numbers)]

    def highest(self, number: int) -> int:
        import torch
        from torch import distributed

        found = torch.tensor(number, device="cpu")
        distributed.all_reduce(found, distributed.ReduceOp.MAX)
        return int(found)

    def told(self, text: str = "") -> str:
        import torch

        size = torch.tensor(len(text.encode()), device="cpu")
        self.send([size])
        data = as_bytes(text if self.first else "", int(size))
        if len(data):
            self.send([data])
        return data.numpy().tobytes().decode()

    def gathered(self, text: str) -> list[str]:
        import torch
        from torch import distributed

        sizes = [torch.zeros((), dtype=torch.long, device="cpu") for _ in range(self.size)]
        distributed.all_gather(sizes, torch.tensor(len(text.encode()), device="cpu"))
        longest = max(map(int, sizes))
        texts = [as_bytes("", longest) for _ in range(self.size)]
        if longest:
            distributed.all_gather(texts, as_bytes(text, longest))
        return [one.numpy().tobytes()[: int(size)].decode() for one, size in zip(texts, sizes, strict=True)]

    def send(self, tensors: Sequence[torch.Tensor]) -> None:
        from torch import distributed

        for tensor in tensors:
            distributed.broadcast(tensor, 0)

    def add(self, tensors: Sequence[torch.Tensor]) -> None:
        from torch import distributed

        for tensor in tensors:
            distributed.all_reduce(tensor)


def as_bytes(text: str, size: int) -> torch.Tensor:
    """A text as so many bytes, zeros behind it."""
    import torch

    return torch.frombuffer(bytearray(text.encode().ljust(size, b"\0")), dtype=torch.uint8) if size else torch.empty(0)


@contextmanager
def joined() -> Generator[World]:
    """The world that the environment names, in which nobody fails unnoticed; a process alone where it names none."""
    rank, size = read_number(RANK), read_number(WORLD_SIZE)
    if rank is None or size is None or size == 1:
        yield ALONE
        return
    if not 0 <= rank < size:
        raise UserError(f"{RANK}={rank} with {WORLD_SIZE}={size}", allowed=f"{RANK} from 0 to {WORLD_SIZE} - 1")
    world = JoinedWorld(rank, size, *on_this_machine())
    with ExitStack() as quiet:
        if not world.first:
            quiet.enter_context(redirect_stdout(quiet.enter_context(open(os.devnull, "w", encoding="utf-8"))))
        watch = Heartbeat(world, meet(rank, size))
        try:
            yield world
        except BaseException as error:
            watch.fail(error)
        watch.finish()


def read_number(variable: str) -> int | None:
    """A whole number among the environment variables."""
    text = os.environ.get(variable, "")
    if text and not text.isdecimal():
        said = f"{variable}={text!r} is not a whole number"
        raise UserError(said, do="start the processes by torchrun, or --processes")
    return int(text) if text else None


def on_this_machine() -> tuple[int, int]:
    """The number of this process among those of its run on this machine, and how many they are."""
    return read_number(LOCAL_RANK) or 0, read_number(LOCAL_SIZE) or 1


def meet(rank: int, size: int) -> KeyStore:
    """Waits for the other processes, and makes the process group; what texts are exchanged by."""
    os.environ.setdefault(QUIET, "FATAL")  # DDP warns where every parameter was used; what fails is raised
    import torch
    from torch import distributed
    from torch.distributed.rendezvous import rendezvous

    here, limit = f"headway/here/{{}}/{size}".format, timedelta(seconds=JOIN_SECONDS)
    missing = [name for name in (ADDRESS, PORT) if not os.environ.get(name)]
    if missing:
        said = f"{RANK} and {WORLD_SIZE} are set, but not {missing[0]}"
        raise UserError(said, do="start the processes by torchrun, or --processes")
    place = f"{os.environ[ADDRESS]}:{os.environ[PORT]}"
    try:
        store: Any = next(rendezvous("env://", timeout=limit))[0]
        store.set(here(rank), "")
        with suppress(distributed.DistError):
            store.wait([here(other) for other in range(size)], limit)
        absent = [other for other in range(size) if not store.check([here(other)])]
    except (distributed.DistError, OSError) as error:
        in_use = "EADDRINUSE" in str(error) or "already in use" in str(error)
        said = f"the address {place} is in use" if in_use else f"nobody answers at {place}"
        same = f"see that process 0 runs there, and {ADDRESS} and {PORT} are the same"
        do = f"give another {PORT}" if in_use else same
        raise UserError(said, do=do) from None
    if absent:
        raise UserError(f"process {absent[0]} of {size} did not come in {JOIN_SECONDS:.0f} seconds", do="start all")
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=EXCHANGE_LIMIT)
    return store.clone()


class KeyStore(Protocol):
    """Texts by name that all processes of a run see."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...


@dataclass
class Heartbeat:
    """A thread that tells the others that this process lives, and ends it where they do not, or fail."""

    world: JoinedWorld
    store: KeyStore
    beats: int = 0
    stopped: Event = field(default_factory=Event)  # the main thread ends this process
    finished: Event = field(default_factory=Event)  # it needs the store no more
    speaking: Lock = field(default_factory=Lock)  # whoever holds it says why the process ends
    threads: list[Thread] = field(default_factory=list[Thread])

    def __post_init__(self) -> None:
        self.store.set(self.pulse(self.world.rank), "0")
        self.threads += [Thread(target=work, daemon=True) for work in (self.run, self.guard)]
        for thread in self.threads:
            thread.start()

    def pulse(self, rank: int) -> str:
        return f"headway/pulse/{rank}"

    def run(self) -> None:
        watched = range(1, self.world.size) if self.world.first else range(1)
        seen, silent = dict.fromkeys(watched, ""), dict.fromkeys(watched, 0)
        while not self.stopped.wait(BEAT_SECONDS):
            self.beats += 1
            try:
                pulses = self.beat(watched)
            except RuntimeError:  # process 0 keeps the store
                said = "process 0 has ended or does not answer"
                self.leave(LostProcessError(said), aloud=self.world.speaks_alone)
                return
            silent = {one: silent[one] + 1 if pulse == seen[one] != DONE else 0 for one, pulse in pulses.items()}
            seen = pulses
            for one in (one for one, beats in silent.items() if beats > MISSED):
                error = LostProcessError(f"process {one} has not answered for {MISSED * BEAT_SECONDS:.0f} seconds")
                self.publish(error)
                self.leave(error, aloud=self.world.rank == 0 or self.world.rank == 1)

    def beat(self, watched: Sequence[int]) -> dict[int, str]:
        """Tells that this process lives, and follows one that fails; what the others tell."""
        self.store.set(self.pulse(self.world.rank), str(self.beats))
        if self.store.check([FAILED]):
            self.follow(json.loads(self.store.get(FAILED)))
        return {one: self.store.get(self.pulse(one)).decode() if self.known(one) else "" for one in watched}

    def guard(self) -> None:
        """Ends this process where the store does not answer: its questions have no limit of their own."""
        seen, silent = -1, 0
        while not self.finished.wait(BEAT_SECONDS):
            seen, silent = self.beats, silent + 1 if self.beats == seen else 0
            if silent > STORE_BEATS:
                error = LostProcessError("process 0 has not answered, which keeps the store")
                if self.world.speaks_alone and not self.stopped.is_set():
                    print(f"error: {self.sentence(error)}", file=sys.stderr, flush=True)
                os._exit(error.code)

    def known(self, rank: int) -> bool:
        return self.store.check([self.pulse(rank)])

    def follow(self, failure: Mapping[str, Any]) -> None:
        """Ends because another process has failed; process 0 says why, unless it was the one."""
        if failure["rank"] == self.world.rank:
            return
        aloud = self.world.first and failure["rank"] != 0
        self.leave(UserError(failure["said"]), aloud=aloud, code=failure["code"])

    def leave(self, error: UserError, *, aloud: bool, code: int | None = None) -> None:
        """Ends the process from this thread, unless the main one ends it: that may wait in an exchange for ever."""
        with self.speaking:
            if self.stopped.is_set():
                return
            if aloud:
                print(f"error: {self.sentence(error)}", file=sys.stderr, flush=True)
            with suppress(RuntimeError):
                self.store.set(f"{TOLD}/{self.world.rank}", "")
                if self.world.first:
                    self.wait_for_others()
            os._exit(error.code if code is None else code)

    def sentence(self, error: UserError) -> str:
        lost = isinstance(error, LostProcessError) and self.world.advice
        return f"{error}; {self.world.advice}" if lost else str(error)

    def publish(self, error: BaseException, code: int = 1) -> None:
        """Says why this process fails, where none has before it."""
        said = self.sentence(error) if isinstance(error, UserError) else str(error) or type(error).__name__
        text = json.dumps({"rank": self.world.rank, "said": said, "code": code})
        with suppress(RuntimeError):
            if not self.store.check([FAILED]):
                self.store.set(FAILED, text)

    def wait_for_others(self) -> None:
        """Gives the others time to read why process 0 ends: the store goes with it."""
        until, names = monotonic() + GOODBYE_SECONDS, [f"{TOLD}/{one}" for one in range(1, self.world.size)]
        while monotonic() < until and not all(self.known_as(name, rank) for rank, name in enumerate(names, 1)):
            sleep(0.05)

    def known_as(self, name: str, rank: int) -> bool:
        return self.store.check([name]) or self.store.get(self.pulse(rank)).decode() == DONE

    def fail(self, error: BaseException) -> NoReturn:
        """Ends the run of all processes because of an error in this one."""
        if is_lost(error):  # who has failed may be about to say so, and this thread is ended then
            sleep(2 * BEAT_SECONDS)
            error = LostProcessError("another process of this run has ended or cannot be reached")
            error.__cause__ = None
        with self.speaking:
            self.stopped.set()
        code = error.code if isinstance(error, UserError) else 1
        self.publish(error, code)
        if self.world.first:
            with suppress(RuntimeError):
                self.store.set(f"{TOLD}/0", "")
                self.wait_for_others()
            self.end()
            if isinstance(error, LostProcessError):
                raise LostProcessError(self.sentence(error))
            raise error
        if not isinstance(error, UserError | OSError | KeyboardInterrupt | SystemExit):
            traceback.print_exception(error)
        told = self.wait_until_told()
        if not told and self.world.rank == 1:
            print(f"error: {self.sentence(error) if isinstance(error, UserError) else error}", file=sys.stderr)
        sys.stdout.flush()
        os._exit(code)

    def wait_until_told(self) -> bool:
        """Whether process 0 has said in time why this one fails."""
        until = monotonic() + GOODBYE_SECONDS
        try:
            while monotonic() < until:
                if self.store.check([f"{TOLD}/0"]):
                    self.store.set(f"{TOLD}/{self.world.rank}", "")
                    return True
                sleep(0.05)
        except RuntimeError:
            pass
        return False

    def finish(self) -> None:
        """Leaves in good order; process 0, which may keep the store, as the last."""
        from torch import distributed

        self.stopped.set()
        with suppress(RuntimeError):
            self.store.set(self.pulse(self.world.rank), DONE)
            if self.world.first:
                self.wait_for_others()
        self.end()
        distributed.destroy_process_group()

    def end(self) -> None:
        """Waits for the threads: one that still asks the store while Python ends would abort the process."""
        self.finished.set()
        for thread in self.threads:
            thread.join(GOODBYE_SECONDS)


def is_lost(error: BaseException) -> bool:
    """Whether an exchange has failed because another process was gone."""
    return isinstance(error, RuntimeError) and GLOO in str(error).lower()
