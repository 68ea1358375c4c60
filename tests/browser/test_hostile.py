"""Whatever a token says, it is a text: it runs nothing, loads nothing and breaks nothing."""

from __future__ import annotations

import pytest

from . import cases
from .conftest import Shown

pytestmark = pytest.mark.long

MARK = "window.harmed = 1"
TOKENS = [
    "</script>",
    f"</script><script>{MARK}</script>",
    f"<script>{MARK}</script>",
    f"<img src=x onerror='{MARK}'>",
    f'"><img src=x onerror="{MARK}">',
    f"<svg onload='{MARK}'>",
    f"<svg/onload={MARK}>",
    f"<iframe srcdoc='<script>parent.{MARK}</script>'>",
    f"<body onload={MARK}>",
    f"<a href='javascript:{MARK}'>go</a>",
    f"javascript:{MARK}",
    f"<style>*{{background:url(javascript:{MARK})}}</style>",
    "<link rel=stylesheet href=https://example.invalid/x.css>",
    "<img src=https://example.invalid/pixel.png>",
    "<base href=https://example.invalid/>",
    "<meta http-equiv=refresh content='0;url=https://example.invalid/'>",
    "<!--",
    "--><script>window.harmed = 1</script>",
    "]]>",
    "&lt;script&gt;",
    "&#x3c;script&#x3e;",
    "\\u003cscript\\u003e",
    "{{script}}",
    "${window.harmed = 1}",
    "\0",
    "\x1b[31m\x07",
    "' \" ` \\",
    "\u202e\u2066reversed\u2069",
    "\ud800",
    "constructor",
    "__proto__",
    "\u2028\u2029\r\n\t",
    "👩‍👩‍👧‍👦" * 50,
    "x" * 10_000,
]


@pytest.mark.parametrize("token", TOKENS, ids=range(len(TOKENS)))
def test_a_token_is_a_text(shown: Shown, token: str) -> None:
    page = shown(cases.spoken([token, "word", token]))
    page.every_view()
    page.click("edit-off")
    assert page.evaluate("window.harmed ?? null") is None
    foreign = "img, iframe, svg, object, embed, a, form, link, base, meta[http-equiv=refresh]"
    assert page.evaluate(f"document.querySelectorAll('{foreign}').length") == 0
    assert page.evaluate("document.querySelectorAll('script:not([type])').length") == 0
    assert page.evaluate("document.querySelectorAll('script[type=module]').length") == 1
    assert page.evaluate("headway.bundle.runs[0].axes.text.labels[0]") == token
    assert page.asked_for() == []
    assert page.errors == []


def test_there_are_thirty() -> None:
    assert len(set(TOKENS)) >= 30
