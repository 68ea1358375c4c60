"""Every command of the README and of `--help` is parsed, its snippets run, and its tables and its tree are compared."""

from __future__ import annotations

import gzip
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from headway.cli import main as cli
from headway.cli.train_commands import given
from headway.data.kinds import DataKind
from headway.data.recognise import recognise
from headway.interop.registry import FAMILIES, type_for
from headway.tasks.base import task_class
from headway.tasks.registry import TASKS, data_kind
from headway.training.recipe_sources import read_layers
from headway.zoo.build import ARCHITECTURES
from tests.data.files import png, put, tarred, wav

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "headway"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def table(first_header: str) -> list[list[str]]:
    """The cells of the table whose first column has this header, row by row."""
    lines = README.partition(f"\n| {first_header} |")[2].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def shell_lines(first: str) -> list[list[str]]:
    """The words of the lines of shell blocks that call `first`, without variables that are set before it."""
    lines = (shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines())
    bare = ([word for word in words if not re.match(r"[A-Z_]+=", word)] for words in lines)
    return [words for words in bare if words and words[0] == first]


def data_commands() -> list[list[str]]:
    """The commands of the table of data, in each of their variants."""
    found = list[list[str]]()
    for *_, cell in table("your data"):
        first, *variants = quoted(cell)
        words = shlex.split(first)
        objectives = [word.split()[-1] for word in variants]  # `--objective masked`, and then `span` alone
        bare = [word for word in words if word != "masked"] if "--objective" in words else [*words, "--objective"]
        found += [words, *([*bare, objective] for objective in objectives)]
    return found


