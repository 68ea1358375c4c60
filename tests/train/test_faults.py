"""Processes that are killed, stopped or cut off: a run goes on from its last checkpoint, or all end with a sentence."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.train.disks import same
from tests.train.runs import data_in
from tests.train.test_processes import PATIENCE, RUN, checkpoint, environment, ranks_of, train, wait_for

INTERVAL = 10  # steps between two checkpoints
NOTICED = 60  # seconds
FAULTS = [
    (1, signal.SIGKILL),
    (0, signal.SIGKILL),
    (1, signal.SIGKILL),
    (0, signal.SIGSTOP),
    (0, signal.SIGKILL),
    (1, signal.SIGKILL),
]


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("faults")) as folder:
        yield folder


def steps_done(folder: str) -> int:
    """The last step in the metrics of a run, which has one line for each."""
    lines = Path(folder, "metrics.jsonl").read_text().splitlines()
    return max(int(line.partition('"step": ')[2].partition(",")[0]) for line in lines)


def wait_until_restarted(run: subprocess.Popen[str], before: dict[int, int]) -> None:
    """Waits until the processes that a parent had started have made room for others."""
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    while run.poll() is None and set(map(str, before.values())) & set(children.read_text().split()):
        time.sleep(0.05)


@pytest.mark.proof
def test_five_processes_are_killed_and_one_is_stopped() -> None:
    steps = INTERVAL * (2 * len(FAULTS) + 2)
    calm = train("--out", "calm", "--processes", "2", steps=steps, log_every=1)
    assert calm.communicate(timeout=PATIENCE)[1] == ""
    run = train("--out", "faults", "--processes", "2", "--supervise", steps=steps, log_every=1)
    reached, seconds = list[int](), list[float]()
    for number, (rank, fault) in enumerate(FAULTS, 1):
        wait_for(Path(f"faults/checkpoints/step-{2 * INTERVAL * number:07}"), run)
        while run.poll() is None and steps_done("faults") < 2 * INTERVAL * number + number:  # somewhere in an interval
            time.sleep(0.002)
        before, start = ranks_of(run.pid), time.monotonic()
        os.kill(before[rank], fault)
        reached.append(steps_done("faults"))
        wait_until_restarted(run, before)
        seconds.append(time.monotonic() - start)
    out, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, said
    resumed = [int(line.rpartition(" ")[2]) for line in out.splitlines() if "resumed at step" in line]
    print(f"restarted after {[round(one, 1) for one in seconds]} s; at steps {reached}, resumed at {resumed}")
    assert len(resumed) == len(FAULTS)
    assert all(done - back <= INTERVAL for done, back in zip(reached, resumed, strict=True))
    assert max(seconds) < NOTICED
    assert same(checkpoint("faults"), checkpoint("calm"))
    weights = [Path(folder, "model.safetensors").read_bytes() for folder in ("faults", "calm")]
    assert weights[0] == weights[1]


# Two hosts: network namespaces of one machine, with a link between them.

ADDRESSES = ("10.231.77.1", "10.231.77.2")
PORT, LINK = "29519", "headway0"  # and the interface of each host


def ip(*words: str) -> str:
    """What is wrong with a command of iproute2, if anything."""
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False).stderr.strip()


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """The names of two namespaces that are this test's own; each has an interface to the other."""
    if shutil.which("ip") is None:
        pytest.skip("there is no command ip: install iproute2")
    names = [f"headway-{os.getpid()}-{side}" for side in "ab"]
    try:
        for name in names:
            if said := ip("netns", "add", name):
                pytest.skip(f"no network namespace can be made: {said}")
        said = ip("link", "add", LINK, "netns", names[0], "type", "veth", "peer", "name", LINK, "netns", names[1])
        if said:
            pytest.skip(f"no link can be made: {said}")
        for name, address in zip(names, ADDRESSES, strict=True):
            for words in (("link", "set", "lo", "up"), ("addr", "add", f"{address}/24", "dev", LINK)):
                assert not ip("-n", name, *words)
            assert not ip("-n", name, "link", "set", LINK, "up")
        yield names
    finally:
        for name in names:
            ip("netns", "delete", name)


