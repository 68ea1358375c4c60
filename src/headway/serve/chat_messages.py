"""The messages of a chat with their images: data URIs, checked against the limits before a model reads them.

Nothing that a request names is opened or fetched.  An image is stored in a temporary folder under a name of our own.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from headway.data.text_lines import MediaLocation
from headway.errors import UserError
from headway.serve.api_errors import ApiError, bad_request
from headway.serve.schemas import ChatMessage, ImagePart, TextPart
from headway.serve.served_models import ServedModel
from headway.serve.server_state import RequestLimits, ServerState
from headway.serve.uploads import checked_extent, images_within
from headway.tasks.causal_decoder import CausalDecoder, ChatPrompt, Part

DATA_URI = re.compile(r"data:[\w./+-]*(?:;[\w=.+-]+)*;base64,", re.ASCII | re.IGNORECASE)
IMAGE_FIELD = "image_url"


def check_images(images: Sequence[ImagePart], limits: RequestLimits) -> None:
    """Refuses too many images, before a model is loaded."""
    if len(images) > limits.upload_files:
        said = f"{len(images)} images in a request where {limits.upload_files} are allowed"
        raise ApiError(400, said, param=IMAGE_FIELD)


def chat_prompt(state: ServerState, served: ServedModel, messages: Sequence[ChatMessage]) -> ChatPrompt:
    """What the answer of a model follows, by its chat template."""
    if served.template is None or served.decoder is None:
        said = f"the model {served.name!r} has no chat template; use /v1/completions"
        raise ApiError(400, said, param="model", code="no_chat_template")
    decoder = served.decoder
    try:
        plain = [one.plain([plain_part(state, decoder, part) for part in one.parts]) for one in messages]
        return decoder.chat_prompt(served.tokenizer, served.template, plain)
    except UserError as error:
        raise bad_request(error, "messages") from None


def plain_part(state: ServerState, decoder: CausalDecoder, part: TextPart | ImagePart) -> Part:
    """A part of a message as a decoder reads it."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if not decoder.reads_images:
        raise ApiError(400, "the model reads no images; send text alone", param=IMAGE_FIELD, code="unsupported_model")
    data = data_of(part)
    checked_extent(images_within(state.limits), "the image", data, IMAGE_FIELD)
    with TemporaryDirectory(dir=state.folder) as folder:
        path = Path(folder) / "image"
        path.write_bytes(data)
        return {"type": "image", "image": decoder.pixels(MediaLocation(path).spelled())}


def data_of(part: ImagePart) -> bytes:
    """The bytes in a data URI."""
    url = part.image_url.url
    if (begun := DATA_URI.match(url)) is None:
        said = "an image is a data URI, as in data:image/png;base64,…; this server fetches nothing"
        raise ApiError(400, said, param=IMAGE_FIELD)
    try:
        return b64decode(url[begun.end() :], validate=True)
    except ValueError:
        raise ApiError(400, "the data URI of an image is not base64", param=IMAGE_FIELD) from None
