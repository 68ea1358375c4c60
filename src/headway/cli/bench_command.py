"""`headway bench`: headway and other libraries on the same weights and inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headway.bench.growth import GROWTH
from headway.bench.limits import FEATURES, processor_flags
from headway.bench.peers import PEERS
from headway.bench.suites import SUITES
from headway.errors import UserError, nearest
from headway.system import sigterm_raises

ALL, GROWTH_NAME = "all", "growth"
GROUPS = {ALL: list(SUITES), GROWTH_NAME: [suite.name for suite in GROWTH]}


def bench(
    *suites: str,
    peers: bool = False,
    rounds: int = 5,
    threads: int = 1,
    tiny: bool = False,
    avx2: bool = False,
    out: Path | None = None,
    results: Path | None = None,
    json: bool = False,
) -> int:
    """Measure headway and other libraries on the same weights and inputs, in turn.

    Without suites, list them, and which peers are installed.
      headway bench generate-gpt2 --peers
      headway bench all --peers --out docs/BENCHMARKS.md
      headway bench --out docs/BENCHMARKS.md             the page anew, from its JSON

    Parameters
    ----------
    suites
        Names of suites; growth: how cost grows with length, batch, width and vocabulary; all: every suite.
    peers
        Every installed peer; by default headway, and transformers where it is installed.
    rounds
        Rounds of each case, behind one that is not counted.
    threads
        Threads of each contender.
    tiny
        Tiny sizes, to see that all of it runs; the times mean nothing.
    avx2
        Without instructions beyond AVX2, on a processor that has them, as a smaller one would do it. Peers that cannot
        be told so (ONNX Runtime, llama.cpp) are left out.
    out
        Markdown file to write, as docs/BENCHMARKS.md; the measurements are beside it as JSON, and suites that were
        measured before stay in both.
    results
        JSON of another such file, whose measurements are to be on the page, too.
    json
        Print the measurements as JSON, and nothing else.
    """
    for name, value in (("rounds", rounds), ("threads", threads)):
        if value < 1:
            raise UserError(f"{name}={value}", allowed="1 or more")
    for name in suites:
        if name not in SUITES and name not in GROUPS:
            names = [*SUITES, *GROUPS]
            raise UserError(f"there is no suite {name!r}", allowed=", ".join(names), meant=nearest(name, names))
    if out is not None and (out.suffix != ".md" or not out.absolute().parent.is_dir()):
        raise UserError(f"out={out}", allowed="a file of an existing folder whose name ends in .md")
    if results is not None and (out is None or not results.is_file()):
        raise UserError(f"results={results}", allowed="a file that exists, together with --out")
    if avx2 and not (processor_flags() - processor_flags(avx2=True)).intersection(FEATURES):
        raise UserError("--avx2: this processor has no instructions beyond AVX2", do="leave it out")
    if not suites and results is None and out is not None and not out.with_suffix(".json").is_file():
        raise UserError(f"there are no results beside {out}", do="name suites, which are then measured")
    if not suites and out is None:
        print(overview())
        return 0
    from headway.bench.benchmark import SuiteResult
    from headway.bench.benchmark_page import json_text, read_results, to_text, write_page
    from headway.bench.race import measure

    found = list[SuiteResult]()
    if out is not None and (results is not None or not suites):
        write_page(out, read_results(results) if results is not None else [], list(SUITES))
    for name in dict.fromkeys(one for given in suites for one in GROUPS.get(given, [given])):
        with sigterm_raises():  # so that the contenders' processes end, too
            flags = f"{' --peers' * peers} --rounds {rounds} --threads {threads}{' --tiny' * tiny}{' --avx2' * avx2}"
            command = f"headway bench {name}{flags}"
            result = measure(
                SUITES[name], peers=peers, rounds=rounds, threads=threads, tiny=tiny, avx2=avx2, command=command
            )
        found.append(result)
        if not json:
            print(f"{to_text(result)}\n", flush=True)
        if out is not None:  # after each, so that an interruption loses none
            write_page(out, found, list(SUITES))
    if json:
        print(json_text(found))
    return 0


def overview() -> str:
    """The suites and the peers."""
    state = {one.name: one.version if one.installed else f"not installed: {one.command}" for one in PEERS}
    return f"suites\n{listing({one.name: one.title for one in SUITES.values()})}\n\npeers\n{listing(state)}"


def listing(lines: Mapping[str, str]) -> str:
    width = max(map(len, lines))
    return "\n".join(f"  {name.ljust(width)}  {text}" for name, text in lines.items())
