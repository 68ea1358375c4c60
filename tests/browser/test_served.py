"""The page with a server behind it: typing, dropping, editing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from headway.look.page_session import Explorer, PageSession
from headway.look.recording import HeadEdit
from headway.look.server import bind
from headway.nn.trace import Off, Uniform
from tests.look.readers import image, loaded

from .page import Page, found

pytestmark = pytest.mark.long


def served(name: str, folder: Path, given: str) -> AbstractContextManager[str]:
    """The address at which a model answers."""
    return serving(Explorer({"model": loaded(name)}), folder, given)


@contextmanager
def serving(explorer: Explorer, folder: Path, given: str) -> Iterator[str]:
    """The same, of one model or two."""
    with bind(0) as server:
        server.session = PageSession(explorer, folder)
        server.session.open(given)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_a_text_is_typed_and_heads_are_edited(page: Page, tmp_path: Path) -> None:
    with served("transformer", tmp_path, "the cat") as address:
        page.open(address)
        page.evaluate(f"{found('live-text')}.value = 'a dog ran'")
        page.click("live-read")
        page.wait("headway.bundle.runs[0].input === 'a dog ran'")
        page.settle()
        recording = loaded("transformer").attend("a dog ran")
        assert page.evaluate("headway.bundle.runs[0].outcome.text") == recording.outcome.text
        weights = recording["decoder.0.cross"].full()[0]
        assert page.evaluate("headway.weight('decoder.0.cross', 1, 2, 1)") == pytest.approx(
            weights[1, 2, 1].item(), abs=0.001
        )
        exact = page.evaluate("headway.row('decoder.0.cross', 1, 2, true)")["weights"]  # as the server is asked for it
        assert exact == pytest.approx(weights[1, 2].tolist(), abs=1e-6)
        page.evaluate("headway.change({site: 'decoder.0.cross', head: 1})")
        page.settle()
        page.click("edit-off")
        page.evaluate("headway.change({site: 'encoder.0.attn', head: 0})")
        page.settle()
        page.click("edit-uniform")
        both = recording.edited(HeadEdit("decoder.0.cross", 1, Off()), HeadEdit("encoder.0.attn", 0, Uniform()))
        delta = float(page.evaluate(f"{found('edit-delta')}.dataset.value"))
        assert delta == pytest.approx(both.total - recording.outcome.total, abs=1e-3)
        assert "decoder.0.cross head 1 off" in page.text("edit-output")
        assert {url.removeprefix(address).split("?")[0] for url in page.asked_for()} <= {
            "blob",
            "attend",
            "edit",
            "favicon.ico",
        }
        assert page.errors == []


def test_what_cannot_be_read_is_told(page: Page, tmp_path: Path) -> None:
    with served("gpt2", tmp_path, "the cat") as address:
        page.open(address)
        page.evaluate(f"{found('live-text')}.value = 'the cat sat on the mat'")
        page.click("live-read")
        page.wait(f"{found('live-said')}.innerText.includes('context of 16')")
        assert page.evaluate("headway.bundle.runs[0].input") == "the cat"


def picked(page: Page) -> None:
    root = page.tell("DOM.getDocument")["root"]["nodeId"]
    node = page.tell("DOM.querySelector", nodeId=root, selector="[type=file]")
    page.tell("DOM.setFileInputFiles", files=[image()], nodeId=node["nodeId"])


def dropped(page: Page) -> None:
    held = {"items": [], "files": [image()], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        page.tell("Input.dispatchDragEvent", type=kind, x=400, y=300, data=held)


@pytest.mark.parametrize("hand", [picked, dropped])
def test_a_picture_is_handed_to_the_page(page: Page, tmp_path: Path, hand: Callable[[Page], None]) -> None:
    with served("vit", tmp_path, image()) as address:
        page.open(address)
        before = page.evaluate("headway.bundle.runs[0].id")
        assert page.evaluate(f"{found('live-text')}.hidden")
        hand(page)
        page.wait(f"headway.bundle.runs[0].id !== {before}")
        page.settle()
        assert page.evaluate("headway.bundle.runs[0].input") == Path(image()).name
        page.click("view-picture")
        page.collect()
        assert page.errors == []
