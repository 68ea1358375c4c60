"""The suite of servers: clients stream completions over HTTP, one request after the other, all at the same time.

A server is a process of its own.  The process of its contender is the load: the same small client for all of them, over
sockets of asyncio.  Prompts differ from request to request and from round to round, so that no cache of prefixes helps;
greedy decoding, and none may end early.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from socket import create_server
from typing import Any

from headway.bench.answers import TOKENS
from headway.bench.conversions import gguf_file, to_gguf
from headway.bench.decoding_suites import SPECIAL, TIES
from headway.bench.peers import LLAMA_CPP, TRANSFORMERS_SERVER, library
from headway.bench.suite import Case, Contender, Run, SampledAnswer, Suite, Workspace
from headway.bench.weights import write_model, write_words
from headway.errors import counted

HOST = "127.0.0.1"
START_SECONDS = 600  # to load in, beside whatever else is running
FIRST, WHOLE = "first token", "request"  # times of a request


def write_served(work: Workspace) -> None:
    """GPT-2 with random weights that never writes a special token."""
    import torch

    from headway.zoo import gpt2

    def silence(module: Any) -> None:
        with torch.no_grad():  # logits of 0, where the largest of many is above it
            module.embed.token.weight[list(SPECIAL.values())] = 0.0

    config = gpt2.Config(**work.given("vocab", "context", "dim", "layers", "heads"))
    write_model(work.folder, config, silence, bos_token_id=SPECIAL["bos_token"], eos_token_id=SPECIAL["eos_token"])
    write_words(work.folder, work.sizes["vocab"], SPECIAL)


def cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
    def case(clients: int) -> Case:
        requests = max(clients, sizes["requests"]) * sizes["each"]
        name = f"{counted(clients, 'client')}, {requests} requests of {sizes['prompt']} + {sizes['new']} tokens"
        return Case(name, requests * sizes["new"], "token", sizes={"clients": clients, "requests": requests})

    return case(1), case(sizes["few"]), case(sizes["many"])


# ---- the load


@dataclass(frozen=True)
class Completion:
    """A request that was answered: its tokens, and the seconds until the first and until the last."""

    tokens: list[int]
    first: float
    whole: float


class ServerUnderLoad:
    """A server's process, which ends with this object; called with a case, the load of that case."""

    def __init__(
        self, work: Workspace, command: Callable[[Workspace, int], list[str]], body: Callable[[list[int]], Any]
    ):
        with create_server((HOST, 0)) as free:
            self.port = free.getsockname()[1]
        self.work, self.body, self.rounds = work, body, Counter[str]()
        self.process = subprocess.Popen([sys.executable, *command(work, self.port)], stdin=subprocess.DEVNULL)
        weakref.finalize(self, end, self.process)
        asyncio.run(self.wait())

    async def wait(self) -> None:
        """Until it can be asked."""
        deadline = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                _ = [piece async for piece in http(self.port, "GET", "/health")]
                return
            except (OSError, RuntimeError):  # nobody listens yet, or it is loading
                await asyncio.sleep(0.1)
        raise RuntimeError("the server did not start")

    def __call__(self, case: Case) -> SampledAnswer:
        self.rounds[case.name] += 1
        sizes, random = self.work.sizes, Random(f"{case.name}, round {self.rounds[case.name]}")
        ids = range(len(SPECIAL), sizes["vocab"])
        prompts = [random.choices(ids, k=sizes["prompt"]) for _ in range(case.sizes["requests"])]
        found = asyncio.run(self.load(prompts, case.sizes["clients"]))
        samples = {FIRST: [one.first for one in found], WHOLE: [one.whole for one in found]}
        return SampledAnswer([one.tokens for one in found], samples)

    async def load(self, prompts: Sequence[list[int]], clients: int) -> list[Completion]:
        """The answers of all prompts, which so many clients take in turn."""
        found, waiting = dict[int, Completion](), iter(enumerate(prompts))

        async def client() -> None:
            for index, prompt in waiting:
                found[index] = await self.complete(prompt)

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())
        return [found[index] for index in range(len(prompts))]

    async def complete(self, prompt: list[int]) -> Completion:
        new, start, first, text = self.work.sizes["new"], time.perf_counter(), None, ""
        asked = {"max_tokens": new, "temperature": 0, "stream": True, **self.body(prompt)}
        async for event in events(http(self.port, "POST", "/v1/completions", asked)):
            for choice in event["choices"]:
                text += choice["text"]
            if text and first is None:
                first = time.perf_counter() - start
        tokens = [int(word) for word in re.findall(r"w(\d+)", text)]
        if len(tokens) != new or first is None:
            raise RuntimeError(f"{len(tokens)} tokens came where {new} were asked for")
        return Completion(tokens, first, time.perf_counter() - start)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


