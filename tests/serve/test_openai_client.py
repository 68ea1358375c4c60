"""The openai package as the client: what it reads, what it streams, and which errors it raises."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import openai
import pytest

from headway.loading import load
from headway.serve.serve_options import EngineLimits, ServeOptions
from tests.serve.server import RunningServer, serving

pytestmark = pytest.mark.slow

PROMPT = "the cat"
MESSAGES: Any = [{"role": "system", "content": "on"}, {"role": "user", "content": "a cat"}]


def test_models(server: RunningServer) -> None:
    found = server.client().models.list().data
    assert {model.id for model in found} == set(server.pool.slots)
    assert all(model.object == "model" and model.owned_by == "headway" and model.created > 0 for model in found)
    assert server.client().models.retrieve("causal").id == "causal"
    with pytest.raises(openai.NotFoundError) as error:
        server.client().models.retrieve("casual")
    assert error.value.code == "model_not_found"
    assert "'causal'" in error.value.message


def test_a_greedy_completion_is_what_predict_writes(server: RunningServer, folders: dict[str, Any]) -> None:
    found = server.client().completions.create(model="causal", prompt=PROMPT, max_tokens=6, temperature=0)
    expected = load(folders["causal"]).predict(PROMPT, max_new_tokens=6)
    assert found.choices[0].text == expected.output
    assert found.object == "text_completion"
    assert found.model == "causal"
    assert found.id.startswith("cmpl-")
    assert found.choices[0].finish_reason == "length"
    assert found.choices[0].logprobs is None
    assert found.usage is not None
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (7, 6, 13)
    longer = server.client().completions.create(model="causal", prompt=PROMPT, temperature=0)
    assert longer.usage is not None
    assert longer.usage.completion_tokens == 10  # the context ends before OpenAI's usual 16 tokens
    assert longer.choices[0].finish_reason == "length"


def test_several_prompts_and_choices(server: RunningServer) -> None:
    client = server.client()
    found = client.completions.create(model="causal", prompt=["the", "a dog"], n=2, max_tokens=4, seed=5)
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    assert len({choice.text for choice in found.choices}) > 2
    alone = client.completions.create(model="causal", prompt="a dog", max_tokens=4, seed=5)
    assert alone.choices[0].text == found.choices[2].text
    second = client.completions.create(model="causal", prompt="a dog", max_tokens=4, seed=6)
    assert second.choices[0].text == found.choices[3].text
    assert found.usage is not None
    assert found.usage.prompt_tokens == len("the") + len("a dog")
    assert found.usage.completion_tokens == 16


def test_prompts_may_be_tokens(server: RunningServer, folders: dict[str, Any]) -> None:
    ids = load(folders["causal"]).vocabulary().encode(PROMPT)
    how: dict[str, Any] = {"model": "causal", "max_tokens": 4, "temperature": 0}
    client = server.client()
    text = client.completions.create(prompt=PROMPT, **how).choices[0].text
    assert client.completions.create(prompt=ids, **how).choices[0].text == text
    assert [choice.text for choice in client.completions.create(prompt=[ids, ids], **how).choices] == [text, text]
    assert client.completions.create(prompt=ids, echo=True, **how).choices[0].text == PROMPT + text
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(prompt=[10**6], **how)
    assert error.value.param == "prompt"


def test_seeds_and_sampling(server: RunningServer) -> None:
    how: dict[str, Any] = {"model": "causal", "prompt": PROMPT, "max_tokens": 8}
    client = server.client()

    def text(**more: Any) -> str:
        return client.completions.create(**how, **more).choices[0].text

    assert text(seed=1) == text(seed=1)
    assert text(seed=1) != text(seed=2)
    assert text() != text()
    assert text(seed=-3) == text(seed=-3)
    greedy = text(temperature=0)
    assert text(seed=7, top_p=1e-9) == greedy
    assert text(seed=7, extra_body={"top_k": 1}) == greedy
    assert text(seed=7, top_p=1, temperature=1) == text(seed=7)


def test_stop_strings_end_the_text_before_them(server: RunningServer) -> None:
    client = server.client()
    whole = client.completions.create(model="causal", prompt=PROMPT, max_tokens=9, temperature=0).choices[0].text
    stop = whole[4:6]
    how: dict[str, Any] = {"model": "causal", "prompt": PROMPT, "max_tokens": 9, "temperature": 0}
    for given in (stop, [stop, "never"]):
        found = client.completions.create(stop=given, **how)
        assert found.choices[0].text == whole[: whole.index(stop)]
        assert found.choices[0].finish_reason == "stop"
    pieces = [one.choices[0].text for one in client.completions.create(stop=stop, stream=True, **how)]
    assert "".join(pieces) == whole[: whole.index(stop)]


def test_logprobs_of_completions(server: RunningServer) -> None:
    how: dict[str, Any] = {"model": "causal", "prompt": PROMPT, "max_tokens": 5, "temperature": 0, "logprobs": 3}
    found = server.client().completions.create(**how).choices[0].logprobs
    assert found is not None
    assert found.tokens is not None
    assert found.token_logprobs is not None
    assert found.top_logprobs is not None
    assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == 5
    for token, logprob, top in zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True):
        assert len(top) == 3
        assert top[token] == pytest.approx(logprob, abs=1e-4)  # the greedy token is the likeliest
        assert max(top.values()) == top[token]
    streamed = [one.choices[0] for one in server.client().completions.create(stream=True, **how)]
    scored = [one.logprobs for one in streamed if one.logprobs is not None]
    assert [one.tokens for one in scored] == [[token] for token in found.tokens]
    assert [one.text_offset for one in scored] == [[offset] for offset in found.text_offset or ()]


def test_a_chat_reads_its_template(server: RunningServer, folders: dict[str, Any]) -> None:
    how: dict[str, Any] = {"model": "chat", "temperature": 0, "max_tokens": 4}
    client = server.client()
    found = client.chat.completions.create(messages=[{"role": "user", "content": " a cat"}], **how)
    expected = load(folders["chat"]).predict("u a cat, a ", max_new_tokens=4)
    assert found.choices[0].message.content == expected.output
    assert found.usage is not None
    assert found.usage.prompt_tokens == len("u a cat, a ")
    assert found.object == "chat.completion"
    assert found.choices[0].message.role == "assistant"
    assert found.choices[0].finish_reason == "length"
    assert found.id.startswith("chatcmpl-")
    parts: Any = [{"type": "text", "text": "a "}, {"type": "text", "text": "cat"}]
    again = client.chat.completions.create(messages=[{"role": "user", "content": parts}], **how)
    assert again.choices[0].message.content == expected.output
    with pytest.raises(openai.BadRequestError, match="no such role"):
        client.chat.completions.create(messages=[{"role": "tool", "content": "1", "tool_call_id": "x"}], **how)
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="causal", messages=MESSAGES)
    assert error.value.code == "no_chat_template"
    assert error.value.param == "model"


def test_a_stream_says_what_a_whole_answer_says(server: RunningServer) -> None:
    user: Any = [{"role": "user", "content": "cat"}]
    how: dict[str, Any] = {"model": "chat", "messages": user, "seed": 4, "max_tokens": 5, "n": 2}
    client = server.client()
    whole = client.chat.completions.create(logprobs=True, top_logprobs=2, **how)
    chunks = list(
        client.chat.completions.create(
            logprobs=True, top_logprobs=2, stream=True, stream_options={"include_usage": True}, **how
        )
    )
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens  # of which other numbers were read before
    assert chunks[-1].choices == []
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    for index, choice in enumerate(whole.choices):
        parts = [one for chunk in chunks for one in chunk.choices if one.index == index]
        assert parts[0].delta.role == "assistant"
        assert "".join(part.delta.content or "" for part in parts) == choice.message.content
        assert [part.finish_reason for part in parts] == [None] * (len(parts) - 1) + [choice.finish_reason]
        scored = [token for part in parts if part.logprobs for token in part.logprobs.content or ()]
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert [one.token for one in scored] == [one.token for one in choice.logprobs.content]
        expected = [one.logprob for one in choice.logprobs.content]
        assert [one.logprob for one in scored] == pytest.approx(expected, abs=5e-6)
        assert all(len(token.top_logprobs) == 2 for token in scored)


def test_without_usage_a_stream_has_none(server: RunningServer) -> None:
    chunks = list(server.client().completions.create(model="causal", prompt=PROMPT, max_tokens=2, stream=True))
    assert all(chunk.usage is None for chunk in chunks)
    assert all(chunk.choices for chunk in chunks)


def test_embeddings(server: RunningServer, folders: dict[str, Any]) -> None:
    client, texts = server.client(), ["the cat", "a dog ran", ""]
    expected = load(folders["vectors"]).embed(texts)
    found = client.embeddings.create(model="vectors", input=texts)  # the client asks for base64
    floats = client.embeddings.create(model="vectors", input=texts, encoding_format="float")
    assert [one.index for one in found.data] == [0, 1, 2]
    for one, other, row in zip(found.data, floats.data, expected.tolist(), strict=True):
        assert one.embedding == pytest.approx(row, abs=5e-6)
        assert other.embedding == pytest.approx(row, abs=5e-6)
    assert found.usage.prompt_tokens == found.usage.total_tokens > 3
    short = client.embeddings.create(model="vectors", input="the cat", dimensions=4).data[0].embedding
    assert len(short) == 4
    assert sum(x * x for x in short) == pytest.approx(1)
    assert short[0] / short[1] == pytest.approx(expected[0, 0].item() / expected[0, 1].item(), rel=1e-3)
    with pytest.raises(openai.BadRequestError) as error:
        client.embeddings.create(model="vectors", input="cat", dimensions=1000)
    assert error.value.param == "dimensions"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"temperature": 3}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"n": 0}, "n"),
    ({"n": 100}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"stop": [""]}, "stop"),
    ({"logprobs": 6}, "logprobs"),
    ({"logit_bias": {"5": 1}}, "logit_bias"),
    ({"presence_penalty": 0.5}, "presence_penalty"),
    ({"suffix": "x"}, "suffix"),
    ({"best_of": 3}, "best_of"),
    ({"extra_body": {"colour": "red"}}, "colour"),
    ({"prompt": []}, "prompt"),
    ({"prompt": "cat " * 50}, "prompt"),
]


@pytest.mark.parametrize(("given", "param"), REFUSED, ids=lambda value: str(value)[:40])
def test_bad_requests_name_the_field(server: RunningServer, given: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.client().completions.create(**{"model": "causal", "prompt": PROMPT, **given})
    assert error.value.status_code == 400
    assert error.value.param == param
    assert error.value.type == "invalid_request_error"
    assert error.value.message


def test_fields_without_effect_are_taken(server: RunningServer) -> None:
    found = server.client().chat.completions.create(
        model="chat",
        messages=[{"role": "user", "content": "cat"}],
        max_tokens=1,
        user="me",
        metadata={"a": "b"},
        store=False,
        presence_penalty=0,
        logit_bias={},
        response_format={"type": "text"},
        tool_choice="none",
    )
    assert found.choices[0].finish_reason == "length"


def test_the_context_is_named_where_a_prompt_is_too_long(server: RunningServer) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.client().completions.create(model="causal", prompt="cat " * 50)
    assert error.value.code == "context_length_exceeded"


def test_a_model_that_continues_no_texts_says_so(server: RunningServer) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.client().completions.create(model="labels", prompt="a cat")
    assert error.value.code == "unsupported_model"
    assert "/api/predict" in error.value.message


def test_the_key(guarded: RunningServer) -> None:
    assert guarded.client().models.list().data
    for key in ("wrong", "secret-key-", "secret-key-12"):
        with pytest.raises(openai.AuthenticationError) as error:
            guarded.client(api_key=key).models.list()
        assert error.value.code == "invalid_api_key"
        assert error.value.response.headers["www-authenticate"] == "Bearer"


def test_another_origin_is_refused(server: RunningServer) -> None:
    with pytest.raises(openai.PermissionDeniedError):
        server.client(default_headers={"Origin": "https://elsewhere.example"}).models.list()


def test_a_full_queue_is_told_with_when_to_come_back(folders: dict[str, Any]) -> None:
    options = ServeOptions(limits=EngineLimits(slots=1, queue=1))
    with serving({"causal": folders["causal"]}, options=options) as server:
        client = server.client()
        client.completions.create(model="causal", prompt=PROMPT, max_tokens=1)
        server.engine("causal").hold()
        held = [client.completions.create(model="causal", prompt=PROMPT, temperature=0, stream=True) for _ in range(2)]
        with pytest.raises(openai.RateLimitError) as error:
            client.completions.create(model="causal", prompt=PROMPT)
        assert error.value.code == "overloaded"
        assert int(error.value.response.headers["retry-after"]) >= 1
        server.engine("causal").gate.set()
        assert all(list(stream)[-1].choices[0].finish_reason == "length" for stream in held)


def test_a_request_that_takes_too_long(folders: dict[str, Any]) -> None:
    with serving({"causal": folders["causal"]}) as server:
        client = server.client()
        client.models.list()
        client.completions.create(model="causal", prompt=PROMPT, max_tokens=1)
        server.engine("causal").hold()
        server.pool.options = ServeOptions(timeout=0.2)
        with pytest.raises(openai.InternalServerError) as error:
            client.completions.create(model="causal", prompt=PROMPT)
        assert error.value.status_code == 503
        assert error.value.code == "timeout"
        with pytest.raises(openai.APIError, match="seconds"):
            list(client.completions.create(model="causal", prompt=PROMPT, stream=True))
        server.engine("causal").gate.set()


def test_a_client_that_leaves_frees_its_slot(folders: dict[str, Any]) -> None:
    with serving({"causal": folders["causal"]}) as server:
        client = server.client()
        client.completions.create(model="causal", prompt=PROMPT, max_tokens=1)
        engine = server.engine("causal")
        engine.hold()
        with client.completions.create(model="causal", prompt=PROMPT, stream=True, extra_body={"echo": True}) as stream:
            assert next(iter(stream)).choices[0].text == PROMPT
            assert engine.running + engine.waiting == 1
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.2).completions.create(model="causal", prompt=PROMPT)
        wait_until(lambda: engine.running == 0 and engine.waiting == 0)
        wait_until(lambda: server.pool.slots["causal"].leases == 0)
        engine.gate.set()


def wait_until(holds: Any) -> None:
    while not holds():
        time.sleep(0.01)


def test_the_asynchronous_client(server: RunningServer) -> None:
    async def ask() -> None:
        client = server.async_client()
        how: dict[str, Any] = {"model": "causal", "max_tokens": 4, "temperature": 0}
        texts = ["the", "a", "on and on", "red"]
        many = await asyncio.gather(*(client.completions.create(prompt=text, **how) for text in texts))
        one_by_one = [await client.completions.create(prompt=text, **how) for text in texts]
        assert [one.choices[0].text for one in many] == [one.choices[0].text for one in one_by_one]
        stream = await client.completions.create(prompt=texts[0], stream=True, **how)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == many[0].choices[0].text
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="nothing", prompt="a")
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model="causal", messages=MESSAGES)
        vectors = await client.embeddings.create(model="vectors", input="cat")
        assert len(vectors.data[0].embedding) == 16
        await client.close()

    asyncio.run(ask())
