"""Results of suites as text, and as the page docs/BENCHMARKS.md; the bars that they are held to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

from headway.bench.benchmark import CaseResult, Measured, SuiteResult
from headway.bench.growth import PREFIX, draw_growth, growth_rows
from headway.console import aligned
from headway.errors import UserError
from headway.system import read_json, write_json, write_text

NONE = "–"
FASTEST = "best peer"


@dataclass(frozen=True)
class Bar:
    """What headway shall reach in a suite: a ratio of time, or of memory at most, to transformers or the best peer."""

    suite: str
    contender: str | None  # None: headway's fastest
    least: float
    wide: float | None = None  # where the processor has AVX-512
    against: str = "transformers"  # the name of a contender, or FASTEST
    case: str | None = None  # how its name begins; None: each
    memory: bool = False

    def target(self, result: SuiteResult) -> float:
        return self.wide if self.wide is not None and "avx512" in result.machine["features"] else self.least

    def own(self, case: CaseResult) -> Measured | None:
        return case.best_own if self.contender is None else case.find(self.contender)

    def other(self, case: CaseResult) -> Measured | None:
        return case.best_peer if self.against == FASTEST else case.find(self.against)

    def reached(self, case: CaseResult) -> float | None:
        own, other = self.own(case), self.other(case)
        if own is None:
            return None
        return case.memory_ratio(own, other) if self.memory else case.ratio(own, other)

    def met(self, reached: float, result: SuiteResult) -> bool:
        return reached <= self.target(result) if self.memory else reached >= self.target(result)


def bars(suite: str, *given: tuple[str | None, float], case: str | None = None) -> Iterable[Bar]:
    return (Bar(suite, contender, least, case=case) for contender, least in given)


BARS = (
    *(Bar(f"generate-{name}", "headway int8", 4.8, 5.8, case="batch 1") for name in ("gpt2", "llama")),
    *(Bar(f"generate-{name}", "headway int8", 1.0, against=FASTEST) for name in ("gpt2", "llama")),
    *(Bar(f"generate-{name}", "headway fp32", 1.9, case="batch 1") for name in ("gpt2", "llama")),
    *(Bar(f"generate-{name}", "headway int8", 3.0, case="batch 8") for name in ("gpt2", "llama")),
    *bars("translate-beam4", ("headway fp32", 1.6), ("headway int8", 2.8)),
    *bars("embed-bert", ("headway int8", 3.2)),
    *bars("embed-minilm", ("headway int8", 3.0)),
    *bars("classify-vit", ("headway int8", 2.0)),
    *(Bar(name, "headway int8", 1.0, against=FASTEST) for name in ("translate-beam4", "embed-bert", "embed-minilm")),
    Bar("classify-vit", "headway int8", 1.0, against=FASTEST),
    Bar("transcribe-whisper", "headway int8", 1.0, against=FASTEST),
    *(Bar(f"train-{name}", None, 1.0, against=FASTEST) for name in ("gpt", "seq2seq", "mlm", "vit", "swin")),
    Bar("train-mlm", "headway fp32", 3.0),
    Bar("train-seq2seq", "headway fp32", 3.0, against="nn.Transformer, random batches"),
    Bar("train-gpt-50k", "headway fp32", 1.5),
    Bar("train-gpt-50k", "headway fp32", 0.6, memory=True),
    Bar("train-processes", "DDP, 2 processes", 1.8, against="one process"),
    Bar("train-processes", "FSDP2, 2 processes", 1.5, against="one process"),
    Bar("startup", "headway fp32", 2.0),
    *bars("serve", ("headway fp32", 2.5), ("headway int8", 2.5), case="16 clients"),
    Bar("serve", "headway fp32", 1.0, against="llama.cpp fp32"),
    Bar("serve", "headway int8", 1.0, against="llama.cpp q8_0"),
)


def instructions(result: SuiteResult) -> str:
    """The widest vectors of a result's processor, by which its machine is told from others."""
    features = result.machine["features"]
    if "held" in result.machine:
        return f"AVX-512 held to {result.machine['held']}"
    return next((name for flag, name in (("avx512", "AVX-512"), ("avx2", "AVX2")) if flag in features), features)


