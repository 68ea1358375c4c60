"""`headway look` as a person calls it: a page where they want it, or one sentence and what to do."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch

from headway.cli import look_command
from headway.cli import main as cli
from headway.loading import load
from headway.look import head_edits
from headway.look.head_edits import HeadEdit
from headway.look.html_page import is_look_page
from headway.look.page_session import PageSession
from headway.model import Model
from headway.nn.trace import Off
from tests.cli.command import Child, empty_place, made_place, until
from tests.cli.folders import FOLDERS
from tests.look.readers import READERS, image, loaded

Look = Callable[..., tuple[int, str, str]]


@pytest.fixture
def look(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Look:
    """The command in an empty folder, on one of the models by its name."""
    monkeypatch.chdir(tmp_path)

    def run(model: str, *words: str) -> tuple[int, str, str]:
        code = cli.main(["look", str(folders / model), *words])
        return code, *capsys.readouterr()

    return run


def content(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="bundle">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found is not None
    return json.loads(found[1])


# ---- what is written


@pytest.mark.slow
def test_a_page_is_written_and_told_in_one_line(look: Look, tmp_path: Path) -> None:
    code, out, err = look("causal", "the cat")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"wrote causal-look.html, \d+ kB: 1 site, 2 heads; open it in a browser\n", out)
    page = tmp_path / "causal-look.html"
    assert is_look_page(page.read_text(encoding="utf-8"))
    [run] = content(page)["runs"]
    assert (run["title"], run["architecture"], run["input"]) == ("causal", "gpt2", "the cat")
    assert run["outcome"]["text"].startswith("the cat")
    assert len(run["outcome"]["steps"]) > len("the cat")
    assert [path.name for path in tmp_path.iterdir()] == ["causal-look.html"]


@pytest.mark.slow
def test_the_page_of_another_input_is_left_alone(look: Look, tmp_path: Path) -> None:
    """The same input again replaces its page; another one gets a number; `--out` means what it says."""
    look("causal", "the cat")
    first = (tmp_path / "causal-look.html").read_bytes()
    assert look("causal", "a dog")[1].startswith("wrote causal-look-2.html")
    assert look("causal", "a cat")[1].startswith("wrote causal-look-3.html")
    assert look("causal", "the cat")[1].startswith("wrote causal-look.html")
    assert look("causal", "a dog")[1].startswith("wrote causal-look-2.html")
    assert (tmp_path / "causal-look.html").read_bytes() == first
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "causal-look-2.html",
        "causal-look-3.html",
        "causal-look.html",
    ]
    assert look("causal", "the dog", "--out", "causal-look.html")[1].startswith("wrote causal-look.html")
    assert content(tmp_path / "causal-look.html")["runs"][0]["input"] == "the dog"


@pytest.mark.slow
def test_a_page_has_what_python_says(look: Look, tmp_path: Path, folders: Path) -> None:
    look("pairs", "the cat sat", "--out", "page.html")
    [run] = content(tmp_path / "page.html")["runs"]
    recording = load(folders / "pairs").attend("the cat sat")
    assert run["outcome"]["text"] == recording.outcome.text
    assert [site["name"] for site in run["sites"] if not site["derived"]] == list(recording.sites)
    off = recording.edited(HeadEdit("decoder.0.cross", 1, Off()))
    [told] = [
        each["outcome"]
        for each in run["effects"]
        if (each["site"], each["head"], each["how"]) == ("decoder.0.cross", 1, "off")
    ]
    assert told["total"] == pytest.approx(off.total, rel=1e-5)


@pytest.mark.slow
def test_an_older_page_gives_way(look: Look, tmp_path: Path) -> None:
    look("causal", "the cat", "--out", "page.html")
    assert look("causal", "a dog", "--out", "page.html")[0] == 0
    assert content(tmp_path / "page.html")["runs"][0]["input"] == "a dog"


@pytest.mark.slow
def test_a_mistake_leaves_the_older_page(look: Look, tmp_path: Path) -> None:
    look("causal", "the cat", "--out", "page.html")
    before = (tmp_path / "page.html").read_bytes()
    assert look("causal", "a dog", "--out", "page.html", "--site", "9.attn")[0] == 2
    assert (tmp_path / "page.html").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.slow
@pytest.mark.parametrize("works", [True, False])
def test_it_is_shown_in_a_browser(look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool) -> None:
    opened = list[str]()

    def show(url: str) -> bool:
        opened.append(url)
        return works

    monkeypatch.setattr("webbrowser.open", show)
    _, out, _ = look("causal", "the cat", "--open")
    assert opened == [(tmp_path / "causal-look.html").as_uri()]
    assert out.endswith("opened in a browser\n" if works else "open it in a browser\n")


def test_it_writes_as_much_as_it_is_told(look: Look, tmp_path: Path) -> None:
    look("causal", "the", "--tokens", "1", "--out", "page.html")
    assert len(content(tmp_path / "page.html")["runs"][0]["outcome"]["steps"]) == len("the")


@pytest.mark.slow
def test_it_begins_where_it_is_told(look: Look, tmp_path: Path) -> None:
    look("pairs", "the cat", "--out", "page.html")
    assert content(tmp_path / "page.html")["focus"]["site"] == "decoder.0.cross"
    look("pairs", "the cat", "--out", "page.html", "--site", "encoder.0.attn")
    assert content(tmp_path / "page.html")["focus"]["site"] == "encoder.0.attn"


@pytest.mark.slow
def test_effects_that_take_long_are_for_those_who_ask(
    look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_edits, "MAX_FLOPS", 0)
    look("causal", "the cat", "--out", "page.html")
    assert content(tmp_path / "page.html")["runs"][0]["effects"] is None
    _, _, err = look("causal", "the cat", "--out", "page.html", "--effects")
    assert err == "trying 6 edits of heads; this may take minutes\n"
    assert len(content(tmp_path / "page.html")["runs"][0]["effects"]) == 6


@pytest.mark.slow
def test_two_models_are_compared(look: Look, tmp_path: Path, folders: Path, models: dict[str, Model]) -> None:
    models["causal"].save(tmp_path / "other")
    code, _, err = look("causal", "the cat", "--compare", "other", "--out", "page.html")
    assert (code, err) == (0, "")
    assert [run["title"] for run in content(tmp_path / "page.html")["runs"]] == ["causal", "other"]


def translator(folder: Path, seed: int) -> Path:
    """A translator of the same words with other weights."""
    found = FOLDERS["pairs"]()
    torch.manual_seed(seed)
    for parameter in found.model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    found.save(folder)
    return folder


@pytest.mark.slow
def test_translators_that_write_different_words_are_compared(look: Look, tmp_path: Path, folders: Path) -> None:
    other = translator(tmp_path / "elsewhere" / "pairs", 9)
    assert look("pairs", "the cat sat", "--compare", str(other), "--out", "page.html")[0] == 0
    told = content(tmp_path / "page.html")
    one, two = told["runs"]
    assert (one["title"], two["title"]) == ("pairs", "pairs (2)")  # folders of the same name
    assert told["focus"] == {"run": 0, "site": "decoder.0.cross", "head": 0, "compare": 1}
    assert one["axes"] == two["axes"]
    assert one["outcome"]["text"] != two["outcome"]["text"]
    assert two["outcome"]["text"] == load(other).run("the cat sat")["output"]
    assert [step["said"] for step in two["outcome"]["steps"]] == [step["said"] for step in one["outcome"]["steps"]]
    assert (one["follows"], two["follows"]) == (None, {"by": "pairs", "text": one["outcome"]["text"]})
    forced = load(other).attend("the cat sat", said=load(folders / "pairs").attend("the cat sat"))
    assert two["outcome"]["total"] == pytest.approx(forced.outcome.total, rel=1e-5)


@pytest.mark.slow
def test_language_models_that_go_on_differently_are_compared(look: Look, tmp_path: Path) -> None:
    other = FOLDERS["causal"]()
    torch.nn.init.normal_(next(iter(other.model.parameters())))
    other.save(tmp_path / "other")
    assert look("causal", "the cat", "--compare", "other", "--out", "page.html")[0] == 0
    one, two = content(tmp_path / "page.html")["runs"]
    assert one["axes"] == two["axes"]
    assert one["outcome"]["text"] != two["outcome"]["text"]
    assert two["follows"]["by"] == "causal"
    assert one["outcome"]["text"] == "the cat" + two["follows"]["text"]


@pytest.mark.slow
def test_a_page_does_not_tell_where_a_file_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded("vit").save(tmp_path / "vit")
    assert cli.main(["look", str(tmp_path / "vit"), image(), "--out", str(tmp_path / "page.html")]) == 0
    assert content(tmp_path / "page.html")["runs"][0]["input"] == "image.png"
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert str(Path(image()).parent) not in page
    assert str(tmp_path) not in page
    capsys.readouterr()


@pytest.mark.slow
def test_an_image_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded("vit").save(tmp_path / "vit")
    assert cli.main(["look", str(tmp_path / "vit"), image(), "--out", str(tmp_path / "page.html")]) == 0
    [run] = content(tmp_path / "page.html")["runs"]
    assert run["picture"]["src"].startswith("data:image/png;base64,")
    assert {axis["kind"] for axis in run["axes"].values()} == {"grid"}
    capsys.readouterr()


# ---- bad input


def said(found: tuple[int, str, str]) -> str:
    code, out, err = found
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "Traceback" not in err
    return err.removeprefix("error: ").splitlines()[0]


def test_a_file_that_is_not_ours_stays(look: Look, tmp_path: Path) -> None:
    (tmp_path / "causal-look.html").write_text("<!doctype html>\n<p>mine</p>")
    told = "causal-look.html is there, and is no page of headway look; remove it, or give another --out"
    assert said(look("causal", "the cat")) == told
    (tmp_path / "notes.bin").write_bytes(b"\xff\x00\xfe" * 3000)
    assert "is no page of headway look" in said(look("causal", "the cat", "--out", "notes.bin"))
    assert (tmp_path / "causal-look.html").read_text() == "<!doctype html>\n<p>mine</p>"
    assert (tmp_path / "notes.bin").stat().st_size == 9000


def test_a_place_that_is_none_is_told(look: Look, tmp_path: Path) -> None:
    assert said(look("causal", "the", "--out", ".")) == ". is a folder; give the name of a file, as in --out page.html"
    told = "nowhere is not a folder; make it first, or give another --out"
    assert said(look("causal", "the", "--out", "nowhere/page.html")) == told


MISTAKES = {
    "--port 80": "--port is for --live; give --live too, or leave --port out",
    "--live --out page.html": "--live writes no file; leave --out out, or --live",
    "--live --port 70000": "--port 70000; allowed: 1 to 65535, or 0 for any that is free",
    "--tokens 0": "--tokens 0; allowed: 1 or more",
    "--site 0.atn": "the model has no site '0.atn'; allowed: 0.attn; did you mean '0.attn'?",
    "--heads 2": "{folder} has a config.json, which tells the heads; leave --heads out",
    "--compare nowhere": "nowhere does not exist; allowed: a folder with config.json and model.safetensors, "
    "or a .gguf file",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_sentence(look: Look, folders: Path, tmp_path: Path, words: str) -> None:
    assert said(look("causal", "the cat", *words.split())) == MISTAKES[words].format(folder=folders / "causal")
    assert list(tmp_path.iterdir()) == []


def test_an_input_is_needed(look: Look) -> None:
    told = 'headway look needs an input; give it, as in headway look MODEL "text", or --live to type it in the page'
    assert said(look("causal")) == told


def test_a_text_longer_than_the_context_is_told(look: Look) -> None:
    assert said(look("causal", "the cat sat on the mat")).startswith(
        "the text has 22 tokens and the model a context of 16"
    )


def test_a_model_without_attention_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from headway.zoo.build import architecture

    known = architecture("resnet")
    config = known.Config(image=20, stem="small", block="basic", dim=8, layers=(1, 1), widths=(8, 16), classes=3)
    ready = loaded("vit").preprocess
    Model(known.build(config).eval(), config, "resnet", preprocess=ready).save(tmp_path / "resnet")
    code = cli.main(["look", str(tmp_path / "resnet"), image(), "--out", str(tmp_path / "page.html")])
    assert said((code, *capsys.readouterr())).startswith("resnet has no attention to look at")


@pytest.mark.parametrize("name", ["nothing.png", "text.png"])
def test_a_file_that_is_no_image_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    loaded("vit").save(tmp_path / "vit")
    (tmp_path / "text.png").write_text("no image")
    code = cli.main(["look", str(tmp_path / "vit"), str(tmp_path / name), "--out", str(tmp_path / "page.html")])
    assert name in said((code, *capsys.readouterr()))


def test_models_that_read_differently_are_not_compared(look: Look, folders: Path, tmp_path: Path) -> None:
    told = said(look("causal", "the cat", "--compare", str(folders / "masked")))
    assert re.match(r"causal and masked do not see the same text: \d+ and \d+; take models with the same tokens", told)
    assert list(tmp_path.iterdir()) == []


def test_models_of_other_words_are_not_compared(look: Look, tmp_path: Path, folders: Path) -> None:
    told = said(look("pairs", "the cat", "--compare", str(folders / "spans")))
    assert re.match(
        r"pairs wrote '.+', for which the model that shall read it has no token; take models with the", told
    )
    assert list(tmp_path.iterdir()) == []


def test_all_kinds_are_there() -> None:
    assert len(READERS) > 30, "test_bundle tries each of them"


# ---- served


def test_a_port_in_use_is_one_sentence(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code = cli.main(["look", str(folders / "causal"), "the cat", "--live", "--port", str(port)])
    told = f"error: port {port} is in use; give another, as in --port 8766, or 0 for any that is free\n"
    assert (code, *capsys.readouterr()) == (2, "", told)


@pytest.mark.slow
def test_ctrl_c_ends_it_quietly(folders: Path, tmp_path: Path) -> None:
    child = made_place(tmp_path).start("look", str(folders / "causal"), "the cat", "--live", "--port", "0")
    until(lambda: "Ctrl-C" in child.files[0].read_text(encoding="utf-8"), child)
    child.kill(signal.SIGINT)
    done = child.wait()
    assert (done.code, done.err.strip()) == (0, "")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/  \(Ctrl-C ends it\)\n", done.out)


def interrupt_ignored() -> None:
    """In the process of the server: as a script starts what stands before &."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.slow
