"""What a dictionary has found, told as text, as data and as a figure.

Axes:  A atoms
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headway.app.inspect.cells import digits, number, table, visible
from headway.app.inspect.figures import Bars, Curves, Drawing, Panel
from headway.app.inspect.told import Found
from headway.inspect.dictionary import Config, Sparseness, Top
from headway.inspect.dictionary_learning import Moment, Practice, Quality

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AROUND, BESIDE = 28, 10  # letters that are shown on either side of a token, in a line of text and in the figure
DRAWN = 12  # atoms that have a line in the figure
COLUMNS = (-0.1, 0.0, 0.18, 0.6)  # of such a line


class Place(NamedTuple):
    """Where an atom is excited: how much, by which token, and what stands around it."""

    code: float
    token: str
    before: str = ""
    after: str = ""

    def shown(self, around: int = AROUND) -> str:
        """The token in brackets, and so many letters on either side of it."""
        return f"{visible(self.before[-around:])}[{visible(self.token)}]{visible(self.after[:around])}"


class Atom(NamedTuple):
    """One atom: the share of vectors that use it, and the places where it is strongest."""

    number: int
    share: float
    places: list[Place]


class Losses(NamedTuple):
    """The loss of a `target` on held-out rows: as the model is, and with the vectors of the site replaced."""

    target: str
    whole: float
    rebuilt: float
    mean: float
    zero: float

    @property
    def recovered(self) -> float:
        """The share of what zeros lose that what is rebuilt does not lose: 1 where nothing is lost."""
        lost = self.zero - self.whole
        return (self.zero - self.rebuilt) / lost if lost else float("nan")


@dataclass(frozen=True, eq=False)
class Learned(Found):
    """A dictionary's sizes, how it came about, and what is to be said of it."""

    why: str
    config: Config
    practice: Practice
    vectors: tuple[int, int]  # learned from, and held out
    moments: Sequence[Moment]
    quality: Quality
    losses: Losses | None
    shares: Sequence[float]  # A, of vectors that use each atom
    atoms: Sequence[Atom]  # those that are used most
    out: Path | None

    def plain(self) -> dict[str, Any]:
        quality, losses = self.quality, self.losses
        return {
            "data": self.why,
            "site": self.config.site,
            "width": self.config.dim,
            "vectors": {"learned": self.vectors[0], "held": self.vectors[1], "left": quality.left},
            "atoms": self.config.atoms,
            **choice_of(self.config.sparse),
            "steps": self.practice.steps,
            "seed": self.practice.seed,
            "explained": number(quality.explained),
            "explained_by_principal": number(quality.principal),
            "components": quality.components,
            "active": quality.active,
            "dead": quality.dead,
            "revived": self.revived,
            "loss": None if losses is None else self.loss_plain(losses),
            "curve": [asdict(moment) for moment in self.moments],
            "most_used": [
                {"atom": atom.number, "share": atom.share, "places": [place._asdict() for place in atom.places]}
                for atom in self.atoms
            ],
            "out": None if self.out is None else str(self.out),
        }

    def loss_plain(self, losses: Losses) -> dict[str, Any]:
        told = {name: number(value) for name, value in losses._asdict().items() if name != "target"}
        return {"per": losses.target, **told, "recovered": number(losses.recovered)}

    @property
    def revived(self) -> int:
        return sum(moment.revived for moment in self.moments)

    def shown(self) -> str:
        learned, held = self.vectors
        config, quality = self.config, self.quality
        told = f"{learned:,} vectors of width {config.dim} at {config.site} were learned from, {held:,} are held out"
        left = f"; {quality.left:,} are many times longer than all others and left as they are" if quality.left else ""
        rows = [
            (
                "explained variance",
                digits(quality.explained),
                f"of {quality.components} principal directions: {digits(quality.principal)}",
            ),
            ("active atoms", digits(quality.active, ".1f"), f"of {config.atoms:,}, for each vector"),
            ("dead atoms", f"{quality.dead:,}", f"{self.revived:,} were revived on the way"),
        ]
        blocks = [self.why, told + left, "\n".join(f"{a:<18}  {b:>7}  {c}" for a, b, c in rows)]
        blocks += [] if self.losses is None else [self.losses_shown(self.losses)]
        blocks += map(atom_shown, self.atoms)
        return "\n\n".join([*blocks, *([] if self.out is None else [f"dictionary: {self.out}"])])

    def losses_shown(self, losses: Losses) -> str:
        rows = [
            ("the vectors", digits(losses.whole), ""),
            ("what the atoms tell", digits(losses.rebuilt), f"{digits(100 * losses.recovered, '.1f')} % recovered"),
            ("their mean", digits(losses.mean), ""),
            ("zeros", digits(losses.zero), ""),
        ]
        return table(["the model goes on with", f"loss per {losses.target}", ""], rows)

    def drawn(self) -> Drawing:
        panels: list[Panel] = [
            self.curve(),
            Usage("how often atoms are used", self.shares),
            Tops("what excites atoms most", self.atoms),
        ]
        if self.losses is not None:
            names, values = ["the vectors", "the atoms", "their mean", "zeros"], list(self.losses[1:])
            panels.append(Bars("the model goes on with", names, values, f"loss per {self.losses.target}"))
        title = f"{self.config.atoms} atoms of {self.config.site}: {digits(self.quality.explained)} of the variance"
        return Drawing(title, panels, abreast=2)

    def curve(self) -> Curves:
        names = [f"{moment.step:,}" for moment in self.moments]
        lines: dict[str, Sequence[float]] = {
            "explained variance of a batch": [moment.explained for moment in self.moments],
            "dead atoms": [moment.dead / self.config.atoms for moment in self.moments],
        }
        level = {f"{self.quality.components} principal directions": self.quality.principal}
        return Curves("learning, by steps", names, lines, level, "share")


