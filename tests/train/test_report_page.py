"""The page is inert, whatever the data says; it is small, it can be read aloud, and its drawings tell the truth."""

from __future__ import annotations

import ast
import math
import re
import shlex
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.figures import STYLE, Curve, HeatMap, Plot, Point, draw, inline_svg
from headway.metrics.scoring import score_classes
from headway.tasks.base import Task
from headway.tasks.results import ReportDetails, Sample
from headway.training.report import RunReport, escaped, fenced, model_card, next_commands
from headway.training.report_attention import AttentionExamples, WeightMap
from headway.training.report_page import POLICY, Markup, curve_figure, map_figure, report_page, tag, text

pytestmark = pytest.mark.usefixtures("rendered")

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "</title></head><body onload=alert(1)>",
    "</style><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</svg><script>alert(1)</script>",
    "</td></tr></table><iframe src=//evil.example>",
    "</pre></code><script src=//evil.example/x.js></script>",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    '"><script>alert(1)</script>',
    "'><script>alert(1)</script>",
    "` onmouseover=alert(1) x=`",
    "javascript:alert(1)",
    "<a href=javascript:alert(1)>x</a>",
    "<a href='data:text/html,<script>alert(1)</script>'>x</a>",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml version='1.0'?><x/>",
    "<base href=//evil.example>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<link rel=stylesheet href=//evil.example>",
    "<style>@import '//evil.example'</style>",
    "<form action=//evil.example><input autofocus onfocus=alert(1)>",
    "<math><mtext></p><script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)",
    "<ScRiPt\n>alert(1)</sCrIpT\t>",
    "\x00<\x00script>\x0balert(1)",
    "\u202e<script>\u2066alert(1)",
    "\ud800<script>\udfff",
    "url(javascript:alert(1));background:red}",
)
texts = st.text(max_size=20)


few = settings(max_examples=12, deadline=None)  # a page with figures takes a second


def report_of(word: str, *, many: int = 3) -> RunReport:
    """A report that has a text wherever a text can come from outside."""
    samples = [Sample(word, word, word), *[Sample(word, f"{word} ", word)] * many]
    scores = score_classes([s.answer for s in samples], [s.wanted for s in samples], [3] * len(samples))
    maps = (WeightMap(word, (word, "b"), ("x", word), [[0.9, 0.1], [0.5, 0.5]]),)
    return RunReport(
        name=word,
        task="classification",
        folder=word,
        summary=(("model", word), ("data", word), ("data size", word)),
        machine=(("processor", word),),
        curves={"loss": [Curve(word, [Point(1, 2.0), Point(2, 1.0)]), Curve("validation", [Point(2, 1.5)])]},
        kept=[2],
        recipe=f"seed: 0\nout: {word}\n",
        label_smoothing=True,
        commands=next_commands(Task, word, word),
        example=word,
        details=ReportDetails(scores, samples, word, curves={word: {word: [1.0, 2.0]}}),
        attention=AttentionExamples(word, maps),
    )


class Shape(HTMLParser):
    """The elements of a page with their attributes' names, and the texts between them."""

    def __init__(self, page: str):
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.words: list[str] = []
        self.values: list[tuple[str, str, str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.values += [(tag, name, value or "") for name, value in attrs]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}", ()))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data}")


@cache
def harmless() -> Shape:
    """The page of a word that does no harm."""
    return Shape(report_page(report_of("word")))


@pytest.mark.long
@pytest.mark.parametrize("word", HOSTILE)
def test_no_text_becomes_a_part_of_the_page(word: str) -> None:
    assert Shape(report_page(report_of(word))).tags == harmless().tags


@pytest.mark.slow
@few
@given(texts)
def test_the_shape_of_the_page_does_not_depend_on_the_texts(word: str) -> None:
    assert Shape(report_page(report_of(f"{word} word"))).tags == harmless().tags  # a short label is drawn upright


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=1, max_size=20))
def test_a_text_is_read_as_it_was_written(word: str) -> None:
    page = Shape(tag("p", word, title=word))
    assert "".join(page.words) == word
    assert page.values == [("p", "title", word)]


def test_a_string_is_a_text_and_only_markup_is_markup() -> None:
    assert tag("p", "<b>", tag("b", "x"), class_="a&b", text_anchor="end") == (
        '<p class="a&amp;b" text-anchor="end">&lt;b&gt;<b>x</b></p>'
    )
    assert not isinstance(Markup("a") + "<b>", Markup)  # joining by + makes a text again


