"""What `headway look --live` shows: the last inputs that were read, their pieces, and edits of their heads."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from itertools import count
from pathlib import Path
from typing import Any

from headway.app.look import Viewer
from headway.app.starters import reads_files, starter
from headway.errors import UserError
from headway.look.bundle import SIDES, Bundle, opened
from headway.look.effects import Effect, change
from headway.look.exhibit import Exhibit
from headway.look.page import page
from headway.look.plain import Plain, plain_detail, plain_outcome

KEPT = 8  # recordings whose pieces can still be had: a page that was opened before may ask
SIDE = SIDES[1]
SHARE = 0.2  # of the time that a file may take for effects: here, somebody waits
EDITS = 1000  # at once


class Desk:
    """The models, and what they have read last; `folder` is for files that were dropped."""

    def __init__(self, viewer: Viewer, folder: Path):
        self.viewer, self.folder = viewer, folder
        self.numbers = count()
        self.kept = dict[int, Exhibit]()
        self.shown = list[Exhibit]()
        self.plain: Plain = {}

    def open(self, given: str | None) -> None:
        """Reads the first input, or one of ours where none is given."""
        self.read(starter(self.viewer.models[0], self.folder) if given is None else given)

    @property
    def takes_files(self) -> bool:
        return reads_files(self.viewer.models[0])

    def read(self, given: str, called: str | None = None) -> Plain:
        """Has the models read an input, and shows it, under the name that a person gave a file."""
        runs = self.viewer.attend(given)
        effects, focus = self.viewer.effects(runs, SHARE), self.viewer.focus(runs)
        shown = [Exhibit(run, next(self.numbers), SIDE) for run in runs]
        named = {} if called is None else {"input": called}
        told = [whole(exhibit, effects.get(at)) | named for at, exhibit in enumerate(shown)]
        self.shown, self.plain = shown, opened(told, focus, live=True)
        self.kept |= {exhibit.number: exhibit for exhibit in shown}
        for number in sorted(self.kept)[:-KEPT]:
            del self.kept[number]
        return self.plain

    def page(self) -> str:
        return page(Bundle(self.plain, {}))

    def piece(self, id: str) -> bytes:
        """A piece of any recording that is still here."""
        return self.find(id.partition(".")[0]).piece(id)

    def find(self, number: object) -> Exhibit:
        known = {str(each): exhibit for each, exhibit in self.kept.items()}
        if str(number) not in known:
            raise UserError("this recording is no longer here", do="let the model read the input again")
        return known[str(number)]

    def edit(self, asked: dict[str, Any]) -> Plain:
        """The outcome with heads edited: {"id" of the recording, or "run" of those shown, "changes"}."""
        if "id" in asked:
            exhibit = self.find(asked["id"])
        else:
            run = asked.get("run")
            if type(run) is not int or not 0 <= run < len(self.shown):
                raise UserError(f"there is no run {run!r}", allowed=f"0 to {len(self.shown) - 1}")
            exhibit = self.shown[run]
        changes = asked.get("changes")
        if not isinstance(changes, list) or len(changes) > EDITS or not all(isinstance(one, dict) for one in changes):
            raise UserError("edits are told wrongly", allowed='a list of {"site", "head", "how"}')
        wanted = [change(exhibit.attended, one.get("site"), one.get("head"), one.get("how")) for one in changes]
        return plain_outcome(exhibit.attended.edited(*wanted))

    def attend(self, asked: dict[str, Any]) -> Plain:
        """The page's new contents: {"text"}, or {"name", "data"} of a file in base64."""
        text, name, data = (asked.get(key) for key in ("text", "name", "data"))
        if isinstance(text, str):
            if self.takes_files:
                raise UserError("this model reads files, and no texts", do="drop a file on the page")
            return self.read(text)
        if not isinstance(name, str) or not isinstance(data, str):
            raise UserError("nothing to read", do="type a text, or drop a file")
        if not self.takes_files:
            raise UserError("this model reads texts, and no files", do="type a text")
        return self.read(str(self.dropped(name, data)), Path(name).name)

    def dropped(self, name: str, data: str) -> Path:
        """A file that was dropped, in a folder of its own and under a name that leads nowhere else."""
        plain = re.sub(r"[^\w. -]", "_", Path(name).name)[-80:].lstrip(".") or "file"
        try:
            content = b64decode(data, validate=True)
        except (Error, ValueError):
            raise UserError(f"{plain} did not arrive whole", do="drop it again") from None
        path = self.folder / str(next(self.numbers)) / plain
        path.parent.mkdir()
        path.write_bytes(content)
        return path


def whole(exhibit: Exhibit, effects: list[Effect] | None) -> Plain:
    """All of a recording: here, every piece can be had."""
    details = {at: plain_detail(each, exhibit.detail_id(at)) for at, each in exhibit.details().items()}
    return exhibit.told(effects, details, lambda id: id)
