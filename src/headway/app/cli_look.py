"""The declaration of `headway look`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from headway.app.cli_options import Heads, Unsafe
from headway.errors import UserError

LIVE = Group("Served, while the model is at hand", sort_key=10)
MODEL = Group("How the model is read", sort_key=11)


def look(
    model: Path,
    input: str | None = None,
    /,
    *,
    out: Path | None = None,
    open: bool = False,
    compare: Path | None = None,
    tokens: int = 16,
    effects: bool = False,
    site: str | None = None,
    live: Annotated[bool, Parameter(group=LIVE)] = False,
    port: Annotated[int | None, Parameter(group=LIVE)] = None,
    heads: Annotated[Heads, Parameter(group=MODEL)] = None,
    unsafe: Annotated[Unsafe, Parameter(group=MODEL)] = False,
) -> None:
    """See what a model looks at: every head of every layer, as a page that needs nothing but a browser.

    Parameters
    ----------
    model
        A model folder, of headway's or of Hugging Face's layout.
    input
        What it reads: a text; or a file, for a model of images or sounds.
    out
        The page to write; the model's name and -look.html unless given.
    open
        Show it in a browser.
    compare
        Another model, to see where their heads differ; it reads what the first one writes.
    tokens
        New tokens at most, where the model continues a text.
    effects
        Try what each head does for the outcome, also where that takes minutes.
    site
        The attention to begin with, such as decoder.1.cross.
    live
        Serve the page at an address of this machine: type, drop files, edit heads.
    port
        The port of that address; 8765 unless given.
    """
    from headway.app.look import Viewing, write_page

    viewing = Viewing(model, compare, tokens, site, effects, heads, unsafe)
    if live:
        if out is not None:
            raise UserError("--live writes no file", do="leave --out out, or --live")
        from headway.app.live import PORT, serve

        serve(viewing, input, PORT if port is None else port, show=open)
        return
    if port is not None:
        raise UserError("--port is for --live", do="give --live too, or leave --port out")
    if input is None:
        do = 'give it, as in headway look MODEL "text", or --live to type it in the page'
        raise UserError("headway look needs an input", do=do)
    print(write_page(viewing, input, out, show=open))
