"""The job files of examples/cluster: each parses, and so does its command, by torchrun's and headway's own parsers."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from headway.cli.main import app
from headway.cli.train_commands import train
from tests.conftest import ROOT

FOLDER = ROOT / "examples" / "cluster"
FILES = ("slurm.sh", "kubernetes-jobset.yaml", "skypilot.yaml")


def script(name: str) -> str:
    """The shell script of a file; of JobSet its command as one line."""
    text = (FOLDER / name).read_text("utf-8")
    if name.endswith(".sh"):
        return text
    told = yaml.safe_load(text)
    if name.startswith("skypilot"):
        return str(told["run"])
    (job,) = told["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    return shlex.join(container["command"])


def command(name: str) -> list[str]:
    """The words behind torchrun."""
    lines = script(name).replace("\\\n", " ").splitlines()
    (line,) = [line for line in lines if "torchrun " in line and not line.startswith("#")]
    words = shlex.split(line)
    return words[words.index("torchrun") + 1 :]


def test_every_file_is_here() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {*FILES}


@pytest.mark.parametrize("name", ["slurm.sh", "skypilot.yaml"])
def test_scripts_parse(name: str, tmp_path: Path) -> None:
    file = tmp_path / "job.sh"
    file.write_text(script(name))
    assert subprocess.run(["bash", "-n", file], check=False).returncode == 0


@pytest.mark.parametrize("name", FILES)
def test_the_command_lines_parse(name: str) -> None:
    from torch.distributed.run import parse_args  # late: torch's launcher takes a second

    words = command(name)
    numbers = [word if "$SLURM_N" not in word and "$SKYPILOT_N" not in word else "1" for word in words]
    launched = parse_args(numbers)
    assert (launched.module, launched.training_script, launched.nproc_per_node) == (True, "headway", "8")
    called, bound, *_ = app.parse_args(words[words.index("headway") + 1 :], exit_on_error=False, print_error=False)
    assert called is train
    assert bound.args or bound.kwargs


@pytest.mark.parametrize("name", FILES)
def test_a_misspelled_option_would_be_seen(name: str) -> None:
    words = command(name)
    with pytest.raises(Exception, match=r"train\.stepps"):
        app.parse_args(
            [*words[words.index("headway") + 1 :], "--train.stepps", "3"], exit_on_error=False, print_error=False
        )
