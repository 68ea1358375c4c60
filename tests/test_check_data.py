"""recipes/check_data.py: a copy of a data set is complete, or a sentence says what is missing."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_data", ROOT / "recipes" / "check_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "check_data", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a data set of a text, a packed text and two recordings."""
    folder = tmp_path / "tiny"
    (folder / "recordings").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"abc")
    (folder / "b.gz").write_bytes(gzip.compress(b"packed", compresslevel=1))
    (folder / "recordings" / "0.wav").write_bytes(b"no")
    (folder / "recordings" / "1.wav").write_bytes(b"yes")
    lines = f"{digest(b'no')}  0.wav\n{digest(b'yes')}  1.wav\n"
    known = check.DataSet(
        "Tiny",
        "nobody",
        "nowhere",
        "free",
        {"a.txt": check.Content(3, digest(b"abc")), "b.gz": check.Content(6, digest(b"packed"))},
        {"recordings": check.Recordings(2, check.Content(5, digest(lines.encode())))},
    )
    monkeypatch.setattr(check, "DATA_SETS", {"tiny": known})
    return folder


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def told(check: ModuleType, copy: Path) -> list[str]:
    return list(check.problems(copy, check.DATA_SETS["tiny"]))


def test_a_complete_copy_has_no_problems(check: ModuleType, copy: Path) -> None:
    assert told(check, copy) == []
    (copy / "b.gz").write_bytes(gzip.compress(b"packed", compresslevel=9))  # packed by somebody else
    assert told(check, copy) == []


def test_what_is_missing_or_different_is_told(check: ModuleType, copy: Path) -> None:
    (copy / "a.txt").write_bytes(b"abd")
    (copy / "recordings" / "1.wav").unlink()
    other, packed = told(check, copy)
    assert re.fullmatch(r"a.txt has other content: SHA-256 \w{12}… instead of ba7816bf8f01…", other)
    assert packed == "recordings/*.wav: 1 files instead of 2"
    (copy / "a.txt").write_bytes(b"ab")
    (copy / "b.gz").write_bytes(gzip.compress(b"packed")[:-9])
    (copy / "recordings" / "1.wav").write_bytes(b"yea")
    short, cut, sound = told(check, copy)
    assert short == "a.txt has 2 bytes instead of 3"
    assert cut == "b.gz cannot be unpacked; download it again"
    assert sound.startswith("recordings/*.wav has other content")
    (copy / "b.gz").unlink()
    assert "b.gz is missing" in told(check, copy)
    assert told(check, copy / "elsewhere") == [f"the folder {copy / 'elsewhere'} is missing"]


def test_the_command(
    check: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["check_data.py", *words])
        return check.main()

    assert run(str(copy.parent)) == 0
    assert capsys.readouterr().out == "tiny: complete\n"
    (copy / "a.txt").unlink()
    assert run(str(copy.parent), "tiny") == 1
    assert capsys.readouterr().out == "tiny: a.txt is missing\n  Tiny: nowhere.\n"
    with pytest.raises(SystemExit):
        run(str(copy.parent), "huge")
    assert "no data set 'huge'; allowed: tiny" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(str(copy / "elsewhere"))
    assert "is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_the_data_of_every_recipe_is_known(check: ModuleType, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for folder, name in re.findall(r"\.\./shared/data/(\w+)/?([\w.-]*)", text):
        known = check.DATA_SETS[folder]
        assert name in {"", *known.files, *known.recordings}
        assert f"# Data: {known.title} ({known.publisher}; licence: {known.licence})" in text


def test_the_readme_says_where_each_can_be_had(check: ModuleType) -> None:
    readme = (ROOT / "recipes" / "README.md").read_text(encoding="utf-8")
    for name, known in check.DATA_SETS.items():
        assert f"| `{name}/` | {known.title} | {known.publisher} | {known.licence} | {known.source} |" in readme
        assert known.prepared in readme
        assert all(f"`{file}`" in readme for file in known.files)
