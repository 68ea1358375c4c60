"""`headway init`: a recipe that explains itself and is the preset's."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.cli import main as cli
from headway.recipe import SETTINGS, Recipe
from headway.training.recipe_sources import RecipeLayers, from_yaml, preset_values, resolve
from headway.training.recipe_template import commented_yaml
from headway.zoo.presets import PRESETS


@pytest.mark.parametrize("name", [None, *PRESETS])
def test_it_is_the_recipe_of_the_preset(tmp_path: Path, name: str | None) -> None:
    (tmp_path / "r.yaml").write_text(commented_yaml(name), encoding="utf-8")
    assert from_yaml(tmp_path / "r.yaml") == (resolve(RecipeLayers(), preset_values(name)) if name else Recipe())


def test_every_setting_is_there_under_its_meaning() -> None:
    lines = commented_yaml("transformer-big").splitlines()
    assert max(map(len, lines)) <= 88
    for one in SETTINGS.values():
        indent = "  " if one.section else ""
        at = next(at for at, line in enumerate(lines) if line.startswith(f"{indent}{one.word}: "))
        meaning = " ".join(line.strip("# ") for line in lines[at - 3 : at] if line.lstrip().startswith("#"))
        assert one.text in meaning, one.name
    assert "  dropout: 0.3" in lines
    assert lines[lines.index("  dim: 1024") - 1] == "  # sizes of the transformer, from the preset"


def test_the_command_prints_it_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", "gpt2"]) == 0
    assert capsys.readouterr() == (commented_yaml("gpt2"), "")
    assert cli.main(["init", "gtp2"]) == 2
    assert "tip: headway init gpt2" in capsys.readouterr().err
