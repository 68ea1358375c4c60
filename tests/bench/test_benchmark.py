"""The arithmetic of benchmarks, on measurements that are given: medians, ratios, limits, bars and pages."""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from headway.bench import race
from headway.bench.answers import cosine, equal_losses, equal_tokens, least_cosine
from headway.bench.benchmark import CaseResult, MachineLimits, Measured, SuiteResult, Timing
from headway.bench.benchmark_page import Bar, bar_rows, case_rows, final_rows, json_text, page, to_text, write_page
from headway.bench.growth import growth_of, growth_rows
from headway.bench.limits import commit, machine, merge_limits
from headway.bench.peers import CTRANSLATE2, TORCH, TRANSFORMERS, Peer
from headway.bench.suite import BF16, Case, Contender
from headway.bench.suites import SUITES
from headway.cli import bench_command
from headway.cli.bench_command import bench
from headway.errors import UserError
from headway.figures import exponent

LIMITS = MachineLimits({"fp32": 50.0, "int8": 100.0}, 10.0)


def measured(name: str, *cpu: float, precision: str = "fp32", peer: Peer | None = None, peak: int = 2**20) -> Measured:
    contender = Contender(name, lambda work: lambda case: None, precision, peer)
    timings = [Timing(9.0, 9.0, peak, 5), *(Timing(one, one, peak, 0) for one in cpu)]
    return Measured.of(contender, timings, agreement=1.0)


CASE = CaseResult.of(
    Case("batch 1, 2 + 2 tokens", 128, "token", flops=1e9, weights=1e8),
    [
        measured("headway fp32", 2.0, 4.0, 3.0, peak=3 * 2**20),
        measured("headway int8", 1.0, 1.5, 0.5, precision="int8"),
        measured("transformers", 6.0, 5.0, 7.0, peer=TRANSFORMERS, peak=4 * 2**20),
        measured("transformers, sorted", 2.5, 2.5, peer=TRANSFORMERS),
        measured("CTranslate2 int8", 2.0, precision="int8", peer=CTRANSLATE2),
    ],
)
RESULT = SuiteResult(
    name="generate-gpt2",
    title="GPT-2",
    cases=(CASE,),
    comparison="equal tokens",
    least=0.99,
    memory=True,
    notes="A note.",
    missing={"llama.cpp": "pip install xllamacpp gguf -c constraints.txt"},
    failures={"ONNX Runtime fp32": "no such file"},
    limits=LIMITS,
    machine={"processor": "P", "features": "avx2, fma", "cores": "2", "threads": "1", "python": "3.11"},
    versions={"torch": "2.13.0"},
    load=(1.5, 2.5),
    rounds=3,
    tiny=False,
    command="headway bench generate-gpt2 --peers",
    date="2026-11-18",
)


def test_the_first_timing_warms_up_and_does_not_count() -> None:
    fp32 = CASE.measured[0]
    assert fp32.cpu == (2.0, 4.0, 3.0)
    assert fp32.seconds == 3.0
    assert fp32.above == 5


def test_ratios_are_of_medians() -> None:
    fp32, int8 = CASE.measured[:2]
    assert CASE.transformers is CASE.measured[2]  # the first of them, not the fastest
    assert CASE.best_peer is not None
    assert CASE.best_peer.name == "CTranslate2 int8"
    assert CASE.best_own is int8
    assert CASE.ratio(fp32, CASE.transformers) == 2.0
    assert CASE.ratio(int8, CASE.best_peer) == 2.0
    assert CASE.ratio(int8, None) is None
    assert CASE.memory_ratio(fp32, CASE.transformers) == 0.75


