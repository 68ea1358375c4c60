"""Imports and resources go downward only, and nothing heavy is imported before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

LAYERS = {
    "errors": 0,
    "native": 0,
    "system": 1,
    "console": 1,
    "figures": 2,
    "setting": 1,
    "recipe": 2,
    "distributed": 2,
    "ops": 1,
    "nn": 2,
    "zoo": 3,
    "data": 3,
    "metrics": 3,
    "interop": 4,
    "generate": 4,
    "dtype": 5,
    "tasks": 5,
    "lecture": 5,
    "look": 6,
    "evaluation": 6,
    "model": 7,
    "loading": 8,
    "adapters": 9,
    "inspect": 10,
    "serve": 10,
    "learn": 11,
    "conversion": 10,
    "onnx_export": 9,
    "ctranslate2_export": 9,
    "doctor": 10,
    "training": 11,
    "bench": 12,
    "cli": 13,
    "headway": 14,  # the lazy façade, above all the others
    "__main__": 14,
}
# Besides what lies below it and its own folder, a part may import these.
ALSO = {("cli", "headway"), ("doctor", "headway"), ("training", "headway"), ("serve", "headway")}

Imports = dict[str, set[str]]


def violations(imports: Iterable[tuple[str, str]]) -> list[str]:
    """The (importing module, imported module) pairs that go upward or sideways."""
    return [
        f"{module} must not import {other}"
        for module, other in imports
        if module != "headway" and not allowed(part(module), part(other))
    ]


def allowed(importer: str, imported: str) -> bool:
    return importer == imported or LAYERS[imported] < LAYERS[importer] or (importer, imported) in ALSO


def part(module: str) -> str:
    """The folder or single file of a module: headway.ops.attend belongs to ops."""
    return [*module.split("."), "headway"][1]


def cycle(imports: Imports) -> list[str] | None:
    """A ring of modules of one folder that import one another, if there is one."""
    inside = {m: {o for o in others if part(o) == part(m)} for m, others in imports.items() if m != "headway"}
    try:
        TopologicalSorter(inside).prepare()
    except CycleError as error:
        return error.args[1]
    return None


@cache
def read_imports() -> Imports:
    files = {name(file): file for file in SOURCE.glob("headway/**/*.py")}
    return {m: {found for found in imported(m, file, set(files)) if found != m} for m, file in files.items()}


def name(file: Path) -> str:
    return ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def imported(module: str, file: Path, known: set[str]) -> Iterator[str]:
    """The modules of headway that a file imports anywhere (at the top, in functions, for type checking), and resources.

    A resource counts as a module of its folder: files("headway").joinpath("look", "web") is headway.look.web.
    """
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for target in targets(node, package, known):
            if target.split(".")[0] == "headway":
                yield target
    if "files(" in text:
        yield from resources(tree)


def targets(node: ast.AST, package: str, known: set[str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    base = ".".join([*above, *([node.module] if node.module else [])])
    return [full if (full := f"{base}.{alias.name}") in known else base for alias in node.names]


def resources(tree: ast.AST) -> Iterator[str]:
    """The package resources that a file reads by literal names."""
    inner = set[ast.AST]()
    for node in ast.walk(tree):  # outermost expressions first
        path = resource(node)
        if path is not None and node not in inner and path[0] == "headway":
            yield ".".join(path)
        if path is not None:
            inner |= set(ast.walk(node))


def resource(node: ast.AST) -> list[str] | None:
    """The path that files("headway").joinpath("look", "web"), or files("headway.look") / "web", names."""
    match node:
        case ast.Call(func=ast.Name("files") | ast.Attribute(attr="files"), args=[ast.Constant(str() as package)]):
            return package.split(".")
        case ast.Call(func=ast.Attribute(value=base, attr="joinpath"), args=words):
            pass
        case ast.BinOp(left=base, op=ast.Div(), right=word):
            words = [word]
        case _:
            return None
    path = resource(base)
    texts = [word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    return None if path is None else [*path, *(name for text in texts for name in text.split("/"))]


def test_every_module_has_a_layer() -> None:
    assert {part(module) for module in read_imports()} <= set(LAYERS)


def test_imports_go_downward() -> None:
    assert violations((m, other) for m, others in read_imports().items() for other in others) == []


def test_nothing_imports_the_command_line() -> None:
    users = {m for m, others in read_imports().items() if any(part(other) == "cli" for other in others)}
    assert {part(user) for user in users} <= {"cli", "__main__"}


def test_no_cycles_within_a_folder() -> None:
    assert cycle(read_imports()) is None


@pytest.mark.parametrize(
    "pair",
    [
        ("headway.errors", "headway.ops.attend"),
        ("headway.ops.attend", "headway.nn.block"),
        ("headway.ops.attend", "headway"),
        ("headway.nn.block", "headway.cli.main"),
        ("headway.zoo.bert", "headway.interop.bert"),
        ("headway.zoo.bert", "headway.training.loop"),
        ("headway.data.text", "headway.zoo.bert"),
        ("headway.generate.decoding", "headway.tasks.seq2seq"),
        ("headway.metrics.scoring", "headway.tasks.seq2seq"),
        ("headway.tasks.seq2seq", "headway.training.loop"),
        ("headway.inspect.attribution", "headway.training.loop"),
        ("headway.look.recording", "headway.inspect.attribution"),
        ("headway.look.recording", "headway.model"),
    ],
)
def test_a_planted_violation_is_caught(pair: tuple[str, str]) -> None:
    assert violations([pair]) == [f"{pair[0]} must not import {pair[1]}"]


def test_what_is_allowed_passes() -> None:
    downward = [("headway.nn.block", "headway.ops.attend"), ("headway.nn.block", "headway.nn.context")]
    besides = [("headway.interop.bert", "headway.zoo.bert"), ("headway.cli.main", "headway")]
    assert violations(downward + besides) == []


def test_a_planted_cycle_is_caught() -> None:
    ring = {"headway.nn.a": {"headway.nn.b"}, "headway.nn.b": {"headway.nn.c"}, "headway.nn.c": {"headway.nn.a"}}
    assert set(cycle(ring) or []) == set(ring)


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "block.py"
    file.write_text(
        "import torch, headway.errors\n"
        "from . import context\n"
        "from ..ops.attend import attend\n"
        "if TYPE_CHECKING:\n    from headway.zoo import bert\n"
        "def late():\n    from headway import UserError\n"
    )
    known = {"headway.nn.context", "headway.ops.attend", "headway.zoo.bert"}
    found = set(imported("headway.nn.block", file, known))
    assert found == {"headway.errors", "headway.nn.context", "headway.ops.attend", "headway.zoo.bert", "headway"}


@pytest.mark.parametrize(
    "expression",
    [
        'files("headway").joinpath("cli", "web")',
        'files("headway").joinpath("cli/web/page.html").read_text()',
        'resources.files("headway") / "cli" / "web"',
        'files("headway.cli").joinpath(name)',
    ],
)
def test_a_planted_resource_of_a_higher_layer_is_caught(tmp_path: Path, expression: str) -> None:
    file = tmp_path / "html_page.py"
    file.write_text(f"def read(name):\n    return {expression}\n")
    found = list(imported("headway.look.html_page", file, set()))
    assert [part(path) for path in found] == ["cli"]
    assert len(violations(("headway.look.html_page", path) for path in found)) == 1


def test_resources_of_the_own_layer_pass_and_are_seen() -> None:
    assert "headway.look.web" in read_imports()["headway.look.html_page"]


def test_no_file_is_found_from_where_a_module_stands() -> None:
    """The layers of resources are checked by their names in the package, which __file__ would evade."""
    assert [f.name for f in SOURCE.glob("headway/**/*.py") if "__file__" in f.read_text(encoding="utf-8")] == []


def test_cyclopts_is_used_only_where_commands_are_declared() -> None:
    users = [f for f in SOURCE.glob("headway/**/*.py") if "cyclopts import" in f.read_text(encoding="utf-8")]
    assert {part(name(file)) for file in users} == {"cli"}


LIGHT = [
    [],
    ["--help"],
    ["--version"],
    ["explain", "--help"],
    ["exlpain"],
    ["explain"],
    ["explain", "attnetion"],
    ["explain", "attention", "--jsn"],
    ["explain", "attention", "--n", "5"],
    ["explain", "shapes", "gtp2"],
    ["lesson", "--help"],
    ["lesson", "list"],
    ["lesson", "run", "--help"],
    ["lesson", "run", "maks"],
    ["trian"],
    ["train", "--help"],
    ["train", "a.tsv", "--train.stpes", "5"],
    ["train", "a.tsv", "--train.steps", "ten"],
    ["init", "gpt2"],
    ["inspect", "--help"],
    ["inspect", "haeds"],
    ["inspect", "heads", "--help"],
    ["compare", "--help"],
    ["bench"],
    ["bench", "--help"],
    ["bench", "generate-gtp2"],
    ["serve", "--help"],
    ["serve"],
    ["serve", "model"],
    ["look", "--help"],
    ["look"],
    ["look", "model"],
    ["look", "model", "text", "--prot", "80"],
]


@pytest.mark.slow
@pytest.mark.parametrize("words", LIGHT, ids=" ".join)
def test_help_and_mistakes_import_nothing_heavy(words: list[str]) -> None:
    assert heavy_after(f"from headway.cli.main import main; main({words})") == []


def test_import_headway_imports_nothing_heavy() -> None:
    assert heavy_after("import headway") == []


@pytest.mark.slow
def test_shapes_are_found_without_the_compiler() -> None:
    code = (
        "import sys; from headway.zoo.build import on_meta; on_meta('t5-tiny'); print('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.slow
def test_what_is_heavy_would_be_noticed() -> None:
    assert "numpy" in heavy_after("import numpy")


HEAVY = ("torch", "numpy", "matplotlib")


def heavy_after(code: str) -> list[str]:
    """Which of the slow packages a fresh interpreter has loaded after running the code."""
    told = f"{code}; import sys; print(*(set({HEAVY}) & set(sys.modules)), sep='\\n', file=sys.__stderr__)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return [line for line in done.stderr.splitlines() if line in HEAVY]
