"""A recording that shows itself: as a page in a file, and as the same page in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from headway.answer import Speaker
from headway.files import write_text
from headway.look.attended import Attended, read_by
from headway.look.listening import listening
from headway.look.observing import observing
from headway.look.scene import Scene, check_attends
from headway.look.speaking import Terms, speaking
from headway.observer import Listener, Observer

if TYPE_CHECKING:
    from headway.look.bundle import Limits


class Shown(Attended):
    """A model's reading of one input, which displays the page where it is the last value of a notebook's cell."""

    def page(self) -> str:
        """One HTML document that loads nothing."""
        from headway.look.bundle import FILE

        return self.page_within(FILE)

    def save(self, path: str | Path) -> None:
        write_text(Path(path), self.page())

    def _repr_html_(self) -> str:
        from headway.look.bundle import NOTEBOOK
        from headway.look.page import iframe

        return iframe(self.page_within(NOTEBOOK))

    def page_within(self, limits: Limits) -> str:
        """The page, with all edits of single heads where these take but a few seconds."""
        from headway.look.bundle import bundle  # late: maps are read without it
        from headway.look.effects import effects, quick
        from headway.look.page import page

        known = {0: list(effects(self))} if quick(self) else {}
        return page(bundle([self], effects=known, limits=limits))


def attend(whom: Speaker | Observer | Listener, given: str, terms: Terms, *, title: str, architecture: str) -> Shown:
    """One input, read by whoever answers it."""
    check_attends(whom.model, architecture)
    scene = scene_of(whom, given, terms)
    read = read_by(scene, title=title, input=given, architecture=architecture)
    return Shown(**vars(read))


@torch.no_grad()
def scene_of(whom: Speaker | Observer | Listener, given: str, terms: Terms) -> Scene:
    match whom:
        case Speaker():
            return speaking(whom, given, terms)
        case Observer():
            return observing(whom, given, terms.said)
        case Listener():
            return listening(whom, given, terms.said)
