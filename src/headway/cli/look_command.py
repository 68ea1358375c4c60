"""`headway look`: the page of one input as a file, or served while the model is loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import rmtree
from signal import SIGINT
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from headway.cli.options import LOAD_OPTIONS, Device, LoadOptions, ModelPath
from headway.errors import UserError
from headway.system import CPU

if TYPE_CHECKING:
    from headway.look.bundle import Bundle
    from headway.look.page_session import Explorer

LIVE = Group("Live server", sort_key=10)
MODEL = Group("Loading the model", sort_key=11)


def look(
    model: ModelPath,
    input: str | None = None,
    /,
    *,
    out: Path | None = None,
    open: bool = False,
    against: str | None = None,
    compare: ModelPath | None = None,
    tokens: int = 16,
    effects: bool = False,
    site: str | None = None,
    samples: Path | None = None,
    dictionary: Path | None = None,
    live: Annotated[bool, Parameter(group=LIVE)] = False,
    port: Annotated[int | None, Parameter(group=LIVE)] = None,
    device: Annotated[Device, Parameter(group=MODEL)] = CPU,
    loading: Annotated[LoadOptions, Parameter(name="*", group=MODEL)] = LOAD_OPTIONS,
) -> None:
    """Show the attention of every head of every layer on one input, as a self-contained HTML page.

    Parameters
    ----------
    model
        A model folder, in headway's or Hugging Face's layout.
    input
        The input: a text, or a file for a model of images or sounds.
    out
        The page to write; by default the model's name and -look.html, with a number beside the page of another input.
    open
        Open the page in a browser.
    against
        A second input of the same kind, to be seen beside the first; it reads the output of the first.
    compare
        A second model to compare with; it reads the output of the first.
    tokens
        Maximum number of new tokens of a language model.
    effects
        Ablate every head and show the effect on the outcome, even if that takes minutes.
    site
        The attention site to open with, such as decoder.1.cross.
    samples
        A file or folder of other inputs, perhaps with classes: a map of up to 1000 of them after each layer.
    dictionary
        A folder of headway inspect dictionary: a map of its features, and which of them each token activates.
    live
        Serve the page on the loopback interface: type texts, drop files, edit heads, choose
        other tokens.
    port
        The port of the server; 8765 by default.
    """
    if live and out is not None:
        raise UserError("--live writes no file", do="leave --out out, or --live")
    if port is not None and not live:
        raise UserError("--port is for --live", do="give --live too, or leave --port out")
    if input is None and not live:
        do = 'give it, as in headway look MODEL "text", or --live to type it in the page'
        raise UserError("headway look needs an input", do=do)
    if against is not None and (compare is not None or input is None):
        do = "leave --compare out" if compare is not None else "give the first input too"
        raise UserError("--against compares two inputs of one model", do=do)
    for given in filter(None, (samples, dictionary)):
        if not given.exists():
            raise UserError(f"there is no {given}")
    folders = [model] if compare is None else [model, compare]

    def explorer() -> Explorer:
        from headway.inspect.point_clouds import clouds_of
        from headway.look.page_session import Explorer

        if tokens < 1:
            raise UserError(f"--tokens {tokens}", allowed="1 or more")
        models = [loading.load(folder, device=device) for folder in folders]
        clouds = clouds_of(models[0], samples, dictionary)
        return Explorer(dict(zip(titles(folders), models, strict=True)), tokens, site, effects, notify, clouds)

    if input is None or live:
        serve(port, explorer, input, against, show=open)
    else:
        print(write(out, Path(f"{title(model)}-look.html"), explorer, input, against, show=open))


def write(
    out: Path | None, usual: Path, explorer: Callable[[], Explorer], input: str, against: str | None, *, show: bool
) -> str:
    """Write the page of an input, or of two, open it if asked to, and say what was written.

    Without `out` the page of another input is left alone: the usual name gets a number.
    """
    import webbrowser

    from headway.look.bundle import pack_bundle
    from headway.look.html_page import check_page_path, free_page_path, render_page
    from headway.system import write_text

    check_page_path(out or usual)
    models = explorer()
    runs = models.record(input, against)
    effects = models.effects(runs)
    bundle = pack_bundle(runs, models.focus(runs, effects), effects, clouds=models.clouds(runs[0]))
    path = out or free_page_path(usual, bundle)
    write_text(path, render_page(bundle))
    size = path.stat().st_size
    written = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} kB"
    opened = "opened" if show and webbrowser.open(path.resolve().as_uri()) else "open it"
    return f"wrote {path}, {written}: {contents(bundle)}; {opened} in a browser"


def serve(
    port: int | None, explorer: Callable[[], Explorer], input: str | None, against: str | None, *, show: bool
) -> None:
    """Serve the page until it is interrupted; interrupted again, leave a request that is running."""
    from tempfile import TemporaryDirectory

    from headway.look.page_session import PageSession
    from headway.look.server import PORT, bind
    from headway.system import handled, sigterm_raises

    with bind(PORT if port is None else port) as server:
        models = explorer()
        with sigterm_raises(), TemporaryDirectory(prefix="headway-") as folder:
            server.session = PageSession(models, Path(folder))
            server.session.open(input, against)

            def interrupt(number: int, frame: object) -> None:
                if server.ending:
                    rmtree(folder)
                    os._exit(130)  # at exit Python would wait for the thread of the request
                server.ending = True
                raise KeyboardInterrupt

            with handled(SIGINT, interrupt), server.running():
                wait(server.address, show=show)


def wait(address: str, *, show: bool) -> None:
    """Says where the page is, opens it if asked to, and returns on Ctrl-C."""
    import webbrowser

    try:
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        if show:
            webbrowser.open(address)
        Event().wait()
    except KeyboardInterrupt:
        print(file=sys.stderr, flush=True)  # behind the terminal's ^C


def titles(folders: Sequence[Path]) -> list[str]:
    """The names of the models; the second of two that have the same name gets a number."""
    names = list(map(title, folders))
    return [f"{name} ({at + 1})" if name in names[:at] else name for at, name in enumerate(names)]


def title(model: Path) -> str:
    place = model.resolve()
    return (place.stem if place.is_file() else place.name) or "model"


def contents(bundle: Bundle) -> str:
    """The sites and heads of a page, and how many heads are included only coarsely."""
    from headway.errors import counted

    sites = [site for run in bundle.data["runs"] for site in run["sites"] if not site["derived"]]
    heads, coarse = sum(site["heads"] for site in sites), sum(map(coarse_heads, sites))
    left = f" ({coarse} only in outline: --live has all)" if coarse else ""
    return f"{counted(len(sites), 'site')}, {counted(heads, 'head')}{left}"


def coarse_heads(site: dict[str, Any]) -> int:
    """How many heads of a site have not all their weights in the page."""
    complete = {key.split("/")[0] for key in site["levels"][0]["blobs"]}
    return 0 if "*" in complete else site["heads"] - len(complete)


def notify(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
