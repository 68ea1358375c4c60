"""The plan of large trainings: published figures, sums by hand, and mistakes in one sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

from headway.cli.main import main
from headway.errors import UserError
from headway.training.accelerators import ACCELERATORS, devices
from headway.training.cluster_plan import ClusterPlan, ParallelLayout, StepEstimate, Workload, cluster_plan
from headway.zoo.build import config_of
from headway.zoo.cost import cost


@cache
def planned(name: str, where: str, tokens: float, batch: float | None = None) -> ClusterPlan:
    return cluster_plan(name, where, tokens, batch=batch)


# GPU hours of the papers' tables: LLaMA (Touvron et al. 2023a, table 15), Llama 2 (2023b, table 2), on A100-80GB; and
# of the model card of Llama 3, on H100-80GB.  The share of the A100 was taken from 65B.
REPORTED = {
    ("llama-7b", "A100", 1e12): 82_432,
    ("llama-13b", "A100", 1e12): 135_168,
    ("llama-30b", "A100", 1.4e12): 530_432,
    ("llama-65b", "A100", 1.4e12): 1_022_362,
    ("llama2-7b", "A100", 2e12): 184_320,
    ("llama2-13b", "A100", 2e12): 368_640,
    ("llama2-70b", "A100", 2e12): 1_720_320,
    ("gpt3", "A100", 3e11): 34 * 24 * 1024,  # 34 days on 1,024 A100 (Narayanan et al. 2021, section 5.1)
    ("llama3-70b", "H100", 15e12): 6_400_000,
}


@pytest.mark.long
@pytest.mark.parametrize(("name", "device", "tokens"), REPORTED)
def test_reported_gpu_hours_within_a_fifth(name: str, device: str, tokens: float) -> None:
    plan = planned(name, f"1024x{device}", tokens, 4e6)
    hours = plan.hours * plan.devices
    assert hours == pytest.approx(REPORTED[name, device, tokens], rel=0.2)


# Llama 3.1 405B, of which there is no preset
LARGEST = {"layers": 126, "dim": 16384, "hidden": 53248, "heads": 128, "kv_heads": 8}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "name", "sizes", "tokens", "hours"),
    [
        ("A100", "llama-65b", {}, 1.4e12, 1_022_362),
        ("H100", "llama3-70b", LARGEST, 15.6e12, 30.84e6),
    ],
)
def test_sustained_shares_follow_from_device_hours(
    device: str, name: str, sizes: dict[str, int], tokens: float, hours: float
) -> None:
    config = config_of(name, **sizes)
    flops = tokens * cost(config, length=config.context).training_per_token
    one = ACCELERATORS[device]
    assert flops / (3600 * hours * one.flops) == pytest.approx(one.sustained, abs=0.006)


@pytest.mark.slow
def test_flops_of_gpt3() -> None:
    """3.14e23 in table D.1 of Brown et al., which leaves out attention; ours has it, and nothing for embeddings."""
    assert 300e9 * cost("gpt3").training_per_token == pytest.approx(3.14e23, rel=0.03)


@pytest.mark.long
def test_mfu_of_gpt3_is_in_the_range_of_reports() -> None:
    assert 0.12 <= planned("gpt3", "10000xV100", 300e9, 2048 * 10_000).best.mfu <= 0.25  # 21.3 % (PaLM, table 3)


WORK = Workload("toy", "token", 100, 10**9, 10**8, 6 * 10**11, (4e8, 1e8), 1000, 10, 8)
DEVICE = replace(ACCELERATORS["A100"], sustained=0.5)


def estimate(tp: int = 1, shard: int = 1, replicas: int = 1, recompute: bool = False) -> StepEstimate:
    return StepEstimate(WORK, DEVICE, ParallelLayout(tp, shard, replicas, 2, 4, recompute))


def test_memory_by_hand() -> None:
    one = estimate().memory
    assert one == {"weights": 6e9, "gradients": 4e9, "optimizer": 8e9, "activations": 4e8, "reserved": 1.5e9}
    shared = estimate(tp=2, shard=4, recompute=True).memory
    assert shared["weights"] == 4e9 / 8 + 2 * 2 * 1e8 / 2
    assert shared["gradients"] == 4e9 / 8 + 4 * 1e8 / 2
    assert (shared["optimizer"], shared["activations"]) == (1e9, 2 * 1e8 / 2 / 2)


def test_communication_by_hand() -> None:
    assert estimate().sent == {"gather": 0, "reduce": 0, "all_reduce": 0, "tensor": 0}
    assert estimate(replicas=4).sent["all_reduce"] == 2 * 4e9 * 3 / 4  # a ring
    sharded = estimate(shard=4).sent
    assert (sharded["gather"], sharded["reduce"]) == (4 * 2 * 2e9 * 3 / 4, 4 * 4e9 * 3 / 4)  # of each micro-batch
    hybrid = estimate(shard=4, replicas=2).sent
    assert hybrid["all_reduce"] == 2 * 1e9 / 2
    hidden = 2 * 100 * 1000 * 2
    assert estimate(tp=2).sent["tensor"] == 4 * 4 * 10 * 2 * hidden / 2
    assert estimate(tp=2, recompute=True).sent["tensor"] == 4 * 6 * 10 * 2 * hidden / 2


def test_time_by_hand() -> None:
    one = estimate()
    assert one.seconds["compute"] == 8 * 6e11 / (312e12 * 0.5)
    assert estimate(recompute=True).seconds["compute"] == one.seconds["compute"] * 4 / 3
    assert one.seconds["update"] == 28e9 / 2039e9
    assert one.mfu == pytest.approx(8 * 6e11 / 312e12 / one.time)
    # 16 devices are two nodes: each sends over its own network what leaves the node
    assert one.transfer(24e9, 16, 1) == 24e9 / (8 * 25e9) / 0.8
    assert one.transfer(24e9, 8, 1) == 24e9 / 300e9 / 0.8
    assert one.transfer(24e9, 2, 8) == 24e9 / 25e9 / 0.8  # one member in each node
    assert one.transfer(0, 1, 1) == 0


@pytest.mark.long
def test_the_layout_follows_from_memory() -> None:
    assert planned("gpt2", "8xA100", 1e9).best.layout.name == "DDP"
    assert "FSDP" in planned("llama2-7b", "8xA100", 1e9).best.layout.name
    small = planned("llama2-7b", "8xA100-40GB", 1e9).best
    assert small.fits
    assert small.layout.recompute or small.layout.tp > 1
    plan = planned("gpt2", "8xA100", 1e9)
    assert plan.to_dict()["device_hours"] == plan.hours * 8
    assert {one.layout.name for one in plan.others} >= {"FSDP", "DDP × TP 2"}
    assert all(one.layout.rows * 1024 == pytest.approx(0.5e6, rel=0.1) for one in (plan.best, *plan.others))


@pytest.mark.slow
def test_images_are_rows() -> None:
    told = planned("vit-b16", "8xH100", 3e8).to_dict()
    assert (told["batch"]["rows"], told["images"]) == (4096, 3e8)
    assert told["images_per_second"] > 0


BAD = {
    ("gpt22", "8xA100", "1e9"): "did you mean 'gpt2'",
    ("gpt2", "8xA1000", "1e9"): "did you mean 'A100'?",
    ("gpt2", "0xA100", "1e9"): "a whole number from 1 to 1,048,576, as in 64xA100",
    ("gpt2", "-8xA100", "1e9"): "a whole number from 1",
    ("gpt2", "1.5xA100", "1e9"): "a whole number from 1",
    ("gpt2", "8", "1e9"): "a number and a name, as in 64xH100",
    ("gpt2", "", "1e9"): "a number and a name",
    ("gpt2", "8xA100", "0"): "--tokens",
    ("gpt2", "8xA100", "-3"): "--tokens",
    ("gpt2", "8xA100", "nan"): "--tokens",
    ("gpt2", "1000000xA100", "1e9"): "cannot feed 1,000,000 devices; give 488 devices or fewer, or a larger batch",
    ("gpt2-xl", "T4", "1e9"): "does not fit on 1 × T4 by data and tensor parallelism; give 4 or more",
}


@pytest.mark.slow
@pytest.mark.parametrize("words", BAD)
def test_mistakes_are_told_in_one_sentence(words: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    name, where, tokens = words
    assert main(["plan", name, f"--devices={where}", f"--tokens={tokens}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert BAD[words] in " ".join(err.split())


@pytest.mark.slow
def test_the_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "gpt2", "--devices", "8xA100", "--tokens", "1e9"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "gpt2 (124,439,808 parameters) on 8 × A100: DDP" in text
    assert max(map(len, text.splitlines())) <= 120
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["layout"]["name"] == "DDP"
    assert told["memory"]["total"] == pytest.approx(
        sum(v for k, v in told["memory"].items() if k not in ("total", "device"))
    )
    assert main([*words, "--network", "0.1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mfu"] == told["mfu"]  # one node has no network
    assert main(["plan", "gpt2", "--devices", "16xA100", "--tokens", "1e9", "--network", "0.1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mfu"] < told["mfu"] / 2


def test_devices_are_named_as_people_write_them() -> None:
    assert devices("64xh100") == (64, ACCELERATORS["H100"])
    assert devices(" 8 × A100-40gb ") == (8, ACCELERATORS["A100-40GB"])
    assert devices("1,024*V100")[0] == 1024
    assert devices("H200") == (1, ACCELERATORS["H200"])
    number, here = devices("2xcpu")
    assert (number, here.number_bytes, here.per_node) == (2, 4, 1)
    assert here.flops > 1e9
    with pytest.raises(UserError, match="no device 'TPU' is known"):
        devices("4xTPU")
