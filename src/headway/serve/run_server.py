"""Running a server: its address, its key, and how it ends.  Nothing heavy is imported before all of that is checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from errno import EADDRNOTAVAIL
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from re import fullmatch
from shutil import rmtree
from socket import AF_INET, AF_INET6, socket
from socket import create_server as listen
from typing import TYPE_CHECKING

from headway.errors import UserError, counted, port_errors
from headway.system import share_arena

if TYPE_CHECKING:
    from headway.serve.serve_options import ServeOptions

PACKAGES = ("fastapi", "uvicorn", "python_multipart", "jinja2")
BACKLOG = 256  # connections that the system holds until they are accepted


@dataclass(frozen=True)
class ServerAddress:
    """Where a server listens, and what it asks of those who come."""

    host: str = "127.0.0.1"
    port: int = 8000
    key: str | None = field(default=None, repr=False)
    origins: Sequence[str] = ()
    log: bool = False

    def check(self) -> None:
        if missing := [name for name in PACKAGES if find_spec(name) is None]:
            raise UserError(f"headway serve needs {missing[0]}", do="pip install 'headway[serve]'")
        if self.key is not None and not fullmatch(r"[!-~]+", self.key):
            raise UserError("the API key has other characters", allowed="ASCII letters, digits and signs, no spaces")
        if self.key is None and not is_loopback(self.host):
            do = "give api_key=, or set HEADWAY_API_KEY, or serve on 127.0.0.1"
            raise UserError(f"host={self.host} can be reached by others, which needs an API key", do=do)
        for origin in self.origins:
            if not fullmatch(r"https?://[^/\s*]+", origin):
                raise UserError(
                    f"{origin!r} is no origin", allowed="a scheme and a host, as in cors=https://app.example"
                )

    def bind(self) -> socket:
        """A socket that is bound before a model is loaded: a port in use is told at once."""
        with port_errors(self.port):
            try:
                family = AF_INET6 if ":" in self.host else AF_INET
                return ListeningSocket(fileno=listen((self.host, self.port), family=family).detach())
            except OSError as error:
                if (
                    error.errno != EADDRNOTAVAIL and (error.errno or 0) > 0
                ):  # a name that is not known has a negative one
                    raise
                said = f"host={self.host} is no address of this machine"
                raise UserError(said, do="use 127.0.0.1, or 0.0.0.0 for all") from None


class ListeningSocket(socket):
    """asyncio calls `listen` with the number of connections that it accepts in a turn; the system holds more."""

    def listen(self, backlog: int = BACKLOG, /) -> None:
        super().listen(BACKLOG)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class ServerProcess:
    """What a process of a server is given by the one that starts it."""

    listening: socket
    folder: Path  # for uploaded files
    ready: Callable[[], object]  # called when models can be asked for
    answered: Callable[[], object]  # called when it ends and has answered all requests
    counters: Path | None = None  # the file of its counters, where it is one of several workers


def run_server(
    process: ServerProcess, folders: Mapping[str, Path], address: ServerAddress, options: ServeOptions
) -> None:
    """Serves until a signal: the first lets requests end, a second leaves at once."""
    import uvicorn

    from headway.serve.app import create_app
    from headway.serve.connections import server_config
    from headway.serve.counters import Counters, WorkerCounters
    from headway.serve.security import AccessRules
    from headway.serve.served_models import ModelPool

    class DrainingServer(uvicorn.Server):
        def handle_exit(self, sig: int, frame: object) -> None:
            if self.should_exit:  # at exit Python would wait for what models still compute
                rmtree(process.folder, ignore_errors=True)
                os._exit(128 + sig)
            self.should_exit = app.state.ending = True
            if count := len(self.server_state.tasks):
                told = f"ending: {counted(count, 'request')} to be answered first; once more to leave at once\n"
                with suppress(OSError):  # nobody may read it, and an error would end the requests
                    os.write(2, told.encode())  # what was interrupted may be printing

    share_arena()
    pool = ModelPool(folders, options)
    counters = Counters() if process.counters is None else WorkerCounters(process.counters, pool)
    rules = AccessRules(address.key, address.origins, address.log)
    app = create_app(pool, process.folder, rules, counters=counters, answered=process.answered)
    process.ready()
    DrainingServer(server_config(app, counters)).run(sockets=[process.listening])


def banner(listening: socket, names: Iterable[str], address: ServerAddress, workers: str = "") -> str:
    host, port = listening.getsockname()[:2]
    where = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
    key = "with the API key" if address.key else "on this machine alone"
    return f"{where}  {', '.join(names)}; {workers}answers {key}  (Ctrl-C ends it)"
