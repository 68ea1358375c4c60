"""The page as a file: nothing runs in it but our own script, whatever tokens say."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from headway.look.bundle import Bundle, pack_bundle, script_json
from headway.look.html_page import MARK, assemble, iframe, is_look_page, join_modules, render_page, top_names
from headway.tasks.tracing import Outcome, OutcomeStep
from tests.look.recordings import drawn, site

SKELETON = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{policy}}">
<title>{{title}}</title>
<style>{{style}}</style>
</head>
<body>
<script type="application/json" id="bundle">{{bundle}}</script>
{{blobs}}
<script type="module">{{script}}</script>
</body>
</html>
"""
TEXTS = {"page.html": SKELETON, "page.css": "body { color: red }\n", "main.js": 'console.log("a");\n'}

HOSTILE = [
    "</script>",
    "</SCRIPT >",
    "</script\n>",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!--",
    "<!--<script>",
    "-->",
    "]]>",
    "<![CDATA[",
    "<style>*{display:none}</style>",
    "</style>",
    "</title><script>alert(1)</script>",
    "<svg onload=alert(1)>",
    "<iframe srcdoc='<script>1</script>'>",
    "javascript:alert(1)",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    "&lt;script&gt;",
    "&amp;&#60;",
    "\\u003c/script\\u003e",
    "{{script}}",
    "{{blobs}}{{policy}}",
    "\\g<0>\\1",
    "\0",
    "\x01\x08\x1b[31m\x7f\x9f",
    "a\rb\r\nc\u2028d\u2029e",
    "\ud800 half",
    "x" * 10_000,
    "<" * 10_000,
    "\u202eevil\u202c \u0645\u0631\u062d\u0628\u0627",
    "漢字カナ한글",
    "👩‍👩‍👧‍👦 🏳️‍🌈",
    "`${alert(1)}`",
    "__proto__",
]


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text inside each script and style."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found = list[tuple[str, dict[str, str | None], str]]()
        self.open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self.open = tag

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open in ("script", "style", "title"):
            tag, attributes, text = self.found[-1]
            self.found[-1] = tag, attributes, text + data


def elements(html: str) -> list[tuple[str, dict[str, str | None], str]]:
    parser = Elements()
    parser.feed(html)
    parser.close()
    return parser.found


def scripts(html: str) -> list[tuple[dict[str, str | None], str]]:
    return [(attributes, text) for tag, attributes, text in elements(html) if tag == "script"]


def content(html: str) -> dict[str, object]:
    [told] = [text for attributes, text in scripts(html) if attributes.get("id") == "bundle"]
    return json.loads(told)


def spoken(token: str) -> Bundle:
    """A bundle in which a token stands wherever a text can."""
    step = OutcomeStep(0, token, -1.0, ((token, 0.5),))
    outcome = Outcome("next", token, (step,), -1.0)
    return pack_bundle([drawn(site("0.attn", (token, "b")), title=token, outcome=outcome, input=token)])


# ---- hostile tokens


@pytest.mark.parametrize("token", HOSTILE, ids=lambda token: ascii(token[:20]))
def test_a_hostile_token_is_data(token: str) -> None:
    found = spoken(token)
    html = assemble(TEXTS, found)
    html.encode("utf-8")  # a file can hold it
    kinds = [attributes.get("type") for attributes, _ in scripts(html)]
    assert kinds == ["application/json", *["text/plain"] * len(found.blobs), "module"]
    assert scripts(html)[-1][1] == '// main.js\nconsole.log("a");\n'
    assert content(html) == json.loads(json.dumps(found.data))
    assert html.count("<") == assemble(TEXTS, spoken("a")).count("<")  # not one more than with a harmless token
    run = found.data["runs"][0]
    assert run["axes"]["text"]["labels"][0] == token
    assert [tag for tag, _, _ in elements(html)].count("style") == 1
    for tag, attributes, _ in elements(html):
        assert tag in ("html", "head", "meta", "title", "style", "body", "script")
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "href", "style")]


def test_there_are_thirty_cases() -> None:
    assert len(set(HOSTILE)) >= 30


def test_no_angle_bracket_of_a_text_is_in_the_file() -> None:
    told = script_json(["</script>", "a & b > c", "\ud800", "é"])
    assert re.search(r"[<>&]", told) is None
    assert told.isascii()
    assert json.loads(told) == ["</script>", "a & b > c", "\ud800", "é"]


# ---- what may run


