"""Counters of several workers: any of them tells the sum, and none is lost with a worker."""

from __future__ import annotations

from pathlib import Path

from headway.serve.counters import WorkerCounters, forget_gauges, read_values
from headway.serve.serve_options import ServeOptions
from headway.serve.served_models import ModelPool


def lines(counters: WorkerCounters) -> list[str]:
    found = counters.to_text(counters.pool).splitlines()
    return [line for line in found if not line.startswith(("#", "headway_process"))]


def test_each_worker_tells_the_sum_and_goes_on_from_one_that_died(tmp_path: Path) -> None:
    pool = ModelPool({}, ServeOptions())
    one, two = (WorkerCounters(tmp_path / f"worker-{number}.json", pool) for number in (1, 2))
    one.generated("gpt", 5, 2)
    one.answered("/v1/completions", 200)
    two.answered("/v1/completions", 200)
    two.client_left()
    two.answered('/"odd"', 499)
    told = [
        'headway_requests_total{path="/v1/completions",status="200"} 2',
        'headway_requests_total{path="/\\"odd\\"",status="499"} 1',
        'headway_tokens_total{model="gpt",kind="prompt"} 5',
        'headway_tokens_total{model="gpt",kind="generated"} 2',
        "headway_requests_cancelled_total 1",
    ]
    assert sorted(lines(one)) == sorted(lines(two)) == sorted(told)
    assert "headway_process_resident_bytes " in one.to_text(pool)
    forget_gauges(two.file)
    assert not read_values(two.file)["process_resident_bytes"]
    assert sorted(lines(one)) == sorted(told)
    WorkerCounters(two.file, pool).answered("/v1/completions", 200)
    assert 'headway_requests_total{path="/v1/completions",status="200"} 3' in lines(one)
