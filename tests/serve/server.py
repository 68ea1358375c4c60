"""A server in a thread, on a free port of the loopback interface."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import httpx2 as httpx
import uvicorn
from fastapi import FastAPI
from openai import AsyncOpenAI, OpenAI

from headway.model import Model
from headway.serve.app import LIMITS, create_app
from headway.serve.batching import BatchQueue
from headway.serve.connections import PATIENCE, server_config
from headway.serve.counters import Counters
from headway.serve.engine import Engine
from headway.serve.run_server import ServerAddress
from headway.serve.security import AccessRules
from headway.serve.serve_options import EngineLimits, ServeOptions
from headway.serve.served_models import ModelPool, ServedModel
from headway.serve.server_state import RequestLimits
from tests.cli.folders import FOLDERS

OPEN = AccessRules()
TEMPLATE = (
    "{%- for message in messages %}\n"
    "{%- if message.role not in ('system', 'user', 'assistant') %}{{ raise_exception('no such role') }}{% endif %}\n"
    "{{- message.role[0] + ' ' + message.content | trim + ', ' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- 'a ' }}{% endif %}"
)


class GatedEngine(Engine):
    """An engine that stands still while its gate is closed."""

    def __init__(self, model: Model, limits: EngineLimits):
        self.gate = Event()
        self.gate.set()
        super().__init__(model, limits)

    def hold(self) -> None:
        """Closes the gate behind what was taken: the row of an answered request is freed after its last token."""
        while self.running or self.waiting:
            time.sleep(0.01)
        self.gate.clear()

    def wait(self) -> bool:
        found = super().wait()
        self.gate.wait()
        return found

    def close(self, *, drain: bool) -> None:
        self.gate.set()
        super().close(drain=drain)


@dataclass(frozen=True)
class RunningServer:
    app: FastAPI
    pool: ModelPool
    port: int
    key: str | None
    folder: Path  # of uploaded files
    connections: Collection[object]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def client(self, **how: Any) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", max_retries=0, **{"api_key": self.key or "none", **how})

    def async_client(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=self.key or "none", max_retries=0)

    def get(self, path: str, **how: Any) -> httpx.Response:
        return httpx.get(self.url + path, **{"headers": self.headers, **how})

    def post(self, path: str, body: object = None, **how: Any) -> httpx.Response:
        return httpx.post(
            self.url + path,
            timeout=60,
            **{"headers": self.headers, **how},
            **({"json": body} if body is not None else {}),
        )

    def loaded(self, name: str) -> ServedModel:
        found = self.pool.slots[name].loaded
        assert found is not None
        return found

    def engine(self, name: str) -> GatedEngine:
        engine = self.loaded(name).engine
        assert isinstance(engine, GatedEngine)
        return engine

    def queue(self, name: str) -> BatchQueue:
        return self.loaded(name).queue


@contextmanager
def serving(
    folders: Mapping[str, Path],
    rules: AccessRules = OPEN,
    options: ServeOptions | None = None,
    limits: RequestLimits = LIMITS,
    patience: float = PATIENCE,
) -> Generator[RunningServer]:
    pool, counters = ModelPool(folders, options or ServeOptions(), GatedEngine), Counters()
    with TemporaryDirectory() as folder, ServerAddress(port=0).bind() as listening:
        app = create_app(pool, Path(folder), rules, limits, counters)
        server = uvicorn.Server(server_config(app, counters, patience))  # type: ignore[arg-type]
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            port, connections = listening.getsockname()[1], server.server_state.connections
            yield RunningServer(app, pool, port, rules.key, Path(folder), connections)
        except BaseException:
            pool.close(drain=False)  # nobody waits for what was asked
            raise
        finally:
            server.should_exit = True
            thread.join()


def save_models(place: Path) -> dict[str, Path]:
    """Small models of texts, and one that chats."""
    folders = {name: place / name for name in ("causal", "labels", "pairs", "masked", "tags", "vectors")}
    for name, folder in folders.items():
        FOLDERS[name]().save(folder)
    chat = place / "chat"
    FOLDERS["causal"]().save(chat)
    (chat / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return {**folders, "chat": chat}


def read_events(text: str) -> list[Any]:
    """The data of server-sent events."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]
