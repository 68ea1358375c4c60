"""One browser for all tests of a worker, and the pages it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.look.bundle import Bundle
from headway.look.html_page import render_page as page_of

from .chrome import BROWSER, Chrome
from .page import Page
from .samples import Sample

Shown = Callable[..., Page]


@pytest.fixture(scope="session")
def chrome() -> Iterator[Chrome]:
    if not Path(BROWSER).exists():
        pytest.skip(f"needs Debian's Chromium at {BROWSER}: `make browser` installs it")
    browser = Chrome()
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def tab(chrome: Chrome) -> Page:
    return Page(chrome)


@pytest.fixture
def page(tab: Page) -> Page:
    """The tab, as large and as bright as at first."""
    tab.size()
    tab.prefer(color_scheme="light", reduced_motion="no-preference")
    return tab


@pytest.fixture
def shown(page: Page, tmp_path: Path) -> Shown:
    """Opens the page of a sample, at what a hash tells."""

    def show(sample: Sample, hash: str = "") -> Page:
        file = tmp_path / "page.html"
        file.write_text(page_of(Bundle(sample.data, sample.blobs)), encoding="utf-8")
        page.open(file.as_uri() + hash)
        return page

    return show
