"""The page as one self-contained HTML file: template, style sheet, ES modules and data; and a recording that shows it.

The content security policy allows style and script by their hashes alone; the text of tokens is data in a script
element that no browser runs.  The ES modules are joined in the order of their imports: `import` and `export` are
removed, so all top-level names share one scope and must be unique.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import count
from pathlib import Path

from headway.errors import UserError
from headway.look.bundle import FILE_LIMITS, NOTEBOOK_LIMITS, Bundle, PageLimits, pack_bundle, script_json
from headway.look.head_edits import affordable_edits, head_effects
from headway.look.recording import Recording
from headway.system import write_text

MARK = "<!-- a page of headway look -->"  # marks a file that may be overwritten
MARK_BYTES = 4096  # at the beginning of a file, where the mark is searched
HEIGHT = 860  # of the page in a notebook, in pixels
WEB_SUFFIXES = (".html", ".css", ".js")

IMPORT = re.compile(r'^import\s*(?:\{(?P<names>[^{}]*)\}\s*from\s*)?"\./(?P<file>[\w-]+\.js)";?[ \t]*\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let)\b)", re.MULTILINE)
DECLARATION = re.compile(r"^(?:export )?(?:async )?(?:function\*?|class|const|let|var)\s+([\w$]+)", re.MULTILINE)
DESTRUCTURING = re.compile(r"^(?:export )?(?:const|let|var)\s*([{\[][^=]*?[}\]])\s*=", re.MULTILINE)
UNSUPPORTED = re.compile(r"^(?:import\b|export\b)|\bimport\s*\(|\bimport\.meta\b", re.MULTILINE)


class RecordingView(Recording):
    """A recording that displays its page as the value of a notebook cell."""

    def page(self) -> str:
        """One self-contained HTML document."""
        return self.page_within(FILE_LIMITS)

    def save(self, path: str | Path) -> None:
        write_text(Path(path), self.page())

    def _repr_html_(self) -> str:
        return iframe(self.page_within(NOTEBOOK_LIMITS))

    def page_within(self, limits: PageLimits) -> str:
        """The page, with those effects of all heads that fit the budget."""
        kinds = affordable_edits(self, limits.effects)
        return render_page(
            pack_bundle([self], effects={0: list(head_effects(self, kinds))} if kinds else {}, limits=limits)
        )


def check_page_path(path: Path) -> None:
    """Refuse a path that is a folder, lies in none, or holds a file that is not a page of `headway look`."""
    if path.is_dir():
        raise UserError(f"{path} is a folder", do="give the name of a file, as in out=page.html")
    if not path.parent.is_dir():
        raise UserError(f"{path.parent} is not a folder", do="make it first, or give another out=")
    if path.exists():
        with path.open("rb") as file:
            beginning = file.read(MARK_BYTES).decode("utf-8", "replace")
        if not is_look_page(beginning):
            raise UserError(f"{path} is there, and is no page of headway look", do="remove it, or give another out=")


def free_page_path(path: Path, bundle: Bundle) -> Path:
    """The path, or with a number the first that holds no page of another input: `name-look-2.html`."""
    own = input_mark(bundle)
    for number in count(2):
        with suppress(FileNotFoundError), path.open("rb") as file:
            if own not in file.read(MARK_BYTES).decode("utf-8", "replace"):
                path = path.with_name(f"{path.stem.removesuffix(f'-{number - 1}')}-{number}{path.suffix}")
                continue
        return path
    raise AssertionError("numbers do not end")


def input_mark(bundle: Bundle) -> str:
    """Marks the page of a model's input."""
    read = [[run.get(name) for name in ("title", "input", "picture", "sound")] for run in bundle.data["runs"]]
    return f"<!-- input {sha256(script_json(read).encode('ascii')).hexdigest()[:16]} -->"


def is_look_page(beginning: str) -> bool:
    """Whether a file that begins so is a page of `headway look`."""
    return MARK in beginning


def render_page(bundle: Bundle) -> str:
    """The whole page as one HTML document."""
    folder = files("headway").joinpath("look", "web")
    web = [each for each in folder.iterdir() if each.name.endswith(WEB_SUFFIXES)]
    return assemble({each.name: each.read_text(encoding="utf-8") for each in web}, bundle)


