"""The page of `headway serve`: a model is picked, asked and answers as it writes; files are dropped; heads explored."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.loading import load
from headway.serve.security import AccessRules
from tests.interop.test_llava import folder_of
from tests.look.readers import image, loaded
from tests.serve.server import RunningServer, save_models, serving

from .page import Page, found

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    place = tmp_path_factory.mktemp("served")
    folders = save_models(place)
    loaded("vit").save(place / "vit")
    (place / "llava").mkdir()
    folder_of(place / "llava")
    with serving({**folders, "vit": place / "vit", "llava": place / "llava"}) as running:
        yield running


def opened(page: Page, server: RunningServer, model: str) -> None:
    ready = "document.getElementById('about').textContent !== 'loading …' && !document.getElementById('send').disabled"
    page.open(f"{server.url}/", until=ready)
    page.evaluate(f"{found('model')}.value = {json.dumps(model)}, {found('model')}.dispatchEvent(new Event('change'))")
    page.wait(f"{ready} && about.name === {json.dumps(model)}")


def drop(page: Page, data: bytes) -> None:
    """Drops a file on the page."""
    page.evaluate(
        f"""{{
        const bytes = Uint8Array.from(atob("{b64encode(data).decode()}"), (one) => one.charCodeAt(0));
        const files = new DataTransfer();
        files.items.add(new File([bytes], "x.png", {{type: "image/png"}}));
        document.getElementById("drop").dispatchEvent(new DragEvent("drop", {{dataTransfer: files, bubbles: true}}));
        }}"""
    )


def asked(page: Page, text: str) -> str:
    """What is answered to a text."""
    count = page.evaluate("document.querySelectorAll('[data-done]').length")
    page.evaluate(f"{found('text')}.value = {json.dumps(text)}, {found('send')}.click()")
    page.wait(f"document.querySelectorAll('[data-done]').length === {count + 1}")
    return page.evaluate("[...document.querySelectorAll('.answer')].at(-1).textContent")


def test_a_text_is_continued_token_by_token(page: Page, server: RunningServer) -> None:
    opened(page, server, "causal")
    page.evaluate("document.getElementById('temperature').value = 0, document.getElementById('tokens').value = 5")
    model = load(server.pool.slots["causal"].folder)
    expected = model.predict("the", max_new_tokens=5)
    assert asked(page, "the") == expected.output
    doubts = page.evaluate(
        "[...document.querySelectorAll('.token')].map((one) => one.style.getPropertyValue('--doubt'))"
    )
    assert len(doubts) == len(expected.output)  # its tokens are characters
    page.evaluate("document.querySelector('.token').click()")
    first = json.dumps(expected.output[0], ensure_ascii=False)
    assert page.evaluate("document.querySelector('.note').textContent").startswith(first)


def test_a_chat_gives_the_whole_conversation(page: Page, server: RunningServer) -> None:
    opened(page, server, "chat")
    page.evaluate("document.getElementById('temperature').value = 0, document.getElementById('tokens').value = 2")
    first = asked(page, "a")
    assert page.evaluate("messages") == [{"role": "user", "content": "a"}, {"role": "assistant", "content": first}]
    assert page.evaluate(f"{found('text')}.value") == ""


@pytest.mark.parametrize("name", ["labels", "tags", "pairs", "masked"])
def test_every_other_task_is_shown(page: Page, server: RunningServer, name: str) -> None:
    opened(page, server, name)
    text = "the [MASK] sat" if name == "masked" else "the cat"
    told = load(server.pool.slots[name].folder).predict(text).to_dict()
    answer = asked(page, text)
    parts = told["output"] if isinstance(told["output"], list) else [[told["output"]]]
    for part in (piece for pair in parts for piece in pair):
        assert part in answer
    if "probabilities" in told:
        assert page.evaluate("document.querySelectorAll('.bar').length") == len(told["probabilities"])


def test_a_mistake_is_told_on_the_page(page: Page, server: RunningServer) -> None:
    opened(page, server, "masked")
    assert "[MASK]" in asked(page, "no mask at all")
    assert page.evaluate("document.querySelectorAll('.error').length") == 1


def test_an_image_is_dropped_and_named(page: Page, server: RunningServer) -> None:
    opened(page, server, "vit")
    drop(page, Path(image()).read_bytes())
    page.evaluate(f"{found('send')}.click()")
    page.wait("document.querySelector('[data-done]') !== null")
    assert page.evaluate("document.querySelectorAll('.error').length") == 0
    assert page.evaluate("document.querySelectorAll('.bar').length") > 0
    assert page.evaluate(f"{found('look')}.hidden") is False


def test_a_chat_is_about_the_image_that_was_dropped(page: Page, server: RunningServer) -> None:
    opened(page, server, "llava")
    page.evaluate("document.getElementById('temperature').value = 0, document.getElementById('tokens').value = 3")
    drop(page, b"no image")
    assert "the image is no image of a known format" in asked(page, "w1")
    assert page.evaluate("messages") == []
    drop(page, Path(image()).read_bytes())
    first = asked(page, "w1")
    assert page.evaluate(f"{found('look')}.hidden") is False
    assert page.evaluate(f"{found('file')}.files.length") == 0
    assert asked(page, "w2")
    kinds = page.evaluate(
        "messages.map((one) => Array.isArray(one.content) ? one.content.map((part) => part.type) : one.content)"
    )
    assert kinds[:3] == [["image_url", "text"], first, "w2"]
    assert page.evaluate(f"{found('look')}.hidden") is True


def test_nothing_is_wider_than_a_phone(page: Page, server: RunningServer) -> None:
    page.size(360, 740)
    opened(page, server, "labels")
    asked(page, "the cat sat on the mat " * 20)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_explorer_of_the_same_request(server: RunningServer) -> None:
    shown = server.post("/look", files={"model": (None, "causal"), "input": (None, "the")})
    assert shown.status_code == 200
    assert "<!-- a page of headway look -->" in shown.text
    assert server.post("/look", files={"model": (None, "causal")}).status_code == 400


def test_a_browser_asks_for_the_key_as_a_password(server: RunningServer) -> None:
    with serving({"labels": server.pool.slots["labels"].folder}, AccessRules("secret")) as guarded:
        refused = guarded.get("/", headers={"Accept": "text/html"})
        assert (refused.status_code, refused.headers["www-authenticate"][:5]) == (401, "Basic")
        assert guarded.get("/", headers={}).headers["www-authenticate"] == "Bearer"
        for given, status in (("any:secret", 200), ("any:wrong", 401), ("secret", 401)):
            headers = {"Authorization": f"Basic {b64encode(given.encode()).decode()}"}
            assert guarded.get("/", headers=headers).status_code == status
        assert guarded.get("/", headers={"Authorization": "Basic ???"}).status_code == 401
