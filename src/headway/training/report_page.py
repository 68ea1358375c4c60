"""What a run leaves for people: `report.html` and `README.md`, the model card.

The page is one file that needs nothing else: no network, no scripts.  Texts cannot become markup: a `str` is a text,
which `tag` escapes, and only a `Markup` is a piece of a page.

tag("td", answer, dir="auto")   →   <td dir="auto">&lt;b&gt; &amp; so on</td>
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from torch import nn

from headway.figures import Curve, CurveChart, HeatMap, Panel, Plot, Point, inline_svg, printable
from headway.metrics.scores import CLASSES, MEASURES, Classes, Measure, class_rows
from headway.system import write_text
from headway.tasks.results import PictureStrip, ReportDetails, Sample
from headway.training.build import CARD, REPORT
from headway.training.loop import RunResult
from headway.training.metrics_log import MetricsLog
from headway.training.plan import Plan
from headway.training.report import INTERVALS, NOT_EVALUATED, UNSEEN, RunReport, model_card, run_report, score_tables
from headway.training.report_attention import WeightMap
from headway.training.run_summary import look_command, write_scores

SHOWN = 6  # right samples, and as many wrong ones
MAX_NAME = 100  # characters of the data's name
MAX_RECIPE = 20_000  # characters
MAX_CHARTS = 3
MAX_EVALUATIONS = 25  # in the table below the charts
SMALLEST, LARGEST = 0.8, 1.6  # pixels of a point: text of 9 points has 7 to 14 pixels, on a phone and on a desk
MAX_TEXT = 400  # characters of a text in a table
VOID = frozenset({"meta", "br", "hr", "img"})  # elements without content
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
# control characters as their pictures (␀ ␁ …); tabs and ends of lines are spaces of the page's own
PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
INVISIBLE = {**PICTURES, 0x7F: 0x2421, **dict.fromkeys(range(0x80, 0xA0), 0xFFFD)}


def write_report(made: Plan, end: RunResult, log: MetricsLog, model: nn.Module) -> None:
    """Writes the report and the card, and the scores of the last evaluation as data."""
    found = run_report(made, end, log, model)
    write_scores(made, end)
    write_text(made.out / REPORT, report_page(found))
    write_text(made.out / CARD, model_card(found))


def report_page(report: RunReport) -> str:
    title = f"{cut(report.name, MAX_NAME)}: {report.task}"
    about_recipe = ("Every setting of this run, as in ", tag("code", "recipe.yaml"), " of its folder.")
    recipe = tag("pre", tag("code", cut(report.recipe, MAX_RECIPE)))
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
        section("Recipe", tag("p", *about_recipe, class_="soft"), recipe),
    )


def headline(report: RunReport) -> Iterator[Markup]:
    """The scores, large."""
    tiles = [(report.details.scores, name, "") for name in report.details.scores.numbers] if report.details else []
    others = {", test data": report.test and report.test.scores, f", {UNSEEN}": report.unseen}
    tiles[1:1] = [(found, found.main, more) for more, found in others.items() if found is not None]
    texts = [(formatted(n, of.numbers[n]), f"{measure_of(n).title}{more} ({of.basis(n)})") for of, n, more in tiles]
    yield tag("ul", *(tag("li", tag("strong", number), text) for number, text in texts), class_="numbers")
    yield from (tag("p", line, dir="auto") for line in report.conclusions)


def training(report: RunReport) -> Iterator[Markup]:
    """A chart for the loss and for each metric that is not the loss again, and the evaluations as numbers."""
    names = [name for name in report.curves if name != "perplexity"][:MAX_CHARTS]
    drawn = [(title, figure) for title, figure in (chart(name, report) for name in names) if figure is not None]
    for title, figure in drawn:
        yield tag("h3", title)
        yield figure
    if not drawn:
        yield tag("p", "No step was logged.")
    if report.label_smoothing:
        said = "The training loss includes label smoothing and is higher for that; the validation loss does not."
        yield tag("p", said, class_="soft")
    if report.kept:
        steps = ", ".join(map(str, report.kept))
        yield tag("p", f"Dashed: the weights that were kept, of step {steps}.", class_="soft")
    if evaluations := evaluation_table(report):
        yield evaluations


def chart(name: str, report: RunReport) -> tuple[str, Markup | None]:
    """The title and the figure of a metric, in percent where that is its unit."""
    one = measure_of(name)
    title, times = (f"{one.title}, %", 100) if one.percent else (one.title, 1)
    curves = [Curve(one.name, [Point(p.x, times * p.y) for p in one.points]) for one in report.curves[name]]
    last = max((point.x for curve in curves for point in curve.points), default=0)
    return title, curve_figure(f"{title}, by step", curves, marks=[step for step in report.kept if step <= last])


def evaluation_table(report: RunReport) -> Markup | None:
    """The evaluations of the run; of many, some."""
    lines = {name: curves[-1] for name, curves in report.curves.items() if curves[-1].name == "validation"}
    values = {name: {point.x: point.y for point in line.points} for name, line in lines.items()}
    steps = sorted({step for found in values.values() for step in found})
    if not steps:
        return None
    every = -(-len(steps) // MAX_EVALUATIONS)
    chosen = [step for at, step in enumerate(steps) if at % every == 0 or at == len(steps) - 1]

    def cell(name: str, step: float) -> str:
        if step not in values[name]:
            return ""
        limits = report.limits.get(name, {}).get(step)
        number = values[name][step]
        return formatted(name, number) if limits is None else measure_of(name).with_interval(number, limits)

    rows = [[f"{step:,g}", *(cell(name, step) for name in values)] for step in chosen]
    return table(
        f"Evaluations on {report.counted}, with 95 % intervals in brackets",
        ["step", *(measure_of(name).title for name in values)],
        rows,
    )


def scores(report: RunReport) -> Iterator[Markup]:
    for caption, (heads, *rows) in score_tables(report):
        yield table(caption, heads, rows)
    if report.details is not None or report.test is not None:
        yield tag("p", INTERVALS, class_="soft")
    if report.details is None:
        yield tag("p", NOT_EVALUATED)
        return
    found = report.details.scores
    if found.classes is not None:
        heads, *rows = class_rows(found.classes)
        yield table("The most frequent classes", heads, rows)
        if 2 < len(found.classes.labels) <= CLASSES:
            yield confusion(found.classes)
    for name, signature in found.signatures.items():
        yield tag("p", f"{measure_of(name).title}: ", tag("code", signature), class_="soft")


def confusion(classes: Classes) -> Markup:
    """Of each class the share that was taken for each."""
    labels = tuple(classes.labels)
    shares = [[classes.counts[one, other] / max(1, classes.asked[one]) for other in labels] for one in labels]
    title = "Confusion matrix: of each class (row) the share that was predicted as each (column)"
    return map_figure(WeightMap(title, labels, labels, shares), ylabel="true class", xlabel="predicted class")


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
    if details.samples and report.graded:
        yield from graded_samples(report, details)
    elif details.samples:
        things = {"tokens": "texts"}.get(details.scores.things, details.scores.things)
        yield sample_table(f"Held-out {things}", report.sample_names, details.samples)


def graded_samples(report: RunReport, details: ReportDetails) -> Iterator[Markup]:
    for name, right in (("Right", True), ("Wrong", False)):
        some = [sample for sample in details.samples if sample.is_right is right]
        caption = f"{name}: {len(some):,} of {len(details.samples):,}"
        if some:
            more = "; here are some" if len(some) > SHOWN else ""
            yield sample_table(f"{caption}{more}", report.sample_names[: 2 if right else 3], some)
        else:
            yield tag("p", f"{name}: none.", class_="soft")


def sample_table(caption: str, heads: Sequence[str], samples: Sequence[Sample]) -> Markup:
    """A few samples, from the first to the last."""
    if len(samples) > SHOWN:
        samples = [samples[at * len(samples) // SHOWN] for at in range(SHOWN)]
    rows = [[cut(text) for text in sample[: len(heads)]] for sample in samples]
    return table(caption, heads, rows, texts=True)


def attention(report: RunReport) -> Iterator[Markup]:
    found = report.attention
    if not found.figures:
        said = "this model has no attention over a whole input, or no input was found that it can read whole"
        yield tag("p", f"Nothing can be drawn: {said}.")
        return
    yield tag("p", found.description, class_="soft")
    pictures = [picture_figure(one) for one in found.figures if isinstance(one, PictureStrip)]
    maps = [map_figure(one) for one in found.figures if isinstance(one, WeightMap)]
    yield tag("div", *pictures, *maps, class_="pictures" if pictures else "maps")
    command = tag("code", look_command(report.folder, report.example))
    yield tag("p", "All layers and heads, for any input: ", command, class_="soft")


def commands(report: RunReport) -> Iterator[Markup]:
    for command, purpose in report.commands:
        yield tag("p", f"{purpose[0].upper()}{purpose[1:]}:")
        yield tag("pre", tag("code", command), dir="auto")


def formatted(name: str, number: float) -> str:
    return MEASURES[name].shown(number) if name in MEASURES else f"{number:.4g}"


def measure_of(name: str) -> Measure:
    return MEASURES.get(name) or Measure(name)


# ---- figures


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
    """A heat map below its title, described by the column with the largest weight of each row."""
    largest = max((weight for row in one.weights for weight in row), default=0.0) or 1.0
    panel = HeatMap("", one.weights, one.rows, one.columns, ylabel, xlabel, limits=(0.0, largest))
    lines = list[str]()
    for row, weights in zip(one.rows, one.weights, strict=True):
        at = max(range(len(weights)), key=weights.__getitem__)
        lines.append(f"{printable(row)}: most at {printable(one.columns[at])}, {weights[at]:.2f}")
    caption = tag("figcaption", one.title) if one.title else None
    return tag("figure", caption, svg(panel, one.title or "attention", "; ".join(lines)))


def svg(panel: Panel, title: str, description: str) -> Markup:
    """One panel as an element that scales with the page, and scrolls where it would become too small."""
    figure = inline_svg(Plot("", [panel]))
    return tag(
        "div",
        tag(
            "svg",
            tag("title", title),
            tag("desc", description),
            Markup(figure.elements),  # matplotlib escapes the texts in it
            viewBox=f"0 0 {figure.width:g} {figure.height:g}",
            style=f"min-width:{SMALLEST * figure.width:.0f}px;max-width:{LARGEST * figure.width:.0f}px",
            role="img",
        ),
        class_="wide",
    )


def picture_figure(one: PictureStrip) -> Markup:
    frames = [
        tag(
            "span",
            tag("img", src=f"data:image/png;base64,{b64encode(file).decode()}", alt=name),
            tag("span", name, dir="auto"),
            class_="frame",
        )
        for file, name in zip(one.files, one.names, strict=True)
    ]
    return tag("figure", tag("figcaption", one.title), *frames)


# ---- HTML


class Markup(str):
    """A piece of a page, to be written as it stands.  Only this file makes one of text."""


def tag(name: str, /, *inside: str | None, **attributes: str | float | None) -> Markup:
    """An element.  Texts inside and values of attributes are escaped; None is left out.

    `class_` is the attribute class, and `text_anchor` is text-anchor.
    """
    given = {key.removesuffix("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    start = "".join([f"<{name}", *(f' {key}="{text(value)}"' for key, value in given.items())])
    return Markup(f"{start}/>" if name in VOID and not inside else f"{start}>{joined(inside)}</{name}>")


def joined(pieces: Iterable[str | None]) -> Markup:
    """Pieces one after the other, texts among them escaped."""
    return Markup("".join(piece if isinstance(piece, Markup) else text(piece) for piece in pieces if piece is not None))


def page(title: str, *body: Markup) -> str:
    """A whole document in one file, which may load nothing and run nothing."""
    head = joined(
        [
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", title),
            Markup(f"<style>{STYLE}</style>"),
        ]
    )
    return "<!doctype html>\n" + tag("html", tag("head", head), tag("body", *body), lang="en") + "\n"


def section(title: str, *inside: Markup) -> Markup:
    return tag("section", tag("h2", title), *inside)


def facts_table(facts: Iterable[tuple[str, str]]) -> Markup:
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", cut(value), dir="auto")) for name, value in facts]
    return tag("table", tag("tbody", *rows), class_="facts")


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, texts: bool = False) -> Markup:
    """A table whose first column names its rows; the others are numbers, or texts."""
    number = None if texts else "number"
    first, *others = heads
    top = tag("tr", tag("th", first, scope="col"), *(tag("th", name, scope="col", class_=number) for name in others))
    kind = "text" if texts else "number"
    body = list[Markup]()
    for name, *values in rows:
        cells = [tag("td", value, dir="auto", class_=kind) for value in values]
        title = tag("td", name, dir="auto", class_=kind) if texts else tag("th", name, dir="auto", scope="row")
        body.append(tag("tr", title, *cells))
    return tag("div", tag("table", tag("caption", caption), tag("thead", top), tag("tbody", *body)), class_="wide")


def cut(text: str, limit: int = MAX_TEXT) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def text(value: str | float) -> str:
    """A value as text that means itself, in an element and in a quoted attribute.

    What no HTML may hold becomes a sign for it: control characters, and halves of surrogate pairs.
    """
    return escape(str(value).translate(INVISIBLE).encode("utf-8", "replace").decode("utf-8"), quote=True)


STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --card: #f6f8fa;
  --rule: #d0d7de; --a: #1f5fbf; --b: #b35900; --c: #2a7f4f; --good: #1a7f37; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9aa4af; --paper: #0f1318; --card: #171d24;
  --rule: #323b45; --a: #79b0ff; --b: #f0a35e; --c: #6fcf97; --good: #57c878; --bad: #ff8a7a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2.25rem 0 .5rem; padding-bottom: .25rem; border-bottom: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .5rem 0; } .soft, caption, figcaption { color: var(--soft); }
.numbers { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; padding: 0; list-style: none; }
.numbers li { flex: 1 1 9rem; padding: .6rem .9rem; border: 1px solid var(--rule); border-radius: .5rem;
  background: var(--card); color: var(--soft); font-size: .85rem; }
.numbers strong { display: block; font-size: 1.5rem; line-height: 1.3; color: var(--ink);
  font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
caption { text-align: start; padding: .25rem 0; font-size: .85rem; }
th, td { text-align: start; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; } tbody th { white-space: nowrap; overflow-wrap: normal; }
td.number, th.number { text-align: end; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.text { min-width: 7rem; white-space: pre-wrap; }
.facts th { width: 9rem; color: var(--soft); font-weight: 400; }
.right { color: var(--good); } .wrong { color: var(--bad); }
svg { display: block; width: 100%; height: auto; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
svg * { stroke-linejoin: round; stroke-linecap: butt; } svg text { unicode-bidi: plaintext; }
.maps { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1.25rem; }
figure { margin: .5rem 0; } figcaption { font-size: .85rem; margin-bottom: .35rem; }
.frame { display: inline-block; vertical-align: top; width: min-content; margin: 0 .5rem .5rem 0; }
.frame img { display: block; height: 8rem; image-rendering: pixelated; } .frame span { color: var(--soft);
  font-size: .85rem; }
pre { background: var(--card); border: 1px solid var(--rule); border-radius: .5rem; padding: .75rem; overflow-x: auto;
  font: .85rem/1.45 ui-monospace, monospace; white-space: pre-wrap; } code { font: .9em ui-monospace, monospace; }
@media print { :root { --ink: #000; --soft: #444; --paper: #fff; --card: #fff; --rule: #bbb; --a: #1f5fbf; --b: #b35900;
  --c: #2a7f4f; --good: #1a7f37; --bad: #b42318; color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  figure, tr, svg { break-inside: avoid; } h2, h3 { break-after: avoid; } }
"""
