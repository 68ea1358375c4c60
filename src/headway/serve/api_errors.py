"""Errors of the API, as OpenAI's clients read them: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from traceback import extract_tb
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from headway.errors import UserError

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}
UNION_TAGS = ("str", "int", "float", "bool")  # which pydantic appends to the name of a field of several types,
NAME = re.compile(r"\w+(\[\])?")  # beside others that are no names


class ApiError(Exception):
    """A request that is refused: the status, a sentence for the client, and the field it is about."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers

    def to_dict(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        return AsciiJson(self.to_dict(), self.status, self.headers)


class AsciiJson(Response):
    """JSON in ASCII: half of a surrogate pair, which a client may have sent, can be written back."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def busy(status: int, message: str, seconds: int, code: str) -> ApiError:
    """An error after which the client should try again, in so many seconds."""
    return ApiError(status, message, code=code, headers={"Retry-After": str(max(1, seconds))})


def timed_out(seconds: float) -> ApiError:
    return busy(503, f"the request took more than the {seconds:g} seconds that it may take", 1, "timeout")


def bad_request(error: UserError, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, str(error), param=param, code=code)


async def on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def on_http_error(request: Request, error: Exception) -> Response:
    """What the router and the parsers of bodies refuse."""
    assert isinstance(error, HTTPException)
    said = {404: "there is no such path here; see /docs", 405: "this path has no such method; see /docs"}
    message = said.get(error.status_code, str(error.detail))
    return ApiError(error.status_code, message, headers=error.headers).response()


async def on_invalid_body(request: Request, error: Exception) -> Response:
    """The first field that is wrong, without what was given for it, which may be long and private."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return invalid_field([*first["loc"]][1:], first["type"], first["msg"]).response()


def invalid_field(place: list[str | int], kind: str, message: str) -> ApiError:
    if kind == "json_invalid":
        return ApiError(400, "the body is not JSON")
    if not place:
        return ApiError(400, "the body must be a JSON object, with Content-Type: application/json")
    names = [str(part) for part in place if str(part) not in UNION_TAGS and NAME.fullmatch(str(part))]
    param = ".".join(names)
    if kind == "extra_forbidden":
        return ApiError(400, f"there is no field {param[:100]!r}; leave it out", param=param[:100])
    return ApiError(400, f"{param[:100]}: {message}", param=param[:100])


def print_bug(error: BaseException) -> None:
    """Where an error came from, without its message, which may hold what a client sent."""
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in extract_tb(error.__traceback__)]
    print(f"internal error: {type(error).__name__}", *places[-12:], sep="\n  ", file=sys.stderr, flush=True)
