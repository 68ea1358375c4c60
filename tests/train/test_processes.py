"""Several processes make the run of one: the same steps, the same checkpoints; one that is gone ends all of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.cli.main import main
from headway.data.order import WHOLE, BatchPosition, StepShare
from headway.distributed.launcher import free_port, plain
from headway.distributed.world import ALONE, joined
from headway.errors import UserError
from headway.training.store import Store
from tests.train.disks import same
from tests.train.process import FURTHER, cases, evaluations, steps_of, write_teachers
from tests.train.runs import data_in

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 300  # seconds; only a test that fails waits so long


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
@pytest.mark.parametrize("split", [False, True])
def test_the_shares_are_the_step(processes: int, split: bool) -> None:
    places = [BatchPosition(0, number, np.arange(4 * number, 4 * number + 4)) for number in range(5)]
    shares = [StepShare(rank, processes, split).of(places) for rank in range(processes)]
    rows = [place.rows.tolist() for share in shares for place in share]
    assert sorted(row for some in rows for row in some) == list(range(20))
    for rank, share in enumerate(shares):
        for at, place in enumerate(share):
            assert place.batch == places[StepShare(rank, processes, split).number(at)].batch
    assert WHOLE.of(places) == places
    assert WHOLE.key == StepShare(1, 2).key == ()
    assert StepShare(1, 2, split=True).key != StepShare(0, 2, split=True).key


def test_words_for_the_parent_alone() -> None:
    words = ["train", "a.tsv", "--processes", "2", "--supervise", "--out", "run", "--processes=4"]
    assert plain(words) == ["train", "a.tsv", "--out", "run"]


def test_a_port_that_is_taken_and_one_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        with pytest.raises(
            UserError, match=r"^MASTER_PORT=\d+ cannot be used: Address already in use; give another, or"
        ):
            free_port()
    for wrong, said in (("70000", "MASTER_PORT=70000 is no port"), ("x", "MASTER_PORT='x' is not a whole number")):
        monkeypatch.setenv("MASTER_PORT", wrong)
        with pytest.raises(UserError, match=said):
            free_port()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 with WORLD_SIZE=2; allowed: RANK from 0 to WORLD_SIZE - 1"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK='one' is not a whole number"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "RANK and WORLD_SIZE are set, but not MASTER_ADDR"),
    ],
)
def test_a_world_that_cannot_be(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(UserError, match=f"^{said}"), joined():
        pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--processes", "0"], "--processes 0; allowed: 1 to 256"),
        (["--supervise"], "--supervise needs the folder of the run; give --out DIR"),
        (["--processes", "2", "--dry-run"], "a run that is only described needs one process; leave out --processes"),
    ],
)
def test_what_the_parent_refuses(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["train", "pairs.tsv", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("processes")) as folder:
        yield folder


def environment(**more: str) -> dict[str, str]:
    quiet = {name: text for name, text in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    here = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    return {**quiet, "OMP_NUM_THREADS": "1", **here, **more}


def started(*commands: Sequence[str], folders: Sequence[Path | None] = ()) -> list[subprocess.Popen[str]]:
    """The processes of a world, each with the words of its own command behind `python -m`, and in its own folder."""
    shared = {"WORLD_SIZE": str(len(commands)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=folder,
            env=environment(RANK=str(rank), **shared),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, (words, folder) in enumerate(zip_longest(commands, folders))
    ]


def together(count: int, what: str, folder: str) -> tuple[list[int], list[str]]:
    """The exit codes of so many processes, and what each says; one that was stopped is killed after the others."""
    processes = started(*[["tests.train.process", what, folder]] * count)
    try:
        stopped = [processes[int(folder)]] if what == "stop" else []
        said = {one.pid: one.communicate(timeout=PATIENCE)[1] for one in processes if one not in stopped}
    finally:
        for one in processes:
            one.kill()
    said |= {one.pid: one.communicate()[1] for one in stopped}
    return [one.returncode for one in processes], [said[one.pid] for one in processes]


# Steps.


@cache
def computed(count: int) -> list[dict[str, Any]]:
    """What each of so many processes notes of all cases."""
    write_teachers()
    codes, said = together(count, "compare", ".")
    assert codes == [0] * count, said
    assert said == [""] * count
    return [json.loads(Path(f"{rank} of {count}.json").read_text()) for rank in range(count)]


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_steps_are_those_of_one_process(count: int) -> None:
    found = computed(count)
    assert list(found[0]["steps"]) == list(cases(count))
    for name in found[0]["steps"]:
        expected = steps_of(name)
        assert len(expected) == 3
        for process in found:
            np.testing.assert_allclose(process["steps"][name], expected, rtol=2e-6, atol=2e-6, err_msg=name)  # type: ignore
        weights = {step[-1] for process in found for step in process["steps"][name]}
        assert len(weights) == 3, name  # bit for bit those of the other processes


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_checkpoints_know_no_layout(count: int) -> None:
    """From layout to layout to one process: the same weights and optimiser, bit for bit, and the same ten steps.

    What layouts that split parameters have written is a file of each process, and an index.
    """
    shards = [
        f"{part}-{at:05}-of-{count:05}.safetensors" for part in ("model", "optimiser") for at in range(1, count + 1)
    ]
    indexes = [f"{part}.safetensors.index.json" for part in ("model", "optimiser")]
    for process in computed(count):
        restored, first, *others, files = process["layouts"]
        assert files == sorted(["manifest.json", "state.json", *indexes, *shards])
        assert restored == [True, True, True]
        assert len(first) == 2 * FURTHER
        np.testing.assert_allclose(others, [first] * 3, rtol=2e-6)


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_an_evaluation_is_that_of_one_process(count: int) -> None:
    """To the bit."""
    expected = json.loads(json.dumps(evaluations(ALONE)))
    for process in computed(count):
        assert process["evaluations"] == expected


@pytest.mark.long
def test_what_cannot_be_shared_is_said() -> None:
    for process in computed(2):
        assert process["total"] == [2.0, 1.0]
        assert [said.partition(";")[0] for said in process["refusals"]] == [
            "the loss of image-text-contrastive compares the rows of a batch, which 2 processes would split",
            "2 processes would share batches of 1.0 rows",
            "rnn has no plan for tensor parallelism",
            "train.tensor_parallel=2 does not divide kv_heads=1 of stack.blocks.0.attn.body",
            "train.tensor_parallel=4 does not divide the number of processes, 2",
            "tensor parallel 2 has no train.ema_decay",
            "train.replicas=2 with train.parallel=ddp and data in 2 shares",
        ]


@pytest.mark.long
def test_a_process_with_other_data_ends_both() -> None:
    codes, said = together(2, "differ", ".")
    assert codes == [2, 2]
    what = "the data of process 1 is not that of process 0; "
    assert said == [f"error: {what}give all processes the same data, the same recipe and the same headway\n", ""]


@pytest.mark.long
def test_a_run_with_other_data_leaves_nothing() -> None:
    Path("elsewhere").mkdir()
    Path("elsewhere", "pairs.tsv").write_text("".join(Path("pairs.tsv").read_text().splitlines(keepends=True)[:-1]))
    here, out = Path.cwd(), str(Path("unequal").absolute())
    both = started(*[["headway", *RUN, "--out", out]] * 2, folders=(here, here / "elsewhere"))
    said = [one.communicate(timeout=PATIENCE)[1] for one in both]
    assert said[0].startswith("error: the data of process 1 is not that of process 0; ")
    assert (said[0].count("\n"), said[1]) == (1, "")
    assert [one.returncode for one in both] == [2, 2]
    assert not Path(out).exists()


@pytest.mark.long
def test_a_process_that_is_asked_for_something_else_ends_both() -> None:
    both = started(*(["headway", *RUN, "--out", "otherwise", "--train.steps", steps] for steps in ("4", "5")))
    said = [one.communicate(timeout=PATIENCE)[1] for one in both]
    what = "train.steps of process 1 is not that of process 0; "
    assert said == [f"error: {what}give all processes the same data, the same recipe and the same headway\n", ""]
    assert [one.returncode for one in both] == [2, 2]
    assert not Path("otherwise").exists()


@pytest.mark.long
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_process_that_does_not_answer_is_missed(stopped: int) -> None:
    codes, said = together(2, "stop", str(stopped))
    assert codes == ([-signal.SIGKILL, 1] if stopped == 0 else [1, -signal.SIGKILL])
    assert said[1 - stopped].startswith(f"error: process {stopped} has")
    assert said[1 - stopped].count("\n") == 1


# Runs.

RUN = (
    *("train", "pairs.tsv", "--preset", "transformer-nano", "--model.layers", "1", "--model.dim", "16"),
    *("--model.heads", "2", "--train.batch", "100", "--train.checkpoint-every", "10"),
    *("--train.evaluate-every", "1000", "--train.dtype", "fp32", "--train.keep-last", "9"),
)


def train(*words: str, steps: int = 60, log_every: int = 10) -> subprocess.Popen[str]:
    length = ("--train.steps", str(steps), "--train.log-every", str(log_every))
    command = [sys.executable, "-m", "headway", *RUN, *length, *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment(), stdout=pipe, stderr=pipe, text=True)


def ranks_of(parent: int) -> dict[int, int]:
    """The processes that a parent has started, by number."""
    found: dict[int, int] = {}
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        variables = dict(part.partition("=")[::2] for part in Path(f"/proc/{child}/environ").read_text().split("\0"))
        found[int(variables["RANK"])] = int(child)
    return found


def wait_for(place: Path, run: subprocess.Popen[str]) -> None:
    until = time.monotonic() + PATIENCE
    while not place.exists():
        assert time.monotonic() < until
        assert run.poll() is None, run.communicate()
        time.sleep(0.002)


def checkpoint(folder: str) -> Any:
    found = Store(Path(folder) / "checkpoints").latest()
    assert found is not None
    return found[0]


BY_PARALLEL = {"DDP": (), "FSDP": ("--train.parallel", "fsdp")}


@pytest.fixture(scope="module", params=BY_PARALLEL)
def undisturbed(place: Path, request: pytest.FixtureRequest) -> str:
    """A run of two processes."""
    name: str = request.param
    run = train("--out", name, "--processes", "2", *BY_PARALLEL[name])
    out, said = run.communicate(timeout=PATIENCE)
    assert (run.returncode, said) == (0, "")
    assert out.count("done: the weights are those of step") == 1
    assert f"{name}: 2 processes, rows of every batch each" in out
    return name


@pytest.mark.long
def test_a_killed_process_is_replaced_and_nothing_is_lost(undisturbed: str) -> None:
    folder = f"{undisturbed}-killed"
    run = train("--out", folder, "--processes", "2", "--supervise", *BY_PARALLEL[undisturbed])
    wait_for(Path(folder, "checkpoints/step-0000020"), run)
    os.kill(ranks_of(run.pid)[1], signal.SIGKILL)
    out, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, said
    sentences = said.splitlines()
    assert sentences[0].startswith("error: another process of this run has ended or cannot be reached; nothing is lost")
    assert sentences[1:] == ["process 1 was killed by SIGKILL; the run is started again from its last checkpoint"]
    assert "resumed at step" in out
    assert same(checkpoint(folder), checkpoint(undisturbed))
    weights = [Path(one, "model.safetensors").read_bytes() for one in (folder, undisturbed)]
    assert weights[0] == weights[1]
    assert not list(Path(folder, "checkpoints").glob(".part-*"))


@pytest.mark.long
def test_a_run_goes_on_with_other_processes_and_layouts(undisturbed: str) -> None:
    """From two processes to one to two of the other layout, which read the same rows; dropout is another."""
    folder, other = f"{undisturbed}-moved", next(layout for name, layout in BY_PARALLEL.items() if name != undisturbed)
    run = train("--out", folder, "--processes", "2", *BY_PARALLEL[undisturbed])
    wait_for(Path(folder, "checkpoints/step-0000020"), run)
    for words in (("--train.parallel", "ddp"), ("--processes", "2", *other)):
        run.send_signal(signal.SIGTERM)
        assert run.wait(PATIENCE) == 128 + signal.SIGTERM
        before = checkpoint(folder).step
        run = train("--out", folder, "--resume", *words)
        wait_for(Path(folder, f"checkpoints/step-{before + 10 - before % 10:07}"), run)
    out, said = run.communicate(timeout=PATIENCE)
    assert (run.returncode, said) == (0, "")
    assert f"resumed at step {before}" in out
    told = [list(map(json.loads, Path(one, "metrics.jsonl").read_text().splitlines())) for one in (folder, undisturbed)]
    rows = [[(line["step"], line.get("targets"), line.get("count")) for line in lines] for lines in told]
    assert rows[0] == rows[1]


@pytest.mark.long
@pytest.mark.parametrize("processes", [["--processes", "2"], []])
def test_a_layout_that_cannot_be_ends_all_with_a_sentence(processes: list[str]) -> None:
    run = train("--out", "refused", *processes, "--train.tensor-parallel", "4")
    _, said = run.communicate(timeout=PATIENCE)
    what = f"--train.tensor-parallel=4 does not divide the number of processes, {len(processes) or 1}"
    assert said == f"error: {what}; start a multiple of 4 by --processes or torchrun\n"
    assert run.returncode == 2
    assert not Path("refused").exists()


@pytest.mark.long
def test_a_signal_to_any_process_saves_once() -> None:
    run = train("--out", "asked", "--processes", "2", steps=3000)
    wait_for(Path("asked/checkpoints/step-0000010"), run)
    os.kill(ranks_of(run.pid)[1], signal.SIGTERM)
    out, said = run.communicate(timeout=PATIENCE)
    assert (run.returncode, said) == (128 + signal.SIGTERM, "")
    assert out.count("interrupted at step") == 1
    step = checkpoint("asked").step
    assert f"interrupted at step {step}, and saved" in out