async def events(pieces: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """The JSON of server-sent events."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n\n")
        for line in lines:
            data = line.removeprefix(b"data: ")
            if data == b"[DONE]":
                return
            yield json.loads(data)


async def http(port: int, method: str, path: str, body: object = None) -> AsyncIterator[bytes]:
    """The body of an answer, piece by piece as it comes; a RuntimeError where it is not 200."""
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\nContent-Type: application/json"
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(f"{head}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        status, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        if " 200 " not in status:
            raise RuntimeError(f"{status}: {(await reader.read()).decode(errors='replace')[:500]}")
        if "transfer-encoding: chunked" not in headers:
            yield await reader.read()
            return
        while size := int(await reader.readline(), 16):
            yield (await reader.readexactly(size + 2))[:-2]
    finally:
        writer.close()


# ---- the servers


def served(
    command: Callable[[Workspace, int], list[str]], body: Callable[[Workspace, list[int]], Any]
) -> Callable[[Workspace], Run]:
    return lambda work: ServerUnderLoad(work, command, lambda prompt: body(work, prompt))


def headway_server(dtype: str) -> Callable[[Workspace], Run]:
    def command(work: Workspace, port: int) -> list[str]:
        given = ["--slots", work.sizes["many"], "--context", room(work), "--dtype", dtype, "--port", port]
        return ["-m", "headway", "serve", str(work.folder), *map(str, given)]

    return served(command, lambda work, prompt: {"model": work.folder.name, "prompt": as_text(prompt)})


def transformers_server(*options: str) -> Callable[[Workspace], Run]:
    def command(work: Workspace, port: int) -> list[str]:
        run = "from transformers.cli.transformers import main; main()"
        where = ["--host", HOST, "--port", str(port), "--device", "cpu", "--dtype", "float32"]
        return ["-c", run, "serve", str(work.folder), *where, *options]

    return served(command, lambda work, prompt: {"model": str(work.folder), "prompt": as_text(prompt)})


def room(work: Workspace) -> int:
    """Tokens that a slot has room for; llama.cpp gives each a little less than its share."""
    return min(work.sizes["context"], work.sizes["prompt"] + work.sizes["new"] + 31)


def as_text(prompt: list[int]) -> str:
    return " ".join(f"w{token}" for token in prompt)


def llama_cpp_server(kind: str) -> Callable[[Workspace], Run]:
    def command(work: Workspace, port: int) -> list[str]:
        given = [str(gguf_file(work, kind)), port, work.sizes["many"], room(work), work.threads]
        return ["-c", f"from {__name__} import run_llama_cpp; run_llama_cpp(*{given!r})"]

    def body(work: Workspace, prompt: list[int]) -> dict[str, Any]:
        # the tokenizer of its file knows words by their ids alone
        return {"prompt": prompt, "samplers": ["top_k"], "top_k": 1, "ignore_eos": True, "cache_prompt": False}

    return served(command, body)


def run_llama_cpp(model: str, port: int, slots: int, tokens: int, threads: int) -> None:
    """llama.cpp's own server, with continuous batching."""
    xllamacpp = library("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path, params.hostnames, params.port = model, [HOST], port
    params.n_ctx, params.n_parallel = slots * tokens, slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_gpu_layers, params.warmup, params.verbosity, params.cache_ram_mib = 0, True, -1, 0
    server = xllamacpp.Server(params)
    assert server.listening_address.endswith(f":{port}")
    while True:
        time.sleep(3600)


# without these numbers it takes those of a GPU's memory; with them it is faster than one request after the other
BATCHING = ("--continuous-batching", "--cb-block-size", "32", "--cb-num-blocks", "256", "--cb-max-batch-tokens", "512")

SERVE = Suite(
    "serve",
    "GPT-2, 124 M, behind HTTP: streamed greedy completions for 1, 4 and 16 clients",
    write_served,
    cases,
    (
        Contender("headway fp32", headway_server("fp32")),
        Contender("headway int8", headway_server("int8"), "int8"),
        Contender("transformers", transformers_server(*BATCHING), peer=TRANSFORMERS_SERVER),
        *(
            Contender(f"llama.cpp {name}", llama_cpp_server(name), name, LLAMA_CPP, to_gguf(name))
            for name in ("fp32", "q8_0")
        ),
    ),
    {
        **{"vocab": 50_257, "context": 1024, "dim": 768, "layers": 12, "heads": 12},
        **{"prompt": 64, "new": 64, "few": 4, "many": 16, "requests": 2, "each": 2},
    },
    {
        **{"vocab": 67, "context": 32, "dim": 64, "layers": 2, "heads": 2},
        **{"prompt": 5, "new": 4, "few": 2, "many": 3, "requests": 2, "each": 1},
    },
    TOKENS,
    memory=True,
    wall_clock=True,
    notes=f"headway and llama.cpp have 16 slots; transformers: `transformers serve {' '.join(BATCHING)}`. {TIES}",
)