def test_style_and_script_run_by_their_hashes_alone() -> None:
    html = assemble(TEXTS, spoken("a"))
    [policy] = [a["content"] for _, a, _ in elements(html) if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    [style] = [text for tag, _, text in elements(html) if tag == "style"]
    [script] = [text for attributes, text in scripts(html) if attributes.get("type") == "module"]
    assert rules == {
        "default-src": "'none'",
        "script-src": f"'{hashed(script)}'",
        "style-src": f"'{hashed(style)}'",
        "img-src": "data:",
        "media-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def hashed(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def test_only_a_served_page_may_ask_its_server() -> None:
    found = spoken("a")
    assert "connect-src" not in assemble(TEXTS, found)
    assert "connect-src &#x27;self&#x27;" in assemble(TEXTS, Bundle({**found.data, "live": True}, {}))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("page.css", "a::after { content: '</style>' }"),
        ("main.js", "const end = '</script>';"),
        ("main.js", "const end = '</SCRIPT ';"),
        ("main.js", "const begin = '<!--';"),
        ("main.js", "const a = 1;\r\nconst b = 2;"),
    ],
)
def test_what_would_end_our_own_elements_is_refused(file: str, text: str) -> None:
    with pytest.raises(AssertionError):
        assemble({**TEXTS, file: text}, spoken("a"))


def test_we_know_our_own_pages() -> None:
    html = assemble(TEXTS, spoken("a"))
    assert html.startswith(f"<!doctype html>\n{MARK}\n")
    assert is_look_page(html[:200])
    assert not is_look_page("<!doctype html>\n<html>")


def test_a_notebook_holds_the_page_in_a_frame() -> None:
    html = assemble(TEXTS, spoken('"</iframe>'))
    [(tag, attributes, _)] = elements(iframe(html))
    assert tag == "iframe"
    assert attributes["sandbox"] == "allow-scripts"
    assert attributes["srcdoc"] == html


# ---- joining modules


def test_modules_follow_those_they_need() -> None:
    modules = {
        "main.js": 'import {\n  b,\n  c,\n} from "./b.js";\nimport { a } from "./a.js";\n\nstart(a, b, c);\n',
        "b.js": 'import { a } from "./a.js";\n\nexport const b = a + 1;\nexport function c() {}\n',
        "a.js": "export const a = 1;\n",
    }
    assert join_modules(modules) == (
        "// a.js\nconst a = 1;\n\n// b.js\nconst b = a + 1;\nfunction c() {}\n\n// main.js\nstart(a, b, c);\n"
    )


def test_the_word_export_stays_where_it_is_a_word() -> None:
    text = 'const told = "export const x";\n// export nothing\nconst important = imported;\n'
    assert join_modules({"a.js": text}) == f"// a.js\n{text}"


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ({"a.js": "const x = 1;", "b.js": "function x() {}"}, "'x' is defined in a.js and in b.js"),
        ({"a.js": "class x {}", "b.js": "export const { y, x } = z;"}, "'x' is defined in a.js and in b.js"),
        ({"a.js": 'import { y } from "./b.js";\n', "b.js": "export const x = 1;"}, "a.js: b.js does not export y"),
        ({"a.js": 'import { y } from "./b.js";\n', "b.js": "const y = 1;"}, "a.js: b.js does not export y"),
        ({"a.js": 'import { y } from "./c.js";\n'}, "a.js: c.js does not export y"),
        ({"a.js": 'import { x as y } from "./b.js";\n', "b.js": "export const x = 1;"}, "does not export x as y"),
        ({"a.js": 'import "./b.js";\n', "b.js": 'import "./a.js";\n'}, "circular imports"),
        ({"a.js": 'import fs from "fs";\n'}, "a.js: 'import fs from \"fs\";' cannot be joined"),
        ({"a.js": "export default 1;\n"}, "a.js: 'export default 1;' cannot be joined"),
        ({"a.js": "export { a };\n"}, "a.js: 'export { a };' cannot be joined"),
        ({"a.js": 'export * from "./b.js";\n'}, "cannot be joined"),
        ({"a.js": 'const b = await import("./b.js");\n'}, "cannot be joined"),
        ({"a.js": "const here = import.meta.url;\n"}, "cannot be joined"),
    ],
)
def test_what_cannot_be_joined_is_told(modules: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        join_modules(modules)


def test_names_outside_of_everything_are_found() -> None:
    text = (
        "const a = 1;\nexport async function b() {\n  const inner = 2;\n}\nclass C {}\nlet [d, e] = f;\n"
        "export const { g, h: i } = j;\nfunction* k() {}\n"
    )
    assert set(top_names(text)) >= {"a", "b", "C", "d", "e", "g", "i", "k"}
    assert "inner" not in set(top_names(text))


# ---- the page's own files


def test_our_own_files_make_a_page() -> None:
    html = render_page(spoken("a"))
    assert is_look_page(html)
    assert "{{" not in html.partition("<body")[0]
    assert [attributes.get("type") for attributes, _ in scripts(html)][-1] == "module"
    for _, attributes, _ in elements(html):
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "href", "style")]


def test_our_own_files_ask_for_nothing() -> None:
    for file in files("headway").joinpath("look", "web").iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), file.name
        assert not re.search(r"\.innerHTML|\.outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
