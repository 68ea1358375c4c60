"""`headway serve`: models behind an API that OpenAI's clients talk to."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from cyclopts import Group, Parameter

from headway.cli.options import Dtype, ModelPath, import_torch
from headway.errors import UserError
from headway.system import share_threads, sigterm_raises

KEY = "HEADWAY_API_KEY"
ADDRESS = Group("Address and access", sort_key=10)
CAPACITY = Group("Capacity", sort_key=11)
MAX_WORKERS = 64


def serve(
    *models: ModelPath,
    host: Annotated[str, Parameter(group=ADDRESS)] = "127.0.0.1",
    port: Annotated[int, Parameter(group=ADDRESS)] = 8000,
    api_key: Annotated[str | None, Parameter(group=ADDRESS, show_default=False)] = None,
    cors: Annotated[tuple[str, ...], Parameter(group=ADDRESS, show_default=False)] = (),
    log: Annotated[bool, Parameter(group=ADDRESS)] = False,
    slots: Annotated[int, Parameter(group=CAPACITY)] = 4,
    queue: Annotated[int, Parameter(group=CAPACITY)] = 16,
    context: Annotated[int | None, Parameter(group=CAPACITY)] = None,
    timeout: Annotated[float, Parameter(group=CAPACITY)] = 300,
    memory: Annotated[float | None, Parameter(group=CAPACITY)] = None,
    workers: Annotated[int, Parameter(group=CAPACITY)] = 1,
    dtype: Annotated[Dtype, Parameter(group=CAPACITY)] = None,
) -> None:
    """Serve models over HTTP, in the shape of OpenAI's API and with an API of headway's own.

    Models are called by the names of their folders, and are loaded when they are first asked for.  Ctrl-C or SIGTERM
    lets requests end; a second one leaves at once.  /docs describes the API.

    Parameters
    ----------
    models
        Model folders, in headway's or Hugging Face's layout.
    host
        The address to listen on; any other than a loopback address needs an API key.
    port
        The port; 0 takes any that is free.
    api_key
        The key that every request must have, as in Authorization: Bearer KEY; or set HEADWAY_API_KEY, which other
        users of the machine do not see.
    cors
        An origin whose pages may ask, such as https://app.example; may be given several times.
    log
        Print a line for each request: method, path, status and time, never what was asked.
    slots
        Number of requests that a language model continues at the same time.
    queue
        Number of requests that wait for a model; with more, it answers 429.
    context
        Maximum number of tokens of a prompt and its continuation; by default what the model can read at once, or 4,096.
    timeout
        Seconds that a request may take.
    memory
        GiB of weights and KV caches that may be loaded at a time; models that were used longest ago leave first.
    workers
        Number of processes that answer.  Each loads models of its own and has slots and a queue of its own; threads
        and memory are shared out among them.  One that does not end in time after a signal is killed: exit code 1.
    """
    from headway.serve.run_server import ServerAddress, ServerProcess, banner, run_server
    from headway.serve.serve_options import EngineLimits, ServeOptions
    from headway.serve.workers import Supervisor

    if not models:
        raise UserError("headway serve needs a model", do="give a folder, as in headway serve MODEL")
    folders = named(models)
    if not 1 <= workers <= MAX_WORKERS:
        raise UserError(f"workers={workers}", allowed=f"1 to {MAX_WORKERS}")
    share = None if memory is None else memory / workers
    options = ServeOptions(dtype, EngineLimits(slots, queue, context), timeout, share)
    address = ServerAddress(host, port, api_key or os.environ.get(KEY) or None, cors, log)
    address.check()

    def start(process: ServerProcess) -> None:
        run_server(process, folders, address, options)

    def ready() -> None:
        shared = "" if workers == 1 else f"{workers} workers, threads of each: {share_threads(workers)}; "
        print(banner(listening, folders, address, shared), flush=True)

    with address.bind() as listening, TemporaryDirectory(prefix="headway-") as folder:
        if workers > 1:
            share_threads(workers)
            Supervisor(workers, listening, Path(folder), start, ready, timeout).run()
            return
        with sigterm_raises():  # so that the folder goes
            import_torch()
            start(ServerProcess(listening, Path(folder), ready, lambda: None))


def named(models: tuple[Path, ...]) -> dict[str, Path]:
    """The models by the names of their folders."""
    found = dict[str, Path]()
    for model in models:
        name = model.resolve().name
        if name in found:
            said = f"{found[name]} and {model} have the same name"
            raise UserError(said, do="rename one of the folders, or serve one of them")
        found[name] = model
    return found
