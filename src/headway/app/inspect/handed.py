"""Data that a person hands over, as the model that is asked about it needs it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headway.app.check import kind_of
from headway.app.evaluate import fitting, given_data, known
from headway.app.purpose import Data, Purpose, purpose_for
from headway.checkpoint import Loaded
from headway.data.kinds import Kind
from headway.data.recognise import recognise
from headway.errors import UserError


@dataclass(frozen=True)
class Handed:
    """Files or folders and what was said about them, as it was typed."""

    paths: tuple[Path, ...]
    task: str | None = None
    columns: str | None = None
    label_from: str | None = None

    def check(self) -> None:
        """Tells what is wrong with it as far as that can be seen without the model."""
        kind_of(self.task)
        if not self.paths:
            raise UserError("no data was given", do="name a file or folder of what the model reads")
        absent = next((path for path in self.paths if not path.exists()), None)
        if absent is not None and known(self.paths) is None:
            raise UserError(f"{absent} does not exist", do="name a file or folder of what the model reads")

    def seen(self, kind: Kind | None) -> Data:
        """The data, read as a kind or as it looks."""
        chosen = self.columns.split(",") if self.columns else ()
        return known(self.paths) or given_data(
            recognise(self.paths, kind=kind, columns=chosen, label_from=self.label_from)
        )

    @cached_property
    def first(self) -> Data:
        """The data, read as what it was said to be, before the model is known."""
        return self.seen(kind_of(self.task))

    def fitted(self, loaded: Loaded, folder: Path) -> tuple[Purpose, Data]:
        """What the model in a folder is for, and the data for that."""
        purpose = purpose_for(loaded, self.first.kind, folder)
        fit = fitting(purpose, self.first, self.seen if kind_of(self.task) is None else None)
        if fit is None:
            said = f"the model in {folder} {purpose.does}, but {self.first.why}"
            raise UserError(said, do=f"give data for {purpose.kind.value}")
        return purpose, fit
