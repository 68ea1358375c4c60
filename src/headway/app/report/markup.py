"""HTML and SVG, so written that no text can become markup: a `str` is a text, and only a `Markup` a piece of a page.

tag("td", answer, dir="auto")   →   <td dir="auto">&lt;b&gt; &amp; so on</td>
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

VOID = frozenset({"meta", "br", "hr", "rect", "line", "circle", "polyline", "img"})  # what may have nothing inside


class Markup(str):
    """A piece of a page, to be written as it stands.  Only this file makes one of text."""


def tag(name: str, /, *inside: str | None, **attributes: str | float | None) -> Markup:
    """An element.  Texts inside and values of attributes are escaped; None is left out.

    `class_` is the attribute class, and `text_anchor` is text-anchor.
    """
    told = "".join(f' {spelled(key)}="{text(value)}"' for key, value in attributes.items() if value is not None)
    if name in VOID and not inside:
        return Markup(f"<{name}{told}/>")
    return Markup(f"<{name}{told}>{joined(inside)}</{name}>")


def joined(pieces: Iterable[str | None]) -> Markup:
    """Pieces one after the other, texts among them escaped."""
    return Markup("".join(piece if isinstance(piece, Markup) else text(piece) for piece in pieces if piece is not None))


def page(title: str, style: str, *body: Markup) -> str:
    """A whole document in one file, which may load nothing and run nothing."""
    assert "<" not in style  # which would end the style
    head = joined(
        [
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", title),
            Markup(f"<style>{style}</style>"),
        ]
    )
    return "<!doctype html>\n" + tag("html", tag("head", head), tag("body", *body), lang="en") + "\n"


POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def text(value: str | float) -> str:
    """A value as text that means itself, in an element and in a quoted attribute.

    What no HTML may hold becomes a sign for it: control characters, and halves of surrogate pairs.
    """
    return escape(str(value).translate(UNSEEN).encode("utf-8", "replace").decode("utf-8"), quote=True)


def spelled(name: str) -> str:
    return name.removesuffix("_").replace("_", "-")


# control characters as their pictures (␀ ␁ …); tabs and ends of lines are spaces of the page's own
PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
UNSEEN = {**PICTURES, 0x7F: 0x2421, **dict.fromkeys(range(0x80, 0xA0), 0xFFFD)}
