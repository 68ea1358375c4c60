"""`headway doctor`: every line is well or says what mends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from headway import doctor
from headway.cli import main as cli
from headway.distributed import launcher
from headway.distributed.launcher import rendezvous_problem


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "rendezvous_problem", lambda: None)  # two processes that import torch
    monkeypatch.setattr(doctor, "SECONDS", 0.02)
    monkeypatch.setattr(doctor, "SLOW", 0.0)


def findings() -> dict[str, doctor.Finding]:
    return {one.name: one for one in doctor.findings()}


def test_lines_are_plain_and_each_is_well_or_has_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert all(line[:5] in ("ok   ", "fix  ", "add  ", "     ") for line in lines)
    for at, line in enumerate(lines):
        if line[:3] in ("fix", "add"):
            assert lines[at + 1].startswith("     ")
            assert lines[at + 1].strip()


def test_json_is_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert err == ""
    found = {one["name"]: one for one in told["findings"]}
    assert found["torch"]["found"] == version("torch")
    assert all((one["fix"] is None) == one["ok"] for one in told["findings"])
    assert told["ok"] == all(one["ok"] for one in told["findings"] if one["needed"])
    assert "GFLOP/s" in found["speed"]["found"]


def test_a_missing_package_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(package: str) -> str:
        if package == "babel":
            raise PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(doctor, "version", absent)
    monkeypatch.setattr(doctor, "EXTRAS", {"nosuchmodule": ("nosuch", "to test this")})
    found = findings()
    assert (found["babel"].fix, found["babel"].needed) == ("pip install babel", True)
    assert (found["nosuch"].fix, found["nosuch"].needed) == ("pip install nosuch", False)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_without_a_needed_package_the_exit_code_is_1(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(package: str) -> str:
        if package in ("babel", "pillow"):
            raise PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(doctor, "version", absent)
    assert cli.main(["doctor", *options]) == 1
    out, err = capsys.readouterr()
    assert err == "error: headway cannot work without pillow, babel; pip install pillow babel\n"
    assert not options or json.loads(out)["ok"] is False


def test_what_is_needed_is_what_is_installed_with_headway() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    block = text[text.index("\ndependencies = [") : text.index("[project.optional")]
    assert all(f'"{package}' in block for package in doctor.NEEDED)
    assert block.count(">=") == len(doctor.NEEDED)


def test_little_room_and_memory_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LITTLE_SPACE", 1 << 60)
    monkeypatch.setattr(doctor, "LITTLE_MEMORY", 1 << 60)
    found = findings()
    assert found["disk here"].fix == "make room: data and checkpoints are large"
    assert found["memory"].fix == "close other programs, or train with a smaller --train.batch"


def test_more_threads_than_cores_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4096")
    assert "set OMP_NUM_THREADS to" in (doctor.cores().fix or "")
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert doctor.cores().ok


def test_a_cache_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "new" / "cache"))
    found = doctor.cache()
    assert found.ok
    assert not (tmp_path / "new").exists()  # looking changes nothing
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = doctor.cache()
    assert found.fix == "set HEADWAY_CACHE to a folder of yours"


@pytest.mark.slow
@pytest.mark.parametrize("gone", [False, True])
def test_no_home_and_no_folder_are_no_crash(tmp_path: Path, gone: bool) -> None:
    code = f"import os; os.chdir({str(tmp_path)!r}); {gone} and os.rmdir(os.getcwd()); "
    code += "from headway import doctor; from headway.cli import main as cli; "
    code += "doctor.SECONDS = 0.02; raise SystemExit(cli.main(['doctor']))"
    env = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME", "HEADWAY_CACHE")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("change to a folder of yours" in done.stdout) == gone
    assert ("GFLOP/s" in done.stdout) != gone


@pytest.mark.long
def test_two_processes_of_this_machine_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rendezvous_problem() is None
    monkeypatch.setattr(launcher, "MEET", "raise SystemExit('no way')")
    assert rendezvous_problem() == "no way"
    monkeypatch.setattr(doctor, "rendezvous_problem", rendezvous_problem)
    check = doctor.processes()
    assert (check.ok, check.needed) == (False, False)
    assert check.found == "two of them cannot train together: no way"
