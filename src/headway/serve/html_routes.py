"""Pages for people, /health, /ready and /metrics.  A page is one file, and needs no other server."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from headway.look.bundle import script_json
from headway.look.html_page import csp_hash
from headway.serve.api_errors import AsciiJson, busy
from headway.serve.server_state import ServerState

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;"
    "color:#222;background:#fff}"
    "code,pre{font:14px/1.45 ui-monospace,monospace;background:#f3f3f3}pre{padding:.7rem;overflow:auto}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0;"
    "border-bottom:1px solid #ddd}h2{margin-top:2.5rem}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}code,pre{background:#262626}a{color:#8bf}}"
)
WEB = ("html", "css", "js")
FRAMES = "frame-ancestors 'none'"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def html_routes(app: FastAPI, state: ServerState) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def home() -> Response:
        return HTMLResponse(*try_page(list(state.pool.slots)))

    @router.get("/docs")
    async def docs() -> Response:
        return page("headway: the API", "".join(described(app.openapi(), next(iter(state.pool.slots), "MODEL"))))

    @router.get("/health")
    async def health() -> Response:
        return AsciiJson({"status": "ok"})

    @router.get("/ready")
    async def ready() -> Response:
        if app.state.ending:
            raise busy(503, "the server is ending", 1, "ending")
        loaded = {name: bool(slot.loaded) for name, slot in state.pool.slots.items()}
        return AsciiJson({"status": "ready", "pid": os.getpid(), "models": loaded})

    @router.get("/metrics")
    async def metrics() -> Response:
        return PlainTextResponse(state.counters.to_text(state.pool), media_type=PROMETHEUS)

    return router


def try_page(models: Sequence[str]) -> tuple[str, int, dict[str, str]]:
    """The page to try models on, its status and its headers: one file, whose own style and script alone may run."""
    texts = {name: files("headway.serve").joinpath("web", f"page.{name}").read_text("utf-8") for name in WEB}
    parts = {"style": texts["css"], "script": texts["js"], "models": script_json(models)}
    html = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], texts["html"])
    policy = (
        f"default-src 'none'; style-src '{csp_hash(texts['css'])}'; "
        f"script-src '{csp_hash(texts['js'])}'; connect-src 'self'; img-src blob:; "
        f"base-uri 'none'; form-action 'self'; {FRAMES}"
    )
    return html, 200, {"Content-Security-Policy": policy}


LINKS = '<a href="/docs">API</a> · <a href="/openapi.json">openapi.json</a> · <a href="/metrics">metrics</a>'


def page(title: str, body: str) -> Response:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    text = f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>'
    policy = f"default-src 'none'; style-src '{csp_hash(STYLE)}'; base-uri 'none'; form-action 'none'; {FRAMES}"
    return HTMLResponse(text, headers={"Content-Security-Policy": policy})


def described(api: dict[str, Any], model: str) -> Iterator[str]:
    """Every path with the fields of its body and an example."""
    yield f"<h1>The API</h1><p>{LINKS}</p><p>With a key, send <code>Authorization: Bearer KEY</code>.</p>"
    for path, methods in api["paths"].items():
        for method, about in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(about.get('summary', ''))}</p>"
            if path in EXAMPLES:
                yield f"<pre>{escape(EXAMPLES[path].replace('MODEL', model))}</pre>"
            for kind, content in about.get("requestBody", {}).get("content", {}).items():
                yield f"<p>{escape(kind)}</p>{fields_table(content['schema'], api)}"


def fields_table(schema: dict[str, Any], api: dict[str, Any]) -> str:
    if "$ref" in schema:
        schema = api["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    required = schema.get("required", [])
    rows = (
        f"<tr><td><code>{escape(name)}</code>{' *' * (name in required)}</td><td>{escape(kind_of(about))}</td></tr>"
        for name, about in schema.get("properties", {}).items()
    )
    return f"<table><tr><th>field</th><th>type</th></tr>{''.join(rows)}</table><p>* required</p>"


def kind_of(schema: dict[str, Any]) -> str:
    """A type in a few words."""
    match schema:
        case {"$ref": str(place)}:
            return place.rpartition("/")[2]
        case {"anyOf": [*several]}:
            return " or ".join(kind_of(one) for one in several if one.get("type") != "null")
        case {"enum": [*values]}:
            return ", ".join(json.dumps(value) for value in values)
        case {"const": value}:
            return json.dumps(value)
        case {"type": "array", "items": dict(items)}:
            return f"list of {kind_of(items)}"
        case {"type": str(kind)}:
            least, most = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
            return kind if least is None or most is None else f"{kind}, {least} to {most}"
        case _:
            return "any"


CURL = "curl http://127.0.0.1:8000"
JSON_HEADER = "-H 'Content-Type: application/json'"
EXAMPLES = {
    "/v1/models": f"{CURL}/v1/models",
    "/v1/completions": f"{CURL}/v1/completions {JSON_HEADER} \\\n"
    ' -d \'{"model": "MODEL", "prompt": "Once upon", "max_tokens": 20}\'',
    "/v1/chat/completions": f"{CURL}/v1/chat/completions {JSON_HEADER} \\\n"
    ' -d \'{"model": "MODEL", "messages": [{"role": "user", "content": "Hello"}], "stream": true}\'',
    "/v1/embeddings": f'{CURL}/v1/embeddings {JSON_HEADER} -d \'{{"model": "MODEL", "input": ["a text"]}}\'',
    "/v1/audio/transcriptions": f"{CURL}/v1/audio/transcriptions -F model=MODEL -F file=@speech.wav",
    "/api/predict": f'{CURL}/api/predict {JSON_HEADER} -d \'{{"model": "MODEL", "input": "a text"}}\'\n'
    f"{CURL}/api/predict -F model=MODEL -F file=@image.png",
    "/api/attention": f'{CURL}/api/attention {JSON_HEADER} -d \'{{"model": "MODEL", "input": "a text"}}\'',
}