@pytest.mark.slow
@few
@given(texts)
def test_every_text_can_be_written_to_a_file(word: str) -> None:
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text(word)) is None
    report_page(report_of(word)).encode("utf-8")
    text("\ud800").encode("utf-8")


@pytest.mark.slow
def test_the_page_loads_and_runs_nothing() -> None:
    page = report_page(report_of("word"))
    shape = Shape(page)
    assert ("meta", "content", POLICY) in shape.values
    assert POLICY.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert page.index("Content-Security-Policy") < page.index("<style>")
    used = {name for name, _ in shape.tags}
    assert not used & {"script", "img", "iframe", "object", "embed", "link", "form", "input", "a", "base"}
    names = {name for _, name, _ in shape.values}
    assert not names & {"src", "href", "action", "srcset"}
    assert not any(name.startswith("on") for name in names)
    assert "http:" not in page
    assert "https:" not in page
    inside = [value for _, name, value in shape.values if name in ("xlink:href", "clip-path")]
    assert inside  # parts of a drawing that it refers to itself
    assert all(re.match(r"#|url\(#|data:image/png;base64,", value) for value in inside)
    assert page.count("url(") == sum(value.startswith("url(#") for value in inside)
    assert "@import" not in page


@pytest.mark.slow
def test_every_tag_is_closed() -> None:
    inside: list[str] = []
    for name, _ in harmless().tags:
        if name.startswith("/"):
            assert inside.pop() == name[1:]
        else:
            inside.append(name)
    assert inside == []


@pytest.mark.slow
def test_tables_and_drawings_can_be_read_aloud() -> None:
    page = report_page(report_of("word"))
    drawings = re.findall(r"<svg.*?</svg>", page, re.S)
    assert drawings
    assert all(re.match(r'<svg [^>]*role="img"[^>]*><title>.+?</title><desc>.+?</desc>', d) for d in drawings)
    assert all("scope" in attributes for name, attributes in harmless().tags if name == "th")
    assert all("dir" in attributes for name, attributes in harmless().tags if name == "td")
    assert ("html", "lang", "en") in harmless().values
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert "width=device-width" in page


@pytest.mark.slow
def test_the_largest_page_is_below_a_megabyte() -> None:
    long = "<&\"'>" * 20_000
    labels = [str(at) for at in range(2000)]
    even = [[1 / 40] * 40] * 40
    curve = [Curve(name, [Point(step, step) for step in range(20_000)]) for name in ("training", "validation")]
    samples = [Sample(long, long, long)] * 1000 + [Sample(long, "x", long)] * 1000
    huge = replace(
        report_of(long),
        curves={"loss": curve, "accuracy": curve, "f1": curve, "perplexity": curve},
        recipe=long,
        details=ReportDetails(score_classes(labels, labels, range(1, 2001)), samples),
        attention=AttentionExamples(
            "", tuple(WeightMap("long", ("letters",) * 40, ("letters",) * 40, even) for _ in range(4))
        ),
        commands=next_commands(Task, "folder", "text"),
        example="text",
        folder="folder",
    )
    assert len(report_page(huge).encode()) < 1_000_000


@pytest.mark.slow
def test_a_run_that_measured_nothing_is_told_too() -> None:
    empty = replace(
        report_of("word"),
        curves={"loss": [Curve("training", [])]},
        kept=[],
        details=None,
        attention=AttentionExamples(),
    )
    page = report_page(empty)
    assert "Nothing was held out" in page
    assert "Nothing can be drawn" in page
    assert "No step was logged" in page
    assert "not been evaluated" in model_card(empty)


# drawings


def words_of(drawing: str) -> list[str]:
    return re.findall(r"<text[^>]*>(.*?)</text>", drawing)


@pytest.mark.slow
def test_a_chart_has_its_curves_numbers_and_marks() -> None:
    points = [Point(0, 3.0), Point(50, math.nan), Point(100, 1.0)]
    drawing = curve_figure("loss, by step", [Curve("training", points), Curve("_x", points)], marks=[100])
    assert drawing is not None
    assert "<title>loss, by step</title><desc>training: from 3 at step 0 to 1 at step 100; " in drawing
    assert {"training", "_x", "step", "0", "100", "1.0", "3.0"} <= set(words_of(drawing))
    assert drawing.count("stroke-dasharray") == 1
    assert "var(--good)" in drawing
    assert "var(--a)" in drawing


