"""Generated pages are those of the code, the worked example is the one that runs, and the site holds together."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

from headway.learn.statements import find_sections

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SECTIONS = ("S4-formula", "S1-operator")  # of lectures, whose pages are built here


def script(name: str) -> ModuleType:
    spec = spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_generated_pages_are_current() -> None:
    """`make pages` writes them."""
    made = dict(script("pages").pages())
    there = {path for folder in ("models", "tasks") for path in (DOCS / folder).glob("*.md")} | {
        DOCS / "API.md",
        DOCS / "LECTURES.md",
    }
    assert set(made) == there
    assert [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text] == []


@pytest.mark.slow
def test_the_pages_of_tasks_and_of_python_are_current() -> None:
    pages = script("pages")
    assert (DOCS / "API.md").read_text(encoding="utf-8") == pages.api_page()
    assert (DOCS / "LECTURES.md").read_text(encoding="utf-8") == pages.lectures_page()
    for name in pages.TASKS:
        assert (DOCS / "tasks" / f"{name}.md").read_text(encoding="utf-8") == pages.task_page(name), name


@pytest.mark.slow
def test_every_task_that_learns_has_its_data() -> None:
    pages = script("pages")
    for name in pages.TASKS:
        if pages.task_class(name).architectures:
            assert "## Data and command" in pages.task_page(name), name


def test_the_worked_example_is_the_one_that_runs() -> None:
    example = (ROOT / "examples" / "own_architecture.py").read_text(encoding="utf-8")
    bare = re.sub(r"^ +", "", example, flags=re.MULTILINE)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "ADD_ARCHITECTURE.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 3
    for block in blocks:
        assert re.sub(r"^ +", "", block, flags=re.MULTILINE).strip() in bare


@pytest.mark.long
def test_the_site_loads_nothing_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    shown = [find_sections(name)[0] for name in SECTIONS]
    count = script("site").build(tmp_path, shown)
    pages = {path.relative_to(tmp_path): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    assert len(pages) == count > 50
    for path, html in pages.items():
        assert not re.search(r'(src|<link[^>]* href)="(https?:)?//', html), path
        for address in re.findall(r'(?:href|src)="([^"]+)"', html):
            if not re.match(r"(https?|mailto|data):", address):
                name, _, fragment = unquote(address).partition("#")
                target = (tmp_path / path.parent / name).resolve() if name else (tmp_path / path).resolve()
                assert target.exists(), (path, address)
                if fragment:
                    assert f'id="{fragment}"' in target.read_text(encoding="utf-8"), (path, address)