def on_host(name: str, command: list[str], **variables: str) -> subprocess.Popen[str]:
    pipe, words = subprocess.PIPE, ["ip", "netns", "exec", name, sys.executable, "-m", *command]
    there = environment(GLOO_SOCKET_IFNAME=LINK, **variables)
    return subprocess.Popen(words, env=there, stdout=pipe, stderr=pipe, text=True)


def by_variables(hosts: list[str], *words: str) -> list[subprocess.Popen[str]]:
    """A process on each host, with the variables of a rendezvous."""
    place = {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": PORT, "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    return [on_host(name, ["headway", *words], RANK=str(rank), **place) for rank, name in enumerate(hosts)]


def by_torchrun(hosts: list[str], *words: str) -> list[subprocess.Popen[str]]:
    meet = ["torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d"]
    meet += ["--rdzv-endpoint", f"{ADDRESSES[0]}:{PORT}", "--rdzv-id", "headway"]
    # torchrun looks for its host by name, and all namespaces have that of the machine
    own = [["--local-addr", address, f"--rdzv-conf=is_host={address == ADDRESSES[0]}"] for address in ADDRESSES]
    return [on_host(name, [*meet, *more, "-m", "headway", *words]) for name, more in zip(hosts, own, strict=True)]


def ended(processes: list[subprocess.Popen[str]]) -> tuple[list[int], list[str], list[str]]:
    """Exit codes, standard output and errors of all."""
    said = [one.communicate(timeout=PATIENCE) for one in processes]
    return [one.returncode for one in processes], [out for out, _ in said], [error for _, error in said]


@pytest.mark.proof
@pytest.mark.parametrize("start", [by_variables, by_torchrun])
def test_two_hosts_make_the_run_of_two_processes(
    hosts: list[str], start: Callable[..., list[subprocess.Popen[str]]]
) -> None:
    out = start.__name__
    codes, told, said = ended(start(hosts, *RUN, "--train.steps", "20", "--out", out))
    assert codes == [0, 0], said
    assert [text.count("done: the weights are those of step") for text in told] == [1, 0]
    here = train("--out", f"here {out}", "--processes", "2", steps=20)
    assert here.communicate(timeout=PATIENCE)[1] == ""
    weights = [Path(folder, "model.safetensors").read_bytes() for folder in (out, f"here {out}")]
    assert weights[0] == weights[1]


@pytest.mark.proof
def test_a_link_that_is_cut_is_reported(hosts: list[str]) -> None:
    words = (*RUN, "--train.steps", "60", "--train.log-every", "10", "--out", "cut", "--resume")
    both = by_variables(hosts, *words)
    wait_for(Path("cut/checkpoints/step-0000020"), both[0])
    start = time.monotonic()
    assert not ip("-n", hosts[1], "link", "set", LINK, "down")
    codes, _, said = ended(both)
    seconds = time.monotonic() - start
    print(f"noticed after {seconds:.1f} s: {said}")
    assert codes == [1, 1]
    assert seconds < NOTICED
    lost = "nothing is lost up to the last checkpoint: go on with headway train --out cut --resume\n"
    assert said == [
        f"error: process 1 has not answered for 30 seconds; {lost}",
        f"error: process 0 has not answered, which keeps the store; {lost}",
    ]
    assert not ip("-n", hosts[1], "link", "set", LINK, "up")
    codes, _, said = ended(by_variables(hosts, *words))
    assert codes == [0, 0], said
    here = train("--out", "whole", "--processes", "2")
    assert here.communicate(timeout=PATIENCE)[1] == ""
    assert same(checkpoint("cut"), checkpoint("whole"))
