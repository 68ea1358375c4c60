"""`headway look`: one input as a model reads it, as a page in one file, or served while the model is at hand."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import UserError

if TYPE_CHECKING:
    from headway.checkpoint import Loaded
    from headway.look.attended import Attended
    from headway.look.bundle import Bundle, Focus
    from headway.look.effects import Effect

BEGINNING = 4096  # bytes of a file that tell whether it is a page of ours


@dataclass(frozen=True)
class Viewing:
    """What to look into and how: a model's folder, perhaps another's to compare with, and what is asked of both.

    `tokens` are those that a model writes at most; `effects` asks for every head's, however long that takes.
    """

    model: Path
    compare: Path | None = None
    tokens: int = 16
    site: str | None = None
    effects: bool = False
    heads: int | None = None
    unsafe: bool = False

    @property
    def folders(self) -> list[Path]:
        return [self.model] if self.compare is None else [self.model, self.compare]

    @property
    def titles(self) -> list[str]:
        """What the models are called; of two that have the same name, the second has a number too."""
        names = [name_of(folder) for folder in self.folders]
        return [f"{name} ({at + 1})" if name in names[:at] else name for at, name in enumerate(names)]


@dataclass(frozen=True)
class Viewer:
    """The models of a viewing, ready to read."""

    viewing: Viewing
    models: list[Loaded] = field(repr=False)

    def attend(self, given: str) -> Sequence[Attended]:
        """How each model reads an input.  The second reads what the first wrote, and only what can be compared."""
        from headway.look.attended import Attended
        from headway.look.bundle import agreed

        runs = list[Attended]()
        for title, model in zip(self.viewing.titles, self.models, strict=True):
            run = model.attend(given, most=self.viewing.tokens, said=runs[0] if runs else None)
            runs.append(replace(run, title=title))
        if len(runs) == 2:
            agreed(*runs)
        return runs

    def focus(self, runs: Sequence[Attended]) -> Focus:
        """Where the page begins."""
        from headway.look.bundle import focus_of

        return focus_of(runs[0], self.viewing.site, runs[1] if len(runs) == 2 else None)

    def effects(self, runs: Sequence[Attended], share: float = 1.0) -> dict[int, list[Effect]]:
        """What edits of heads give, by the number of the run: where that is quick (in a share of the time) or asked."""
        from headway.look.effects import Effect, edits_of, effects, quick

        found = dict[int, list[Effect]]()
        for number, run in enumerate(runs):
            fast = quick(run, share)
            if self.viewing.effects and not fast:
                print(f"trying {edits_of(run)} edits of heads; this may take minutes", file=sys.stderr, flush=True)
            if fast or self.viewing.effects:
                found[number] = list(effects(run))
        return found


def viewer(viewing: Viewing) -> Viewer:
    """Loads the models."""
    from headway.checkpoint import load

    if viewing.tokens < 1:
        raise UserError(f"--tokens {viewing.tokens}", allowed="1 or more")
    return Viewer(viewing, [load(folder, heads=viewing.heads, unsafe=viewing.unsafe) for folder in viewing.folders])


def write_page(viewing: Viewing, given: str, out: Path | None, *, show: bool) -> str:
    """Writes the page of an input, shows it if asked to, and says what was written."""
    from headway.files import write_text
    from headway.look.bundle import bundle
    from headway.look.page import page

    path = free(out or Path(f"{name_of(viewing.model)}-look.html"))
    eye = viewer(viewing)
    runs = eye.attend(given)
    found = bundle(runs, eye.focus(runs), eye.effects(runs))
    write_text(path, page(found))
    shown = show and webbrowser.open(path.resolve().as_uri())
    return f"wrote {path}, {size(path.stat().st_size)}: {told(found)}; {'opened' if shown else 'open it'} in a browser"


def name_of(model: Path) -> str:
    place = model.resolve()
    return (place.stem if place.is_file() else place.name) or "model"


def free(path: Path) -> Path:
    """A file that may be written: new, or an older page of ours."""
    from headway.look.page import ours

    if path.is_dir():
        raise UserError(f"{path} is a folder", do="give the name of a file, as in --out page.html")
    if not path.parent.is_dir():
        raise UserError(f"{path.parent} is not a folder", do="make it first, or give another --out")
    if path.exists():
        with path.open("rb") as file:
            beginning = file.read(BEGINNING).decode("utf-8", "replace")
        if not ours(beginning):
            raise UserError(f"{path} is there, and is no page of headway look", do="remove it, or give another --out")
    return path


def told(bundle: Bundle) -> str:
    """What a page holds, and what it had no room for."""
    sites = [site for run in bundle.plain["runs"] for site in run["sites"] if not site["derived"]]
    heads = sum(site["heads"] for site in sites)
    coarse = sum(missing(site) for site in sites)
    left = f" ({coarse} only in outline: --live has all)" if coarse else ""
    return f"{counted(len(sites), 'site')}, {counted(heads, 'head')}{left}"


def missing(site: dict[str, object]) -> int:
    """Heads of a site whose every weight is not in the page."""
    levels, heads = site["levels"], site["heads"]
    assert isinstance(levels, list)
    assert isinstance(heads, int)
    there = {key.split("/")[0] for key in levels[0]["blobs"]}
    return 0 if "*" in there else heads - len(there)


def counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{max(1, round(count / 1e3))} kB"
