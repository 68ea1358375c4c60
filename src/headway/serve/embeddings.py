"""/v1/embeddings: vectors of texts."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Sequence
from math import sqrt
from typing import Any

from fastapi import APIRouter, Request, Response

from headway.generate.request import Interrupt
from headway.serve.api_errors import ApiError, AsciiJson
from headway.serve.batching import QueuedCall, answered
from headway.serve.schemas import EmbeddingRequest
from headway.serve.server_state import ServerState, check_characters
from headway.serve.uploads import check_texts


def embedding_routes(state: ServerState) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/embeddings", summary="Vectors of texts")
    async def embed(body: EmbeddingRequest, request: Request) -> Response:
        texts = [body.input] if isinstance(body.input, str) else body.input
        check_characters(texts, state.limits.prompt_characters, "input")
        async with state.pool.lease(body.model) as served:
            check_texts(served.task, texts)
            model, task = served.model.model, served.task

            def vectors(inputs: list[str]) -> list[list[float]]:
                return task.embed(model, inputs).float().tolist()

            def counts(inputs: list[str]) -> list[int]:
                known = served.model.tokenizer
                return [len(row) for row in known.encode_batch(inputs)] if known else [0] * len(inputs)

            def both(inputs: list[str], interrupt: Interrupt) -> list[tuple[list[float], int]]:
                return list(zip(vectors(inputs), counts(inputs), strict=True))

            call = QueuedCall(texts, both, "embed")
            found = await answered(request.receive, served.queue, call, state.pool.options.timeout)
            rows = [shortened(vector, body.dimensions) for vector, _ in found]
            tokens = sum(count for _, count in found)
            state.counters.generated(body.model, tokens, 0)
        return AsciiJson(embedding_list(body, rows, tokens))

    return router


def embedding_list(body: EmbeddingRequest, rows: Sequence[Sequence[float]], tokens: int) -> dict[str, Any]:
    data = [
        {"object": "embedding", "index": at, "embedding": packed(row) if body.encoding_format == "base64" else row}
        for at, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body.model, "usage": usage}


def shortened(vector: Sequence[float], dimensions: int | None) -> list[float]:
    """The first dimensions of a vector, of length 1 again."""
    if dimensions is None or dimensions == len(vector):
        return list(vector)
    if dimensions > len(vector):
        said = f"dimensions is {dimensions} where the model's vectors have {len(vector)}"
        raise ApiError(400, said, param="dimensions")
    part = vector[:dimensions]
    length = sqrt(sum(x * x for x in part)) or 1.0
    return [x / length for x in part]


def packed(vector: Sequence[float]) -> str:
    """Float32 in the order that OpenAI's clients read: the lowest byte first."""
    return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