def test_ctrl_c_ends_what_was_started_with_it_ignored(folders: Path, tmp_path: Path) -> None:
    words = ("look", str(folders / "causal"), "the cat", "--live", "--port", "0")
    child = made_place(tmp_path).start(*words, before=interrupt_ignored)
    until(lambda: "Ctrl-C" in child.files[0].read_text(encoding="utf-8"), child)
    child.kill(signal.SIGINT)
    done = child.wait()
    assert (done.code, done.err.strip()) == (0, "")


INTERRUPTED = """
import os, signal, sys
from threading import Thread
from headway.cli.main import main

start = Thread.start

def started(self):  # the signal comes when the thread runs, and before whoever has started it goes on
    start(self)
    if "serve_forever" in self.name:
        os.kill(os.getpid(), signal.SIGINT)

Thread.start = started
sys.exit(main())
"""


@pytest.mark.slow
def test_ctrl_c_as_the_server_starts_ends_it(folders: Path, tmp_path: Path) -> None:
    """Not forked: it is at its exit that Python waits for threads."""
    words = (INTERRUPTED, "look", str(folders / "causal"), "the cat", "--live", "--port", "0")
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", *words], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert list(tmp_path.iterdir()) == []


def request_that_waits() -> None:
    """In the process of the server: a request says that it has begun, and computes until it may end."""
    attend = PageSession.attend

    def held(self: PageSession, request: dict[str, Any]) -> dict[str, Any]:
        Path("begun").touch()
        while not Path("may end").exists():
            torch.mm(torch.randn(64, 64), torch.randn(64, 64))
        return attend(self, request)

    PageSession.attend = held  # type: ignore[method-assign]


