"""The state of a served page: the loaded models, the last recordings, and the requests that a page may send."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import torch

from headway.errors import UserError
from headway.look.bundle import SIDES, Bundle, Focus, check_comparable, choose_focus, page_json
from headway.look.head_edits import HeadEffect, affordable_edits, edit_count, head_effects, parse_edit
from headway.look.html_page import render_page
from headway.look.page_data import PageData, detail_to_json
from headway.look.principal_plane import PointCloud
from headway.look.recording import Recording
from headway.look.run_data import Json, outcome_to_json
from headway.nn.trace import HEAD_EDITS
from headway.tasks.base import Task
from headway.tasks.tracing import BEST, Choices

MAX_RECORDINGS = 8  # whose blobs are still served: a page that was opened before may ask for them
SIDE = SIDES[1]
EFFECTS_SHARE = 0.2  # of the time that a file may take for effects: somebody is waiting
MAX_EDITS = 1000  # in one request
MAX_PREFIX = 10_000


class Recordable(Protocol):
    """What the page needs of a model; `headway.model.Model` has it."""

    @property
    def config(self) -> object: ...

    @property
    def task(self) -> Task: ...

    def attend(
        self, input: str, *, most: int = ..., said: Recording | None = ..., prefix: Sequence[int] = ...
    ) -> Recording: ...


@dataclass(frozen=True)
class Explorer:
    """Loaded models by title (one, or two to compare) and how a page shows them.

    `site` is the site to open with.  With `all_effects` the effects of all heads are computed however long that takes,
    and `notify` is called with a message before.  `clouds` are shown beside the first recording.
    """

    models: Mapping[str, Recordable] = field(repr=False)
    max_tokens: int = 16
    site: str | None = None
    all_effects: bool = False
    notify: Callable[[str], None] = lambda _: None
    clouds: Callable[[Recording], Sequence[PointCloud]] = lambda _: ()

    @property
    def first(self) -> Recordable:
        return next(iter(self.models.values()))

    def record(self, input: str, against: str | None = None, prefix: Sequence[int] = ()) -> list[Recording]:
        """A recording of each model, or of the first with another input `against` this one.

        The second reads what the first wrote, so that both can be compared.  The first begins with a `prefix` of ids.
        """
        inputs = [(title, model, input) for title, model in self.models.items()]
        if against is not None:
            inputs.append((*inputs[0][:2], against))
        runs = list[Recording]()
        for title, model, given in inputs:
            said = runs[0] if runs else None
            run = model.attend(given, most=self.max_tokens, said=said, prefix=prefix if said is None else ())
            runs.append(replace(run, title=title))
        if len(self.models) == 2:
            check_comparable(*runs)
        return runs

    def focus(self, runs: Sequence[Recording], effects: Mapping[int, Sequence[HeadEffect]]) -> Focus:
        """The site and head to open with; `effects` by the index of the run."""
        found = choose_focus(runs[0], self.site, runs[1] if len(runs) == 2 else None, effects.get(0, ()))
        return replace(found, view="pair") if len(runs) > len(self.models) else found

    def effects(self, runs: Sequence[Recording], share: float = 1.0) -> dict[int, list[HeadEffect]]:
        """Effects of head edits by the index of the run, where they are fast (in a share of the time) or asked for."""
        found = dict[int, list[HeadEffect]]()
        for number, run in enumerate(runs):
            kinds = affordable_edits(run, share)
            if self.all_effects and len(kinds) < len(HEAD_EDITS):
                kinds = tuple(HEAD_EDITS)
                self.notify(f"trying {edit_count(run)} edits of heads; this may take minutes")
            if kinds:
                found[number] = list(head_effects(run, kinds))
        return found


class PageSession:
    """The models of a served page and their last recordings; `folder` holds the files that were dropped."""

    def __init__(self, explorer: Explorer, folder: Path):
        self.explorer, self.folder = explorer, folder
        self.numbers = count()
        self.recent = dict[int, PageData]()
        self.shown = list[PageData]()
        self.data: Json = {}
        self.label: str | None = None  # of a dropped file

    def open(self, input: str | None, against: str | None = None) -> None:
        """Record the first input, or a sample input where none is given, and perhaps one to compare with."""
        if input is None:
            model = self.explorer.first
            input = model.task.sample_input(self.folder, getattr(model.config, "context", None))
        self.record(input, against)

    @property
    def takes_files(self) -> bool:
        return self.explorer.first.task.takes_files

    def record(
        self, input: str, against: str | None = None, label: str | None = None, prefix: Sequence[int] = ()
    ) -> Json:
        """Record an input and show it, with `label` in place of the name of a dropped file."""
        runs = self.explorer.record(input, against, prefix)
        effects = self.explorer.effects(runs, EFFECTS_SHARE)
        focus = self.explorer.focus(runs, effects)
        shown = [PageData(run, next(self.numbers), SIDE) for run in runs]
        override, runs_json = {} if label is None else {"input": label}, list[Json]()
        for at, data in enumerate(shown):
            details = {site: detail_to_json(each, data.detail_id(site)) for site, each in data.details().items()}
            # a server has every blob
            runs_json.append(data.to_json(effects.get(at), details, lambda id: id) | override)
        self.label = label
        self.shown, self.data = shown, page_json(runs_json, focus, self.explorer.clouds(runs[0]), live=True)
        self.remember(shown)
        return self.data

    def remember(self, pages: Sequence[PageData]) -> None:
        """Serve these; the oldest recordings besides those that are shown are forgotten."""
        self.recent |= {data.number: data for data in pages}
        shown = {data.number for data in self.shown}
        for number in sorted(self.recent.keys() - shown)[: max(0, len(self.recent) - MAX_RECORDINGS)]:
            del self.recent[number]

    def page(self) -> str:
        return render_page(Bundle(self.data, {}))

    def blob(self, id: str) -> bytes:
        """A blob of any recent recording."""
        return self.find(id.partition(".")[0]).blob(id)

    def find(self, number: object) -> PageData:
        known = {str(each): data for each, data in self.recent.items()}
        if str(number) not in known:
            raise UserError("this recording is no longer available", do="run the input again")
        return known[str(number)]

    def edit(self, request: dict[str, Any]) -> Json:
        """The outcome with edits: {"id" of the recording, or "run" of those shown, "changes", "from": another's id}.

        With "maps" the answer holds the edited run, for the page to show.
        """
        if "id" in request:
            data = self.find(request["id"])
        else:
            run = request.get("run")
            if type(run) is not int or not 0 <= run < len(self.shown):
                raise UserError(f"there is no run {run!r}", allowed=f"0 to {len(self.shown) - 1}")
            data = self.shown[run]
        changes = request.get("changes")
        if not isinstance(changes, list) or len(changes) > MAX_EDITS or not all(isinstance(c, dict) for c in changes):
            raise UserError("the edits are malformed", allowed='a list of {"site", "head", "how"}')
        other = self.find(request["from"]).recording if "from" in request else None
        edits = [parse_edit(data.recording, change, other) for change in changes]
        if not request.get("maps"):
            return outcome_to_json(data.recording.edited(*edits))
        edited = PageData(data.recording.under(*edits), next(self.numbers), SIDE)
        self.remember([edited])
        return outcome_to_json(edited.recording.outcome) | {"run": {"id": edited.number, "sites": edited.maps_json()}}

    def attend(self, request: dict[str, Any]) -> Json:
        """The page's new contents: {"text"} and perhaps {"against"}, or {"name", "data"} of a file in base64.

        With {"prefix"} of ids the output begins with these.  {"id", "prefix"} is what is shown with another prefix,
        {"id", "step", "rank"} a branch of it.
        """
        text, against, name, data = (request.get(key) for key in ("text", "against", "name", "data"))
        prefix = request.get("prefix", [])
        if not isinstance(prefix, list) or len(prefix) > MAX_PREFIX or not all(type(id) is int for id in prefix):
            raise UserError("the prefix is malformed", allowed=f"a list of up to {MAX_PREFIX:,} ids of tokens")
        if "id" in request:
            return self.again(request, prefix)
        if isinstance(text, str):
            if self.takes_files:
                raise UserError("this model reads files, and no texts", do="drop a file on the page")
            if against is not None and len(self.explorer.models) == 2:
                raise UserError("two models are compared here on one input", do="leave the second input out")
            return self.record(text, against if isinstance(against, str) and against else None, prefix=prefix)
        if not isinstance(name, str) or not isinstance(data, str):
            raise UserError("nothing to read", do="type a text, or drop a file")
        if not self.takes_files:
            raise UserError("this model reads texts, and no files", do="type a text")
        return self.record(str(self.store_file(name, data)), label=Path(name).name)

    def again(self, request: dict[str, Any], prefix: Sequence[int]) -> Json:
        """The inputs that are shown, where the first run begins with a prefix: given, or its own up to a branch."""
        first, *others = (data.recording for data in self.shown)
        if self.find(request["id"]) is not self.shown[0]:
            raise UserError("there is nothing to branch from", do="choose a token of the first run")
        step, rank = request.get("step"), request.get("rank")
        if isinstance(step, int) and isinstance(rank, int):
            prefix = branch_prefix(first, step, rank)
        against = others[0].input if others and len(self.explorer.models) == 1 else None
        return self.record(first.input, against, self.label, prefix)

    def store_file(self, name: str, data: str) -> Path:
        """Store a dropped file in a folder of its own, under a sanitised name."""
        safe = re.sub(r"[^\w. -]", "_", Path(name).name)[-80:].lstrip(".") or "file"
        try:
            content = b64decode(data, validate=True)
        except (Error, ValueError):
            raise UserError(f"{safe} was not received completely", do="drop it again") from None
        path = self.folder / str(next(self.numbers)) / safe
        path.parent.mkdir()
        path.write_bytes(content)
        return path


@torch.no_grad()
def branch_prefix(recording: Recording, step: int, rank: int) -> tuple[int, ...]:
    """The ids of what a model wrote before a step of the outcome, and of its choice of a rank there, from 0.

    With them as a prefix it writes what would have followed.
    """
    reader, text = recording.run.reader, recording.forced_text
    if text is None or recording.followed_text is not None or not isinstance(reader, Choices) or reader.said is None:
        raise UserError("this run writes no text of its own", do="take the run of a model that writes")
    steps = len(reader.said)
    first = steps - len(text.pieces)  # the steps before are read
    if not first <= step < steps or not 0 <= rank < BEST:
        allowed = f"steps {first} to {steps - 1}, ranks 0 to {BEST - 1}"
        raise UserError(f"no token was written at step {step} of rank {rank}", allowed=allowed)
    chosen = reader.head(recording.run.call()[step : step + 1]).topk(rank + 1).indices[0, rank]
    return (*reader.said[first:step], int(chosen))