@dataclass(frozen=True, eq=False)
class Usage:
    """How many atoms are used by which share of the vectors; those that none uses stand apart."""

    title: str
    shares: Sequence[float]
    width: float = 3.5
    height: float = 2.8

    def draw(self, axes: Axes, figure: Figure) -> None:
        used = [log10(share) for share in self.shares if share > 0]
        axes.hist(used, bins=30, color="C0", label=f"{len(used):,} in use")
        axes.plot([], [], " ", label=f"{len(self.shares) - len(used):,} dead")
        axes.set_xlabel("share of vectors that use an atom, log₁₀")
        axes.set_ylabel("atoms")
        axes.legend(frameon=False)


@dataclass(frozen=True, eq=False)
class Tops:
    """A line for each atom: how often it is used, and the two places that excite it most."""

    title: str
    atoms: Sequence[Atom]
    width: float = 3.5
    height: float = 2.8

    def draw(self, axes: Axes, figure: Figure) -> None:
        axes.set_axis_off()
        for line, atom in enumerate(self.atoms[:DRAWN]):
            height = 1 - (line + 0.5) / DRAWN
            texts = [f"{atom.number}", f"{100 * atom.share:.1f} %", *(place.shown(BESIDE) for place in atom.places[:2])]
            for column, text in zip(COLUMNS, texts, strict=False):
                colour = "0.4" if column < COLUMNS[2] else "0.0"
                axes.text(column, height, visible(text), transform=axes.transAxes, va="center", color=colour)


def choice_of(sparse: Sparseness) -> dict[str, Any]:
    return {"top": sparse.count} if isinstance(sparse, Top) else {"l1": getattr(sparse, "weight", None)}


def atom_shown(atom: Atom) -> str:
    lines = [f"  {digits(place.code, '.2f'):>6}  {place.shown()}" for place in atom.places]
    return "\n".join([f"atom {atom.number}, in {100 * atom.share:.1f} % of the vectors", *lines])
