"""Conversations about images: the prompts and tokens of transformers, alone, among other requests, and by HTTP."""

from __future__ import annotations

import base64
import io
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import torch
from PIL import Image

from headway.cli.main import main
from headway.data.chat_template import ChatTemplate
from headway.errors import UserError
from headway.loading import load
from headway.model import Model
from headway.nn.context import EMPTY
from headway.serve.conversation import Conversation
from headway.serve.engine import Engine, GenerationRequest, Ticket
from headway.serve.serve_options import EngineLimits, ServeOptions
from headway.serve.server_state import RequestLimits
from headway.tasks.causal_decoder import CausalDecoder, ChatPrompt
from headway.tasks.generation import GenerationOptions
from tests.interop.test_llava import folder_of
from tests.serve.server import RunningServer, serving

pytestmark = pytest.mark.slow
PATCHES = 9
# as llava-hf publishes it, written from memory
PUBLISHED = (
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}"
    "{# Render all images first #}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
    "{# Render all text next #}"
    "{% if message['role'] != 'assistant' %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] + ' '}}{% endfor %}{% else %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{% generation %}{{ content['text'] + ' '}}{% endgeneration %}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)


def png(seed: int, size: tuple[int, int] = (15, 18)) -> bytes:
    pixels, file = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8), io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transformers' with the published chat template, and photo1.png to photo3.png beside it."""
    folder = tmp_path_factory.mktemp("llavas") / "llava"
    folder.mkdir()
    folder_of(folder)
    (folder / "chat_template.jinja").write_text(PUBLISHED)
    for at in (1, 2, 3):
        (folder.parent / f"photo{at}.png").write_bytes(png(at))
    return folder


@pytest.fixture(scope="module")
def model(llava: Path) -> Model:
    return load(llava)


def template(model: Model) -> ChatTemplate:
    found = model.causal_decoder().chat_template(None)
    assert found is not None
    return found


def photo(model: Model, folder: Path, at: int) -> dict[str, Any]:
    place = model.task.locate(str(folder.parent / f"photo{at}.png"))
    return {"type": "image", "image": model.causal_decoder().pixels(place)}


def prompt_of(model: Model, *messages: dict[str, Any]) -> ChatPrompt:
    return model.causal_decoder().chat_prompt(model.vocabulary(), template(model), messages)


def said(role: str, *content: Any) -> dict[str, Any]:
    parts = [{"type": "text", "text": one} if isinstance(one, str) else one for one in content]
    return {"role": role, "content": parts}


def test_two_turns_are_those_of_transformers(llava: Path, model: Model, tmp_path: Path) -> None:
    """The prompt of `apply_chat_template` and the processor, the greedy tokens of `generate`; then two more images."""
    theirs, processor = folder_of(tmp_path)
    processor.chat_template = PUBLISHED
    talk, options = Conversation(model, template(model), "w9"), GenerationOptions(max_new_tokens=7)
    photos, theirs_said = list[Image.Image](), [said("system", "w9")]
    for text, shown in (("w4 w7", (1,)), ("w1 w2", ()), ("w3 .", (2, 3))):
        for at in shown:
            talk.show(str(llava.parent / f"photo{at}.png"))
            photos.append(Image.open(llava.parent / f"photo{at}.png"))
        answer = "".join(talk.ask(text, options))
        theirs_said.append(said("user", *({"type": "image"} for _ in shown), text))
        written = processor.apply_chat_template(theirs_said, add_generation_prompt=True)
        seen = processor(images=photos, text=written, return_tensors="pt")
        with torch.no_grad():
            wanted = theirs.generate(**seen, max_new_tokens=7, num_beams=1, do_sample=False)[0].tolist()
        ids = seen["input_ids"][0].tolist()
        assert prompt_of(model, said("system", "w9"), *talk.said[:-1]).ids == ids
        assert ids.count(90) == PATCHES * len(photos)
        assert answer.split() == [model.vocabulary().token(id) for id in wanted[len(ids) :]]
        theirs_said.append(said("assistant", answer.strip()))


