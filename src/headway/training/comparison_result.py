"""What a comparison of choices found: a table, data and a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from headway.console import aligned
from headway.errors import counted, listed
from headway.figures import INK, LINES, SOFT, Drawing, Plot
from headway.inspect.presentation import Result
from headway.system import write_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUMBERS, FIGURE = "comparison.json", "comparison.png"
Choice = str | int
Choices = Mapping[str, Sequence[Choice]]


@dataclass(frozen=True)
class Variant:
    """One point of the grid, and what was measured of it: a loss and the seconds of training for each seed."""

    choices: Mapping[str, Choice]
    parameters: int
    hidden: int
    losses: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def name(self) -> str:
        return ", ".join(str(choice) for choice in self.choices.values())

    @property
    def mean(self) -> float:
        return fmean(self.losses)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.losses), max(self.losses)


@dataclass(frozen=True)
class Budget:
    """What each training may use: a number of steps, the same for all variants.

    Those of `minutes` are as many as the slowest variant does in that time; where that is None, as many as are of use
    to the data, which take less.
    """

    steps: int
    minutes: float | None = None  # None where steps or epochs were given
    slowest: str | None = None

    def __str__(self) -> str:
        said = counted(self.steps, "step")
        if self.minutes is None:
            return said
        time = counted(self.minutes, "minute")
        if self.slowest is None:
            return f"{said}, enough for this data: not all of {time}"
        return f"{said}, as many as the slowest ({self.slowest}) does in {time}"


@dataclass(frozen=True)
class ComparisonResult(Result):
    """The variants, the best first, and what they have in common."""

    variants: Sequence[Variant]
    axes: Choices
    data_description: str
    budget: Budget
    epochs: float
    batch: int
    lr: float
    seeds: tuple[int, ...]
    targets: int  # held-out tokens that a loss is the mean of
    shared: Mapping[str, Any]  # fields of the config that all have
    folder: Path
    notes: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        rows = [
            {**vars(one), "name": one.name, "mean": one.mean, "min": one.spread[0], "max": one.spread[1]}
            for one in self.variants
        ]
        about = {
            name: value for name, value in vars(self).items() if name not in ("variants", "data_description", "budget")
        }
        means = self.means_by_choice()
        return {"data": self.data_description, **vars(self.budget), **about, "variants": rows, "means_by_choice": means}

    def means_by_choice(self) -> list[dict[str, Any]]:
        """The mean loss of all variants that share a choice: the effect of an axis, averaged over the others."""
        return [
            {"axis": axis, "choice": choice, "mean": fmean(losses), "count": len(losses)}
            for axis, choices in self.axes.items()
            for choice in choices
            if (losses := [x for one in self.variants if one.choices[axis] == choice for x in one.losses])
        ]

    def blocks(self) -> Iterator[str]:
        yield f"loss of a held-out token after {counted(self.budget.steps, 'step')}; lower is better"
        rows = [
            [
                one.name,
                f"{one.mean:.4f}",
                f"{one.spread[0]:.4f}–{one.spread[1]:.4f}",
                str(len(one.losses)),
                f"{one.parameters:,}",
                str(one.hidden),
                f"{fmean(one.seconds):.1f}",
            ]
            for one in self.variants
        ]
        yield aligned([[", ".join(self.axes), "mean", "min–max", "n", "parameters", "hidden", "seconds"], *rows])
        if len(self.axes) > 1:
            means = [
                [f"{one['axis']}={one['choice']}", f"{one['mean']:.4f}", str(one["count"])]
                for one in self.means_by_choice()
            ]
            yield aligned([["averaged over the other axes", "mean", "n"], *means])
        yield "\n".join([*self.verdict(), *self.notes, *self.basis()])

    def verdict(self) -> Iterator[str]:
        best, *others = self.variants
        near = [one.name for one in others if one.spread[0] <= best.spread[1]]
        if len(self.seeds) < 2:
            yield f"{best.name} has the lowest loss; one seed says nothing of chance (seeds=3)"
        elif near:
            yield f"{best.name} has the lowest mean; its range overlaps that of {listed(near, 4)}"
        else:
            yield f"{best.name} has the lowest mean, and no other variant's range overlaps its own"

    def basis(self) -> Iterator[str]:
        counts = [one.parameters for one in self.variants]
        apart = (max(counts) - min(counts)) / max(counts)
        yield f"{self.data_description}; {self.targets:,} held-out tokens, the same for all"
        yield f"equal budget: {self.budget}"
        yield f"{self.epochs:.2f} epochs in the same batches of {self.batch:,} tokens; learning rate {self.lr:.3g}"
        yield f"parameters differ by at most {apart:.2%}, by the hidden width of the feed-forward layers"
        yield f"seeds {', '.join(map(str, self.seeds))}; n is the number of trainings, seconds are those of one"
        yield f"figure   {self.folder / FIGURE}"
        yield f"numbers  {self.folder / NUMBERS}"

    def plot(self) -> Plot:
        height = max(1.5, 0.32 * len(self.variants))
        title = (
            f"loss of a held-out token after {counted(self.budget.steps, 'step')}, {counted(len(self.seeds), 'seed')}"
        )
        return Plot("", [Drawing(title, self.paint, width=5.0, height=height)])

    def paint(self, axes: Axes) -> None:
        for at, one in enumerate(self.variants):
            axes.plot(one.spread, (at, at), color=LINES[0], linewidth=2)
            axes.plot(one.losses, [at] * len(one.losses), "o", color=LINES[0], markersize=4)
            axes.plot([one.mean], [at], "|", color=INK, markersize=14)
        axes.set_yticks(range(len(self.variants)), [one.name for one in self.variants])
        axes.set_ylim(len(self.variants) - 0.5, -0.5)
        axes.set_xlabel("loss: each seed a dot, the mean a bar, the line from the lowest to the highest", color=SOFT)
        axes.grid(axis="x", linewidth=0.5)

    def save(self) -> None:
        """Writes the numbers and the figure into the folder."""
        write_json(self.folder / NUMBERS, self.to_dict())
        self.save_figure(self.folder / FIGURE)
