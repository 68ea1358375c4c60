"""The documentation as a site of plain HTML: `python docs/site.py [FOLDER]` writes it, by default into build/site.

The pages are README.md, CHANGELOG.md, CONTRIBUTING.md and everything in docs, and those that `headway lecture --out`
builds, with every output computed, which takes about two minutes.  Nothing is loaded from elsewhere: the
site works offline and from a file.  The search looks up words in the texts of all pages, which are in one script.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from json import dumps
from os.path import relpath
from pathlib import Path
from shutil import copyfile

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from headway.learn.statement_pages import page_of, write_pages
from headway.learn.statements import LectureSection, sections

ROOT = Path(__file__).parents[1]
FIRST = (
    *("README.md", "docs/tasks/README.md", "docs/models/README.md", "docs/LECTURES.md", "docs/LESSONS.md"),
    *("docs/API.md", "docs/ADD_ARCHITECTURE.md"),
)
LECTURES = Path("lectures")  # the folder of their pages
CODE = HtmlFormatter(nowrap=True)


@dataclass(frozen=True)
class Page:
    path: Path  # below the root of the project
    title: str
    html: str

    @property
    def target(self) -> Path:
        """The file of the site: README.md is the index of its folder."""
        name = "index" if self.path.stem == "README" else self.path.stem
        return self.path.with_name(f"{name}.html")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    count = build(folder, sections())
    print(f"wrote {count} pages: {folder / 'index.html'}")


def build(folder: Path, lectures: Sequence[LectureSection]) -> int:
    """Writes the site, with a page of its own for each of these sections of lectures; how many pages it has."""
    shown = write_pages(lectures, folder / LECTURES)
    found = [page(path, lectures) for path in sources()]
    texts = [{"title": one.title, "url": str(one.target), "text": plain(one.html)} for one in found]
    for one in found:
        target = folder / one.target
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(whole(one, found), encoding="utf-8")
    (folder / "search.js").write_text(f"const PAGES = {dumps(texts, ensure_ascii=False)};\n{SEARCH}", encoding="utf-8")
    for picture in (ROOT / "docs").rglob("*.png"):
        copy = folder / picture.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copyfile(picture, copy)
    return len(found) + len(shown)


def sources() -> list[Path]:
    """The Markdown files below the root, those of `FIRST` before the others."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    names = sorted(str(path.relative_to(ROOT)) for path in paths)
    return [Path(name) for name in sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))]


def page(path: Path, lectures: Sequence[LectureSection]) -> Page:
    text = (ROOT / path).read_text(encoding="utf-8")
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    parser = MarkdownIt("commonmark", {"highlight": coloured}).enable(["table", "strikethrough"])
    html = re.sub(r"<h([23])>(.*?)</h\1>", anchored, parser.render(text))
    html = linked_lectures(linked(html, path), path, lectures)
    return Page(path, "headway" if path == Path("README.md") else title[1] if title else path.stem, html)


def coloured(code: str, language: str, _: str) -> str:
    try:
        return highlight(code, get_lexer_by_name(language), CODE)
    except ClassNotFound:
        return escape(code)


def anchored(heading: re.Match[str]) -> str:
    """A heading that can be linked to, by the words that GitHub names it with."""
    level, inside = heading[1], heading[2]
    words = re.sub(r"[^\w\- ]", "", plain(inside).lower()).strip().replace(" ", "-")
    return f'<h{level} id="{words}">{inside}</h{level}>'


def linked(html: str, path: Path) -> str:
    """Links between Markdown files lead to their pages; those to other files of the project are shown as text."""

    def link(found: re.Match[str]) -> str:
        address, inside = found[1], found[2]
        if re.match(r"(https?:|#|mailto:)", address):
            return found[0]
        name, _, fragment = address.partition("#")
        target = Path(relpath((ROOT / path).parent / name, ROOT))
        if target.suffix != ".md":
            return f"<span title={str(target)!r}>{inside}</span>"
        other = Page(target, "", "").target
        there = relpath(other, path.parent) + (f"#{fragment}" if fragment else "")
        return f'<a href="{escape(there)}">{inside}</a>'

    return re.sub(r'<a href="([^"]*)">(.*?)</a>', link, html, flags=re.DOTALL)