def test_servers_are_compared_by_the_clock_and_tell_quantiles() -> None:
    timings = [Timing(1.0, wall, 1, 1, samples={"request": times}) for wall, times in ((9.0, [9.0]), (2.0, [0.4, 0.1]))]
    contender = Contender("headway fp32", lambda work: lambda case: None)
    one = Measured.of(contender, [*timings, timings[1]], agreement=1.0, wall_clock=True)
    other = Measured.of(replace(contender, name="other"), [Timing(0.1, 4.0, 1, 1)] * 2, 1.0, wall_clock=True)
    assert one.seconds == 2.0
    assert one.samples == {"request": (0.4, 0.1, 0.4, 0.1)}
    assert (one.quantile("request", 0.5), one.quantile("request", 0.99)) == (0.1, 0.4)
    case = replace(CASE, measured=(one,))
    assert case.ratio(one, other) == 2.0
    head, row = case_rows(RESULT, case)
    assert head[2] == "wall s (min–max)"
    assert row[head.index("request, ms: p50, p99")] == "100, 400"
    result = replace(RESULT, cases=(case,))
    assert SuiteResult.from_dict(strip(result.to_dict())) == result


def test_the_limit_is_products_and_bytes_together() -> None:
    fp32, int8 = CASE.measured[:2]
    assert CASE.share_of_limit(fp32, LIMITS) == pytest.approx((1 / 50 + 0.4 / 10) / 3.0)
    assert CASE.share_of_limit(int8, LIMITS) == pytest.approx((1 / 100 + 0.1 / 10) / 1.0)
    assert LIMITS.seconds(1e9, 0.0, "q4_0") == pytest.approx(1 / 100)
    assert LIMITS.seconds(1e9, 0.0, "bf16") is None
    assert LIMITS.seconds(0.0, 0.0, "fp32") is None


def test_limits_are_the_best_of_several_measurements() -> None:
    found = merge_limits(
        {"gflops": {"fp32": 50.0}, "bandwidth": 12.0}, None, {"gflops": {"fp32": 60.0}, "bandwidth": 10.0}
    )
    assert found == MachineLimits({"fp32": 60.0}, 12.0)


def test_contenders_take_turns_and_one_that_fails_is_left_out() -> None:
    order, failures = list[str](), dict[str, str]()

    def run(name: str) -> Timing:
        order.append(name)
        if name == "b" and order.count("b") == 2:
            raise race.ContenderError("it broke")
        return Timing(1.0, 1.0, 1, 1)

    found = race.interleave({name: (lambda name=name: run(name)) for name in "abc"}, 2, failures)
    assert order == ["a", "b", "c", "a", "b", "c", "a", "c"]
    assert {name: len(timings) for name, timings in found.items()} == {"a": 3, "c": 3}
    assert failures == {"b": "it broke"}


def test_peers_that_are_absent_are_named_with_a_command() -> None:
    absent = Peer("Nothing", ("no_such_module",), ("nothing",))
    contenders = [
        Contender("headway", lambda work: lambda case: None),
        Contender("theirs", lambda work: lambda case: None, peer=TORCH),
        Contender("nothing", lambda work: lambda case: None, peer=absent),
        Contender("no such processor", lambda work: lambda case: None, cpu=("no_such_feature",)),
    ]
    entered, missing = race.chosen(contenders, peers=True)
    assert [one.name for one in entered] == ["headway", "theirs"]
    assert missing == {"Nothing": "pip install nothing -c constraints.txt"}
    assert [one.name for one in race.chosen(contenders, peers=False)[0]] == ["headway"]


def test_held_to_avx2_neither_wider_vectors_nor_peers_that_cannot_be_told_run() -> None:
    contenders = [
        Contender("headway", lambda work: lambda case: None),
        Contender("in bf16", lambda work: lambda case: None, cpu=BF16),
        Contender("torch", lambda work: lambda case: None, peer=TORCH),
        Contender("onnx", lambda work: lambda case: None, peer=replace(TORCH, held=False)),
    ]
    assert [one.name for one in race.chosen(contenders, peers=True, avx2=True)[0]] == ["headway", "torch"]
    found = machine(1, avx2=True)
    assert set(found["features"].split(", ")) <= {"avx2", "fma", "f16c", platform.machine()}
    held = replace(RESULT, machine=found)
    assert {row[2] for row in final_rows([held])[1:]} == {"AVX-512 held to AVX2"}
    assert "held to AVX2)" in page([held])


