"""YAML as people mean it: the scalars of version 1.2, where `3e-4` is a number and `no` is a word.

PyYAML finds the structure; what a plain word means is decided here.  Read is plain data only: mappings, lists, words,
numbers, true, false and null.  A key that is there twice is an error, so are tags, and aliases cannot multiply without
end.  What is written reads the same in version 1.1 and in 1.2, every float to the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from headway.errors import UserError

MOST_VALUES = 10_000  # of a document: far more than a recipe has, far fewer than a bomb of aliases
DEEPEST = 30
LONGEST_NUMBER = 400  # letters
CORE, PLAIN = "tag:yaml.org,2002:", "plain"

Path = tuple[str | int, ...]  # keys and places from the top to a value


@dataclass(frozen=True)
class Document:
    """What a file holds, and the line on which each key or item stands."""

    value: Any
    lines: Mapping[Path, int]


def read(text: str, name: str) -> Document:
    """The one document of a text; `name` is what messages call it."""
    try:
        node = yaml.compose(text, Loader=Words)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{name}{line}: this is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{name}: this is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UserError(f"{name} is nested too deeply", allowed=f"{DEEPEST} levels") from None
    builder = Builder(name)
    value = builder.value(node, ()) if node is not None else None
    return Document(value, builder.lines)


def scalar(text: str) -> Any:
    """What a plain word means: null, true, false, a number, or itself."""
    for pattern, meaning in MEANINGS:
        if pattern.fullmatch(text):
            return meaning(text) if len(text) <= LONGEST_NUMBER else text
    return text


def write(value: Mapping[str, Any], comments: Mapping[Path, str] | None = None) -> str:
    """The document of nested mappings, keys in their order, a comment above its key; its empty lines stay empty."""
    return "".join(f"{line}\n" for line in block(value, comments or {}, ()))


class Words(yaml.SafeLoader):
    """Marks what is neither quoted nor tagged as plain, and decides nothing else."""

    yaml_implicit_resolvers = {None: [(PLAIN, re.compile("", re.DOTALL))]}  # noqa: RUF012  PyYAML's own name and form


@dataclass
class Builder:
    """Makes plain data of nodes; every value counts, those behind an alias each time."""

    name: str
    lines: dict[Path, int] = field(default_factory=dict[Path, int])
    count: int = 0

    def value(self, node: Node, path: Path) -> Any:
        self.count += 1
        if self.count > MOST_VALUES or len(path) > DEEPEST:
            allowed = f"{MOST_VALUES:,} values, {DEEPEST} levels deep"
            raise UserError(f"{self.at(node)} the values are too many or too deep", allowed=allowed)
        if isinstance(node, ScalarNode) and node.tag in (PLAIN, f"{CORE}str"):
            return scalar(node.value) if node.tag == PLAIN else node.value
        if isinstance(node, SequenceNode) and node.tag == f"{CORE}seq":
            return [self.item(child, (*path, place)) for place, child in enumerate(node.value)]
        if isinstance(node, MappingNode) and node.tag == f"{CORE}map":
            return self.mapping(node, path)
        raise UserError(f"{self.at(node)} the tag {node.tag.replace(CORE, '!!')} is not read", do="write plain values")

    def item(self, node: Node, path: Path) -> Any:
        self.lines[path] = node.start_mark.line + 1
        return self.value(node, path)

    def mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, child in node.value:
            if not (isinstance(key_node, ScalarNode) and key_node.tag in (PLAIN, f"{CORE}str")):
                raise UserError(f"{self.at(key_node)} a key is not a plain word")
            key: str = key_node.value
            if key in found:
                first = self.lines[(*path, key)]
                raise UserError(f"{self.at(key_node)} {key!r} is there twice, first on line {first}", do="keep one")
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            found[key] = self.value(child, (*path, key))
        return found

    def at(self, node: Node) -> str:
        return f"{self.name} line {node.start_mark.line + 1}:"


def block(value: Mapping[str, Any], comments: Mapping[Path, str], path: Path) -> list[str]:
    indent = "  " * len(path)
    lines: list[str] = []
    for key, child in value.items():
        here = (*path, key)
        lines += [f"{indent}# {line}" if line else "" for line in comments.get(here, "").splitlines()]
        if isinstance(child, Mapping) and child:
            lines += [f"{indent}{quoted(key)}:", *block(child, comments, here)]
        else:
            lines.append(f"{indent}{quoted(key)}: {flow(child)}")
    return lines


def flow(value: Any) -> str:
    """A value on one line."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return number(value)
        case str():
            return quoted(value)
        case Mapping():
            return "{" + ", ".join(f"{quoted(key)}: {flow(child)}" for key, child in value.items()) + "}"
        case Sequence():
            return "[" + ", ".join(map(flow, value)) + "]"
        case _:
            raise TypeError(f"{type(value).__name__} has no form in YAML")


def number(value: float) -> str:
    """A float that reads back to the last bit, and is one in version 1.1 too, which asks for the dot."""
    if value != value or value in (float("inf"), float("-inf")):
        return f"{value}".replace("inf", ".inf").replace("nan", ".nan")
    digits, e, exponent = repr(value).partition("e")
    return f"{digits}{'' if '.' in digits else '.0'}{e}{exponent}"


def quoted(text: str) -> str:
    """A word as it stands where no reader takes it for something else, and in quotes otherwise."""
    if SAFE.fullmatch(text) and text.lower() not in WORDS_OF_1_1:
        return text
    return '"' + "".join(escaped(letter) for letter in text) + '"'


def escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter == " " or (letter.isprintable() and letter not in "\ufeff"):
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


SAFE = re.compile(r"[A-Za-z/_][A-Za-z0-9_./-]*")
WORDS_OF_1_1 = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

# The core schema of YAML 1.2.2, section 10.3.2
MEANINGS: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"null|Null|NULL|~|"), lambda text: None),
    (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), lambda text: float(text.replace(".", ""))),
)
