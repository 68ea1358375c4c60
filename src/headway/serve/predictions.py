"""/api/predict, /api/attention and /v1/audio/transcriptions: what a task answers to texts and to uploaded files.

Nothing here names a task: `Task.predict` answers, and its predictions write themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from headway.errors import UserError
from headway.generate.request import Interrupt
from headway.look.bundle import Bundle, pack_bundle
from headway.look.html_page import render_page
from headway.look.page_session import Explorer
from headway.serve.api_errors import ApiError, AsciiJson, bad_request
from headway.serve.batching import QueuedCall
from headway.serve.schemas import AttentionRequest, DecodingFields, PredictRequest, RequestFields, TranscriptionRequest
from headway.serve.served_models import ServedModel
from headway.serve.server_state import ServerState, check_characters
from headway.serve.uploads import StoredInputs, read_request, stored_inputs
from headway.tasks.results import Prediction, TranscriptPrediction

SPEECH = "speech"  # the kind of data whose tasks write what is said


def prediction_routes(state: ServerState) -> APIRouter:
    router = APIRouter(tags=["headway"])

    @router.post("/api/predict", summary="What a model of any task answers", openapi_extra=body_of(PredictRequest))
    async def predict(request: Request) -> Response:
        async with read_request(request, state.limits, PredictRequest) as (body, files):
            texts = [body.input] if isinstance(body.input, str) else body.input
            check_characters(texts, state.limits.prompt_characters, "input")
            async with state.pool.lease(body.model) as served:
                given = await stored_inputs(state, served.task, texts, files)
                found = await predictions(state, request, served, given, body.options)
                rows = [to_plain_json(one, name) for one, name in zip(found, given.names, strict=False)]
                return AsciiJson({"model": body.model, "task": served.task.name, "predictions": rows})

    @router.get("/api/models/{name}", summary="What a model does")
    async def describe(name: str) -> Response:
        async with state.pool.lease(name) as served:
            task = served.task
            about = {"name": name, "task": task.name, "does": task.does, "reads": task.noun}
            writes = "temperature" in task.decoding
            kinds = {"continues": served.engine is not None, "writes": writes, "together": task.asks_together}
            return AsciiJson({**about, **kinds, "chat": served.template is not None})

    @router.post("/api/attention", summary="The attention of one input", openapi_extra=body_of(AttentionRequest))
    async def attention(request: Request) -> Response:
        body, bundle = await recorded(state, request)
        return AsciiJson({"model": body.model, "data": bundle.data, "blobs": dict(bundle.blobs)})

    @router.post("/look", include_in_schema=False)
    async def look(request: Request) -> Response:
        """The explorer of one input, as a page."""
        _, bundle = await recorded(state, request)
        return HTMLResponse(render_page(bundle), headers={"Content-Security-Policy": "frame-ancestors 'none'"})

    @router.post(
        "/v1/audio/transcriptions",
        summary="What is said in a sound",
        tags=["OpenAI"],
        openapi_extra=form_of(TranscriptionRequest),
    )
    async def transcribe(request: Request) -> Response:
        async with (
            read_request(request, state.limits, TranscriptionRequest) as (body, files),
            state.pool.lease(body.model) as served,
        ):
            if len(files) != 1:
                raise ApiError(400, "one file is transcribed at a time, in the field 'file'", param="file")
            if served.task.kind != SPEECH:
                said = f"the model {body.model!r} {served.task.does} and writes down no speech"
                raise ApiError(400, said, param="model", code="unsupported_model")
            given = await stored_inputs(state, served.task, [], files)
            [found] = await predictions(state, request, served, given, body.decoding)
            return transcript(body, found, given)

    return router


async def recorded(state: ServerState, request: Request) -> tuple[AttentionRequest, Bundle]:
    """The attention of the input of a request, as the explorer shows it."""
    async with read_request(request, state.limits, AttentionRequest) as (body, files):
        texts = [body.input] if isinstance(body.input, str) else body.input
        check_characters(texts, state.limits.attention_characters, "input")
        if len(texts) + len(files) != 1:
            raise ApiError(400, "give one input, as a text or as a file", param="input")
        async with state.pool.lease(body.model) as served:
            given = await stored_inputs(state, served.task, texts, files)
            explorer = Explorer({body.model: served.model}, body.tokens, body.site)

            def record(inputs: list[str], interrupt: Interrupt) -> Sequence[Bundle]:
                runs = explorer.record(inputs[0])
                return [pack_bundle(runs, explorer.focus(runs, {}))]

            call = QueuedCall(given.inputs, record, release=given.folder.cleanup)
            [bundle] = await given.ask(state, request, served, call)
            runs = [{**run, "input": given.names[0]} for run in bundle.data["runs"]]
            return body, replace(bundle, data={**bundle.data, "runs": runs})


async def predictions(
    state: ServerState, request: Request, served: ServedModel, given: StoredInputs, how: DecodingFields
) -> list[Prediction]:
    """What the task of a model answers, together with other requests that ask it in the same way."""
    model, task = served.model, served.task
    try:
        options = model.generation_options(**how.model_dump(exclude_defaults=True))
    except UserError as error:
        given.folder.cleanup()
        raise bad_request(error, "options") from None

    def answer(inputs: list[str], interrupt: Interrupt) -> Sequence[Prediction]:
        return list(task.predict(model.model, inputs, replace(options, interrupt=interrupt)))

    group = None if task.asks_together else how.model_dump_json()
    return await given.ask(state, request, served, QueuedCall(given.inputs, answer, group, given.folder.cleanup))


def to_plain_json(found: Prediction, name: str) -> dict[str, Any]:
    """A prediction under the name that the client gave its input; what was cut or stopped at is said."""
    limits = {"cut": found.cut, "stopped_at": found.stopped_at}
    said = {key: value for key, value in limits.items() if value is not None}
    return {**finite_json(found.to_dict()), "input": name, **said}


def finite_json(value: Any) -> Any:
    """Plain data for JSON, in which a number that is not finite is null."""
    match value:
        case float():
            return value if isfinite(value) else None
        case Mapping():
            return {str(key): finite_json(one) for key, one in value.items()}
        case list() | tuple():
            return [finite_json(one) for one in value]
        case _:
            return value


def transcript(body: TranscriptionRequest, found: Prediction, given: StoredInputs) -> Response:
    """The transcript as OpenAI's clients read it, with what the prediction knows besides."""
    text: str = found.to_dict()["output"]
    if body.response_format == "text":
        return PlainTextResponse(f"{text}\n")
    if body.response_format == "json":
        return AsciiJson({"text": text})
    details = found.details if isinstance(found, TranscriptPrediction) else {}
    segments = [{"id": at, **one} for at, one in enumerate(details.get("segments", ()))]
    samples, rate = given.extents[0]
    about = {"task": "transcribe", "language": details.get("language"), "duration": samples / rate}
    return AsciiJson(finite_json({**about, "text": text, "segments": segments}))


def form_of(kind: type[RequestFields]) -> dict[str, Any]:
    """The description of a form with files, for /openapi.json."""
    schema = inlined(kind.model_json_schema())
    files = {"file": {"type": "array", "items": {"type": "string", "format": "binary"}}}
    form = {**schema, "properties": {**schema["properties"], **files}}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": form}}}}


def body_of(kind: type[RequestFields]) -> dict[str, Any]:
    """The description of a JSON object, or of a form with the same fields and files."""
    form = form_of(kind)
    form["requestBody"]["content"]["application/json"] = {"schema": inlined(kind.model_json_schema())}
    return form


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without definitions of its own, which /openapi.json has no place for."""
    known: dict[str, Any] = schema.pop("$defs", {})

    def expand(value: Any) -> Any:
        match value:
            case {"$ref": str(place)}:
                return expand(known[place.rpartition("/")[2]])
            case dict():
                return {key: expand(one) for key, one in value.items()}
            case list():
                return [expand(one) for one in value]
            case _:
                return value

    return expand(schema)
