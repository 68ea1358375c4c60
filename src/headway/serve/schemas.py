"""What requests may hold: OpenAI's fields within their bounds, and a few more of sampling.

A field that has no effect on an answer is taken and ignored.  One that would change it and is not supported is refused
unless it is neutral, so that no answer pretends to have heeded it.  Fields that OpenAI's API does not have are refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from headway.tasks.causal_decoder import Part

NEUTRAL: tuple[object, ...] = (None, 0, False, "", [], {}, "none", "auto", {"type": "text"}, ["text"])
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 200
MAX_INPUTS = 2048
MAX_SEED = 2**63 - 1  # of JSON's integers in most languages


def check_neutral(value: Any) -> Any:
    if value not in NEUTRAL:
        raise PydanticCustomError("unsupported", "is not supported by this server; leave it out")
    return value


Unsupported = Annotated[Any, AfterValidator(check_neutral)]
Ignored = Any
ModelName = Annotated[str, Field(min_length=1, max_length=300)]
StopText = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
TextInputs = str | Annotated[list[str], Field(max_length=MAX_INPUTS)]
Tokens = Annotated[list[Annotated[int, Field(ge=0, le=2**31)]], Field(min_length=1)]


class RequestFields(BaseModel):
    """Nothing is converted: a number is no text, and true is no number."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class StreamOptions(RequestFields):
    include_usage: bool | None = None
    include_obfuscation: Ignored = None


class SamplingFields(RequestFields):
    """How tokens are chosen; `top_k`, `min_p` and `repetition_penalty` are not OpenAI's."""

    model: ModelName
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = None
    seed: Annotated[int, Field(ge=-MAX_SEED, le=MAX_SEED)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    min_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=2**31)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    frequency_penalty: Unsupported = None
    presence_penalty: Unsupported = None
    logit_bias: Unsupported = None
    user: Ignored = None


class CompletionRequest(SamplingFields):
    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MAX_INPUTS)]
        | Tokens
        | Annotated[list[Tokens], Field(min_length=1, max_length=MAX_INPUTS)]
    )
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    best_of: int | None = None
    suffix: Unsupported = None


class TextPart(RequestFields):
    type: Literal["text"]
    text: str


class ImageURL(RequestFields):
    """A data URI: nothing is fetched.  A model reads images in one size, whatever `detail` says."""

    url: str
    detail: Ignored = None


class ImagePart(RequestFields):
    type: Literal["image_url"]
    image_url: ImageURL


def content_kind(value: object) -> str:
    """What a content is checked as, so that an error is about what was meant."""
    return PARTS if isinstance(value, list) else TEXT


TEXT, PARTS = "a text", "a list of parts"  # no names of fields, which errors would show
ContentPart = Annotated[TextPart | ImagePart, Field(discriminator="type")]
Content = Annotated[Annotated[str, Tag(TEXT)] | Annotated[list[ContentPart], Tag(PARTS)], Discriminator(content_kind)]


class ChatMessage(RequestFields):
    """What is said; sounds are not read in a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Unsupported = None
    function_call: Unsupported = None
    audio: Unsupported = None
    refusal: Ignored = None
    annotations: Ignored = None

    @property
    def parts(self) -> list[TextPart | ImagePart]:
        return self.content if isinstance(self.content, list) else [TextPart(type="text", text=self.content or "")]

    def plain(self, parts: list[Part]) -> dict[str, Any]:
        """The message with these parts as chat templates read it; what a developer says is what a system does."""
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": parts, **({"name": self.name} if self.name else {})}


class ChatRequest(SamplingFields):
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_INPUTS)]
    max_completion_tokens: Annotated[int, Field(ge=1, le=2**31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Unsupported = None
    tool_choice: Unsupported = None
    functions: Unsupported = None
    function_call: Unsupported = None
    response_format: Unsupported = None
    modalities: Unsupported = None
    audio: Unsupported = None
    web_search_options: Unsupported = None
    prediction: Ignored = None
    parallel_tool_calls: Ignored = None
    metadata: Ignored = None
    store: Ignored = None
    service_tier: Ignored = None
    reasoning_effort: Ignored = None
    verbosity: Ignored = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_retention: Ignored = None


class EmbeddingRequest(RequestFields):
    model: ModelName
    input: str | Annotated[list[str], Field(min_length=1, max_length=MAX_INPUTS)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: Ignored = None


class DecodingFields(RequestFields):
    """Options of decoding by the names of `headway run`; a model that has no use for one refuses it."""

    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] | None = None
    stop: list[StopText] = Field(default=[], max_length=MAX_STOPS)
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] = 1.0
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    beam: Annotated[int, Field(ge=1, le=32)] | None = None
    length_penalty: Annotated[float, Field(ge=-10, le=10)] | None = None
    prompt: str | None = None  # what is asked about each image


class PredictRequest(RequestFields):
    """Texts for a model of any task; images, sounds and tables are uploaded as multipart/form-data instead."""

    model: ModelName
    input: TextInputs = []
    options: DecodingFields = DecodingFields()


class AttentionRequest(RequestFields):
    """A text whose attention is recorded; an image or a sound is uploaded as multipart/form-data instead."""

    model: ModelName
    input: TextInputs = []
    tokens: Annotated[int, Field(ge=1, le=256)] = 16
    site: Annotated[str, Field(max_length=200)] | None = None


class TranscriptionRequest(RequestFields):
    """The fields of a form, beside the file."""

    model: ModelName
    response_format: Literal["json", "text", "verbose_json"] = "json"
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    language: Unsupported = None
    prompt: Unsupported = None
    stream: Unsupported = None
    timestamp_granularities: Literal["segment"] | None = Field(default=None, alias="timestamp_granularities[]")

    @property
    def decoding(self) -> DecodingFields:
        return DecodingFields(temperature=self.temperature or None)