def test_the_usual_template_writes_what_the_published_one_does(model: Model) -> None:
    image = {"type": "image"}
    messages = [said("system", "Be."), said("user", "a", image, "b", image), said("assistant", "c"), said("user", "d")]
    special = {"image_token": "<image>"}
    usual = template(model)
    assert usual.special == {**special, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    expected = "Be. USER: <image>\n<image>\na b ASSISTANT: c USER: d "
    assert usual.render(messages) == f"{expected}ASSISTANT:"
    assert usual.render(messages, answer_next=False) == expected


def test_what_is_refused_is_not_said(llava: Path, model: Model) -> None:
    talk, options = Conversation(model, template(model)), GenerationOptions(max_new_tokens=2)
    talk.show(str(llava.parent / "photo1.png"))
    with pytest.raises(UserError, match="the prompt has 2 tokens '<image>' that stand for an image; allowed: 1"):
        list(talk.ask("w1 <image>", options))
    assert talk.said == []
    "".join(talk.ask("w1", options))
    assert [part["type"] for part in talk.said[0]["content"]] == ["image", "text"]
    assert talk.shown == []


# ---- among other requests


@pytest.fixture(params=[(3, 5), (3, 1), (1, 256)], ids=["pieces", "single tokens", "one row"])
def engine(model: Model, request: pytest.FixtureRequest) -> Iterator[Engine]:
    slots, chunk = request.param
    made = Engine(model, EngineLimits(slots, queue=40, context=96, chunk=chunk))
    yield made
    made.close(drain=False)


def alone(model: Model, prompt: ChatPrompt, options: GenerationOptions) -> list[int]:
    decoder = model.causal_decoder()
    memory = EMPTY if prompt.images is None else decoder.memory(prompt.images)
    [[found]] = decoder.job([prompt.ids], options, memory).generate()
    return list(found.tokens)


def asked(engine: Engine, prompt: ChatPrompt, options: GenerationOptions) -> Ticket:
    return engine.submit(GenerationRequest(tuple(prompt.ids), options, images=prompt.images))


def test_answers_are_those_of_each_conversation_alone(llava: Path, model: Model, engine: Engine) -> None:
    """Of one image, of several, of none, and of texts that hold the image token without an image."""
    first, second, third = (photo(model, llava, at) for at in (1, 2, 3))
    prompts = [
        prompt_of(model, said("user", first, "w1")),
        prompt_of(model, said("user", "w1 w2")),
        prompt_of(model, said("user", second, "w1")),  # the tokens of the first
        prompt_of(model, said("user", first, second, "w5"), said("assistant", "w2"), said("user", third, "w8")),
        ChatPrompt([1, 90, 90, 12]),
        prompt_of(model, said("user", second, first, "w5"), said("assistant", "w2"), said("user", third, "w8")),
        prompt_of(model, said("user", third, "w1")),
    ]
    options = [GenerationOptions(max_new_tokens=3 + 2 * at) for at in range(len(prompts))]
    expected = [alone(model, *pair) for pair in zip(prompts, options, strict=True)]
    assert expected[0][:3] != expected[2][:3]  # images make a difference
    for _ in range(2):  # and with what the cache knows
        tickets = [asked(engine, *pair) for pair in zip(prompts, options, strict=True)]
        assert [[event.token for event in ticket] for ticket in tickets] == expected


def test_a_further_turn_reads_no_image_again(llava: Path, model: Model, engine: Engine) -> None:
    """What was read of a conversation is known again, unless its image is another one."""
    options, messages = GenerationOptions(max_new_tokens=4), [said("user", photo(model, llava, 1), "w1")]
    begun = prompt_of(model, *messages)
    answer = model.vocabulary().decode([event.token for event in asked(engine, begun, options)])
    rest = said("assistant", answer), said("user", "w2")
    again, other = (
        prompt_of(model, *messages, *rest),
        prompt_of(model, said("user", photo(model, llava, 2), "w1"), *rest),
    )
    assert again.ids == other.ids
    ticket = asked(engine, again, options)
    assert [event.token for event in ticket] == alone(model, again, options)
    assert ticket.cached_tokens >= len(begun.ids)
    ticket = asked(engine, other, options)
    assert [event.token for event in ticket] == alone(model, other, options)
    assert ticket.cached_tokens == other.ids.index(90)


def test_an_image_may_come_late(llava: Path, model: Model, engine: Engine) -> None:
    """Behind an answer that was written where patches of an earlier request had stood."""
    first, second = (photo(model, llava, at) for at in (1, 2))
    options, begun = GenerationOptions(max_new_tokens=24), [said("user", "w1")]
    assert list(asked(engine, prompt_of(model, said("user", first, second, "w1")), options))
    answer = model.vocabulary().decode([event.token for event in asked(engine, prompt_of(model, *begun), options)])
    late = prompt_of(model, *begun, said("assistant", answer), said("user", second, "w5"))
    ticket = asked(engine, late, options)
    assert [event.token for event in ticket] == alone(model, late, options)
    assert ticket.cached_tokens >= late.ids.index(90) - 6  # the answer is known


def test_an_image_that_cannot_be_encoded_fails_its_request_alone(
    llava: Path, model: Model, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: CausalDecoder, images: object) -> None:
        raise UserError("the image is broken")

    monkeypatch.setattr(type(engine.decoder), "memory", broken)
    options, plain = GenerationOptions(max_new_tokens=3), prompt_of(model, said("user", "w1 w2"))
    bad = asked(engine, prompt_of(model, said("user", photo(model, llava, 1), "w1")), options)
    good = asked(engine, plain, options)
    with pytest.raises(UserError, match="the image is broken"):
        list(bad)
    assert [event.token for event in good] == alone(model, plain, options)
    assert [event.token for event in asked(engine, plain, options)] == alone(model, plain, options)


# ---- by HTTP


@pytest.fixture(scope="module")
def server(llava: Path, folders: dict[str, Path]) -> Generator[RunningServer]:
    limits = RequestLimits(image_pixels=1000, upload_files=3)
    options = ServeOptions(limits=EngineLimits(context=96))
    with serving(
        {"llava": llava, "chat": folders["chat"], "causal": folders["causal"]}, limits=limits, options=options
    ) as one:
        yield one


def url(data: bytes, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{base64.b64encode(data).decode()}"}}


def asking(*content: Any, **more: Any) -> dict[str, Any]:
    return {"model": "llava", "messages": [said("user", *content)], "temperature": 0, "max_tokens": 5, **more}


def test_a_client_talks_about_an_image(llava: Path, model: Model, server: RunningServer) -> None:
    create, options = server.client().chat.completions.create, GenerationOptions(max_new_tokens=5)
    talk = Conversation(model, template(model))
    talk.show(str(llava.parent / "photo1.png"))
    first = create(**asking(url(png(1)), "w4"))
    assert first.choices[0].message.content == "".join(talk.ask("w4", options))
    messages = [*asking(url(png(1)), "w4")["messages"], said("assistant", first.choices[0].message.content or "")]
    how = asking("w7")
    how["messages"] = [*messages, *how["messages"]]
    expected = "".join(talk.ask("w7", options))
    again = create(**how)
    assert again.choices[0].message.content == expected
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert (again.usage.prompt_tokens_details.cached_tokens or 0) > PATCHES
    pieces = [chunk.choices[0].delta.content or "" for chunk in create(**how, stream=True)]
    assert "".join(pieces) == expected
    several = create(**asking(url(png(2)), url(png(3)), "w1", n=3))
    assert len({one.message.content for one in several.choices}) == 1
    assert create(**asking("w1 w2")).choices[0].message.content  # a text alone
    found = server.client().completions.create(model="llava", prompt="w1 w2", max_tokens=3, temperature=0)
    assert found.choices[0].text
    assert server.get("/api/models/llava").json()["chat"] is True
    assert list(server.folder.iterdir()) == []


SECRET = "https://127.0.0.1:9/secret.png"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an address": (
        asking({"type": "image_url", "image_url": {"url": SECRET}}, "w1"),
        "an image is a data URI, as in data:image/png;base64,…; this server fetches nothing",
    ),
    "a file": (asking({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}), "fetches nothing"),
    "text": (asking({"type": "image_url", "image_url": {"url": "data:text/plain,hello"}}), "is a data URI"),
    "no base64": (
        asking({"type": "image_url", "image_url": {"url": "data:image/png;base64,a$b"}}),
        "the data URI of an image is not base64",
    ),
    "no image": (asking(url(b"hello"), "w1"), "the image is no image of a known format"),
    "half of one": (asking(url(png(1)[:-30]), "w1"), "the image is truncated"),
    "large": (asking(url(png(1, (40, 40))), "w1"), "the image has 40 × 40 pixels where 1,000 are allowed"),
    "many": (asking(*[url(png(1))] * 4), "4 images in a request where 3 are allowed"),
    "without eyes": (asking(url(png(1)), model="chat"), "the model reads no images; send text alone"),
    "without a template": (asking("w1", model="causal"), "the model 'causal' has no chat template"),
    "the token": (asking("<image>"), "the prompt has 1 tokens '<image>' that stand for an image; allowed: 0"),
    "a sound": (asking({"type": "input_audio", "input_audio": {}}), "messages.0.content.0: Input tag 'input_audio'"),
    "a number": (asking("w1") | {"messages": [{"role": "user", "content": 1}]}, "messages.0.content: Input should be"),
    "the context": (
        asking(*[url(png(1))] * 3, " ".join(["w1"] * 70)),
        "tokens and the model a context of 96",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(server: RunningServer, case: str) -> None:
    body, told = REFUSED[case]
    found = server.post("/v1/chat/completions", body)
    assert found.status_code == 400, found.text
    assert told in found.json()["error"]["message"]
    assert list(server.folder.iterdir()) == []


def test_a_conversation_may_be_larger_than_other_bodies(server: RunningServer) -> None:
    long = "x" * (RequestLimits.json_bytes + 1)
    with pytest.raises(openai.BadRequestError, match="is not base64"):
        server.client().chat.completions.create(
            **asking({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{long}$"}})
        )
    assert server.post("/v1/completions", {"model": "llava", "prompt": long}).status_code == 413
    whole = server.post("/v1/chat/completions", {"model": "llava", "messages": "x" * RequestLimits.chat_bytes})
    assert whole.status_code == 413


# ---- in the terminal


def test_headway_chat_shows_images(
    llava: Path, model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (str(llava.parent / f"photo{at}.png") for at in (1, 2))
    talk, options, expected = Conversation(model, template(model)), GenerationOptions(max_new_tokens=4), list[str]()
    for text, file in (("w4", first), ("w7", None), ("w1", second)):
        if file is not None:
            talk.show(file)
        expected.append("".join(talk.ask(text, options)))
    lines = f"w4\nw7\n/image\n/image {second}x\n/image {second}\nw1\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert main(["chat", str(llava), "--image", first, "--max-new-tokens", "4"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines() == expected
    assert "/image photo.png shows an image" in told.err
    assert "error: /image without a file; name one, as in /image photo.png" in told.err
    assert f"error: {second}x does not exist" in told.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--image", "missing.png"], "missing.png does not exist"),
        (["--prompt", "What?"], "--prompt asks about each image, and in a conversation you type; leave it out"),
    ],
)
def test_what_headway_chat_refuses(
    llava: Path, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", str(llava), *options]) == 2
    assert told in capsys.readouterr().err


def test_an_image_needs_a_model_that_reads_images(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for name, told in (
        ("labels", "and holds no conversation about --image; leave it out"),
        ("chat", "the model reads texts and no images; leave the images out"),
    ):
        assert main(["chat", str(folders[name]), "--image", "photo.png"]) == 2
        assert told in capsys.readouterr().err