def assemble(texts: Mapping[str, str], bundle: Bundle) -> str:
    """The page from the texts of its web files, by name, and its contents."""
    style = "\n".join(texts[name] for name in sorted(texts) if name.endswith(".css"))
    script = join_modules({name: text for name, text in texts.items() if name.endswith(".js")})
    check_inert(style, script)
    title = " · ".join(dict.fromkeys(str(run["title"]) for run in bundle.data["runs"])) or "headway"
    blobs = (f'<script type="text/plain" data-blob="{escape(id)}">{blob}</script>' for id, blob in bundle.blobs.items())
    parts = {
        "policy": escape(content_security_policy(style, script, live=bool(bundle.data["live"]))),
        "title": escape_text(title),
        "style": style,
        "bundle": script_json(bundle.data),
        "blobs": "\n".join(blobs),
        "script": script,
    }
    # one pass: inserted text is not searched again
    filled = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], texts["page.html"])
    return filled.replace("<!doctype html>\n", f"<!doctype html>\n{MARK}\n{input_mark(bundle)}\n", 1)


def content_security_policy(style: str, script: str, *, live: bool) -> str:
    """The policy: only the page's own script and style, and embedded media; if `live`, requests to its server."""
    own = ["default-src 'none'", f"script-src '{csp_hash(script)}'", f"style-src '{csp_hash(style)}'"]
    server = ["connect-src 'self'"] if live else []
    return "; ".join([*own, "img-src data:", "media-src data:", *server, "base-uri 'none'", "form-action 'none'"])


def csp_hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}"


def escape_text(text: str) -> str:
    """Escaped text, without characters that are not allowed in HTML."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return escape(printable.encode("utf-8", "replace").decode("utf-8"))


def iframe(html: str) -> str:
    """The page in a sandboxed frame for a notebook."""
    return (
        f'<iframe sandbox="allow-scripts" title="attention" width="100%" height="{HEIGHT}" frameborder="0" '
        f'srcdoc="{escape(html)}"></iframe>'
    )


def check_inert(style: str, script: str) -> None:
    """Neither may close its own element, or contain what a browser would parse differently."""
    assert "</" not in style
    assert not re.search(r"</script|<!--|<script", script, re.IGNORECASE)
    assert "\r" not in style + script
    assert "\0" not in style + script


def join_modules(modules: Mapping[str, str]) -> str:
    """One script of all modules, each after those that it imports."""
    needs = {name: {found["file"] for found in IMPORT.finditer(text)} for name, text in modules.items()}
    check_imports(modules)
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        raise ValueError(f"circular imports: {' → '.join(error.args[1])}") from None
    texts = {name: EXPORT.sub("", IMPORT.sub("", modules[name])) for name in order}
    for name, text in texts.items():
        if found := UNSUPPORTED.search(text):
            raise ValueError(f"{name}: {text[found.start() :].splitlines()[0]!r} cannot be joined")
    check_names(modules)
    return "\n".join(f"// {name}\n{text.strip()}\n" for name, text in texts.items())


def check_imports(modules: Mapping[str, str]) -> None:
    """Every import must be exported under the same name."""
    for name, text in modules.items():
        for found in IMPORT.finditer(text):
            lines = (line for line in modules.get(found["file"], "").splitlines() if line.startswith("export "))
            there = {declared[1] for line in lines if (declared := DECLARATION.match(line))}
            wanted = {word.strip() for word in (found["names"] or "").split(",")} - {""}
            if found["file"] not in modules or wanted - there:
                raise ValueError(f"{name}: {found['file']} does not export {', '.join(sorted(wanted - there))}")


def check_names(modules: Mapping[str, str]) -> None:
    """In the joined script, top-level names must be unique."""
    owners = dict[str, str]()
    for name, text in modules.items():
        for word in top_names(text):
            if word in owners:
                raise ValueError(f"{word!r} is defined in {owners[word]} and in {name}")
            owners[word] = name


def top_names(text: str) -> Iterable[str]:
    """The top-level names of a module."""
    yield from (found[1] for found in DECLARATION.finditer(text))
    for found in DESTRUCTURING.finditer(text):
        yield from re.findall(r"[\w$]+(?=\s*[,}\]])", found[1])
