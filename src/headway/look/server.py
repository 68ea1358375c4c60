"""The HTTP server of a live page, on the loopback interface alone: type a text, drop a file, edit heads.

A request must name the server as its host and, if it has an origin, come from the server's own page.  Requests are
handled one at a time.  The server ends in order: the request that is running is answered, the others are refused, and
no thread is left, in which a model would still compute while the interpreter exits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RD, socket
from threading import Lock, Thread
from traceback import print_exc
from typing import Any
from urllib.parse import parse_qs, urlsplit

from headway.errors import UserError, port_errors
from headway.look.page_session import PageSession

HOST, PORT = "127.0.0.1", 8765
MAX_REQUEST_BYTES = 64 * 2**20
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def bind(port: int) -> PageServer:
    """A server bound to a port, without a session yet: a port in use is reported before a model is loaded."""
    with port_errors(port):
        return PageServer((HOST, port), PageRequestHandler)


class PageServer(ThreadingHTTPServer):
    """A server for browsers of this machine."""

    daemon_threads = False
    session: PageSession

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]):
        self.lock, self.ending = Lock(), False
        self.connections = set[socket]()
        super().__init__(address, handler)

    @contextmanager
    def running(self) -> Generator[None]:
        """Serves in other threads, all of which have ended behind it."""
        # a daemon: a signal can come when it has been started and nothing would end it yet
        loop = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        loop.start()
        try:
            yield
        finally:
            self.ending = True
            self.shutdown()
            loop.join()
            self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Waits for the threads of all connections; those that wait for a browser read an end."""
        for connection in list(self.connections):
            with suppress(OSError):  # it is closed already
                connection.shutdown(SHUT_RD)
        super().server_close()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Print the traceback, except where a browser closed the connection."""
        if not isinstance(sys.exception(), ConnectionError):
            print_exc()


class PageRequestHandler(BaseHTTPRequestHandler):
    """One request.  Errors are answered as {"error", "do"}."""

    protocol_version = "HTTP/1.1"
    timeout = 60

    @property
    def page_server(self) -> PageServer:
        assert isinstance(self.server, PageServer)
        return self.server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        match url.path:
            case "/":
                self.answer(lambda session: session.page().encode("utf-8"), "text/html; charset=utf-8")
            case "/blob":
                id = parse_qs(url.query).get("id", [""])[0]
                self.answer(lambda session: session.blob(id), "application/octet-stream")
            case "/favicon.ico":
                self.send(HTTPStatus.NO_CONTENT, b"", "image/x-icon")
            case _:
                self.refuse(HTTPStatus.NOT_FOUND, f"there is no {url.path[:80]!r} here")

    def do_POST(self) -> None:
        methods: dict[str, Callable[[PageSession, dict[str, Any]], object]] = {
            "/edit": PageSession.edit,
            "/attend": PageSession.attend,
        }
        method = methods.get(self.path)
        body = self.body()
        if body is None:
            return
        if method is None:
            self.refuse(HTTPStatus.NOT_FOUND, f"there is no {self.path[:80]!r} here")
            return
        self.answer(lambda session: json_bytes(method(session, parse_object(body))), "application/json")

    def body(self) -> bytes | None:
        """The body of the request; None where it was refused."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self.refuse(HTTPStatus.LENGTH_REQUIRED, "a request without Content-Length")
        elif int(length) > MAX_REQUEST_BYTES:
            said = f"a file of more than {MAX_REQUEST_BYTES >> 20} MB"
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said, "take a smaller one")
        elif self.headers.get_content_type() != "application/json":
            self.rfile.read(int(length))
            self.refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a request that is not JSON")
        else:
            return self.rfile.read(int(length))
        return None

    def answer(self, make: Callable[[PageSession], bytes], kind: str) -> None:
        """Send what `make` returns, or what was wrong with the request."""
        if not self.is_own_page():
            self.refuse(HTTPStatus.FORBIDDEN, "this server answers only its own page")
            return
        try:
            with self.page_server.lock:
                if self.page_server.ending:
                    self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the server is ending")
                    return
                body = make(self.page_server.session)
        except UserError as error:
            said = "; ".join(filter(None, [error.said, error.allowed and f"allowed: {error.allowed}"]))
            self.refuse(HTTPStatus.BAD_REQUEST, said, error.do or (error.meant and f"did you mean {error.meant!r}?"))
        except Exception:  # a bug ends the request, not the server
            print_exc()
            self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error", "see the traceback in the terminal")
        else:
            self.send(HTTPStatus.OK, body, kind)

    def is_own_page(self) -> bool:
        """Whether the request names this server as its host and, if it has an origin, comes from its page."""
        hosts = {f"{name}:{self.page_server.server_port}" for name in (HOST, "localhost")}
        origin = self.headers.get("Origin")
        return self.headers.get("Host") in hosts and (origin is None or origin in {f"http://{host}" for host in hosts})

    def refuse(self, status: HTTPStatus, said: str, do: str | None = None) -> None:
        self.close_connection = True
        self.send(status, json_bytes({"error": said, "do": do or ""}), "application/json")

    def send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """No access log: the terminal shows only messages for people."""


def parse_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("the request is not JSON") from None
    if not isinstance(value, dict):
        raise UserError("the request is no JSON object")
    return value


def json_bytes(value: object) -> bytes:
    return json.dumps(value, allow_nan=False).encode("ascii")
