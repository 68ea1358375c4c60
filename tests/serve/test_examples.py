"""The unit and the container file of examples/serve: parsed, checked by systemd where it is, and shown by documents."""

from __future__ import annotations

import json
import shlex
import subprocess
from configparser import ConfigParser
from pathlib import Path
from shutil import which

import pytest

from headway.cli.main import app

ROOT = Path(__file__).parent.parent.parent
UNIT, CONTAINER = (ROOT / "examples" / "serve" / name for name in ("headway.service", "Dockerfile"))


def check_command(words: list[str], model: Path) -> dict[str, object]:
    """The arguments of `headway serve`, by headway's own parser, with a folder that is there as the model."""
    assert Path(words[0]).name == "headway"
    words = [str(model) if word.startswith("/") else word for word in words[1:]]
    command, bound, _ = app.parse_args(words, print_error=False, exit_on_error=False)
    assert command.__name__ == "serve"
    assert bound.arguments["models"]
    return dict(bound.arguments)


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a container file and what follows each."""
    lines = "\n".join(line for line in text.splitlines() if line and not line.startswith("#")).replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines.splitlines())]


def test_the_unit_starts_a_server_that_can_drain(tmp_path: Path) -> None:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(UNIT.read_text(encoding="utf-8"))
    assert set(unit) - {"DEFAULT"} == {"Unit", "Service", "Install"}
    service = unit["Service"]
    given = check_command(shlex.split(service["ExecStart"]), tmp_path)
    assert "EnvironmentFile" in service or given["host"] == "127.0.0.1"  # where its key is
    assert int(service["TimeoutStopSec"]) > 300  # seconds that a request may take
    assert service["KillMode"] == "mixed"


@pytest.mark.skipif(which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8").replace("/usr/local/bin/headway", "/bin/true")
    (tmp_path / UNIT.name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert UNIT.name not in done.stderr


def test_the_container_runs_a_server(tmp_path: Path) -> None:
    given = instructions(CONTAINER.read_text(encoding="utf-8"))
    assert given[0][0] == "FROM"
    assert {name for name, _ in given} <= {
        "FROM",
        "RUN",
        "ARG",
        "COPY",
        "USER",
        "EXPOSE",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    }
    for rest in (rest for name, rest in given if name == "RUN"):
        assert subprocess.run(["sh", "-nc", rest], check=False).returncode == 0, rest
    known = dict(given)
    assert known["STOPSIGNAL"] == "SIGTERM"
    arguments = check_command([*json.loads(known["ENTRYPOINT"]), *json.loads(known["CMD"])], tmp_path)
    assert arguments["host"] == "0.0.0.0"
    assert known["EXPOSE"] == "8000"
    assert "port" not in arguments


@pytest.mark.parametrize("file", [UNIT, CONTAINER], ids=lambda file: file.name)
def test_the_documents_show_them(file: Path) -> None:
    text = (ROOT / "docs" / "SERVING.md").read_text(encoding="utf-8")
    assert f"```\n{file.read_text(encoding='utf-8')}```" in text
    assert f"(../examples/serve/{file.name})" in text
