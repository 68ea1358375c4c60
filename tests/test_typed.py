"""The public names as a user's script takes them; `make check` checks the same file's types strictly."""

from __future__ import annotations

from inspect import getsource
from textwrap import dedent

import headway
from tests.conftest import ROOT
from tests.typed import readme
from tests.typed.user import main


def test_the_users_script_runs() -> None:
    made = main()
    assert made["y"].shape == (2, 5, 16)
    assert made["entropy"].shape == (2, 4, 5)
    assert made["steps"].shape == (2, 2, 5, 16)
    assert made["packed"].shape == (1, 8, 16)


def test_every_public_name_is_there() -> None:
    assert [name for name in headway.__all__ if not hasattr(headway, name)] == []
    assert set(headway.__all__) <= set(dir(headway))


def test_the_lines_of_the_readme_are_checked() -> None:
    _, body = getsource(readme.main).split("\n", 1)
    assert f"```python\nimport headway\n\n{dedent(body)}```" in (ROOT / "README.md").read_text(encoding="utf-8")
