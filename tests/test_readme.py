"""What the README says is run as it stands, and its picture shows the folders that there are."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from headway.app import cli

ROOT = Path(__file__).parent.parent
NEEDY = ("demo", "train", "check", "eval", "bottleneck", "run", "generate", "convert", "doctor", "look", "inspect")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands(first: str) -> list[list[str]]:
    lines = (line for block in blocks("sh") for line in block.splitlines())
    words = (shlex.split(line, comments=True) for line in lines)
    return [line for line in words if line and line[0] == first]


@pytest.mark.slow
def test_the_snippets_run(capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, as a reader would type them."""
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    count, shape, _, _, mass = capsys.readouterr().out.splitlines()
    assert int(count) > 100_000
    assert shape == "(1, 8, 4096, 4096)"
    assert "8." in mass or "7.99" in mass


def test_the_commands_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that need a folder, train, or take a while are asked for their help; the others are run."""
    for _, *words in commands("headway"):
        needy = words[:1] in ([name] for name in NEEDY)
        assert cli.main([words[0], "--help"] if needy else words) == 0
    assert capsys.readouterr().out


def test_the_targets_are_there() -> None:
    for line in commands("make"):
        subprocess.run([*line, "--dry-run"], cwd=ROOT, check=True, capture_output=True)


def test_the_picture_shows_the_folders() -> None:
    drawn = re.findall(r'font-weight="700">([^<]+)<', (ROOT / "docs" / "layers.svg").read_text(encoding="utf-8"))
    source = ROOT / "src" / "headway"
    folders = {f"{folder.name}/" for folder in source.iterdir() if (folder / "__init__.py").exists()}
    files = {file.name for file in source.glob("*.py") if not file.name.startswith("__")}
    assert set(drawn) == folders | files


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target
