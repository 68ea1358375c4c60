"""Lessons: tiny versions of all run, their questions can be answered, and their notebooks execute."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from headway.cli import main as cli
from headway.errors import UserError
from headway.figures import draw
from headway.learn.explanation import Explanation, ExplanationStep, Question
from headway.learn.lesson import LESSONS, fast_sizes, find, markdown_table, module_of, questions, take, to_data
from headway.learn.notebook import ask, check, notebook_cells, show, to_notebook
from headway.learn.quiz import quiz
from headway.learn.rendering import to_html
from tests.learn.prove_lessons import ANSWERS, fits

ROOT = Path(__file__).parents[2]
LIGHT = "linear-scores"  # a lesson of milliseconds


@cache
def fast(name: str) -> Explanation:
    return take(name, fast_sizes(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", LESSONS)
def test_a_tiny_version_runs_and_asks_three_questions(name: str) -> None:
    found = fast(name)
    assert len(questions(found)) == 3
    assert any(step.figure is not None for step in found.steps)
    names = [value.name for step in found.steps for value in step.values]
    assert len(names) == len(set(names))
    json.dumps(to_data(found), allow_nan=False)
    for step in found.steps:
        if step.figure is not None:
            draw(step.figure)


@pytest.mark.slow
@pytest.mark.parametrize("name", LESSONS)
def test_questions_accept_right_answers_and_reject_wrong_ones(name: str) -> None:
    said = list[str]()
    right = [one.answer if isinstance(one.answer, str) else repr(one.answer) for one in questions(fast(name))]
    assert quiz(fast(name), right, said.append).right == 3
    assert quiz(fast(name), ["-98765.4321"] * 3, said.append).right == 0
    assert quiz(fast(name), [], said.append).right == 0


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_is_a_readable_file(name: str) -> None:
    """Sizes are defaults that FAST overrides; yields stand where the notebook finds them; answers are not typed in."""
    module = module_of(name)
    source = inspect.getsource(module)
    arguments = inspect.signature(module.steps).parameters
    assert set(module.FAST) <= set(arguments)
    assert all(one.default is not one.empty for one in arguments.values())
    (function,) = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == "steps"]
    yields = [node.value for node in ast.walk(function) if isinstance(node, ast.Yield | ast.YieldFrom)]
    top = [n.value.value for n in function.body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Yield)]
    assert yields == top
    assert all(isinstance(node, ast.Call) and ast.unparse(node.func) == "ExplanationStep" for node in top)
    assert function.body[-1].end_lineno == top[-1].end_lineno if top[-1] is not None else False
    asked = [n for n in ast.walk(function) if isinstance(n, ast.Call) and ast.unparse(n.func) == "Question"]
    assert len(asked) == 3
    assert not any(isinstance(node.args[1], ast.Constant) for node in asked)
    assert 1 <= LESSONS[name].minutes <= 5


def test_every_file_is_a_line_and_has_known_answers() -> None:
    files = {file.stem.replace("_", "-") for file in (ROOT / "src/headway/learn/lessons").glob("[a-z]*.py")}
    assert files == set(LESSONS) == set(ANSWERS)


def executed(cells: list[str]) -> dict[str, Any]:
    """The names that cells define, each compiled alone, as a notebook does."""
    space: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        tree = ast.parse(cell)
        last = tree.body[-1]
        if isinstance(last, ast.Expr) and not cell.endswith(";"):
            exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), space)
            shown = eval(compile(ast.Expression(last.value), "cell", "eval"), space)
            assert repr(shown)
            shown._repr_html_()
        else:
            exec(compile(tree, "cell", "exec"), space)
    return space


def code_cells(name: str) -> list[str]:
    notebook = json.loads(to_notebook(name, fast_sizes(name)))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.slow
def test_a_notebook_executes_and_ends_as_the_lesson_does() -> None:
    last = executed(code_cells(LIGHT))["step"]
    assert [v.data() for v in last.values] == [v.data() for v in fast(LIGHT).steps[-1].values]


@pytest.mark.long
@pytest.mark.parametrize("name", LESSONS)
def test_every_notebook_executes_in_a_process_of_its_own(name: str, tmp_path: Path) -> None:
    file = tmp_path / "cells.py"
    file.write_text("\n\n".join(code_cells(name)), encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_notebook_is_format_4() -> None:
    notebook = json.loads(to_notebook(LIGHT, {}))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | (
            {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        )
    sources = [cell.source for cell in notebook_cells(LIGHT, {})]
    assert sources[0].startswith("# A literally linear score function")
    assert "keys = 8\ndim = 16\ntraining_steps = 300" in sources
    assert sources.count('check(step, "")') == 3


def test_cells_ask_and_check() -> None:
    step = ExplanationStep("Sum.", question=Question("What is 1 + 1?", 2.0), sentences=["It is 2."])
    assert repr(ask(step)) == "Question: What is 1 + 1? (± 0.005)"
    assert repr(check(step, "2")) == "right: 2"
    assert repr(check(step, "3")) == "not right: 2"
    assert "2" not in repr(check(step, ""))
    assert "<p>It is 2.</p>" in (show(step, 1).html or "")


def test_known_answers_can_fail() -> None:
    assert fits(Question("?", 3.0), (2, 4))
    assert not fits(Question("?", 5.0), (2, 4))
    assert fits(Question("?", "a", ("a", "b")), "a")
    assert not fits(Question("?", "a", ("a", "b")), "b")


def test_the_page_of_lessons_is_current() -> None:
    page = (ROOT / "docs" / "LESSONS.md").read_text(encoding="utf-8")
    assert markdown_table() in page, "run headway lesson list --markdown and put it into docs/LESSONS.md"


Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def headway_says(capsys: pytest.CaptureFixture[str]) -> Said:
    def say(*words: str) -> tuple[int, str, str]:
        code = cli.main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return say


def test_the_list(headway_says: Said) -> None:
    code, out, _ = headway_says("lesson", "list")
    assert code == 0
    assert all(re.search(rf"^{name} ", out, re.MULTILINE) for name in LESSONS)
    assert max(map(len, out.splitlines())) <= 80
    _, out, _ = headway_says("lesson", "list", "--json")
    assert list(json.loads(out)) == list(LESSONS)


def test_an_unknown_lesson_is_told(headway_says: Said) -> None:
    for command in (["run"], ["export"]):
        code, _, err = headway_says("lesson", *command, "why-scael")
        assert code == 2
        assert "no lesson 'why-scael'" in err
        assert f"tip: headway lesson {command[0]} why-scale" in err
    with pytest.raises(UserError, match="did you mean 'linear-scores'"):
        find("linear-score")


@pytest.mark.slow
def test_run_prints_and_writes(headway_says: Said, tmp_path: Path) -> None:
    code, out, err = headway_says("lesson", "run", LIGHT, "--fast", "--out", str(tmp_path / "x"))
    assert (code, err) == (0, "")
    assert "\n3. Can it learn" in out
    assert "3 questions" in out
    assert max(len(line) for line in out.splitlines() if "figure" not in line and "wrote" not in line) <= 80
    names = {file.name for file in (tmp_path / "x").iterdir()}
    assert names == {f"{LIGHT}.txt", f"{LIGHT}.html", f"{LIGHT}-1.png"}
    assert (tmp_path / "x" / f"{LIGHT}-1.png").read_bytes().startswith(b"\x89PNG")
    assert "headway lesson</title>" in (tmp_path / "x" / f"{LIGHT}.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_run_asks(headway_says: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO("linear\n1000\n"))
    code, out, _ = headway_says("lesson", "run", LIGHT, "--fast", "--quiz", "--out", str(tmp_path))
    assert code == 0
    assert out.index("Question 1") < out.index("\n1. Three score functions")
    assert "Score: 1 of 3" in out


@pytest.mark.slow
def test_json_is_nothing_else(headway_says: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = headway_says("lesson", "run", LIGHT, "--fast", "--json")
    assert code == 0
    data = json.loads(out)
    assert data["lesson"] == LIGHT
    assert len(data["questions"]) == 3
    assert list(tmp_path.iterdir()) == []


def test_export_writes_a_notebook(headway_says: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert headway_says("lesson", "export", LIGHT, "--ipynb")[0] == 0
    assert json.loads((tmp_path / f"{LIGHT}.ipynb").read_text(encoding="utf-8"))["nbformat"] == 4
    code, _, err = headway_says("lesson", "export", LIGHT, "--out", "x.py")
    assert (code, "ends in .ipynb" in err) == (2, True)
    code, _, err = headway_says("lesson", "export", LIGHT, "--out", "no/x.ipynb")
    assert (code, "does not exist" in err) == (2, True)


def test_options_that_exclude_each_other(headway_says: Said, tmp_path: Path) -> None:
    assert headway_says("lesson", "run", LIGHT, "--quiz", "--json")[0] == 2
    (tmp_path / "file").touch()
    code, _, err = headway_says("lesson", "run", LIGHT, "--out", str(tmp_path / "file"))
    assert (code, "is a file" in err) == (2, True)


@pytest.mark.slow
def test_results_do_not_depend_on_what_ran_before() -> None:
    import torch

    torch.manual_seed(123)
    torch.rand(7)
    again = take(LIGHT, fast_sizes(LIGHT))
    assert to_data(again) == to_data(fast(LIGHT))
    assert "<svg" in to_html(again, "headway lesson")
