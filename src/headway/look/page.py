"""The page in one file that loads nothing: skeleton, style, modules and data put together.

Style and script are let run by their hashes alone; whatever a token says, it is data in a script element that no
browser runs.  Modules are plain ES modules, joined in the order in which they need each other: `import` lines go,
`export` goes, and as all names then live together, each may be given once.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from html import escape
from importlib.resources import files

from headway.look.bundle import Bundle, written

MARK = "<!-- a page of headway look -->"  # by which we know our own
HEIGHT = 860  # of the page in a notebook, in pixels

IMPORT = re.compile(r'^import\s*(?:\{(?P<names>[^{}]*)\}\s*from\s*)?"\./(?P<file>[\w-]+\.js)";?[ \t]*\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let)\b)", re.MULTILINE)
GIVEN = re.compile(r"^(?:export )?(?:async )?(?:function\*?|class|const|let|var)\s+([\w$]+)", re.MULTILINE)
SEVERAL = re.compile(r"^(?:export )?(?:const|let|var)\s*([{\[][^=]*?[}\]])\s*=", re.MULTILINE)
LEFT = re.compile(r"^(?:import\b|export\b)|\bimport\s*\(|\bimport\.meta\b", re.MULTILINE)


def page(bundle: Bundle) -> str:
    """The whole page as one HTML document."""
    folder = files("headway").joinpath("app", "web")
    texts = {each.name: each.read_text(encoding="utf-8") for each in folder.iterdir() if each.name.endswith(ENDINGS)}
    return put_together(texts, bundle)


ENDINGS = (".html", ".css", ".js")


def put_together(texts: Mapping[str, str], bundle: Bundle) -> str:
    """The page out of the texts of its files, by name, and what it shows."""
    style = "\n".join(texts[name] for name in sorted(texts) if name.endswith(".css"))
    script = joined({name: text for name, text in texts.items() if name.endswith(".js")})
    check_inert(style, script)
    parts = {
        "policy": escape(policy(style, script, live=bool(bundle.plain["live"]))),
        "title": text_of(title_of(bundle)),
        "style": style,
        "bundle": written(bundle.plain),
        "blobs": blobs_of(bundle),
        "script": script,
    }
    # in one go, so that nothing that is put in is looked at again
    filled = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], texts["page.html"])
    return filled.replace("<!doctype html>\n", f"<!doctype html>\n{MARK}\n", 1)


def policy(style: str, script: str, *, live: bool) -> str:
    """What the page may do: run its own script in its own style, and show what is in it; `live`, ask its server."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src '{hashed(script)}'",
            f"style-src '{hashed(style)}'",
            "img-src data:",
            "media-src data:",
            *(["connect-src 'self'"] if live else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def hashed(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}"


def title_of(bundle: Bundle) -> str:
    return " · ".join(dict.fromkeys(str(run["title"]) for run in bundle.plain["runs"])) or "headway"


def text_of(text: str) -> str:
    """A text that means itself in HTML, without what no HTML may hold."""
    seen = "".join(sign if sign.isprintable() else " " for sign in text)
    return escape(seen.encode("utf-8", "replace").decode("utf-8"))


def blobs_of(bundle: Bundle) -> str:
    return "\n".join(
        f'<script type="text/plain" data-blob="{escape(id)}">{blob}</script>' for id, blob in bundle.blobs.items()
    )


def iframe(html: str, height: int = HEIGHT) -> str:
    """A page inside a notebook's: it may run its script, and reach nothing of the notebook."""
    held = escape(html)
    return (
        f'<iframe sandbox="allow-scripts" title="attention" width="100%" height="{height}" frameborder="0" '
        f'srcdoc="{held}"></iframe>'
    )


def ours(beginning: str) -> bool:
    """Whether a file that begins so is a page of ours."""
    return MARK in beginning


def check_inert(style: str, script: str) -> None:
    """Neither may end its own element, or hold what a browser reads otherwise than it stands here."""
    assert "</" not in style
    assert not re.search(r"</script|<!--|<script", script, re.IGNORECASE)
    assert "\r" not in style + script
    assert "\0" not in style + script


def joined(modules: Mapping[str, str]) -> str:
    """Modules as one, each behind those that it imports."""
    needs = {name: {found["file"] for found in IMPORT.finditer(text)} for name, text in modules.items()}
    check_imports(modules)
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        raise ValueError(f"modules import each other in a ring: {' → '.join(error.args[1])}") from None
    texts = {name: EXPORT.sub("", IMPORT.sub("", modules[name])) for name in order}
    for name, text in texts.items():
        if found := LEFT.search(text):
            raise ValueError(f"{name}: {text[found.start() :].splitlines()[0]!r} cannot be joined")
    check_names(modules)
    return "\n".join(f"// {name}\n{text.strip()}\n" for name, text in texts.items())


def check_imports(modules: Mapping[str, str]) -> None:
    """What a module imports, another must export, under the same name."""
    for name, text in modules.items():
        for found in IMPORT.finditer(text):
            there = exported(modules.get(found["file"], ""))
            wanted = {word.strip() for word in (found["names"] or "").split(",")} - {""}
            if found["file"] not in modules or wanted - there:
                raise ValueError(f"{name}: {found['file']} does not export {', '.join(sorted(wanted - there))}")


def exported(text: str) -> set[str]:
    lines = (line for line in text.splitlines() if line.startswith("export "))
    return {found[1] for line in lines if (found := GIVEN.match(line))}


def check_names(modules: Mapping[str, str]) -> None:
    """Joined, all modules share their names."""
    given = dict[str, str]()
    for name, text in modules.items():
        for word in top_names(text):
            if word in given:
                raise ValueError(f"{word!r} is given in {given[word]} and in {name}")
            given[word] = name


def top_names(text: str) -> Iterable[str]:
    """The names that a module gives outside of everything."""
    yield from (found[1] for found in GIVEN.finditer(text))
    for found in SEVERAL.finditer(text):
        yield from re.findall(r"[\w$]+(?=\s*[,}\]])", found[1])