def begun_request(folders: Path, tmp_path: Path, before: Callable[[], None]) -> tuple[Child, HTTPConnection]:
    """A live page whose server begins as `before` says, and a request to it that is running."""
    words = ("look", str(folders / "causal"), "the cat", "--live", "--port", "0")
    child = empty_place(tmp_path).start(*words, before=before)
    until(lambda: "Ctrl-C" in child.files[0].read_text(encoding="utf-8"), child)
    address = urlsplit(child.files[0].read_text(encoding="utf-8").split()[0])
    idle, connection = (HTTPConnection(address.netloc) for _ in range(2))
    idle.connect()  # as browsers do, which then send nothing
    connection.request("POST", "/attend", '{"text": "a dog"}', {"Content-Type": "application/json"})
    until((child.place.folder / "begun").exists, child)
    return child, connection


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_request_in_order(folders: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """It is answered, and no thread and no file is left."""
    child, connection = begun_request(folders, tmp_path, request_that_waits)
    assert len(list((tmp_path / "tmp").glob("headway-*"))) == 1
    child.kill(number)
    (child.place.folder / "may end").touch()
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["runs"][0]["input"]) == (200, "a dog")
    done = child.wait()
    assert (done.code, done.err.strip()) == (code, "")
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
def test_a_second_signal_leaves_a_request(folders: Path, tmp_path: Path) -> None:
    child, connection = begun_request(folders, tmp_path, request_that_waits)
    child.kill(signal.SIGINT)
    until(lambda: child.files[1].read_text(encoding="utf-8") == "\n", child)
    child.kill(signal.SIGINT)
    assert child.wait().code == 130
    assert list((tmp_path / "tmp").iterdir()) == []
    connection.close()


def interrupted_at_once_again() -> None:
    """In the process of the server: the second interrupt comes while the first is being told."""
    request_that_waits()

    def told(*words: object, **options: Any) -> None:
        print(*words, **options)
        if not words:
            os.kill(os.getpid(), signal.SIGINT)

    look_command.print = told  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_second_signal_right_behind_the_first_leaves_a_request(folders: Path, tmp_path: Path) -> None:
    child, connection = begun_request(folders, tmp_path, interrupted_at_once_again)
    child.kill(signal.SIGINT)
    assert child.wait().code == 130
    assert list((tmp_path / "tmp").iterdir()) == []
    connection.close()


@pytest.mark.slow
def test_the_served_page_is_shown_in_a_browser(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[str]()

    class Interrupted:
        def wait(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("headway.cli.look_command.Event", Interrupted)
    assert cli.main(["look", str(folders / "causal"), "the cat", "--live", "--port", "0", "--open"]) == 0
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", opened[0])
