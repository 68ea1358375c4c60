"""The page with a server behind it: typing, dropping, editing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from headway.look.head_edits import EdgeCut, HeadEdit, HeadPatch, TokenCut
from headway.look.page_session import Explorer, PageSession
from headway.look.recording import RunEdit
from headway.look.server import bind
from headway.nn.trace import Off, Uniform
from tests.look.readers import READERS, image, loaded

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


def test_an_edge_and_a_token_are_cut_and_a_head_is_patched(page: Page, tmp_path: Path) -> None:
    """The change in the log-probability is Python's; maps and thumbnails are of the edited run; edits are marked."""
    with served("gpt2", tmp_path, "the cat") as address:
        page.open(address)
        page.evaluate(f"{found('live-text')}.value = 'the cat', {found('live-against')}.value = 'a dog z'")
        page.click("live-read")
        page.wait("headway.bundle.runs.length === 2")
        page.evaluate("headway.change({site: '0.attn', head: 1, row: 5, column: 3, compare: -1, view: 'matrix'})")
        page.settle()
        before = page.evaluate("document.querySelector('[data-testid=head-0\\\\.attn-1]').style.backgroundImage")
        one = loaded("gpt2").attend("the cat")
        two = loaded("gpt2").attend("a dog z", said=one)
        edits: dict[str, RunEdit] = {
            "cut": EdgeCut("0.attn", 1, 5, 3),
            "token": TokenCut("text", 3),
            "patch": HeadPatch("0.attn", 1, two),
        }
        for how, edit in edits.items():
            page.click(f"edit-{how}")
            page.settle()
            edited = one.under(edit)
            delta = float(page.evaluate(f"{found('edit-delta')}.dataset.value"))
            assert delta == pytest.approx(edited.outcome.total - one.outcome.total, abs=1e-4), how
            row = page.evaluate("headway.row('0.attn', 1, 5, true)")["weights"]
            assert row == pytest.approx(edited["0.attn"].full()[0, 1, 5].tolist(), abs=1e-6)
            assert "with edits: " in page.text("compared")
            marked = page.evaluate("[...document.querySelectorAll('.thumb.edited')].map(n => n.dataset.testid)")
            assert marked == ([] if how == "token" else ["head-0.attn-1"])
            if how == "cut":
                assert page.text("hover-weight") in ("0.000", "masked")
                after = page.evaluate("document.querySelector('[data-testid=head-0\\\\.attn-1]').style.backgroundImage")
                assert after != before
            page.click("edit-reset")
            page.settle()
        row = page.evaluate("headway.row('0.attn', 1, 5, true)")["weights"]
        assert row == pytest.approx(one["0.attn"].full()[0, 1, 5].tolist(), abs=1e-6)
        page.collect()
        assert page.errors == []


def test_a_link_carries_text_model_edits_and_view(page: Page, tmp_path: Path) -> None:
    with served("gpt2", tmp_path, "the cat") as address:
        page.open(address)
        page.evaluate(f"{found('live-text')}.value = 'a dog', {found('live-against')}.value = 'a cat'")
        page.click("live-read")
        page.wait("headway.bundle.runs.length === 2")
        page.evaluate("headway.change({site: '0.attn', head: 1, row: 4, column: 2, view: 'row', compare: -1})")
        page.settle()
        page.click("edit-cut")
        page.settle()
        page.wait("location.hash.includes('cut')")
        link = page.evaluate("location.href")
        kept = page.evaluate("headway.state")
        delta = page.evaluate(f"{found('edit-delta')}.dataset.value")
        page.evaluate(f"{found('live-text')}.value = 'the mat'")
        page.click("live-read")
        page.wait("headway.bundle.runs[0].input === 'the mat'")
        page.open(link)
        page.settle()
        assert page.evaluate("headway.bundle.runs.map(run => run.input)") == ["a dog", "a cat"]
        assert {**page.evaluate("headway.state"), "pinned": False} == {**kept, "pinned": False}
        assert page.evaluate(f"{found('edit-delta')}.dataset.value") == delta
        page.open(link.replace("model=model", "model=other"))
        page.settle()
        assert "another model" in page.text("live-said")


@pytest.mark.parametrize("name", ["gpt2", "transformer", "captioner, soft"])
def test_a_click_on_a_rival_token_branches(page: Page, tmp_path: Path, name: str) -> None:
    """The model goes on from there; the link carries the branch; one click takes it back."""
    with served(name, tmp_path, READERS[name].given()) as address:
        page.open(address)
        before = page.evaluate("headway.bundle.runs[0].outcome")
        step = len(before["steps"]) - 3
        page.evaluate(f"headway.change({{step: {step}}})")
        page.settle()
        rank = 2 if before["steps"][step]["said"] != before["steps"][step]["top"][2][0] else 1
        page.evaluate(f"document.querySelectorAll('.rival')[{rank}].click()")
        page.wait("headway.bundle.runs[0].prefix.length > 0")
        page.settle()
        run = page.evaluate("headway.bundle.runs[0]")
        recording = loaded(name).attend(READERS[name].given(), prefix=run["prefix"])
        assert run["outcome"]["text"] == recording.outcome.text
        assert [one["said"] for one in run["outcome"]["steps"]] == [one.said for one in recording.outcome.steps]
        assert run["outcome"]["steps"][step]["said"] == before["steps"][step]["top"][rank][0]
        assert run["outcome"]["steps"][:step] == before["steps"][:step]
        assert page.evaluate("document.querySelector('.branched').title").endswith("chosen by hand")
        if READERS[name].given is not image:  # a file that was dropped is in no link
            page.wait("location.hash.includes('prefix')")
            page.open(page.evaluate("location.href"))
            assert page.evaluate("headway.bundle.runs[0].prefix") == run["prefix"]
            assert page.evaluate("headway.state.step") == step
        page.click("unbranch")
        page.wait("headway.bundle.runs[0].prefix.length === 0")
        page.settle()
        assert page.evaluate("headway.bundle.runs[0].outcome.text") == before["text"]
        page.collect()
        assert page.errors == []
