"""report.html: one file that tells a run to people, and needs nothing else: no network, no scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.app.report.figures import Curve, Point, chart
from headway.app.report.heat import ANCHORS, Map, figure
from headway.app.report.markup import Markup, joined, page, tag
from headway.app.report.outcome import NEW, Facts, Outcome, commands, score_table
from headway.app.report.pictures import Picture, drawn_picture
from headway.app.report.style import STYLE
from headway.tasks.measures import Classes
from headway.tasks.scores import CLASSES, MEASURES, PERCENT, taken_for
from headway.train.loop import Sample

SHOWN = 6  # right samples, and as many wrong ones
TEXT, NAME = 400, 100  # letters of a text in a table, and of the data's name
RECIPE = 20_000  # letters of the recipe
CURVES = 3  # charts
CHECKS = 25  # evaluations in the table below them


def report_page(outcome: Outcome) -> str:
    """The whole page."""
    title = f"{cut(outcome.name, NAME)}: {outcome.task}"
    return page(
        f"{title} – headway",
        STYLE,
        tag("h1", title, dir="auto"),
        tag("p", "What was trained, on what, and how good it is.", class_="soft"),
        *(headline(outcome) or []),
        section("Summary", facts(outcome.summary)),
        section("How it learned", *curves(outcome)),
        section("Scores", *scores(outcome)),
        section("Samples", *samples(outcome)),
        section("What it looks at", *sights(outcome)),
        section("What to type next", *nexts(outcome)),
        section("Machine", facts(outcome.machine)),
        section("Recipe", *recipe(outcome)),
    )


def section(title: str, *inside: Markup) -> Markup:
    return tag("section", tag("h2", title), *inside)


def facts(told: Facts) -> Markup:
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", cut(value), dir="auto")) for name, value in told]
    return tag("table", tag("tbody", *rows), class_="facts")


def headline(outcome: Outcome) -> list[Markup] | None:
    """The scores, large."""
    scores, unseen = outcome.final.scores, outcome.final.unseen
    if scores is None:
        return None
    tiles = [(shown(name, number), MEASURES[name].title) for name, number in scores.numbers.items()]
    if unseen is not None:
        tiles.insert(1, (shown(unseen.main, unseen.numbers[unseen.main]), f"{MEASURES[unseen.main].title}, {NEW}"))
    return [tag("ul", *(tag("li", tag("strong", number), name) for number, name in tiles), class_="numbers")]


def curves(outcome: Outcome) -> Iterator[Markup]:
    """A chart for the loss and for each measure that is not the loss again."""
    telling = [name for name in outcome.curves if name != "perplexity"][:CURVES]
    drawn = [(name, drawing) for name in telling if (drawing := drawn_curve(name, outcome)) is not None]
    for name, drawing in drawn:
        yield tag("h3", axis(name))
        yield drawing
    if not drawn:
        yield tag("p", "No step was logged.")
    if outcome.smoothed:
        said = "In training the loss includes label smoothing, and is higher for that; in validation it does not."
        yield tag("p", said, class_="soft")
    if outcome.kept:
        yield tag(
            "p", f"Dashed: the weights that were kept, of step {', '.join(map(str, outcome.kept))}.", class_="soft"
        )
    if table := checks(outcome):
        yield table


def drawn_curve(name: str, outcome: Outcome) -> Markup | None:
    times = 100 if name in MEASURES and MEASURES[name].percent else 1
    curves = [Curve(c.name, [Point(p.step, times * p.value) for p in c.points]) for c in outcome.curves[name]]
    return chart(f"{axis(name)}, by step", curves, outcome.kept)


def axis(name: str) -> str:
    return f"{measured(name)}, %" if name in MEASURES and MEASURES[name].percent else measured(name)


def checks(outcome: Outcome) -> Markup | None:
    """The evaluations as numbers; of many, some."""
    named = {name: {p.step: p.value for p in lines[-1].points} for name, lines in outcome.curves.items()}
    named = {name: values for name, values in named.items() if outcome.curves[name][-1].name == "validation"}
    steps = sorted({step for values in named.values() for step in values})
    if not steps:
        return None
    every = -(-len(steps) // CHECKS)
    chosen = [step for at, step in enumerate(steps) if at % every == 0 or at == len(steps) - 1]
    rows = [
        [f"{step:,g}", *(shown(name, of[step]) if step in of else "" for name, of in named.items())] for step in chosen
    ]
    return table("Evaluations on held-out data", ["step", *map(measured, named)], rows)


def scores(outcome: Outcome) -> Iterator[Markup]:
    found = outcome.final.scores
    if found is None:
        yield tag("p", "Nothing was held out, so nothing was measured.")
        return
    heads, *rows = score_table(found, outcome.final.unseen)
    yield table(f"On {found.count:,} held-out {found.things}", heads, rows)
    if found.classes is not None:
        yield class_table(found.classes)
        if 2 < len(found.classes.labels) <= CLASSES:
            yield figure(confusion(found.classes))
    for name, signature in found.signatures.items():
        yield tag("p", f"{MEASURES[name].title}: ", tag("code", signature), class_="soft")


def class_table(classes: Classes) -> Markup:
    ordered = sorted(classes.labels, key=lambda label: (-classes.asked[label], label))[:CLASSES]
    rows = list[list[str]]()
    for label in ordered:
        shares = (classes.precision(label), classes.recall(label), classes.f1(label))
        rows.append([cut(label), f"{classes.asked[label]:,}", *map(PERCENT.shown, shares), taken_for(classes, label)])
    return table("The most frequent classes", ["class", "count", "precision", "recall", "F1", "taken for"], rows)


def confusion(classes: Classes) -> Map:
    """Of each class the share that was taken for each."""
    labels = classes.labels
    shares = [[classes.counts[one, other] / max(1, classes.asked[one]) for other in labels] for one in labels]
    return Map(
        "Confusion: each class in a row, by the share that was taken for each in a column", labels, labels, shares
    )


def samples(outcome: Outcome) -> Iterator[Markup]:
    """Right ones and wrong ones; a language model has neither, only what it says and what was there."""
    found, told, drawn = outcome.final.samples, outcome.final.scores, outcome.final.pictures
    if drawn:
        yield tag("p", f"Held-out images, each {', '.join(drawn[0].names)}.", class_="soft")
        yield tag("div", *map(drawn_picture, drawn), class_="pictures")
        return
    if not found:
        yield tag("p", "There are none: nothing was held out that the model could answer.")
        return
    if told is not None and told.main == "cider":
        yield sample_table("Held-out images", ["image", "the model", "people"], spread(found))
        return
    if told is not None and told.things == "rows":
        for name, lines in outcome.final.series.items():
            if drawing := chart(f"{name}, by row", lines, across="row"):
                yield tag("h3", cut(name, NAME), dir="auto")
                yield drawing
        yield sample_table("Held-out rows", ["the row before", "expected", "came"], spread(found))
        return
    if told is not None and told.things == "tokens":
        yield sample_table("Held-out texts", ["text", "the model", "what was there"], found[:SHOWN])
        return
    right = [sample for sample in found if sample.answer == sample.wanted]
    wrong = [sample for sample in found if sample.answer != sample.wanted]
    for name, some in (("Right", right), ("Wrong", wrong)):
        caption = f"{name}: {len(some):,} of {len(found):,}" + ("; here are some" if len(some) > SHOWN else "")
        if some:
            yield sample_table(caption, ["source", "answer", *(["should be"] if some is wrong else [])], spread(some))
        else:
            yield tag("p", f"{name}: none.", class_="soft")


def sample_table(caption: str, heads: Sequence[str], some: Sequence[Sample]) -> Markup:
    rows = [[cut(sample.source), cut(sample.answer), cut(sample.wanted)][: len(heads)] for sample in some]
    return table(caption, heads, rows, texts=True)


def spread(some: Sequence[Sample]) -> list[Sample]:
    """A few of them, from the first to the last."""
    return [some[at * len(some) // SHOWN] for at in range(SHOWN)] if len(some) > SHOWN else list(some)


def sights(outcome: Outcome) -> Iterator[Markup]:
    found = outcome.final.sights
    if not found.figures:
        said = "this model does not look at a whole text or image at once, or nothing was held out to show it with"
        yield tag("p", f"Nothing can be drawn: {said}.")
        return
    strips = [drawn_picture(one) for one in found.figures if isinstance(one, Picture)]
    if strips:
        yield tag("p", found.how, class_="soft")
        yield tag("div", *strips, class_="pictures")
        return
    maps = [one for one in found.figures if not isinstance(one, Picture)]
    yield tag("p", found.how, " Point at a piece for its number. ", scale(), class_="soft")
    yield tag("div", *map(figure, maps), class_="maps" if isinstance(maps[0], Map) else None)


def scale() -> Markup:
    colours = ", ".join(f"#{anchor}" for anchor in ANCHORS)
    return joined(
        ["0 ", tag("span", class_="scale", style=f"background:linear-gradient(90deg, {colours})"), " the most"]
    )


def nexts(outcome: Outcome) -> Iterator[Markup]:
    for command, meaning in commands(outcome):
        yield tag("p", f"{meaning[0].upper()}{meaning[1:]}:")
        yield tag("pre", tag("code", command), dir="auto")


def recipe(outcome: Outcome) -> Iterator[Markup]:
    yield tag(
        "p", "Every choice of this run, as ", tag("code", "recipe.yaml"), " in its folder keeps it.", class_="soft"
    )
    yield tag("pre", tag("code", cut(outcome.recipe, RECIPE)))


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, texts: bool = False) -> Markup:
    """A table whose first column names its rows; the others are numbers, or texts."""
    number = None if texts else "number"
    first, *others = heads
    top = tag("tr", tag("th", first, scope="col"), *(tag("th", name, scope="col", class_=number) for name in others))
    body = [tag("tr", *(cell(value, at, texts) for at, value in enumerate(values))) for values in rows]
    return tag("div", tag("table", tag("caption", caption), tag("thead", top), tag("tbody", *body)), class_="wide")


def cell(value: str, at: int, texts: bool) -> Markup:
    if texts:
        return tag("td", value, dir="auto", class_="text")
    return tag("td", value, dir="auto", class_="number") if at else tag("th", value, dir="auto", scope="row")


def shown(name: str, number: float) -> str:
    return MEASURES[name].shown(number) if name in MEASURES else f"{number:.4g}"


def measured(name: str) -> str:
    return MEASURES[name].title if name in MEASURES else name


def cut(text: str, most: int = TEXT) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