def linked_lectures(html: str, path: Path, lectures: Sequence[LectureSection]) -> str:
    """Commands that show a section of a lecture lead to its page."""
    for section in lectures:
        command = f"<code>headway lecture {section.name}</code>"
        there = relpath(LECTURES / page_of(section), path.parent)
        html = html.replace(command, f'<a href="{there}">{command}: the page with all outputs</a>')
    return html


def plain(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html)).strip()


def whole(one: Page, pages: list[Page]) -> str:
    up = "../" * (len(one.target.parts) - 1)
    groups: dict[str, list[str]] = {"": [], "docs": [], "docs/tasks": [], "docs/models": []}
    for other in pages:
        here = ' aria-current="page"' if other is one else ""
        item = f'<li><a href="{up}{other.target}"{here}>{escape(other.title)}</a></li>'
        groups[str(other.path.parent).strip(".")].append(item)
    titles = {"": "headway", "docs": "Documents", "docs/tasks": "Tasks", "docs/models": "Models"}
    menu = "".join(f"<h2>{titles[name]}</h2><ul>{''.join(items)}</ul>" for name, items in groups.items() if items)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(one.title)}</title>\n<style>{STYLE}{CODE.get_style_defs('pre')}</style>\n</head>\n<body>\n"
        f'<nav><input id="search" type="search" placeholder="Search" aria-label="Search" data-up="{up}">'
        f'<ul id="found"></ul>{menu}</nav>\n<main>\n{one.html}</main>\n<script src="{up}search.js"></script>\n'
        "</body>\n</html>\n"
    )


STYLE = """
:root { color-scheme: light dark; --line: #ddd; --soft: #f6f6f8; --link: #3b3bb3; }
@media (prefers-color-scheme: dark) {
  :root { --line: #444; --soft: #22222a; --link: #a9a9ff; }
  pre span { filter: brightness(1.7) saturate(.8); }
}
* { box-sizing: border-box; }
body { margin: 0; display: grid; grid-template-columns: 17rem minmax(0, 1fr); font: 16px/1.55 system-ui, sans-serif; }
nav { padding: 1rem; border-right: 1px solid var(--line); height: 100vh; overflow: auto; position: sticky; top: 0; }
nav h2 { font-size: .8rem; margin: 1.2rem 0 .3rem; }
nav ul { list-style: none; margin: 0; padding: 0; font-size: .9rem; }
nav input { width: 100%; font: inherit; padding: .3rem .5rem; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
[aria-current] { font-weight: 600; }
main { padding: 1rem 2rem 4rem; max-width: 60rem; }
pre { background: var(--soft); padding: .8rem 1rem; overflow: auto; border-radius: 6px; font-size: .85rem; }
code { font-family: ui-monospace, monospace; font-size: .88em; }
p code, li code { overflow-wrap: anywhere; }
table { border-collapse: collapse; display: block; overflow: auto; font-size: .88rem; }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top; }
img { max-width: 100%; }
@media (max-width: 50rem) {
  body { display: block; }
  nav { position: static; height: auto; max-height: 40vh; border-right: 0; border-bottom: 1px solid var(--line); }
  main { padding: 1rem; }
}
"""

SEARCH = """
const box = document.getElementById("search"), list = document.getElementById("found");
box.addEventListener("input", () => {
  const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
  list.replaceChildren();
  if (!words.length) return;
  const score = page => words.reduce((sum, word) =>
    sum + (page.title.toLowerCase().includes(word) ? 10 : 0) + (page.text.toLowerCase().split(word).length - 1), 0);
  const all = page => words.every(word => (page.title + " " + page.text).toLowerCase().includes(word));
  for (const page of PAGES.filter(all).sort((a, b) => score(b) - score(a)).slice(0, 12)) {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = box.dataset.up + page.url;
    link.textContent = page.title;
    item.append(link);
    list.append(item);
  }
  if (!list.children.length) list.append("nothing found");
});
"""

if __name__ == "__main__":
    main()
