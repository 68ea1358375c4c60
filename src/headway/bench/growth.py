"""How cost grows: time and memory of headway against length, batch, width and vocabulary, in training and decoding.

Each is a suite with headway alone, whose cases double one size of a small GPT.  Costs are c · size^p; p is fitted to
all cases, and to the last doubling alone, where fixed costs weigh least.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.bench.answers import LOSSES, TOKENS, Comparison
from headway.bench.benchmark import SuiteResult
from headway.bench.suite import Case, Contender, Run, Suite, Workspace
from headway.bench.training_suites import gpt_config, headway_gpt
from headway.figures import Drawing, Plot, exponent, save_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PREFIX = "growth-"
BASE = {"vocab": 512, "context": 128, "dim": 128, "layers": 2, "heads": 2, "batch": 4}
TINY = {"vocab": 32, "context": 8, "dim": 16, "layers": 1, "heads": 1, "batch": 1}
STEPS = 16  # new tokens of a run
SPARE = 1024  # positions for those of all runs
DOUBLINGS = 4
AXES = {"length": "context", "batch": "batch", "width": "dim", "vocabulary": "vocab"}


def growing_cases(size: str) -> Callable[[Mapping[str, int]], tuple[Case, ...]]:
    """Cases in which one of the sizes doubles."""

    def cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
        values = [sizes[size] * 2**power for power in range(DOUBLINGS)]
        return tuple(Case(f"{value:,}", 1, "run", sizes={**sizes, size: value, "value": value}) for value in values)

    return cases


def by_case(work: Workspace, use: Callable[[Workspace], Run], spare: int = 0) -> Run:
    """Runs each case with random weights of its own, made when it first runs, which is not counted.

    `spare` positions come on top of the context.
    """
    from headway.bench.weights import write_model

    runs = dict[str, Run]()

    def run(case: Case) -> Any:
        if case.name not in runs:
            sizes = {**case.sizes, "context": case.sizes["context"] + spare}
            one = Workspace(work.folder / case.name, sizes, work.threads)
            write_model(one.folder, gpt_config(one))
            runs.clear()  # so that the model before it does not count as memory
            runs[case.name] = use(one)
        return runs[case.name](case)

    return run


def train(work: Workspace) -> Run:
    """A step of training."""
    return by_case(work, headway_gpt(gpt_config))


def decode(work: Workspace) -> Run:
    """New tokens after as many as the length is."""

    def session_of(one: Workspace) -> Run:
        import torch

        from headway.bench.decoding_suites import load_headway
        from headway.generate.session import DecodingSession

        sizes = one.sizes
        prompts = [[token % sizes["vocab"] for token in range(sizes["context"] - SPARE)]] * sizes["batch"]
        session = DecodingSession(load_headway(one, "fp32"), prompts, SPARE)
        with torch.inference_mode():
            tokens = [session.prompt().argmax(-1)]

        def steps(case: Case) -> list[list[int]]:
            with torch.inference_mode():
                for _ in range(STEPS):
                    tokens.append(session.step(tokens[-1]).argmax(-1))
            return [one.tolist() for one in tokens[-STEPS:]]

        return steps

    return by_case(work, session_of, SPARE)


def growth_suite(what: str, axis: str, contender: Contender, comparison: Comparison) -> Suite:
    size = AXES[axis]
    return Suite(
        f"{PREFIX}{what}-{axis}",
        f"How the cost of {NAMES[what]} grows with the {axis}",
        lambda work: None,
        growing_cases(size),
        (contender,),
        BASE if what == "train" else {**BASE, "context": 512},
        TINY,
        comparison,
        memory=True,
        notes=f"A GPT of 2 layers; {', '.join(f'{name} {value}' for name, value in BASE.items() if name != size)}.",
    )


NAMES = {"train": "a training step", "decode": "a new token"}
GROWTH = (
    *(growth_suite("train", axis, Contender("headway fp32", train), LOSSES) for axis in AXES),
    *(growth_suite("decode", axis, Contender("headway fp32", decode), TOKENS) for axis in AXES),
)


# ---- exponents and figures


@dataclass(frozen=True)
class Growth:
    """Seconds and bytes by size."""

    title: str
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    memory: tuple[float, ...]


def growth_of(result: SuiteResult) -> Growth:
    """Memory counts from what the process had before the first case, which is the smallest."""
    found = [case.measured[0] for case in result.cases if case.measured]
    base = found[0].peak - found[0].above
    sizes = tuple(float(case.name.replace(",", "")) for case in result.cases if case.measured)
    memory = tuple(float(max(1, one.peak - base)) for one in found)
    return Growth(result.title, sizes, tuple(one.seconds for one in found), memory)


def growth_rows(results: Sequence[SuiteResult]) -> list[list[str]]:
    """The table of exponents."""
    rows = [["suite", "sizes", "time: p", "last doubling", "memory: p", "last doubling"]]
    for result in results:
        one = growth_of(result)
        cells = [
            f"{value:.2f}"
            for costs in (one.seconds, one.memory)
            for value in (exponent(one.sizes, costs), exponent(one.sizes[-2:], costs[-2:]))
        ]
        rows.append([result.name, f"{one.sizes[0]:,.0f} to {one.sizes[-1]:,.0f}", *cells])
    return rows


def draw_growth(results: Sequence[SuiteResult], path: Path) -> None:
    """A figure of time and memory over each size, both axes logarithmic."""

    def panel(one: Growth) -> Drawing:
        def paint(axes: Axes) -> None:
            for name, costs in (("time", one.seconds), ("memory", one.memory)):
                axes.loglog(
                    one.sizes, [cost / costs[0] for cost in costs], base=2, marker="o", markersize=3.5, label=name
                )
            axes.set_xticks(one.sizes, [f"{size:,.0f}" for size in one.sizes])
            axes.yaxis.set_major_formatter("{x:g}")  # not as a power of two
            axes.set_ylim(top=max(4.0, axes.get_ylim()[1]))
            axes.set_ylabel("times the first")
            axes.legend(frameon=False)

        return Drawing(one.title.removeprefix("How the cost of ").replace(" grows with the ", ": "), paint, 2.4, 1.8)

    save_plot(Plot("", [panel(growth_of(result)) for result in results], columns=4), path)
