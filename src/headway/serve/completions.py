"""/v1/models, /v1/completions and /v1/chat/completions: texts that an engine continues, whole or as it writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from secrets import randbits
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response

from headway.errors import UserError
from headway.generate.sampling import Greedy, RandomSampler, Sampler
from headway.serve.api_errors import ApiError, AsciiJson, bad_request
from headway.serve.chat_messages import chat_prompt, check_images
from headway.serve.continuations import SEEDS, AnswerFormat, ChatFormat, Continuation, TextFormat
from headway.serve.engine import GenerationRequest
from headway.serve.schemas import ChatRequest, CompletionRequest, ImagePart, SamplingFields, TextPart
from headway.serve.security import CHAT_PATH
from headway.serve.served_models import ServedModel
from headway.serve.server_state import ServerState, check_characters
from headway.serve.streaming import EventStream, while_connected
from headway.tasks.causal_decoder import PromptImages
from headway.tasks.generation import GenerationOptions

COMPLETION_TOKENS = 16  # where a completion says nothing else, as at OpenAI


class PromptTokens(NamedTuple):
    """A prompt with its images, and the text that is given back in front of its answers."""

    ids: list[int]
    echo: str = ""
    images: PromptImages | None = None


Encode = Callable[[ServedModel], tuple[list[PromptTokens], AnswerFormat]]


def completion_routes(state: ServerState) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.get("/v1/models", summary="The models of this server")
    async def list_models() -> Response:
        return AsciiJson({"object": "list", "data": [model_card(state, name) for name in state.pool.slots]})

    @router.get("/v1/models/{name}", summary="One model")
    async def retrieve_model(name: str) -> Response:
        return AsciiJson(model_card(state, name))

    @router.post("/v1/completions", summary="Continue a text")
    async def complete(body: CompletionRequest, request: Request) -> Response:
        prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
        check_characters((one for one in prompts if isinstance(one, str)), state.limits.prompt_characters, "prompt")
        if body.best_of not in (None, body.n or 1):
            raise ApiError(400, "best_of is not supported; leave it out", param="best_of")
        if body.echo and body.logprobs is not None:
            raise ApiError(400, "log-probabilities of a prompt are not supported; leave out echo", param="echo")
        options = generation_options(body, body.max_tokens or COMPLETION_TOKENS)

        def encoded(served: ServedModel) -> tuple[list[PromptTokens], AnswerFormat]:
            rows = encoded_prompts(served, body)
            return rows, TextFormat(served.token_text, logprobs=body.logprobs is not None)

        return await respond(state, body, request, encoded, options, body.logprobs or 0)

    @router.post(CHAT_PATH, summary="Answer in a conversation")
    async def chat(body: ChatRequest, request: Request) -> Response:
        parts = [part for one in body.messages for part in one.parts]
        texts = (part.text for part in parts if isinstance(part, TextPart))
        check_characters(texts, state.limits.prompt_characters, "messages")
        check_images([part for part in parts if isinstance(part, ImagePart)], state.limits)
        if body.top_logprobs and not body.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
        options = generation_options(body, body.max_completion_tokens or body.max_tokens)

        def encoded(served: ServedModel) -> tuple[list[PromptTokens], AnswerFormat]:
            row, images = chat_prompt(state, served, body.messages)
            return [PromptTokens(row, images=images)], ChatFormat(served.token_text, logprobs=body.logprobs is True)

        return await respond(state, body, request, encoded, options, body.top_logprobs or 0)

    return router


def model_card(state: ServerState, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": state.pool.slot(name).created, "owned_by": "headway"}


async def respond(
    state: ServerState,
    body: CompletionRequest | ChatRequest,
    request: Request,
    encode: Encode,
    options: GenerationOptions,
    top_logprobs: int,
) -> Response:
    """The answer, whole or as a stream; whatever happens, the model is given back and no choice goes on."""
    with ExitStack() as ends:
        served = await state.pool.take(body.model)
        ends.callback(state.pool.give_back, body.model)
        if served.engine is None:
            said = f"the model {body.model!r} {served.task.does} and continues no texts; use /api/predict"
            raise ApiError(400, said, param="model", code="unsupported_model")
        rows, format = await asyncio.to_thread(encode, served)
        copies, limits = body.n or 1, state.pool.options.limits
        if len(rows) * copies > limits.slots + limits.queue:
            said = f"{len(rows) * copies} choices in a request where {limits.slots + limits.queue} are allowed"
            raise ApiError(400, said, param="n")
        prompts = [GenerationRequest(tuple(row.ids), options, top_logprobs, row.images) for row in rows]
        found = Continuation(body.model, prompts, copies, format, state.pool.options.timeout)
        ends.callback(found.cancel)
        ends.callback(lambda: state.counters.generated(body.model, found.prompt_tokens, found.new_tokens))
        found.submit(served.engine, [row.echo for row in rows])
        if body.stream:
            usage = body.stream_options is not None and body.stream_options.include_usage is True
            return EventStream(found.stream(usage=usage), ends.pop_all().close)
        return AsciiJson(await while_connected(request.receive, found.whole()))


def encoded_prompts(served: ServedModel, body: CompletionRequest) -> list[PromptTokens]:
    tokenizer, given = served.tokenizer, body.prompt
    try:
        if isinstance(given, str):
            return [PromptTokens(tokenizer.encode(given), given if body.echo else "")]
        texts = [one for one in given if isinstance(one, str)]
        if texts:
            rows = zip(tokenizer.encode_batch(texts), texts, strict=True)
            return [PromptTokens(row, text if body.echo else "") for row, text in rows]
        many = [one for one in given if isinstance(one, list)] or [[one for one in given if isinstance(one, int)]]
        for row in many:
            tokenizer.check(row)
        return [PromptTokens(row, tokenizer.decode(row) if body.echo else "") for row in many]
    except UserError as error:
        raise bad_request(error, "prompt") from None


def generation_options(body: SamplingFields, most: int | None) -> GenerationOptions:
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return GenerationOptions(sampler(body), most, stops)


def sampler(body: SamplingFields) -> Sampler:
    """As OpenAI's API samples: at temperature 1 unless told otherwise, and anew each time unless there is a seed."""
    repetition = body.repetition_penalty or 1.0
    if body.temperature == 0:
        return Greedy(repetition)
    seed = randbits(63) if body.seed is None else body.seed % SEEDS
    temperature = 1.0 if body.temperature is None else body.temperature
    top_p = None if body.top_p == 1 else body.top_p
    return RandomSampler(temperature, body.top_k, top_p, body.min_p, repetition, seed)