def test_a_processor_without_wider_vectors_cannot_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_command, "processor_flags", lambda avx2=False: {"avx2", "fma"})
    with pytest.raises(UserError, match="this processor has no instructions beyond AVX2; leave it out"):
        bench("load", avx2=True)


def test_a_table_has_the_fastest_first_and_says_what_differs() -> None:
    other = replace(CASE.measured[2], agreement=0.5)
    case = replace(CASE, measured=(*CASE.measured[:2], other))
    rows = case_rows(replace(RESULT, cases=(case,)), case)
    assert [row[0] for row in rows[1:]] == ["headway int8", "headway fp32", "transformers"]
    assert rows[1][1:5] == ["128", "1 (0.5–1.5)", "6.00", "6.00"]
    assert rows[3][-1] == "0.5000  differs"


def test_bars_are_met_or_missed_by_processor() -> None:
    found = {(row[3], row[4]): row[5:] for row in bar_rows([RESULT])[1:]}
    assert found["headway int8", "transformers"] == ["speed ≥ 4.8", "6.00", "met"]
    assert found["headway fp32", "transformers"] == ["speed ≥ 1.9", "2.00", "met"]
    assert found["headway int8", "CTranslate2 int8"] == ["speed ≥ 1", "2.00", "met"]
    wide = replace(RESULT, machine={**RESULT.machine, "features": "avx512f"}, name="generate-gpt2")
    assert ["speed ≥ 5.8", "6.00", "met"] in [row[5:] for row in bar_rows([wide])]
    memory = Bar("generate-gpt2", "headway fp32", 0.6, memory=True)
    reached = memory.reached(CASE)
    assert reached is not None
    assert reached == 0.75
    assert not memory.met(reached, RESULT)
    rows = bar_rows([replace(RESULT, name="train-gpt-50k")])[1:]
    assert [row[5:] for row in rows] == [["speed ≥ 1.5", "2.00", "met"], ["peak memory ≤ 0.6", "0.75", "missed"]]
    assert final_rows([RESULT])[1][3:] == ["headway int8", "6.00", "CTranslate2 int8", "3.00", "2.00"]


def test_results_survive_json_and_the_page_keeps_other_suites(tmp_path: Path) -> None:
    assert SuiteResult.from_dict(strip(RESULT.to_dict())) == RESULT
    path = tmp_path / "BENCHMARKS.md"
    other = replace(RESULT, name="load")
    write_page(path, [other], ["generate-gpt2", "load"])
    write_page(path, [RESULT], ["generate-gpt2", "load", "tokenise"])
    text = path.read_text(encoding="utf-8")
    assert "These suites have run on none of these machines: tokenise." in text
    assert text.index("## generate-gpt2") < text.index("## load") < text.index("## Bars")
    assert text == page([RESULT, other], ["tokenise"])
    kept = json.loads((tmp_path / "BENCHMARKS.json").read_text(encoding="utf-8"))
    assert kept == json.loads(json_text([RESULT, other]))
    assert kept["suites"][0]["cases"][0]["measured"][1]["ratio_to_transformers"] == 6.0
    (tmp_path / "BENCHMARKS.json").write_text('{"suites": [{"name": "load"}]}')
    with pytest.raises(UserError, match="does not hold results"):
        write_page(path, [RESULT], ["generate-gpt2"])


def test_the_page_holds_results_of_several_processors(tmp_path: Path) -> None:
    path, order = tmp_path / "BENCHMARKS.md", ["generate-gpt2"]
    wide = replace(RESULT, machine={**RESULT.machine, "features": "avx2, avx512f"})
    write_page(path, [RESULT], order)
    write_page(path, [wide], order)
    text = path.read_text(encoding="utf-8")
    assert "## generate-gpt2, AVX2\n" in text
    assert "## generate-gpt2, AVX-512\n" in text
    assert {row[2] for row in final_rows([RESULT, wide])[1:]} == {"AVX2", "AVX-512"}
    write_page(path, [replace(wide, rounds=99)], order)  # measured again
    stored = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert sorted(one["rounds"] for one in stored["suites"]) == [RESULT.rounds, 99]


