"""HTML whose texts cannot become markup: a `str` is a text, and only a `Markup` is a piece of a page.

tag("td", answer, dir="auto")   →   <td dir="auto">&lt;b&gt; &amp; so on</td>
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MAX_TEXT = 400  # characters of a text in a table
VOID = frozenset({"meta", "br", "hr", "img"})  # elements without content


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


def drawing(elements: str) -> Markup:
    """The elements of a figure by matplotlib, which escapes the texts in it."""
    return Markup(elements)


def page(title: str, *body: Markup) -> str:
    """A whole document in one file, which may load nothing and run nothing."""
    head = joined(
        [
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", title),
            Markup(f"<style>{STYLE}</style>"),
        ]
    )
    return "<!doctype html>\n" + tag("html", tag("head", head), tag("body", *body), lang="en") + "\n"


def section(title: str, *inside: Markup) -> Markup:
    return tag("section", tag("h2", title), *inside)


def facts_table(facts: Iterable[tuple[str, str]]) -> Markup:
    """Names and values."""
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", cut(value), dir="auto")) for name, value in facts]
    return tag("table", tag("tbody", *rows), class_="facts")


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, texts: bool = False) -> Markup:
    """A table whose first column names its rows; the others are numbers, or texts."""
    number = None if texts else "number"
    first, *others = heads
    top = tag("tr", tag("th", first, scope="col"), *(tag("th", name, scope="col", class_=number) for name in others))
    body = [tag("tr", *(cell(value, at, texts) for at, value in enumerate(values))) for values in rows]
    return tag("div", tag("table", tag("caption", caption), tag("thead", top), tag("tbody", *body)), class_="wide")


def cell(value: str, at: int, texts: bool) -> Markup:
    if texts:
        return tag("td", value, dir="auto", class_="text")
    return tag("td", value, dir="auto", class_="number") if at else tag("th", value, dir="auto", scope="row")


def cut(text: str, limit: int = MAX_TEXT) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


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

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --card: #f6f8fa;
  --rule: #d0d7de; --a: #1f5fbf; --b: #b35900; --c: #2a7f4f; --good: #1a7f37; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9aa4af; --paper: #0f1318; --card: #171d24;
  --rule: #323b45; --a: #79b0ff; --b: #f0a35e; --c: #6fcf97; --good: #57c878; --bad: #ff8a7a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2.25rem 0 .5rem; padding-bottom: .25rem; border-bottom: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .5rem 0; } .soft, caption, figcaption { color: var(--soft); }
.numbers { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; padding: 0; list-style: none; }
.numbers li { flex: 1 1 9rem; padding: .6rem .9rem; border: 1px solid var(--rule); border-radius: .5rem;
  background: var(--card); color: var(--soft); font-size: .85rem; }
.numbers strong { display: block; font-size: 1.5rem; line-height: 1.3; color: var(--ink);
  font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
caption { text-align: start; padding: .25rem 0; font-size: .85rem; }
th, td { text-align: start; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; } tbody th { white-space: nowrap; overflow-wrap: normal; }
td.number, th.number { text-align: end; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.text { min-width: 7rem; white-space: pre-wrap; }
.facts th { width: 9rem; color: var(--soft); font-weight: 400; }
.right { color: var(--good); } .wrong { color: var(--bad); }
svg { display: block; width: 100%; height: auto; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
svg * { stroke-linejoin: round; stroke-linecap: butt; } svg text { unicode-bidi: plaintext; }
.maps { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1.25rem; }
figure { margin: .5rem 0; } figcaption { font-size: .85rem; margin-bottom: .35rem; }
.frame { display: inline-block; vertical-align: top; width: min-content; margin: 0 .5rem .5rem 0; }
.frame img { display: block; height: 8rem; image-rendering: pixelated; } .frame span { color: var(--soft);
  font-size: .85rem; }
pre { background: var(--card); border: 1px solid var(--rule); border-radius: .5rem; padding: .75rem; overflow-x: auto;
  font: .85rem/1.45 ui-monospace, monospace; white-space: pre-wrap; } code { font: .9em ui-monospace, monospace; }
@media print { :root { --ink: #000; --soft: #444; --paper: #fff; --card: #fff; --rule: #bbb; --a: #1f5fbf; --b: #b35900;
  --c: #2a7f4f; --good: #1a7f37; --bad: #b42318; color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  figure, tr, svg { break-inside: avoid; } h2, h3 { break-after: avoid; } }
"""
