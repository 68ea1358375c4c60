"""The inputs of a request: texts, and files that were uploaded.

A text is never taken for the name of a file.  Files are checked against the limits by their headers, and stored in a
temporary folder of the request under names of our own.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile

from headway.data.images import Images
from headway.data.media_sources import MediaError, Medium
from headway.data.numbers import is_number_table
from headway.data.sounds import Sounds
from headway.serve.api_errors import ApiError, invalid_field
from headway.serve.batching import QueuedCall, answered
from headway.serve.served_models import ServedModel
from headway.serve.server_state import RequestLimits, ServerState
from headway.tasks.base import Task

SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}\Z")
MAX_NAME = 200  # characters of a file's name that are given back
# fields of a form that hold texts; the others hold JSON
PLAIN_FIELDS = ("model", "input", "site", "response_format", "language", "prompt", "timestamp_granularities[]")
MANY = "input"  # the field that may stand several times
FILE = "file"
Fields = TypeVar("Fields", bound=BaseModel)


@dataclass(frozen=True, eq=False)
class StoredInputs:
    """What a task reads, what the client calls it, and how large each file is: pixels, or samples and their rate."""

    inputs: list[str]
    names: list[str]
    extents: list[tuple[int, ...]]
    folder: TemporaryDirectory[str]

    async def ask(self, state: ServerState, request: Request, served: ServedModel, call: QueuedCall) -> list[Any]:
        """What the queue of a model answers; the folder is removed when nobody reads it any more."""
        try:
            return await answered(request.receive, served.queue, call, state.pool.options.timeout)
        except ApiError as error:
            for path, name in zip(self.inputs, self.names, strict=True):
                error.message = (
                    error.message.replace(path, name) if path.startswith(self.folder.name) else error.message
                )
            raise


@asynccontextmanager
async def read_request(
    request: Request, limits: RequestLimits, kind: type[Fields]
) -> AsyncGenerator[tuple[Fields, list[UploadFile]]]:
    """The fields of a JSON object, or those of a form with the files that came with them."""
    if not is_form(request):
        if content_type(request) != "application/json":
            raise ApiError(400, "the body must be application/json or multipart/form-data")
        yield parsed(kind, loaded_json(await request.body())), []
        return
    async with request.form(max_files=limits.upload_files, max_fields=256, max_part_size=limits.json_bytes) as form:
        files, values = list[UploadFile](), dict[str, Any]()
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                if name != FILE:
                    raise ApiError(400, f"files belong into the field {FILE!r}", param=name[:100])
                files.append(value)
            elif name == MANY:
                values.setdefault(MANY, list[str]()).append(value)
            else:
                values[name] = value if name in PLAIN_FIELDS else loaded_json(value.encode("utf-8", "replace"), name)
        yield parsed(kind, values), files


def is_form(request: Request) -> bool:
    return content_type(request) == "multipart/form-data"


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def loaded_json(data: bytes, param: str | None = None) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ApiError(400, f"{param[:100] if param else 'the body'} is not JSON", param=param) from None


def parsed(kind: type[Fields], values: object) -> Fields:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise invalid_field([*first["loc"]], first["type"], first["msg"]) from None


async def stored_inputs(
    state: ServerState, task: Task, texts: Sequence[str], files: Sequence[UploadFile]
) -> StoredInputs:
    """Files first, then texts, as a task reads them; refused where it does not read such."""
    check_kinds(task, texts, len(files))
    folder = TemporaryDirectory(dir=state.folder)
    try:
        extents, paths = list[tuple[int, ...]](), list[str]()
        for at, file in enumerate(files):
            suffix = SUFFIX.search(file.filename or "")
            path = Path(folder.name) / f"{at}{suffix[0].lower() if suffix else ''}"
            name, data = shown_name(file), await file.read()
            extents.append(await asyncio.to_thread(checked_extent, medium(task, state.limits), name, data, FILE))
            path.write_bytes(data)
            paths.append(str(path))
    except BaseException:
        folder.cleanup()
        raise
    return StoredInputs([*paths, *texts], [*map(shown_name, files), *texts], extents, folder)


def check_kinds(task: Task, texts: Sequence[str], files: int) -> None:
    if task.takes_files:
        if files == 0:
            said = f"the model reads {task.noun}: upload them as multipart/form-data in the field {FILE!r}"
            raise ApiError(400, said, param=FILE)
        if texts and not task.asks_together:
            raise ApiError(400, f"the model reads {task.noun} and no texts; leave out input", param="input")
        if task.asks_together and files != 1:
            raise ApiError(400, "one file is compared with texts; send one request for each", param=FILE)
        return
    if files == 0 and not texts:
        raise ApiError(400, "nothing to read: give input", param="input")
    check_texts(task, texts)
    if files and task.noun == "texts":
        raise ApiError(400, "the model reads texts and no files; give input", param=FILE)


def check_texts(task: Task, texts: Sequence[str]) -> None:
    """Refuses texts that a task would open as files."""
    if task.takes_files:
        said = f"the model reads {task.noun} and no texts; upload them to /api/predict"
        raise ApiError(400, said, param="input", code="unsupported_model")
    if task.noun != "texts" and any(is_number_table(text) for text in texts):
        said = f"a table is uploaded as multipart/form-data in the field {FILE!r}, and never named"
        raise ApiError(400, said, param="input")


def medium(task: Task, limits: RequestLimits) -> Medium | None:
    media: dict[str, Medium] = {
        "images": images_within(limits),
        "sounds": Sounds(limits.audio_seconds),
    }
    return media.get(task.noun)


def images_within(limits: RequestLimits) -> Images:
    """What an image of a request may be; of an animated one the first frame is read."""
    return Images(limits.image_pixels, frames=1000)


def checked_extent(kind: Medium | None, name: str, data: bytes, param: str) -> tuple[int, ...]:
    try:
        return () if kind is None else kind.extent(data)
    except MediaError as flaw:
        raise ApiError(400, f"{name} {flaw.said}", param=param) from None


def shown_name(file: UploadFile) -> str:
    return (file.filename or "the file")[:MAX_NAME]
