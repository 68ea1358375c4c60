"""All parity cases, and the table that `make proof` makes of them.

`table.py siglip clip` computes the rows of these families alone, and of cases that the table does not have.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.interop.parity import Case, compare  # noqa: E402

FILES = sorted(file.stem for file in Path(__file__).parent.glob("cases_*.py"))
CASES: list[Case] = [case for name in FILES for case in import_module(f"tests.interop.{name}").CASES]

HEAD = """# Parity

The largest difference from `transformers` on tiny random models with a ragged batch, relative to the largest value:
`make proof` writes this file. "export" is the weights written back in the other layout; 0 is bit for bit.
Swin-V2 is compared in double precision, all others in single.
"""


def main() -> None:
    columns = ["logits", "hidden states", "attention maps", "gradients", "export"]
    lines = [HEAD, f"| family | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    file, renewed = ROOT / "docs" / "PARITY.md", sys.argv[1:]
    rows = re.findall(r"^(\| ([^|]+) \|.*)$", file.read_text(encoding="utf-8") if renewed else "", re.MULTILINE)
    before = {name: line for line, name in rows}
    for case in CASES:
        if case.name in before and case.name.split(",")[0] not in renewed:
            lines.append(before[case.name])
            continue
        found = compare(case)
        lines.append(f"| {case} | " + " | ".join(told(found.get(column)) for column in columns) + " |")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def told(difference: float | None) -> str:
    return "–" if difference is None else f"{difference:.1e}"


if __name__ == "__main__":
    main()
