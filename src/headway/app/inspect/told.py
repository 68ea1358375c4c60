"""How something that was found is told: as text, as JSON, and as a figure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import UserError

if TYPE_CHECKING:
    from headway.app.inspect.figures import Drawing

SUFFIXES = (".png", ".svg")


class Found(ABC):
    """What was found: three ways to tell it."""

    @abstractmethod
    def plain(self) -> dict[str, Any]:
        """As data, for JSON."""

    @abstractmethod
    def shown(self) -> str:
        """As text, for people."""

    @abstractmethod
    def drawn(self) -> Drawing:
        """As a figure."""


def check_figure(figure: Path | None) -> None:
    """Tells before anything is computed that a figure could not be written."""
    if figure is None:
        return
    if figure.suffix.lower() not in SUFFIXES:
        raise UserError(f"a figure cannot be {figure.name!r}", allowed="a name that ends in .png or .svg")
    if not figure.parent.is_dir():
        raise UserError(f"the folder {figure.parent} does not exist", do="make it, or name another")


def tell(found: Found, *, json: bool, figure: Path | None) -> int:
    """Prints what was found, draws it where a figure is wished, and returns the exit code."""
    if figure is not None:
        from headway.app.inspect.figures import save

        save(found.drawn(), figure)
    if json:
        print(dumps(found.plain(), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print(found.shown(), *([] if figure is None else [f"figure: {figure}"]), sep="\n\n")
    return 0
