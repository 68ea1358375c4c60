"""`headway look --live`: the page at an address of this machine, for typing, dropping files and editing heads.

The server hears this machine alone, and of what browsers send only what its own page asks: a request must name the
server as its host and, where it tells where it comes from, come from the server's page.  One thing is done at a time.
"""

from __future__ import annotations

import json
import sys
import webbrowser
from collections.abc import Callable
from errno import EACCES, EADDRINUSE
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from traceback import print_exc
from typing import Any
from urllib.parse import parse_qs, urlsplit

from headway.app.desk import Desk
from headway.app.look import Viewing, viewer
from headway.errors import UserError

HOST, PORT = "127.0.0.1", 8765
MOST = 64 * 2**20  # bytes of a request
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def serve(viewing: Viewing, given: str | None, port: int, *, show: bool) -> None:
    """Serves the page until it is interrupted."""
    with bound(port) as server, TemporaryDirectory(prefix="headway-") as folder:
        desk = Desk(viewer(viewing), Path(folder))
        desk.open(given)
        server.desk = desk
        address = f"http://{HOST}:{server.server_port}/"
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        if show:
            webbrowser.open(address)
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            print(file=sys.stderr)  # behind the terminal's ^C


def bound(port: int) -> Server:
    """A server at a port, before the model is loaded: that it is taken is told at once."""
    if not 0 <= port <= 65535:
        raise UserError(f"--port {port}", allowed="1 to 65535, or 0 for any that is free")
    try:
        return Server((HOST, port), Answering)
    except OSError as error:
        if error.errno not in (EADDRINUSE, EACCES):
            raise
        why = "in use" if error.errno == EADDRINUSE else "not ours to use"
        raise UserError(
            f"port {port} is {why}", do="give another, as in --port 8766, or 0 for any that is free"
        ) from None


class Server(ThreadingHTTPServer):
    """A server of this machine's own; what it shows lies on the desk."""

    daemon_threads = True
    desk: Desk

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]):
        super().__init__(address, handler)
        self.lock = Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that went away in the middle of an answer is no news."""
        if not isinstance(sys.exception(), ConnectionError):
            print_exc()

    @property
    def names(self) -> set[str]:
        """What a browser of this machine may call the server."""
        return {f"{name}:{self.server_port}" for name in (HOST, "localhost")}


class Answering(BaseHTTPRequestHandler):
    """One request.  Mistakes are told as {"error", "do"}."""

    protocol_version = "HTTP/1.1"
    timeout = 60

    @property
    def host(self) -> Server:
        assert isinstance(self.server, Server)
        return self.server

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        match asked.path:
            case "/":
                self.answer(lambda desk: desk.page().encode("utf-8"), "text/html; charset=utf-8")
            case "/blob":
                id = parse_qs(asked.query).get("id", [""])[0]
                self.answer(lambda desk: desk.piece(id), "application/octet-stream")
            case "/favicon.ico":
                self.send(HTTPStatus.NO_CONTENT, b"", "image/x-icon")
            case _:
                self.refuse(HTTPStatus.NOT_FOUND, f"there is no {asked.path[:80]!r} here")

    def do_POST(self) -> None:
        ways: dict[str, Callable[[Desk, dict[str, Any]], object]] = {"/edit": Desk.edit, "/attend": Desk.attend}
        way = ways.get(self.path)
        body = self.body()
        if body is None:
            return
        if way is None:
            self.refuse(HTTPStatus.NOT_FOUND, f"there is no {self.path[:80]!r} here")
            return
        self.answer(lambda desk: as_json(way(desk, parsed(body))), "application/json")

    def body(self) -> bytes | None:
        """What was sent; None where it was refused."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self.refuse(HTTPStatus.LENGTH_REQUIRED, "a request without a length")
        elif int(length) > MOST:
            self.refuse(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a file of more than {MOST >> 20} MB", "take a smaller one"
            )
        elif self.headers.get_content_type() != "application/json":
            self.read(int(length))
            self.refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a request that is not JSON")
        else:
            return self.read(int(length))
        return None

    def read(self, length: int) -> bytes:
        return self.rfile.read(length)

    def answer(self, make: Callable[[Desk], bytes], kind: str) -> None:
        """Sends what is made, or what was wrong with the request."""
        if not self.welcome():
            self.refuse(HTTPStatus.FORBIDDEN, "this server answers its own page alone")
            return
        try:
            with self.host.lock:
                made = make(self.host.desk)
        except UserError as error:
            said = "; ".join(filter(None, [error.said, error.allowed and f"allowed: {error.allowed}"]))
            self.refuse(HTTPStatus.BAD_REQUEST, said, error.do or (error.meant and f"did you mean {error.meant!r}?"))
        except Exception:  # a defect of ours ends the request, not the server
            print_exc()
            self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "something broke", "the terminal shows what")
        else:
            self.send(HTTPStatus.OK, made, kind)

    def welcome(self) -> bool:
        """Whether the request was meant for us and, as far as it tells, comes from our page."""
        names, origin = self.host.names, self.headers.get("Origin")
        return self.headers.get("Host") in names and (origin is None or origin in {f"http://{name}" for name in names})

    def refuse(self, status: HTTPStatus, said: str, do: str | None = None) -> None:
        self.close_connection = True
        self.send(status, as_json({"error": said, "do": do or ""}), "application/json")

    def send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal is for people."""


def parsed(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("the request is not JSON") from None
    if not isinstance(value, dict):
        raise UserError("the request is no JSON object")
    return value


def as_json(value: object) -> bytes:
    return json.dumps(value, allow_nan=False).encode("ascii")
