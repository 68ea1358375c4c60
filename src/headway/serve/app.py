"""The server's application: every route, behind the checks that each request has to pass.

app = create_app(ModelPool({"gpt": Path("gpt")}, ServeOptions()), Path("uploads"), AccessRules())
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from headway import __version__
from headway.serve.api_errors import ApiError, on_api_error, on_http_error, on_invalid_body
from headway.serve.batching import nothing
from headway.serve.completions import completion_routes
from headway.serve.counters import Counters
from headway.serve.embeddings import embedding_routes
from headway.serve.html_routes import html_routes
from headway.serve.predictions import prediction_routes
from headway.serve.security import AccessRules, Gate
from headway.serve.served_models import ModelPool
from headway.serve.server_state import RequestLimits, ServerState

LIMITS = RequestLimits()


def create_app(
    pool: ModelPool,
    folder: Path,
    rules: AccessRules,
    limits: RequestLimits = LIMITS,
    counters: Counters | None = None,
    answered: Callable[[], object] = nothing,
) -> FastAPI:
    """The application of some models; when it ends, all that they have begun is finished.

    Uploaded files are kept in `folder`, as long as the request that they came with.  `answered` is called when it ends
    and has answered all requests; models may still compute for clients that have left.
    """

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            app.state.ending = True
            answered()
            await asyncio.to_thread(pool.close, drain=True)

    state = ServerState(pool, folder, limits, counters or Counters())
    app = FastAPI(
        title="headway",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=life,
        exception_handlers={
            ApiError: on_api_error,
            HTTPException: on_http_error,
            RequestValidationError: on_invalid_body,
        },
    )
    app.state.ending = False
    for routes in (
        completion_routes(state),
        embedding_routes(state),
        prediction_routes(state),
        html_routes(app, state),
    ):
        app.include_router(routes)
    gated(app, rules, state)
    return app


def gated(app: FastAPI, rules: AccessRules, state: ServerState) -> None:
    app.add_middleware(Gate, rules=rules, limits=state.limits, counters=state.counters)
    if rules.origins:
        headers = ["Authorization", "Content-Type"]
        app.add_middleware(
            CORSMiddleware, allow_origins=rules.origins, allow_methods=["GET", "POST"], allow_headers=headers
        )
