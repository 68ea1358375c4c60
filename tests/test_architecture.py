"""docs/ARCHITECTURE.md against the code: its layers, records, glossary, and the files to touch to add something."""

from __future__ import annotations

import dataclasses
import inspect as signatures
import re
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import Path

import pytest

from headway import inspect
from headway.cli import main as cli
from headway.errors import UserError
from headway.interop.registry import FAMILIES
from headway.learn.explain import TOPICS
from headway.learn.topic_inputs import TopicInputs
from headway.metrics.scores import MEASURES, Scores
from headway.recipe import SETTINGS
from headway.tasks.base import RecordTask, Task, task_class
from headway.tasks.registry import TASKS
from headway.training.setting_origins import CommandLineOption
from headway.zoo.build import ARCHITECTURES
from headway.zoo.presets import PRESETS
from tests.test_imports import LAYERS, read_imports

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "headway"
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
DEFINED = r"^\s*(?:export )?(?:(?:class|def|const|function) {0}\b|{0}\s*[:=(])"
NO_CONFIG = {"fairseq", "torch_transformer"}  # families that are known by their tensors
FACADE = ("headway", "__main__")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """The cells of the table of a section, row by row."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def place(path: str) -> Path:
    return ROOT / path if path.startswith(("src/", "tests/", "docs/")) else PACKAGE / path


@cache
def text(path: str) -> str:
    return place(path).read_text(encoding="utf-8")


def is_defined(name: str, path: str) -> bool:
    return re.search(DEFINED.format(re.escape(name)), text(path), re.MULTILINE) is not None


def test_every_path_exists() -> None:
    paths = set(re.findall(r"`((?:\w+/)+[\w.]*|\w+\.py)`", PAGE))
    assert len(paths) > 80
    assert [path for path in sorted(paths) if "NAME" not in path and not place(path).exists()] == []


def test_every_definition_is_where_the_page_says() -> None:
    """`path` · `Name`, in the glossary and in the table of what to touch."""
    named = re.findall(r"`([\w/]+\.(?:py|js))` · ((?:`\w+`(?:, | or )?)+)", PAGE)
    assert len(named) > 60
    for path, names in named:
        for name in re.findall(r"`(\w+)`", names):
            assert is_defined(name, path), f"{name} in {path}"


def test_the_diagram_shows_the_layers() -> None:
    drawn = [line.split("  ")[0].split(" | ") for line in section("Layers").split("```")[1].strip().splitlines()]
    assert [set(names) for names in reversed(drawn)] == layers()


def test_the_guide_for_contributors_names_the_layers() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    chain = guide.partition("**Layers.** `")[2].partition("`")[0]
    assert [set(re.findall(r"\w+", names)) for names in chain.split("<")] == layers()


def layers() -> list[set[str]]:
    """The layers below the façade, the lowest first."""
    ranks = sorted((rank, name) for name, rank in LAYERS.items() if name not in FACADE)
    return [{name for _, name in group} for _, group in groupby(ranks, key=lambda layer: layer[0])]


@pytest.mark.slow
def test_records_are_handed_over_as_the_table_says() -> None:
    for record, path, _, maker in rows("From a file to a model"):
        name, file = record.strip("`"), path.strip("`")
        assert is_defined(name, file)
        makers = [text(f"{module.replace('.', '/')}.py") for module in used_modules()]
        call = maker.strip("`").rpartition(".")[2]
        assert any(re.search(rf"def {call}\([^)]*\)[^:]*-> .*\b{name}\b", each, re.DOTALL) for each in makers), maker


def used_modules() -> list[str]:
    names = (name.removeprefix("headway.") for name in read_imports() if name.startswith("headway."))
    return [name for name in names if (PACKAGE / f"{name.replace('.', '/')}.py").is_file()]


def test_methods_of_a_task_are_called_where_the_table_says() -> None:
    table = rows("A task")
    abstract = Task.__abstractmethods__ | RecordTask.__abstractmethods__
    assert {row[0].strip("`") for row in table} >= abstract - {"sample_input", "sizes"}
    for method, _, caller in table:
        name = method.strip("`")
        assert hasattr(RecordTask, name)
        assert re.search(rf"\.{name}\b", text(caller.strip("`"))), f"{name} in {caller}"


def test_what_to_touch_names_every_kind_of_addition() -> None:
    assert [row[0] for row in rows("To add something, touch these files")] == [
        "a task",
        "an architecture",
        "a Hugging Face family",
        "a metric",
        "a data format",
        "a setting",
        "a command",
        "an inspection",
        "a topic of headway explain",
        "a lesson",
        "a statement of a lecture",
        "a benchmark",
        "a view of the page",
    ]


def test_a_task_is_a_file_and_a_line() -> None:
    for name, (where, *_) in TASKS.items():
        module, _, cls = where.partition(":")
        assert is_defined(cls, f"tasks/{module}.py")
        assert task_class(name).name == name


def test_an_architecture_is_a_file_and_a_line() -> None:
    files = {file.stem for file in (PACKAGE / "zoo").glob("*.py") if is_architecture(file)}
    assert files == set(ARCHITECTURES)
    assert {one.architecture for one in PRESETS.values()} <= files
    assert {name for task in TASKS for name in task_class(task).architectures} <= files


def is_architecture(file: Path) -> bool:
    path = f"zoo/{file.name}"
    return is_defined("Config", path) and is_defined("build", path) and "def build(c: Config" in text(path)


def test_a_family_is_a_file_and_a_line() -> None:
    files = {file.stem for file in (PACKAGE / "interop").glob("*.py") if is_family(file)}
    assert files - NO_CONFIG == {name.replace("-", "_") for name in FAMILIES}


def is_family(file: Path) -> bool:
    module = import_module(f"headway.interop.{file.stem}")
    return all(hasattr(module, name) for name in ("read_config", "write_config", "keymap"))


def test_a_metric_needs_its_line() -> None:
    assert Scores(dict.fromkeys(MEASURES, 0.0), 1).numbers.keys() == MEASURES.keys()
    with pytest.raises(UserError, match="belu"):
        Scores({"belu": 0.0}, 1)


def test_a_setting_is_a_line() -> None:
    """A field of a recipe is an option without any further declaration."""
    arguments = cli.app["train"].assemble_argument_collection()
    options = {name for argument in arguments for name in argument.names}
    assert {CommandLineOption().spell(name) for name in SETTINGS} <= options


def test_a_command_is_a_function_and_a_line() -> None:
    for name in (name for name in cli.app if not name.startswith("-") and name not in ("inspect", "lesson")):
        command = cli.app[name].default_command
        assert command is not None
        assert signatures.unwrap(command).__module__.startswith("headway.cli."), name


def test_an_inspection_is_a_file_a_line_and_a_command() -> None:
    functions = {name for name in inspect.__all__ if signatures.isfunction(getattr(inspect, name))}
    commands = {name for name in cli.app["inspect"] if not name.startswith("-")}
    assert functions - {"load_sae"} <= commands
    assert all((PACKAGE / "inspect" / f"{module}.py").is_file() for module in inspect.LATE.values())


def test_a_topic_is_a_function_and_a_line() -> None:
    files = {topic.steps.partition(":")[0] for topic in TOPICS.values()}
    assert files == {file.stem for file in (PACKAGE / "learn").glob("explain_*.py")}
    assert all(
        is_defined(name, f"learn/{file}.py") for file, _, name in (t.steps.partition(":") for t in TOPICS.values())
    )
    fields = {field for topic in TOPICS.values() for field in topic.options}
    assert fields == {field.name for field in dataclasses.fields(TopicInputs)}


def test_a_view_is_a_file_and_a_line() -> None:
    listed = re.search(r"const VIEWS = \[([^\]]+)\]", text("look/web/main.js"))
    assert listed
    files = (PACKAGE / "look" / "web").glob("*.js")
    views = {name for file in files for name in re.findall(r"export const (\w+View)\b", file.read_text("utf-8"))}
    assert set(re.findall(r"\w+", listed[1])) == views


def test_a_missing_definition_would_be_noticed() -> None:
    assert is_defined("Task", "tasks/base.py")
    assert not is_defined("Taks", "tasks/base.py")


@pytest.mark.slow
def test_the_snippets_run(capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, as a reader would type them."""
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "ARCHITECTURE.md", "exec"), names)
    shape, _, _, mass = capsys.readouterr().out.splitlines()
    assert shape == "(1, 8, 4096, 4096)"
    assert "8." in mass or "7.99" in mass


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