def test_a_page_is_written_anew_and_takes_results_of_another_run(tmp_path: Path) -> None:
    path, other = tmp_path / "B.md", tmp_path / "other.json"
    with pytest.raises(UserError, match=r"there are no results beside .*B\.md; name suites, which are then measured"):
        bench(out=path)
    write_page(path, [RESULT], list(SUITES))
    other.write_text(json_text([replace(RESULT, name="load")]))
    as_it_was = path.read_text()
    path.unlink()
    assert bench(out=path) == 0
    assert path.read_text() == as_it_was
    assert bench(out=path, results=other) == 0
    assert [one["name"] for one in json.loads(path.with_suffix(".json").read_text())["suites"]] == [RESULT.name, "load"]
    assert "\n## load, " in path.read_text()
    for wrong in ({"out": path, "results": tmp_path / "none"}, {"results": other}):
        with pytest.raises(UserError, match=r"results=.*"):
            bench(**wrong)


def strip(values: dict[str, object]) -> dict[str, object]:
    """As it comes back from a file."""
    return json.loads(json.dumps(values))


def test_text_and_page_say_what_was_not_measured() -> None:
    for text in (to_text(RESULT), page([RESULT])):
        assert "not installed: llama.cpp; pip install xllamacpp gguf -c constraints.txt" in text
        assert "failed: ONNX Runtime fp32: no such file" in text
        assert "load average 1.5 before and 2.5 after" in text
        assert "commit" not in text
    assert "2026-11-18, commit abc1234, 3 rounds" in to_text(replace(RESULT, commit="abc1234"))


def test_the_commit_is_that_of_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "src" / "headway" / "bench"
    package.mkdir(parents=True)
    monkeypatch.setattr("headway.bench.limits.files", lambda name: package)
    assert not commit()  # of no repository
    (package / "a.py").write_text("")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "Begin"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "notes").write_text("")  # is no source
    first = commit()
    assert len(first) >= 7
    assert first.isalnum()
    (package / "a.py").write_text("1")
    assert commit() == f"{first} with changes"


def test_agreement() -> None:
    assert equal_tokens([[1, 2], [3, 4]], [[1, 2], [3, 5]]) == 0.75
    assert equal_tokens([[1, 2, 3, 4]], [[1, 2]]) == 0.5
    assert cosine([1.0, 0.0], [1.0, 1.0]) == pytest.approx(0.5**0.5)
    assert least_cosine([[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [1.0, 1.0]]) == pytest.approx(0.5**0.5)
    assert equal_losses([[2.0, 4.0]], [[2.0, 3.0]]) == 0.75


@pytest.mark.slow
def test_exponents_are_those_of_the_costs(tmp_path: Path) -> None:
    case = CaseResult.of(Case("128", 1, "run"), [])
    cases = tuple(
        replace(case, name=f"{size:,}", measured=(measured("headway fp32", size**2 / 1e6, peak=1000 + 7 * size),))
        for size in (512, 1024, 2048)
    )
    # before the first case the process had its peak less what the first run added
    first = replace(cases[0].measured[0], above=7 * 512)
    result = replace(RESULT, name="growth-train-length", cases=(replace(cases[0], measured=(first,)), *cases[1:]))
    found = growth_of(result)
    assert found.memory == (7 * 512, 7 * 1024, 7 * 2048)
    assert growth_rows([result])[1][1:] == ["512 to 2,048", "2.00", "2.00", "1.00", "1.00"]
    assert exponent([1.0, 2.0, 4.0], [3.0, 3.0 * 2**0.5, 6.0]) == pytest.approx(0.5)
    write_page(tmp_path / "B.md", [result], [result.name])
    assert "growth.png" in (tmp_path / "B.md").read_text(encoding="utf-8")
    assert (tmp_path / "growth.png").stat().st_size > 1000
