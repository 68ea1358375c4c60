"""What the lectures say: every row has commands that parse and names that exist, and what is computed is right."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from headway.cli import main as cli
from headway.learn.coverage_table import coverage_markdown
from headway.learn.explain import TOPICS, resolve
from headway.learn.explanation import ExplanationStep, Matrix, Quantity, ValueTable
from headway.learn.lesson import LESSONS
from headway.learn.shown_commands import CostCommand, ExplainCommand, LessonCommand, LongCommand, read_command
from headway.learn.statement_pages import index_page, section_page, statement_data, statement_text, write_pages
from headway.learn.statements import (
    Standing,
    Statement,
    correction,
    errata,
    find_sections,
    find_statement,
    lectures,
    sections,
    statements,
)
from headway.zoo.presets import PRESETS
from tests.test_readme import parse

ROOT = Path(__file__).parents[2]
ROWS = list(statements())
COMMANDS = list(dict.fromkeys(command for row in ROWS for command in row.commands))
PARTLY = set[str]()  # what is left to build
LIGHT = "S4-formula"  # a section of milliseconds


def says(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(words)
    out, err = capsys.readouterr()
    return code, out, err


# ---- the rows


def test_all_statements_of_the_five_lectures_are_there() -> None:
    counts = {one.name: [row.id for section in one.sections for row in section.statements] for one in lectures()}
    assert {name: len(ids) for name, ids in counts.items()} == {"S0": 108, "S1": 49, "S2": 38, "S3": 33, "S4": 25}
    for name, ids in counts.items():
        assert ids == [f"{name}.{at:02}" for at in range(1, len(ids) + 1)]


def test_every_statement_is_shown_or_says_why_not() -> None:
    for row in ROWS:
        assert row.says.endswith((".", ",", "?")), row.id
        assert bool(row.reason) == (row.standing is not Standing.SHOWN), row.id
        assert bool(row.commands) == (row.standing is not Standing.MENTION), row.id
        assert bool(row.code) == bool(row.commands), row.id
        if row.standing is Standing.IMPOSSIBLE:
            assert row.reason.startswith("Needs "), row.id
    assert {row.id for row in ROWS if row.standing is Standing.PARTLY} == PARTLY


def test_a_row_without_command_or_reason_is_refused() -> None:
    for standing, reason in ((Standing.SHOWN, ""), (Standing.MENTION, ""), (Standing.SHOWN, "Needs data.")):
        with pytest.raises(AssertionError):
            Statement("S0.01", "Something.", standing, reason)
    with pytest.raises(ValueError, match="no command"):
        read_command({"explian": "gru"})


@pytest.mark.slow
def test_every_command_parses() -> None:
    for line in dict.fromkeys(command.line for command in COMMANDS):
        parse(shlex.split(line))


def test_every_name_exists() -> None:
    for command in COMMANDS:
        match command:
            case ExplainCommand(topic, presets, options):
                assert topic in TOPICS, command
                assert TOPICS[topic].presets == len(presets), command
                assert {name for name, _ in options} <= set(TOPICS[topic].options), command
            case CostCommand(preset):
                assert preset in PRESETS, command
            case LessonCommand(name):
                assert name in LESSONS, command
            case LongCommand(line):
                words = shlex.split(line)
                assert words[0] == "headway"
                assert words[1] in cli.app, line
                assert all(words[at + 1] in PRESETS for at, word in enumerate(words) if word == "--preset"), line
            case _:
                raise AssertionError(command)


def test_every_piece_of_code_exists() -> None:
    for where in {where for row in ROWS for where in row.code}:
        assert resolve(where, "headway.") is not None, where


@pytest.mark.slow
def test_every_step_is_found_by_its_title() -> None:
    """Those of models are found where all pages are built, below."""
    for command in COMMANDS:
        if isinstance(command, ExplainCommand) and command.steps and not command.presets:
            assert len(command.output()) == len(command.steps), command.line


def test_commands_are_spelled_as_they_are_typed() -> None:
    one = read_command({"explain": "attention", "x": "0 1; 1 0", "unscaled": True, "steps": ["scores ="]})
    assert one.line == "headway explain attention --x '0 1; 1 0' --unscaled"
    assert read_command({"cost": "gpt2", "length": 512}).line == "headway cost gpt2 --length 512"
    assert read_command({"run": "headway train dates --minutes 3"}).note == "3 minutes of training"


@pytest.mark.long
@pytest.mark.parametrize("name", [section.name for section in sections()])
def test_every_page_is_built(name: str) -> None:
    (section,) = find_sections(name)
    check_page(section_page(section, [section]))


# ---- errata


def numbers(name: str) -> dict[str, Any]:
    step: ExplanationStep = correction(errata()[name].numbers)
    return {value.name: value for value in step.values}


def table(name: str, value: str) -> list[list[Any]]:
    found = numbers(name)[value]
    assert isinstance(found, ValueTable)
    return [list(row) for row in found.rows]


def test_all_fifteen_slips_belong_to_rows() -> None:
    assert len(errata()) == 15
    assert {row.erratum for row in ROWS if row.erratum} == set(errata())


@pytest.mark.slow
def test_every_erratum_computes_numbers() -> None:
    for name in errata():
        assert numbers(name), name


def test_softmax_of_the_slide_has_the_wrong_sign() -> None:
    printed, right = table("softmax-sign", "weights by both")
    assert printed[1:] == pytest.approx([0.99889, 1.858e-8, 0.0011126, 2.1054e-6], rel=1e-3)
    assert printed.index(max(printed[1:])) == right.index(min(right[1:]))


def test_the_unrolled_gru_is_the_sum_of_the_right_formula() -> None:
    right, wrong = table("unrolled-gru", "difference from the recurrence")
    assert right[1] < 1e-12 < 0.1 < wrong[1]


def test_a_linear_score_gives_all_queries_the_same_weights() -> None:
    linear, mlp, dot = (row[1] for row in table("linear-score", "largest difference between queries"))
    assert linear < 1e-6 < 0.01 < min(mlp, dot)


def test_a_score_of_equal_indices_gives_equal_weights() -> None:
    found = numbers("indices")["weights of Q_i · K_i"]
    assert isinstance(found, Matrix)
    assert found.values == [[0.5, 0.5], [0.5, 0.5]]
    sums = table("transpose", "sum of the weights of an output")
    assert sums[0][1:] == pytest.approx([1, 1])
    assert sums[1][1:] != pytest.approx([1, 1])


def test_grids_widths_and_units_are_those_of_the_models() -> None:
    assert [row[3] for row in table("patch-grid", "grids of ViT")] == ["14×14", "14×14", "16×16"]
    assert [row[1] for row in table("hidden-layer", "widths of a block of bert-large")] == [1024, 4096, 1024]
    assert [row[-1] for row in table("units", "known cases")][:3] == ["1192.09 GiB", "768.00 GiB", "150.06 KiB"]


@pytest.mark.slow
def test_two_norms_and_two_arrangements_differ() -> None:
    apart = numbers("two-layernorms")["largest difference of the logits"]
    assert isinstance(apart, Quantity)
    assert 0.001 < apart.value < 0.1
    assert [row[1:] for row in table("norm-arrangement", "transformer-base, both ways")] == [
        [30, 101_007_496],
        [32, 101_009_544],
    ]


def test_positions_from_zero_and_one_have_the_same_products() -> None:
    vectors, products = table("first-position", "counted from 0 against from 1, largest difference")
    assert products[1] < 1e-3 < 0.5 < vectors[1]


def test_the_exercise_depends_on_the_scale() -> None:
    unscaled, scaled = table("scaling", "flying, scaled and not")
    assert scaled[1:] == pytest.approx([0.804430, 0.195570, 0.608859, 0.195570], abs=1e-6)
    assert unscaled[1] > 0.88


# ---- pages


def check_page(page: str) -> None:
    assert not re.search(r"<script|https?://|@import|url\((?!#)|src=", page)
    ids = set(re.findall(r'\bid="([^"]+)"', page))
    assert {unescape(link) for link in re.findall(r'href="#([^"]+)"', page)} <= {unescape(one) for one in ids}
    assert page.count("<details") == page.count("</details>")


@pytest.mark.slow
def test_a_page_has_statements_commands_outputs_code_and_errata() -> None:
    (section,) = find_sections(LIGHT)
    page = section_page(section, [section])
    check_page(page)
    for text in ("S4.24", "headway explain attention", "0.804430", "Erratum", "0.880797", "def attend("):
        assert text in page, text
    assert "Its output is shown at" in page  # S4.23 repeats S4.22


@pytest.mark.slow
def test_pages_and_their_index_are_written(tmp_path: Path) -> None:
    files = write_pages(find_sections(LIGHT), tmp_path / "pages")
    assert [file.name for file in files] == ["index.html", f"{LIGHT}.html"]
    index = files[0].read_text(encoding="utf-8")
    assert f'href="{LIGHT}.html#S4.20"' in index
    assert all(f'href="{section.name}.html"' in index_page(sections()) for section in sections())


@pytest.mark.slow
def test_a_statement_as_text_and_as_data() -> None:
    row = find_statement("s4.24")
    assert row is not None
    assert "0.608859" in statement_text(row)
    data = json.loads(json.dumps(statement_data(row)))
    assert data["commands"][0]["values"]["weights"][0] == pytest.approx([0.804430, 0.195570], abs=1e-6)
    assert data["erratum"] is None


# ---- the table, the package and the command


def test_the_table_of_coverage_is_current() -> None:
    said = "headway lecture coverage --out docs/COVERAGE.md writes it anew"
    assert (ROOT / "docs" / "COVERAGE.md").read_text(encoding="utf-8") == coverage_markdown(), said


def test_the_wheel_has_the_rows() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    globs = settings["tool"]["setuptools"]["package-data"]["headway"]
    package = ROOT / "src" / "headway"
    found = {file for glob in globs for file in package.glob(glob)}
    assert set((package / "learn" / "lectures").iterdir()) <= found


def test_the_list_has_all_sections(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = says(capsys, "lecture")
    assert code == 0
    assert all(section.name in out for section in sections())
    assert max(map(len, out.splitlines())) <= 80
    _, out, _ = says(capsys, "lecture", "list", "--json")
    assert sum(one["statements"] for one in json.loads(out)) == 253


def test_a_section_is_listed_without_computing(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = says(capsys, "lecture", "s0-gru-to-attention")
    assert code == 0
    assert "S0.28" in out
    assert "  headway explain gru" in out
    assert "S1." not in out


@pytest.mark.slow
def test_errata_and_a_section_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = says(capsys, "lecture", "errata", "--json")
    assert [one["name"] for one in json.loads(out)] == list(errata())
    _, out, _ = says(capsys, "lecture", LIGHT, "--json")
    assert json.loads(out)[0]["statements"][0]["id"] == "S4.18"


def test_the_table_is_written_by_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = says(capsys, "lecture", "coverage", "--out", str(tmp_path / "C.md"))
    assert (code, out) == (0, f"wrote {tmp_path / 'C.md'}\n")
    assert (tmp_path / "C.md").read_text(encoding="utf-8") == coverage_markdown()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["S5"], "no lecture or section 'S5'"),
        (["S0-recurence"], "did you mean 'S0-recurrence'?"),
        (["S4.26"], "no statement 'S4.26'; allowed: S4.01 to S4.25"),
        (["S0", "--out", "x", "--json"], "--out and --json exclude each other"),
        (["errata", "--out", "x"], "errata is printed"),
        (["coverage", "--json"], "coverage is Markdown"),
        (["coverage", "--out", "no/such/file.md"], "cannot be written"),
        (["S0", "--out", str(ROOT / "README.md")], "is a file"),
    ],
)
def test_mistakes_are_told(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    code, out, err = says(capsys, "lecture", *words)
    assert (code, out) == (2, "")
    assert said in err