@pytest.mark.slow
@pytest.mark.parametrize("values", [[1.0], [0.0, 0.0], [5.0] * 1000, [1e-30, 2e-30], [1e300, -1e300], [math.inf, 1.0]])
def test_any_numbers_can_be_drawn(values: list[float]) -> None:
    drawing = curve_figure("x", [Curve("x", [Point(step, value) for step, value in enumerate(values)])])
    assert drawing is not None
    assert "nan" not in drawing
    assert "inf" not in drawing


@pytest.mark.slow
def test_a_long_curve_is_drawn_by_its_means() -> None:
    drawing = curve_figure("x", [Curve("x", [Point(step, step % 2) for step in range(100_000)])])
    assert drawing is not None
    assert len(drawing) < 20_000
    assert Curve("x", [Point(step, step % 2) for step in range(1200)]).drawable().points[0] == (3, 0.5)
    assert curve_figure("x", [Curve("x", [])]) is None
    assert curve_figure("x", [Curve("x", [Point(1, math.nan)])]) is None


@pytest.mark.slow
def test_the_same_figure_is_the_same_text() -> None:
    plot = Plot("a", [HeatMap("b", [[0.0, 1.0]], ["c"], ["d", "e"])])
    assert inline_svg(plot) == inline_svg(plot)


@pytest.mark.slow
def test_a_figure_follows_the_page_and_leaves_its_texts_alone() -> None:
    """Colours of lines are those of the page, also in dark mode; a label that spells one stays as it is."""
    drawing = inline_svg(Plot("", [HeatMap("", [[0.0, 1.0]], ["fill: #57606a"], ["$x$", "<b>"])])).elements
    assert "fill: #57606a" in words_of(drawing)
    assert "#57606a" not in re.sub(r"<text[^>]*>.*?</text>", "", drawing)
    assert {"$x$", "&lt;b&gt;"} <= set(words_of(drawing))
    assert "var(--soft)" in drawing
    assert draw(Plot("", [HeatMap("", [[0.0]], ["a"], ["b"])])).get_size_inches()[0] * 72 * 0.8 < 320  # on a phone
    assert STYLE["svg.fonttype"] == "none"


@pytest.mark.slow
def test_a_map_names_its_rows_and_its_largest_weights() -> None:
    drawing = map_figure(WeightMap("a → b", ("b", "↵"), ("a", "␣"), [[0.75, 0.25], [0.0, 1.0]]))
    assert re.findall(r"<(?:title|figcaption[^>]*)>(.*?)</", drawing) == ["a → b", "a → b"]
    assert "b: most at a, 0.75; ↵: most at ␣, 1.00" in drawing
    assert words_of(drawing) == ["a", "␣", "b", "↵", "0", "0.5", "1"]


# the card


@given(texts)
def test_a_plain_text_is_one_line_without_markup(word: str) -> None:
    told = escaped(word)
    assert "\n" not in told
    assert re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]<>|]", told) is None
    assert re.sub(r"\\(.)", r"\1", told) == " ".join(word.encode("utf-8", "replace").decode().split())


@given(texts)
def test_code_stays_between_its_fences(code: str) -> None:
    first, *_, last = fenced(code, "sh").split("\n")
    assert last == first.removesuffix("sh")
    assert last not in code


@pytest.mark.parametrize("word", HOSTILE)
def test_no_text_becomes_markup_of_the_card(word: str) -> None:
    outside = re.sub(r"^(`{3,})\w+\n.*?\n\1$", "", model_card(report_of(word)), flags=re.S | re.M)
    assert re.search(r"(?<!\\)<", outside) is None


@given(texts)
def test_commands_can_be_typed(word: str) -> None:
    """A shell gives the program what was meant, whatever the folder and the text are called."""
    run, look, in_python, _, again, resume, _ = (command for command, _ in next_commands(Task, word, word, ["site"]))
    folder = f"./{word}" if word.startswith("-") else word
    words = [folder, *(["--"] if word.startswith("-") else []), word]
    assert shlex.split(run) == ["headway", "run", *words]
    assert shlex.split(look) == ["headway", "look", *words]
    [python, c, code] = shlex.split(in_python)
    assert (python, c) == ("python", "-c")
    assert [one.value for one in ast.walk(ast.parse(code)) if isinstance(one, ast.Constant)] == [word, word]
    assert shlex.split(again)[:3] == ["headway", "train", "--config"]
    assert shlex.split(again)[4:] == ["--out", "NEW"]
    assert shlex.split(resume) == ["headway", "train", "--out", folder, "--resume"]
    assert len(next_commands(Task, word, word)) == 6  # a model without attention has nothing to look at
