"""The page's own server: it answers its page and nobody else, and is as right as Python."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest
import torch

from headway.look import page_session
from headway.look.bundle import pack_bundle
from headway.look.head_edits import HeadEdit
from headway.look.page_session import Explorer, PageSession
from headway.look.server import MAX_REQUEST_BYTES, PageServer, bind
from headway.model import Model
from headway.nn.trace import Off, Uniform
from tests.cli.folders import FOLDERS
from tests.look.readers import READERS, image, loaded, other

JSON = {"Content-Type": "application/json"}


class Told(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


class Client:
    """Whoever sends requests to a server."""

    def __init__(self, server: PageServer):
        self.server = server

    def __call__(self, method: str, path: str, body: bytes | str = b"", **headers: str) -> Told:
        port = self.server.server_port
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body or None, {"Host": f"127.0.0.1:{port}", **named})
        answer = connection.getresponse()
        told = Told(answer.status, answer.read(), dict(answer.getheaders()))
        connection.close()
        return told

    def get(self, path: str, **headers: str) -> Told:
        return self("GET", path, **headers)

    def post(self, path: str, value: object, **headers: str) -> Told:
        return self("POST", path, json.dumps(value), **{"Content-Type": "application/json", **headers})

    def content(self) -> dict[str, Any]:
        page = self.get("/").body.decode("utf-8")
        found = re.search(r'<script type="application/json" id="bundle">(.*?)</script>', page)
        assert found is not None
        return json.loads(found[1])


@contextmanager
def served(model: Model, folder: Path, given: str | None, **options: Any) -> Iterator[Client]:
    with bind(0) as server:
        server.session = PageSession(Explorer({"model": model}, **options), folder)
        server.session.open(given)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Client(server)
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with served(loaded("gpt2"), tmp_path, "the cat") as found:
        yield found


# ---- what is served


@pytest.mark.slow
def test_the_page_is_served_without_pieces(client: Client) -> None:
    told = client.get("/")
    assert (told.status, told.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert told.headers["Cache-Control"] == "no-store"
    assert "frame-ancestors 'none'" in told.headers["Content-Security-Policy"]
    assert b"connect-src &#x27;self&#x27;" in told.body
    assert b"data-blob=" not in told.body.replace(b'document.querySelectorAll("script[data-blob]")', b"")
    assert client.content()["live"] is True


@pytest.mark.slow
def test_every_piece_is_served(client: Client) -> None:
    [run] = client.content()["runs"]
    found = pack_bundle([loaded("gpt2").attend("the cat")])
    for site, theirs in zip(run["sites"], found.data["runs"][0]["sites"], strict=True):
        assert site["shape"] == theirs["shape"]
        ids = [site["thumbs"]["blob"], site["entropy"], site["strongest"]]
        ids += [*(id for level in site["levels"] for id in level["blobs"].values())]
        ids += [site["detail"]["blob"]] if site["detail"] else []
        for id in ids:
            told = client.get(f"/blob?id={id}")
            assert (told.status, told.headers["Content-Type"]) == (200, "application/octet-stream")
        heads, rows, columns = site["heads"], *site["shape"]
        tiles = client.get(f"/blob?id={site['levels'][0]['blobs']['*/0/0']}").body
        assert len(tiles) >= heads * rows * (5 + columns / 3)
        exact = client.get(f"/blob?id={run['id']}.r{run['sites'].index(site)}.{rows - 1}").body
        assert len(exact) == 4 * heads * columns


@pytest.mark.slow
def test_edits_are_what_python_gives(client: Client) -> None:
    recording = loaded("gpt2").attend("the cat")
    [run] = client.content()["runs"]
    changes = [{"site": "0.attn", "head": 1, "how": "off"}, {"site": "0.attn", "head": 0, "how": "uniform"}]
    told = client.post("/edit", {"id": run["id"], "changes": changes}).json
    expected = recording.edited(HeadEdit("0.attn", 1, Off()), HeadEdit("0.attn", 0, Uniform()))
    assert told["total"] == pytest.approx(expected.total, rel=1e-5)
    assert told["text"] == expected.text
    alone = client.post("/edit", {"run": 0, "changes": changes[:1]}).json
    assert alone["total"] == pytest.approx(recording.edited(HeadEdit("0.attn", 1, Off())).total, rel=1e-5)
    assert client.post("/edit", {"run": 0, "changes": []}).json["total"] == pytest.approx(recording.outcome.total)


@pytest.mark.slow
def test_another_text_is_read(client: Client) -> None:
    [before] = client.content()["runs"]
    told = client.post("/attend", {"text": "a dog </script>"[:12]}).json
    assert told["live"] is True
    assert told["runs"][0]["input"] == "a dog </script>"[:12]
    assert told["runs"][0]["id"] != before["id"]
    assert client.content()["runs"][0]["id"] == told["runs"][0]["id"]
    # a page that was opened before still has its pieces, and edits what it shows
    assert client.get(f"/blob?id={before['sites'][0]['thumbs']['blob']}").status == 200
    change = [{"site": "0.attn", "head": 1, "how": "off"}]
    old = client.post("/edit", {"id": before["id"], "changes": change}).json
    expected = loaded("gpt2").attend("the cat").edited(HeadEdit("0.attn", 1, Off()))
    assert old["total"] == pytest.approx(expected.total, rel=1e-5)


@pytest.mark.slow
def test_what_was_read_long_ago_is_forgotten(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_session, "MAX_RECORDINGS", 2)
    [before] = client.content()["runs"]
    for text in ("a", "b"):
        client.post("/attend", {"text": text})
    told = client.get(f"/blob?id={before['sites'][0]['thumbs']['blob']}")
    assert (told.status, told.json) == (
        400,
        {"error": "this recording is no longer available", "do": "run the input again"},
    )


@pytest.mark.slow
def test_an_image_is_dropped(tmp_path: Path) -> None:
    data = b64encode(Path(image()).read_bytes()).decode()
    with served(loaded("vit"), tmp_path, image()) as client:
        assert client.content()["runs"][0]["input"] == "image.png"  # and not where it lies
        told = client.post("/attend", {"name": "../../a <b>.png", "data": data}).json
        assert told["runs"][0]["input"] == "a <b>.png"
        assert told["runs"][0]["picture"]["src"].startswith("data:image/png")
        [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert file.name == "a _b_.png"
        assert client.post("/attend", {"text": "/etc/hostname"}).json == {
            "error": "this model reads files, and no texts",
            "do": "drop a file on the page",
        }
        wrong = client.post("/attend", {"name": "a.png", "data": "%%%"})
        assert (wrong.status, wrong.json["do"]) == (400, "drop it again")
        wrong = client.post("/attend", {"name": "a.png", "data": b64encode(b"text").decode()})
        assert wrong.status == 400
        assert "a.png" in wrong.json["error"]


@pytest.mark.slow
def test_two_models_are_served_together(tmp_path: Path) -> None:
    model, second = loaded("gpt2"), FOLDERS["causal"]()
    torch.nn.init.normal_(next(iter(second.model.parameters())))
    session = PageSession(Explorer({"one": model, "two": second}, max_tokens=1), tmp_path)
    session.open("the cat")
    runs = session.data["runs"]
    assert [run["title"] for run in runs] == ["one", "two"]
    off = [{"site": "0.attn", "head": 1, "how": "off"}]
    found = [session.edit({"id": run["id"], "changes": off})["total"] for run in runs]
    read = model.attend("the cat", most=1)
    both = read, second.attend("the cat", most=1, said=read)
    expected = [each.edited(HeadEdit("0.attn", 1, Off())).total for each in both]
    assert found == pytest.approx(expected, rel=1e-5)
    assert found[0] != found[1]


@pytest.mark.slow
def test_what_is_typed_is_compared_too(tmp_path: Path) -> None:
    model, second = loaded("transformer"), other("transformer")
    session = PageSession(Explorer({"one": model, "two": second}), tmp_path)
    session.open("the cat")
    told = session.attend({"text": "a dog ran"})
    assert told["focus"]["compare"] == 1
    one, two = told["runs"]
    assert one["axes"] == two["axes"]
    assert one["outcome"]["text"] != two["outcome"]["text"] == second.run("a dog ran")["output"]
    assert two["follows"] == {"by": "one", "text": one["outcome"]["text"]}
    change = [{"site": "decoder.0.cross", "head": 0, "how": "off"}]
    expected = second.attend("a dog ran", said=model.attend("a dog ran")).edited(HeadEdit("decoder.0.cross", 0, Off()))
    assert session.edit({"id": two["id"], "changes": change})["total"] == pytest.approx(expected.total, rel=1e-5)


@pytest.mark.slow
def test_sites_can_be_named(tmp_path: Path) -> None:
    with served(loaded("llama"), tmp_path, "the cat", site="0.attn") as client:
        assert client.content()["focus"].items() >= {"run": 0, "site": "0.attn"}.items()


STARTED = [
    "gpt2",
    "bert",
    "transformer",
    "vit",
    "captioner, soft",
    "conformer, ctc",
    "wav2vec2, ctc",
    "whisper",
    "sets",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTED)
def test_without_an_input_there_is_something_to_see(name: str, tmp_path: Path) -> None:
    made = PageSession(Explorer({"model": loaded(name)}), tmp_path)
    made.open(None)
    [run] = made.data["runs"]
    assert run["sites"]
    assert not run["input"].startswith("/")
    assert run["outcome"]["kind"] == READERS[name].kind


# ---- who is answered


@pytest.mark.slow
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/blob?id=0.t0", "/edit", "/attend"])
def test_strangers_are_not_answered(client: Client, path: str, headers: dict[str, str]) -> None:
    sent = {name: value.format(port=client.server.server_port) for name, value in headers.items()}
    before = client.server.session.data
    told = client.get(path, **sent) if path in ("/", "/blob?id=0.t0") else client.post(path, {"text": "a"}, **sent)
    assert told.status == 403
    assert told.json["error"] == "this server answers only its own page"
    assert client.server.session.data is before


@pytest.mark.slow
def test_its_own_page_is_answered_by_either_name(client: Client) -> None:
    for name in ("127.0.0.1", "localhost"):
        host = f"{name}:{client.server.server_port}"
        assert client.post("/attend", {"text": "a"}, Host=host, Origin=f"http://{host}").status == 200


@pytest.mark.slow
def test_only_this_machine_is_heard(client: Client) -> None:
    assert client.server.server_address[0] == "127.0.0.1"


# ---- what is refused


@pytest.mark.slow
def test_a_request_that_cannot_be_is_told(client: Client) -> None:
    def refused(told: Told) -> tuple[int, str]:
        assert set(told.json) == {"error", "do"}
        return told.status, told.json["error"]

    assert refused(client.get("/other")) == (404, "there is no '/other' here")
    assert refused(client.post("/other", {})) == (404, "there is no '/other' here")
    assert refused(client.get("/blob?id=9.t0")) == (400, "this recording is no longer available")
    assert refused(client.get("/blob"))[0] == 400
    assert refused(client("POST", "/edit", "{", **JSON)) == (400, "the request is not JSON")
    assert refused(client("POST", "/edit", "[" * 5000, **JSON)) == (400, "the request is not JSON")
    assert refused(client("POST", "/edit", "[]", **JSON)) == (400, "the request is no JSON object")
    assert refused(client("POST", "/attend", '{"text": "a"}', Content_Type="text/plain"))[0] == 415
    assert refused(client.post("/edit", {"run": 1, "changes": []})) == (400, "there is no run 1; allowed: 0 to 0")
    assert refused(client.post("/edit", {"run": True, "changes": []}))[0] == 400
    assert refused(client.post("/edit", {"run": 0, "changes": [1]}))[0] == 400
    change = [{"site": "0.atn", "head": 0, "how": "off"}]
    told = client.post("/edit", {"run": 0, "changes": change})
    assert refused(told) == (400, "no site '0.atn' to edit; allowed: 0.attn")
    assert told.json["do"] == "did you mean '0.attn'?"
    assert refused(client.post("/attend", {})) == (400, "nothing to read")
    assert refused(client.post("/attend", {"name": "a.png", "data": ""})) == (
        400,
        "this model reads texts, and no files",
    )
    assert refused(client.post("/attend", {"text": "x" * 17}))[1].startswith("the text has 17 tokens")


@pytest.mark.slow
def test_too_much_is_not_even_read(client: Client) -> None:
    told = client("POST", "/attend", "", **JSON, Content_Length=str(MAX_REQUEST_BYTES + 1))
    assert (told.status, told.json["error"]) == (413, "a file of more than 64 MB")
    assert client("POST", "/attend", "", **JSON, Content_Length="many").status == 411


@pytest.mark.slow
def test_a_defect_of_ours_ends_the_request_and_not_the_server(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> bytes:
        raise KeyError("ours")

    with monkeypatch.context() as broke:
        broke.setattr(PageSession, "blob", broken)
        told = client.get("/blob?id=0.t0")
    assert (told.status, told.json) == (500, {"error": "internal error", "do": "see the traceback in the terminal"})
    assert "KeyError: 'ours'" in capsys.readouterr().err
    assert client.get("/").status == 200


@pytest.mark.slow
@pytest.mark.parametrize(("error", "told"), [(BrokenPipeError(), False), (KeyError("ours"), True)])
def test_a_browser_that_goes_away_is_no_news(
    client: Client, capsys: pytest.CaptureFixture[str], error: Exception, told: bool
) -> None:
    try:
        raise error
    except type(error):
        client.server.handle_error(None, None)
    assert ("Traceback" in capsys.readouterr().err) is told


@pytest.mark.slow
def test_one_thing_is_done_at_a_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, attend = list[int](), list[int](), PageSession.attend

    def slow(self: PageSession, asked: dict[str, Any]) -> dict[str, Any]:
        inside.append(1)
        most.append(len(inside))
        found = attend(self, asked)
        inside.pop()
        return found

    monkeypatch.setattr(PageSession, "attend", slow)
    threads = [Thread(target=client.post, args=("/attend", {"text": text})) for text in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]


def test_a_branch_of_what_is_shown(tmp_path: Path) -> None:
    with served(loaded("gpt2"), tmp_path, "the cat") as client:
        run = client.content()["runs"][0]
        step = len(run["outcome"]["steps"]) - 2
        told = client.post("/attend", {"id": run["id"], "step": step, "rank": 3}).json["runs"][0]
        assert told["outcome"]["steps"][step]["said"] == run["outcome"]["steps"][step]["top"][3][0]
        again = client.post("/attend", {"text": "the cat", "prefix": told["prefix"]}).json["runs"][0]
        assert again["outcome"] == told["outcome"]
        back = client.post("/attend", {"id": again["id"], "prefix": []}).json["runs"][0]
        assert back["outcome"] == run["outcome"]
        for bad in (
            {"id": run["id"], "step": step, "rank": 1},  # no longer shown
            {"id": back["id"], "step": -1, "rank": 1},
            {"id": back["id"], "step": step, "rank": 99},
            {"text": "the cat", "prefix": "1.2"},
            {"text": "the cat", "prefix": [True]},
            {"text": "the cat", "prefix": [10**9]},
            {"text": "the cat", "prefix": [-1]},
        ):
            answer = client.post("/attend", bad)
            assert answer.status == 400
            assert answer.json["error"]
        assert client.content()["runs"][0]["id"] == back["id"]
