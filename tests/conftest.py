"""What every test shares: one thread, one seed, repeatable hypothesis runs, `--sample` and the shared folder."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch
from zlib import crc32

# before torch is imported: on virtual machines that announce AMX and do not let it run, a matrix product in bfloat16
# (torch's own Muon, the reference of ours) ends the process with "illegal instruction"
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import pytest
import torch
from hypothesis import settings

from headway.figures import InlineSVG, Plot, draw, inline_svg

ROOT = Path(__file__).parent.parent

gc.disable()  # until all is collected
torch.set_num_threads(1)
CASES = int(os.environ.get("HEADWAY_CASES", 100))
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=CASES)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", type=int, metavar="N", help="run at most N cases of each parametrised test")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file whose every test is marked with what `-m` excludes ("not slow") is not even imported."""
    if collection_path.suffix != ".py":
        return None
    marked = re.search(r"^pytestmark = \[?pytest\.mark\.(slow|long|proof)\b", collection_path.read_text(), re.MULTILINE)
    excluded = marked and f"not {marked[1]}" in (config.getoption("-m") or "")
    return True if excluded else None


@pytest.hookimpl(trylast=True)  # of what -m and -k have left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (most := config.getoption("--sample")) is not None:
        kept = sample([item.nodeid for item in items], most)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
        items[:] = [item for item in items if item.nodeid in kept]


def pytest_collection_finish() -> None:
    """What is imported and collected stays: garbage collection need not visit it, nor copy it in forked processes."""
    gc.collect()
    gc.freeze()
    gc.enable()


def sample(names: list[str], most: int) -> set[str]:
    """At most so many cases of each test, by a hash: always the same, and of each test others, so that together they
    meet every model of a table."""
    tests: dict[str, list[str]] = {}
    for name in names:
        tests.setdefault(name.partition("[")[0], []).append(name)
    return {name for cases in tests.values() for name in sorted(cases, key=lambda case: crc32(case.encode()))[:most]}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.default_generator.manual_seed(0)  # torch.manual_seed takes 1 ms to note the stack for absent devices


@pytest.fixture(scope="session", autouse=True)
def composed() -> Iterator[None]:
    """Figures of reports are composed and not rendered, which takes half of the time of a short run."""

    def compose(plot: Plot) -> InlineSVG:
        width, height = (72 * float(side) for side in draw(plot).get_size_inches())
        return InlineSVG(width, height, "")

    with patch("headway.training.report_page.inline_svg", compose):
        yield


@pytest.fixture(scope="module")
def rendered() -> Iterator[None]:
    """Figures of reports are rendered: for tests of what is in them, and of each kind of run."""
    with patch("headway.training.report_page.inline_svg", inline_svg):
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of data and weights beside the project; tests that need it are skipped where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder ../shared beside the project")
    return folder
