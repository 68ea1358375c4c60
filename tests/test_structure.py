"""What keeps the house readable, as far as a test can see it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "src").glob("**/*.py"))


def test_softmax_over_keys_stands_in_one_place() -> None:
    """Experts, words and classes have probabilities of their own; over keys there is one, and a taught one."""
    users = {file.relative_to(ROOT / "src" / "headway").as_posix() for file in FILES if ".softmax(" in code(file)}
    answers = {f"tasks/{name}.py" for name in ("masked_lm", "media_classification", "text_classification")}
    assert users == {"ops/attend.py", "nn/moe.py", "nn/towers.py", "lecture.py", *answers}


def test_the_fused_kernel_is_called_in_one_place() -> None:
    users = [file.name for file in FILES if "F.scaled_dot_product_attention(" in code(file)]
    assert users == ["attend.py"]


def test_files_can_be_finished() -> None:
    assert [file.name for file in FILES if len(file.read_text(encoding="utf-8").splitlines()) > 400] == []


def test_names_mean_one_thing() -> None:
    """A class or a module has a name of its own.

    Architectures and checkpoint maps share theirs by design; `lecture` has the names that courses use.
    """
    classes, modules = Counter[str](), Counter[str]()
    for file in FILES:
        if file.relative_to(ROOT / "src" / "headway").parts[0] not in ("zoo", "interop", "lecture.py"):
            classes.update(re.findall(r"^\s*class (\w+)", code(file), re.MULTILINE))
            modules.update([] if file.stem.startswith("__") else [file.stem])
    assert {name for name, count in (classes | modules).items() if count > 1} == set()


def test_nothing_names_a_machine() -> None:
    texts = [*FILES, *(ROOT / "tests").glob("**/*.py"), *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    paths = re.compile(r"(?<![\w.])/(work|home|root|opt|tmp)/")
    assert [file.name for file in texts if paths.search(file.read_text(encoding="utf-8"))] == []


def code(file: Path) -> str:
    """A file without its docstrings and comments."""
    text = re.sub(r'""".*?"""', "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"#.*", "", text)
