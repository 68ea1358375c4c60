"""Every suite runs at tiny sizes: headway's contenders, and those of transformers and torch, compute the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.bench.measurement import children, timed
from headway.bench.peers import TORCH, TRANSFORMERS, TRANSFORMERS_SERVER
from headway.bench.serving_suite import SERVE, ServerUnderLoad
from headway.bench.suite import Case, Contender, Suite, Workspace
from headway.bench.suites import SUITES
from headway.cli.main import main


@pytest.mark.long
@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES.keys())
def test_contenders_compute_the_same(suite: Suite, tmp_path: Path) -> None:
    work = Workspace(tmp_path, suite.tiny)
    suite.write(work)
    answers = {one.name: answers_of(one, work, suite.cases(suite.tiny)) for one in runnable(suite)}
    reference = answers[suite.contenders[0].name]
    assert {one.name for one in suite.contenders if one.peer is None and not one.cpu} <= set(answers)
    for one in runnable(suite):
        for case, answer in answers[one.name].items():
            if one.same_weights and one.precision == "fp32":
                assert suite.comparison.measure(reference[case], answer) >= suite.comparison.least, (one.name, case)


def runnable(suite: Suite) -> list[Contender]:
    """Without those whose conversions take long, and without autocast."""
    peers = (None, TORCH, TRANSFORMERS, TRANSFORMERS_SERVER)
    return [
        one for one in suite.contenders if one.peer in peers and not one.cpu and (not one.peer or one.peer.installed)
    ]


def answers_of(one: Contender, work: Workspace, cases: tuple[Case, ...]) -> dict[str, Any]:
    run = one.prepare(work)
    return {case.name: timed(run, case)["answer"] for case in cases}


def test_what_a_contender_has_started_counts_too() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert process.pid in children(os.getpid())
        process.communicate(b"\n")
    assert process.pid not in children(os.getpid())


@pytest.mark.long
def test_a_server_answers_each_request_and_ends_with_its_contender(tmp_path: Path) -> None:
    work = Workspace(tmp_path, SERVE.tiny)
    SERVE.write(work)
    server = SERVE.contenders[0].prepare(work)
    assert isinstance(server, ServerUnderLoad)
    process, case = server.process, SERVE.cases(SERVE.tiny)[-1]
    found, again = timed(server, case), timed(server, case)
    requests = case.sizes["requests"]
    assert [len(tokens) for tokens in found["answer"]] == [SERVE.tiny["new"]] * requests
    assert found["answer"] != again["answer"]  # other prompts, so that none is known
    assert {name: len(times) for name, times in found["samples"].items()} == {
        "first token": requests,
        "request": requests,
    }
    assert all(0 < a <= b for a, b in zip(*found["samples"].values(), strict=True))
    assert found["cpu"] > 0
    assert found["peak"] > 100 * 2**20  # torch is in the server alone
    del server
    assert process.poll() is not None


def test_names_and_bars_fit() -> None:
    from headway.bench.benchmark_page import BARS

    for suite in SUITES.values():
        names = [one.name for one in suite.contenders]
        assert len(set(names)) == len(names)
        assert suite.contenders[0].peer is None
    for bar in BARS:
        names = {one.name for one in SUITES[bar.suite].contenders}
        assert bar.contender is None or bar.contender in names
        assert bar.against in {"transformers", "best peer", *names}


@pytest.mark.long
def test_the_command_measures_in_processes_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "B.md"
    assert main(["bench", "attention", "--tiny", "--rounds", "1", "--json", "--out", str(out)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["suites"]
    assert [case["name"] for case in found["cases"]] == ["N = 16", "N = 32", "N = 64"]
    (one,) = found["cases"][0]["measured"]
    assert one["name"] == "headway"
    assert len(one["cpu"]) == 1
    assert one["peak"] > 2**20
    assert set(found["limits"]["gflops"]) >= {"fp32"}
    assert "tiny sizes" in out.read_text(encoding="utf-8")


def test_the_command_lists_suites(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in SUITES)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["generate-gtp2"], "there is no suite 'generate-gtp2'; did you mean 'generate-gpt2'?"),
        (["load", "--rounds", "0"], "--rounds 0; allowed: 1 or more"),
        (["load", "--threads", "0"], "--threads 0; allowed: 1 or more"),
        (["load", "--out", "page.txt"], "allowed: a file of an existing folder whose name ends in .md"),
        (["load", "--out", "no/such/page.md"], "allowed: a file of an existing folder whose name ends in .md"),
    ],
)
def test_mistakes_are_told(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err