def case_rows(result: SuiteResult, case: CaseResult) -> list[list[str]]:
    """The table of a case: a row for each contender, the fastest first."""
    clock = "wall" if any(one.wall_clock for one in case.measured) else "CPU"
    samples = list(dict.fromkeys(name for one in case.measured for name in one.samples))
    head = ["contender", f"{case.unit}s/s", f"{clock} s (min–max)", "÷ transformers", "÷ best peer", "of the limit"]
    head += [f"{name}, ms: p50, p99" for name in samples]
    head += ["peak MiB"] if result.memory else []
    head += [result.comparison]
    rows = [head]
    for one in sorted(case.measured, key=lambda one: one.seconds):
        limit = case.share_of_limit(one, result.limits)
        rows.append(
            [
                one.name,
                f"{case.work / one.seconds:,.4g}",
                f"{one.seconds:.3g} ({min(one.times):.3g}–{max(one.times):.3g})",
                number(case.ratio(one, case.transformers)),
                number(case.ratio(one, case.best_peer)),
                NONE if limit is None else f"{limit:.0%}",
                *(f"{1000 * one.quantile(name, 0.5):,.0f}, {1000 * one.quantile(name, 0.99):,.0f}" for name in samples),
                *([f"{one.peak / 2**20:,.0f}"] if result.memory else []),
                agreement(one, result),
            ]
        )
    return rows


