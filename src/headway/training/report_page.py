"""What a run leaves for people: `report.html` and `README.md`, the model's card.

The page is one file that needs nothing else: no network, no scripts.

The figures of a report as parts of a page: curves over steps, heat maps, strips of images.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence

from torch import nn

from headway.figures import Curve, CurveChart, HeatMap, Panel, Plot, Point, inline_svg, printable
from headway.metrics.scores import CLASSES, MEASURES, PERCENT, Classes, taken_for
from headway.system import write_text
from headway.tasks.results import PictureStrip, ReportDetails, Sample
from headway.training.loop import RunResult
from headway.training.markup import Markup, cut, drawing, facts_table, page, section, table, tag
from headway.training.metrics_log import MetricsLog
from headway.training.plan import Plan
from headway.training.report import UNSEEN, RunReport, model_card, run_report, score_rows
from headway.training.report_attention import WeightMap

SMALLEST, LARGEST = 0.8, 1.6  # pixels of a point: text of 9 points has 7 to 14 pixels, on a phone and on a desk


def curve_figure(
    title: str, curves: Sequence[Curve], xlabel: str = "step", marks: Sequence[float] = ()
) -> Markup | None:
    """Curves over numbers, with dashed lines at the `marks`; None where there is nothing finite to draw."""
    drawn = [curve for curve in (one.drawable() for one in curves) if curve.points]
    if not drawn:
        return None
    description = "; ".join(curve.summary(xlabel) for curve in drawn)
    return svg(CurveChart("", drawn, xlabel, marks), title, description)


def map_figure(one: WeightMap, *, ylabel: str = "", xlabel: str = "") -> Markup:
    """A heat map below its title."""
    most = max((weight for row in one.weights for weight in row), default=0.0) or 1.0
    panel = HeatMap("", one.weights, one.rows, one.columns, ylabel, xlabel, limits=(0.0, most))
    caption = tag("figcaption", one.title, dir="auto") if one.title else None
    return tag("figure", caption, svg(panel, one.title or "attention", "; ".join(largest(one))))


def largest(one: WeightMap) -> Iterator[str]:
    """For each row the column with its largest weight, in words."""
    for row, weights in zip(one.rows, one.weights, strict=True):
        at = max(range(len(weights)), key=weights.__getitem__)
        yield f"{printable(row)}: most at {printable(one.columns[at])}, {weights[at]:.2f}"


def svg(panel: Panel, title: str, description: str) -> Markup:
    """One panel as an element that scales with the page, and scrolls where it would become too small."""
    figure = inline_svg(Plot("", [panel]))
    return tag(
        "div",
        tag(
            "svg",
            tag("title", title),
            tag("desc", description),
            drawing(figure.elements),
            viewBox=f"0 0 {figure.width:g} {figure.height:g}",
            style=f"min-width:{SMALLEST * figure.width:.0f}px;max-width:{LARGEST * figure.width:.0f}px",
            role="img",
        ),
        class_="wide",
    )


def picture_figure(one: PictureStrip) -> Markup:
    """Each image over what it is."""
    frames = [
        tag(
            "span",
            tag("img", src=f"data:image/png;base64,{b64encode(file).decode()}", alt=name),
            tag("span", name, dir="auto"),
            class_="frame",
        )
        for file, name in zip(one.files, one.names, strict=True)
    ]
    return tag("figure", tag("figcaption", one.title, dir="auto"), *frames)


REPORT, CARD = "report.html", "README.md"
SHOWN = 6  # right samples, and as many wrong ones
MAX_NAME = 100  # characters of the data's name
MAX_RECIPE = 20_000  # characters
MAX_CHARTS = 3
MAX_EVALUATIONS = 25  # in the table below the charts


def write_report(made: Plan, end: RunResult, log: MetricsLog, model: nn.Module) -> None:
    """Evaluates the model once more, on more than each evaluation did, and writes the report and the card."""
    found = run_report(made, end, log, model)
    write_text(made.out / REPORT, report_page(found))
    write_text(made.out / CARD, model_card(found))


def report_page(report: RunReport) -> str:
    """The whole page."""
    title = f"{cut(report.name, MAX_NAME)}: {report.task}"
    return page(
        f"{title} – headway",
        tag("h1", title, dir="auto"),
        tag("p", "What was trained, on what data, and how good it is.", class_="soft"),
        *headline(report),
        section("Summary", facts_table(report.summary)),
        section("Training", *training(report)),
        section("Scores", *scores(report)),
        section("Samples", *samples(report)),
        section("What it attends to", *attention(report)),
        section("Next commands", *commands(report)),
        section("Machine", facts_table(report.machine)),
        section("Recipe", *recipe(report)),
    )


def headline(report: RunReport) -> Iterator[Markup]:
    """The scores, large."""
    if report.details is None:
        return
    found, unseen = report.details.scores, report.unseen
    tiles = [(formatted(name, number), title_of(name)) for name, number in found.numbers.items()]
    if unseen is not None:
        tiles.insert(1, (formatted(unseen.main, unseen.numbers[unseen.main]), f"{title_of(unseen.main)}, {UNSEEN}"))
    yield tag("ul", *(tag("li", tag("strong", number), name) for number, name in tiles), class_="numbers")


# ---- training


def training(report: RunReport) -> Iterator[Markup]:
    """A chart for the loss and for each metric that is not the loss again, and the evaluations as numbers."""
    names = [name for name in report.curves if name != "perplexity"][:MAX_CHARTS]
    drawn = [(name, figure) for name in names if (figure := chart(name, report)) is not None]
    for name, figure in drawn:
        yield tag("h3", axis_title(name))
        yield figure
    if not drawn:
        yield tag("p", "No step was logged.")
    if report.label_smoothing:
        said = "The training loss includes label smoothing and is higher for that; the validation loss does not."
        yield tag("p", said, class_="soft")
    if report.kept:
        yield tag(
            "p", f"Dashed: the weights that were kept, of step {', '.join(map(str, report.kept))}.", class_="soft"
        )
    if evaluations := evaluation_table(report):
        yield evaluations


def chart(name: str, report: RunReport) -> Markup | None:
    times = 100 if is_percent(name) else 1
    curves = [Curve(one.name, [Point(p.x, times * p.y) for p in one.points]) for one in report.curves[name]]
    last = max((point.x for curve in curves for point in curve.points), default=0)
    return curve_figure(f"{axis_title(name)}, by step", curves, marks=[step for step in report.kept if step <= last])


def evaluation_table(report: RunReport) -> Markup | None:
    """The evaluations of the run; of many, some."""
    lines = {name: curves[-1] for name, curves in report.curves.items() if curves[-1].name == "validation"}
    values = {name: {point.x: point.y for point in line.points} for name, line in lines.items()}
    steps = sorted({step for found in values.values() for step in found})
    if not steps:
        return None
    every = -(-len(steps) // MAX_EVALUATIONS)
    chosen = [step for at, step in enumerate(steps) if at % every == 0 or at == len(steps) - 1]
    rows = [
        [f"{step:,g}", *(formatted(name, found[step]) if step in found else "" for name, found in values.items())]
        for step in chosen
    ]
    return table("Evaluations on held-out data", ["step", *map(title_of, values)], rows)


# ---- scores


def scores(report: RunReport) -> Iterator[Markup]:
    if report.details is None:
        yield tag("p", "Nothing was held out, so nothing was evaluated.")
        return
    found = report.details.scores
    heads, *rows = score_rows(found, report.unseen)
    yield table(f"On {found.count:,} held-out {found.things}", heads, rows)
    if found.classes is not None:
        yield class_table(found.classes)
        if 2 < len(found.classes.labels) <= CLASSES:
            yield confusion(found.classes)
    for name, signature in found.signatures.items():
        yield tag("p", f"{title_of(name)}: ", tag("code", signature), class_="soft")


def class_table(classes: Classes) -> Markup:
    ordered = sorted(classes.labels, key=lambda label: (-classes.asked[label], label))[:CLASSES]
    rows = list[list[str]]()
    for label in ordered:
        shares = (classes.precision(label), classes.recall(label), classes.f1(label))
        rows.append([cut(label), f"{classes.asked[label]:,}", *map(PERCENT.shown, shares), taken_for(classes, label)])
    return table("The most frequent classes", ["class", "count", "precision", "recall", "F1", "taken for"], rows)


def confusion(classes: Classes) -> Markup:
    """Of each class the share that was taken for each."""
    labels = tuple(classes.labels)
    shares = [[classes.counts[one, other] / max(1, classes.asked[one]) for other in labels] for one in labels]
    title = "Confusion matrix: of each class (row) the share that was predicted as each (column)"
    return map_figure(WeightMap(title, labels, labels, shares), ylabel="true class", xlabel="predicted class")


# ---- samples and attention


def samples(report: RunReport) -> Iterator[Markup]:
    """Right and wrong answers; where answers are neither, some of all."""
    details = report.details
    if details is None or not (details.samples or details.pictures):
        yield tag("p", "There are none: nothing was held out that the model could answer.")
        return
    if details.note:
        yield tag("p", details.note, class_="soft")
    for title, lines in details.curves.items():
        curves = [Curve(name, [Point(at, value) for at, value in enumerate(row, 1)]) for name, row in lines.items()]
        if figure := curve_figure(f"{title}, by row", curves, "row"):
            yield tag("h3", cut(title, MAX_NAME), dir="auto")
            yield figure
    if details.pictures:
        yield tag("p", f"Held-out images, each {', '.join(details.pictures[0].names)}.", class_="soft")
        yield tag("div", *map(picture_figure, details.pictures), class_="pictures")
    if details.samples:
        yield from graded_samples(report, details) if report.graded else all_samples(report, details)


def graded_samples(report: RunReport, details: ReportDetails) -> Iterator[Markup]:
    found = details.samples
    right = [sample for sample in found if sample.is_right]
    wrong = [sample for sample in found if not sample.is_right]
    for name, some in (("Right", right), ("Wrong", wrong)):
        caption = f"{name}: {len(some):,} of {len(found):,}" + ("; here are some" if len(some) > SHOWN else "")
        if some:
            yield sample_table(caption, report.sample_names[: 2 + (some is wrong)], spread(some))
        else:
            yield tag("p", f"{name}: none.", class_="soft")


def all_samples(report: RunReport, details: ReportDetails) -> Iterator[Markup]:
    things = {"tokens": "texts"}.get(details.scores.things, details.scores.things)
    yield sample_table(f"Held-out {things}", report.sample_names, spread(details.samples))


def sample_table(caption: str, heads: Sequence[str], some: Sequence[Sample]) -> Markup:
    rows = [[cut(text) for text in sample[: len(heads)]] for sample in some]
    return table(caption, heads, rows, texts=True)


def spread(some: Sequence[Sample]) -> list[Sample]:
    """A few of them, from the first to the last."""
    return [some[at * len(some) // SHOWN] for at in range(SHOWN)] if len(some) > SHOWN else list(some)


def attention(report: RunReport) -> Iterator[Markup]:
    found = report.attention
    if not found.figures:
        said = "this model has no attention over a whole input, or nothing was held out to show it with"
        yield tag("p", f"Nothing can be drawn: {said}.")
        return
    yield tag("p", found.description, class_="soft")
    pictures = [picture_figure(one) for one in found.figures if isinstance(one, PictureStrip)]
    maps = [map_figure(one) for one in found.figures if isinstance(one, WeightMap)]
    yield tag("div", *pictures, *maps, class_="pictures" if pictures else "maps")
    command = report.commands[0].command.replace("headway run", "headway look", 1)
    yield tag("p", "All layers and heads, for any input: ", tag("code", command), class_="soft")


# ---- commands and recipe


def commands(report: RunReport) -> Iterator[Markup]:
    for command, purpose in report.commands:
        yield tag("p", f"{purpose[0].upper()}{purpose[1:]}:")
        yield tag("pre", tag("code", command), dir="auto")


def recipe(report: RunReport) -> Iterator[Markup]:
    yield tag("p", "Every setting of this run, as in ", tag("code", "recipe.yaml"), " of its folder.", class_="soft")
    yield tag("pre", tag("code", cut(report.recipe, MAX_RECIPE)))


# ---- numbers


def is_percent(name: str) -> bool:
    return name in MEASURES and MEASURES[name].percent


def axis_title(name: str) -> str:
    return f"{title_of(name)}, %" if is_percent(name) else title_of(name)


def formatted(name: str, number: float) -> str:
    return MEASURES[name].shown(number) if name in MEASURES else f"{number:.4g}"


def title_of(name: str) -> str:
    return MEASURES[name].title if name in MEASURES else name