def help_examples(capsys: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """The lines of help that are commands, with the page that appears without arguments."""
    names = [name for name in cli.app if not name.startswith("-")]
    groups = ("inspect", "lesson")
    inner = [[group, name] for group in groups for name in cli.app[group] if not name.startswith("-")]
    for words in ([], *([name, "--help"] for name in names), *([*words, "--help"] for words in inner)):
        assert cli.main(words) == 0
        for line in capsys.readouterr().out.splitlines():
            if line.startswith("  headway "):
                yield shlex.split(re.split(r"\s{2,}", line.strip())[0].replace("$'", "'"))


def parse(words: list[str]) -> Any:
    """The arguments of a command, as the command line binds them; nothing is run."""
    _, *rest = words
    with patch.object(Path, "exists", lambda path: True):  # of a model, and of data
        command, bound, _ = cli.app.parse_args(rest, print_error=False, exit_on_error=False)
    if command.__name__ == "train":  # its values are checked by the recipe
        named = bound.arguments
        data, sizes = named.get("data", ()), named.get("sizes") or {}
        return read_layers(given(data, named.get("options"), sizes))
    return bound


@pytest.mark.slow
def test_every_command_parses() -> None:
    commands = [*shell_lines("headway"), *data_commands()]
    assert len(commands) > 50
    for words in commands:
        if len(words) > 1:  # headway alone says where to start
            parse(words)


@pytest.mark.slow
def test_every_example_of_help_parses(capsys: pytest.CaptureFixture[str]) -> None:
    examples = list(help_examples(capsys))
    assert len(examples) > 10
    for words in examples:
        if "--help" not in words:
            parse(words)


def test_a_wrong_command_would_be_noticed() -> None:
    for line in ("headway trian a.tsv", "headway train a.tsv --train.stpes 3", "headway look --prot 3", "headway cost"):
        with pytest.raises(Exception, match=r"\w"):
            parse(line.split())


@pytest.mark.slow
def test_commands_in_sentences_exist() -> None:
    """`headway look --live` in a sentence leaves its arguments out; its command and its options must exist."""
    for code in re.findall(r"`headway ([^`]+)`", README):
        words = code.split()
        command = cli.app.parse_commands(words)[1][-1]
        assert command is not cli.app, code
        arguments = command.assemble_argument_collection() if command.default_command else ()
        known = {name for argument in arguments for name in argument.names}
        assert {word for word in words if word.startswith("--")} <= known | {"--help"}, code


def test_make_targets_exist() -> None:
    for line in shell_lines("make"):
        subprocess.run([*line, "--dry-run"], cwd=ROOT, check=True, capture_output=True)


def test_torch_is_installed_as_pinned() -> None:
    pinned = re.search(r"^(torch==\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned
    assert [words[2] for words in shell_lines("pip") if words[2].startswith("torch")] == [pinned[1]]


@pytest.mark.long
def test_the_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("pairs.tsv", "test.tsv"):
        pairs = "".join(f"a small dog {at}\tein kleiner Hund {at}\n" for at in range(60))
        Path(name).write_text(pairs, encoding="utf-8")
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    assert "encoder.0.attn" in capsys.readouterr().out
    assert Path("page.html").is_file()


@pytest.mark.slow
def test_the_table_of_data_has_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files with the names of the table are recognised as what their rows say, and all kinds are there."""
    monkeypatch.chdir(tmp_path)
    write_examples(tmp_path)
    kinds = set[DataKind]()
    for words in data_commands():
        layers = parse(words)
        if layers.value("data.path") == ("dates",):
            continue
        objective = layers.value("data.objective")
        found = recognise(
            [Path(path) for path in layers.value("data.path") or ()],
            source=layers.value("data.source"),
            target=layers.value("data.target"),
            kind=data_kind(layers.value("data.task")),
            label_from=layers.value("data.label_from"),
            nameless=objective in ("masked", "contrastive") and words[2] == "photos",
        )
        kinds.add(found.kind)
    assert kinds == set(DataKind)


def write_examples(folder: Path) -> None:
    """The files of the table of data, with a few records each."""
    numbers = range(12)
    texts = {
        "pairs.tsv": "".join(f"a dog runs {at}\tein Hund läuft dort {at}\n" for at in numbers),
        "reviews.csv": "text,label\n" + "".join(f"film {at},{'good' if at % 2 else 'bad'}\n" for at in numbers),
        "entailment.csv": "premise,hypothesis,label\n"
        + "".join(f"a dog runs {at},a cat sits,{'no' if at % 2 else 'yes'}\n" for at in numbers),
        "similarity.tsv": "sentence1\tsentence2\tscore\n" + "".join(f"a dog\ta cat {at}\t{at}.5\n" for at in numbers),
        "prices.csv": "text,price\n" + "".join(f"house {at},{at * 7}.25\n" for at in numbers),
        "topics.jsonl": '{"text": "a goal", "labels": ["sport", "news"]}\n{"text": "rain", "labels": ["news"]}\n' * 6,
        "questions.jsonl": '{"question": "who ran?", "context": "a dog ran", "answer": "a dog"}\n' * 12,
        "tagged.jsonl": '{"words": ["a", "dog"], "tags": ["DET", "NOUN"]}\n' * 12,
        "ner.conll": "a DET\ndog NOUN\nruns VERB\n\n" * 12,
        "chats.jsonl": '{"messages": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "2"}]}\n'
        * 12,
        "preferred.jsonl": '{"prompt": "2 or 3?", "chosen": "3.", "rejected": "2."}\n' * 12,
        "book.txt": "It was a dark and stormy night.\n" * 12,
        "clips/transcripts.tsv": "file\ttranscript\n" + "".join(f"{at}.wav\tyes no\n" for at in numbers),
        "heartbeats.csv": "".join(f"{at},0.5,0.25,{'well' if at % 2 else 'ill'}\n" for at in numbers),
        "points.jsonl": '{"set": [[0.5, 1], [1, 2]], "label": "x"}\n{"set": [[0, 1]], "label": "y"}\n' * 6,
        "weather.csv": "day,temperature,rain\n" + "".join(f"{at},{at}.5,0.25\n" for at in numbers),
        "train.en.gz": "a dog\n" * 12,
        "train.de.gz": "ein Hund\n" * 12,
    }
    packed = {name: gzip.compress if name.endswith(".gz") else bytes for name in texts}
    put(folder, {name: packed[name](text.encode()) for name, text in texts.items()})
    put(folder / "photos", {f"{name}/{at}.png": png(at) for name in ("cat", "dog") for at in range(3)})
    put(folder / "recordings", {f"{name}_{at}.wav": wav(at) for name in ("yes", "no") for at in range(3)})
    put(folder / "clips", {f"{at}.wav": wav(at, 8000) for at in numbers})
    images = {f"{at}.png": png(at) for at in numbers}
    ages = "file,age\n" + "".join(f"{at}.png,{at * 7}.5\n" for at in numbers)
    pitches = "file,pitch\n" + "".join(f"{at}.wav,{at * 7}.5\n" for at in numbers)
    houses = "a,b,target\n" + "".join(f"{at},{at % 3},{at / 4}\n" for at in range(30))
    put(folder, {"ages.csv": ages.encode(), "pitches.csv": pitches.encode(), "houses.csv": houses.encode()})
    put(folder / "ages", images)
    put(folder / "pitches", {f"{at}.wav": wav(at) for at in numbers})
    labels = "image,label\n" + "".join(f"{at}.png,{'cat' if at % 2 else 'dog'}\n" for at in numbers)
    captions = "".join(f'{{"image": "{at}.png", "captions": ["a dog", "an animal"]}}\n' for at in numbers)
    tarred(folder / "pictures.tar", {**images, "labels.csv": labels.encode()})
    tarred(folder / "captions.tar", {**images, "captions.jsonl": captions.encode()})


def test_the_table_of_models_is_true() -> None:
    rows = table("model")
    named = [quoted(name)[-1] for name, *_ in rows]
    assert sorted(named) == sorted(ARCHITECTURES)
    for name, (_, trained, read, written) in zip(named, rows, strict=True):
        assert set(quoted(trained)) == {task for task in TASKS if name in task_class(task).architectures}, name
        assert set(quoted(read)) == {family for family, known in FAMILIES.items() if known == name}, name
        assert (written == "yes") == (type_for(name) is not None), name


def test_the_tree_shows_the_folders() -> None:
    tree = README.partition("## What is where\n\n```\n")[2].partition("```")[0]
    drawn = re.findall(r"^  (\S+)", tree, re.MULTILINE)
    folders = {f"{folder.name}/" for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
    files = {file.name for file in PACKAGE.glob("*.py") if not file.name.startswith("__")}
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == folders | files
    assert all((ROOT / name).is_dir() for name in re.findall(r"^(\S+)", tree, re.MULTILINE))


def test_every_example_is_linked() -> None:
    examples = {f"examples/{file.name}" for file in (ROOT / "examples").glob("*.py")}
    assert examples == set(re.findall(r"\((examples/[^)]+)\)", README))


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target