def number(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def agreement(one: Measured, result: SuiteResult) -> str:
    if one.agreement is None:
        return "own weights"
    return f"{one.agreement:.4f}" + ("  differs" if one.precision == "fp32" and one.agreement < result.least else "")


def to_text(result: SuiteResult) -> str:
    """A suite for a terminal."""
    lines = [f"{result.name}: {result.title}", *about(result)]
    for case in result.cases:
        lines += ["", case.name, aligned(case_rows(result, case))]
    return "\n".join(lines)


def circumstances(result: SuiteResult) -> str:
    commit = f"commit {result.commit}, " if result.commit else ""
    return (
        f"{result.date}, {commit}{result.rounds} rounds, threads: {result.machine['threads']}, "
        f"load average {result.load[0]:.1f} before and {result.load[1]:.1f} after"
    )


def about(result: SuiteResult) -> list[str]:
    """What stands above the tables of a suite."""
    limits = [f"{name} {speed:,.0f} GFLOP/s" for name, speed in result.limits.gflops.items()]
    limits.append(f"memory {result.limits.bandwidth:.1f} GB/s")
    lines = [f"{circumstances(result)}; limits in the same run: {', '.join(limits)}"]
    lines += ["tiny sizes: the times mean nothing"] if result.tiny else []
    lines += [result.notes] if result.notes else []
    lines += [f"not installed: {name}; {command}" for name, command in result.missing.items()]
    lines += [f"failed: {name}: {reason}" for name, reason in result.failures.items()]
    return lines


def bar_rows(results: Sequence[SuiteResult]) -> list[list[str]]:
    """Bars and what was reached."""
    rows = [["suite", "case", "CPU", "contender", "against", "bar", "reached", ""]]
    for bar in BARS:
        for result in results:
            for case in result.cases if result.name == bar.suite else ():
                own, other, reached = bar.own(case), bar.other(case), bar.reached(case)
                if (
                    own is None
                    or other is None
                    or reached is None
                    or (bar.case is not None and not case.name.startswith(bar.case))
                ):
                    continue
                target = f"{'peak memory ≤' if bar.memory else 'speed ≥'} {bar.target(result):g}"
                met = "met" if bar.met(reached, result) else "missed"
                what = [instructions(result), own.name, other.name, target, f"{reached:.2f}", met]
                rows.append([result.name, case.name, *what])
    return rows


def final_rows(results: Sequence[SuiteResult]) -> list[list[str]]:
    """headway's best against the best peer, case by case."""
    head = ["suite", "case", "CPU", "headway", "÷ transformers", "best peer"]
    rows = [[*head, "its ÷ transformers", "headway ÷ best peer"]]
    for result in results:
        for case in result.cases:
            own, peer = case.best_own, case.best_peer
            if own is None:
                continue
            theirs = NONE if peer is None else number(case.ratio(peer, case.transformers))
            cells = [own.name, number(case.ratio(own, case.transformers)), peer.name if peer else NONE, theirs]
            rows.append([result.name, case.name, instructions(result), *cells, number(case.ratio(own, peer))])
    return rows


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, numbers to the right."""
    head, *body = rows
    numeric = [all(row[at][:1].isdigit() or row[at] == NONE for row in body) for at in range(len(head))]
    rule = ["---:" if right else "---" for right in numeric]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in (head, rule, *body))


INTRODUCTION = """# Benchmarks

headway and other libraries on the same weights and inputs, written by `headway bench`; every measurement is in
[BENCHMARKS.json](BENCHMARKS.json). Contenders run in processes of their own and take turns; times are medians of CPU
time over rounds (of servers: of wall-clock time), with the least and the largest, after one that is not counted. A
ratio is the other's time divided by the contender's: above 1 the contender is faster. *Of the limit* is the least time
that the machine needs for the matrix products and for reading the weights (measured in the same run), divided by the
contender's. The last column says how far answers agree with those of headway in fp32. Weights are random unless said;
conversions and loading are not timed. A suite stands here once for each kind of processor. *AVX-512 held to AVX2* is a
processor with AVX-512 that `--avx2` keeps from it; ONNX Runtime and llama.cpp, which cannot be kept from it, are left
out there. On a busy machine absolute times mean little: read the ratios. The limits are measured beside the same load,
so that a share may exceed 100 %.
"""


FIGURE = "growth.png"
GROWING = """`headway bench growth`: headway's time and memory as one size of a small GPT doubles, c · size^p, with p
fitted to all sizes and to the last doubling alone, where fixed costs weigh least. Memory is what the process needs
beyond what it had before the first case. In decoding, the length is how many tokens stand before the new ones.
"""


def page(results: Sequence[SuiteResult], unmeasured: Sequence[str] = ()) -> str:
    """The whole page; suites that were not measured are named."""
    growing = [result for result in results if result.name.startswith(PREFIX)]
    results = [result for result in results if result not in growing]
    parts = [INTRODUCTION, "## Machines\n", machines([*results, *growing])]
    for result in results:
        parts += [f"\n## {result.name}, {instructions(result)}\n", f"{result.title}. `{result.command}`\n"]
        parts += ["  \n".join(about(result)), ""]
        for case in result.cases:
            parts += [f"**{case.name}**\n", markdown(case_rows(result, case)), ""]
    if growing:
        parts += ["## How cost grows\n", GROWING, f"![time and memory over sizes]({FIGURE})\n"]
        parts += [markdown(growth_rows(growing)), ""]
        parts += ["\n".join(f"- {one.name}: {circumstances(one)}" for one in growing), ""]
    if unmeasured:
        parts += ["## Not measured\n", f"These suites have run on none of these machines: {', '.join(unmeasured)}.\n"]
    parts += ["## Bars\n", markdown(bar_rows(results)), ""]
    parts += ["## headway against the best peer\n", markdown(final_rows(results)), ""]
    return "\n".join(parts)


def machines(results: Sequence[SuiteResult]) -> str:
    found = list[str]()
    for result in results:
        held = f", held to {result.machine['held']}" if "held" in result.machine else ""
        features = f"{result.machine['processor']} ({result.machine['features']}{held})"
        versions = ", ".join(f"{name} {number}" for name, number in result.versions.items())
        line = f"- {features}; {result.machine['cores']}; Python {result.machine['python']}; {versions}"
        found += [] if line in found else [line]
    return "\n".join(found) + "\n"


def write_page(path: Path, results: Iterable[SuiteResult], order: Sequence[str]) -> None:
    """Writes the page and its JSON; suites that were not measured now, or on another CPU, stay as they were."""
    store = path.with_suffix(".json")
    stored = read_results(store) if store.exists() else []
    # sizes that grow are compared on one machine
    known = {(one.name, one.name.startswith(PREFIX) or instructions(one)): one for one in (*stored, *results)}
    ordered = sorted((one for one in known.values() if one.name in order), key=lambda one: order.index(one.name))
    write_json(store, to_json(ordered))
    if growing := [one for one in ordered if one.name.startswith(PREFIX)]:
        draw_growth(growing, path.with_name(FIGURE))
    measured = {one.name for one in ordered}
    write_text(path, page(ordered, [name for name in order if name not in measured]))


def read_results(store: Path) -> list[SuiteResult]:
    """What the JSON beside a page holds."""
    try:
        return [SuiteResult.from_dict(one) for one in read_json(store)["suites"]]
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{store} does not hold results of headway bench", do="move it away") from None


def to_json(results: Sequence[SuiteResult]) -> Mapping[str, Any]:
    return {"suites": [one.to_dict() for one in results], "bars": bar_rows(results)[1:]}


def json_text(results: Sequence[SuiteResult]) -> str:
    return dumps(to_json(results), indent=1, ensure_ascii=False)
