"""No tensor is made on a device of its own choice: in what a call of a model passes, constructors say `device=`.

The rule: in `ops`, `nn`, `generate` and `tasks`, a call such as `torch.zeros` names a device, unless

- it makes a parameter or a buffer: it stands in an `__init__`, in `nn.Parameter(…)`, or in `register_buffer(…)`;
- it makes data, which is read on the CPU and moves as a batch: it stands in a function that returns one of `DATA`;
- it has no dimensions (`torch.zeros(())`, `torch.tensor(1 / n)`), which meets tensors of any device;
- its result is moved at once, by `.to(…)`;
- it stands in one of `CPU_FILES`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "headway"
FOLDERS = ("ops", "nn", "generate", "tasks")
MAKERS = {"zeros", "ones", "empty", "full", "arange", "tensor", "as_tensor", "linspace", "eye"}
MAKERS |= {"rand", "randn", "randint", "randperm"}
# batches, scores, drafted tokens, and what a checkpoint keeps, by the annotation of what a function returns
DATA = re.compile(r".*Batch|EvalResult|Iterator\[BaselineResult\]|DraftTokens|dict\[str, Tensor\]")
# features of sounds and statistics of maps, which are computed on the CPU; programs of the native library, which is its
CPU_FILES = {
    "ops/mel.py",
    "ops/resample.py",
    "ops/attention_statistics.py",
    "generate/lowering.py",
    "generate/step_program.py",
}


def unplaced(text: str) -> Iterator[int]:
    """The lines of constructors that do not say where their tensor is to be."""
    tree = ast.parse(text)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if is_maker(node) and not any(word.arg == "device" for word in node.keywords):
            around = list(above(node, parents))
            if not is_scalar(node) and not any(map(exempts, around)) and not is_moved(node, parents):
                yield node.lineno


def above(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    while node in parents:
        node = parents[node]
        yield node


def is_maker(node: ast.AST) -> bool:
    call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return call and node.func.attr in MAKERS and ast.unparse(node.func.value) == "torch"


def is_scalar(node: ast.Call) -> bool:
    first = node.args[0] if node.args else None
    if isinstance(first, ast.Tuple):
        return not first.elts
    return node.func.attr == "tensor" and isinstance(first, ast.Constant | ast.BinOp)


def is_moved(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents.get(node)
    return isinstance(parent, ast.Attribute) and parent.attr == "to"


def exempts(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name == "__init__" or (
            node.returns is not None and DATA.fullmatch(ast.unparse(node.returns)) is not None
        )
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("nn.Parameter", "self.register_buffer")


def test_constructors_say_a_device() -> None:
    files = {str(path.relative_to(SOURCE)): path for folder in FOLDERS for path in (SOURCE / folder).rglob("*.py")}
    found = [
        f"{name}:{line}" for name, path in files.items() if name not in CPU_FILES for line in unplaced(path.read_text())
    ]
    assert found == []


def test_what_is_found() -> None:
    text = "def forward(self, x):\n    return x + torch.zeros(3)\n"
    assert list(unplaced(text)) == [2]
    assert list(unplaced(text.replace("(3)", "(3, device=x.device)"))) == []
    assert list(unplaced(text.replace("forward", "__init__"))) == []
    assert list(unplaced(text.replace("zeros(3)", "zeros(())"))) == []
    assert list(unplaced(text.replace("zeros(3)", "tensor(ids)"))) == [2]
