"""YAML with the scalars of version 1.2, where `3e-4` is a number and `no` is a string.

PyYAML parses the structure; plain scalars are interpreted here.  Only plain data is read: mappings, lists, strings,
numbers, true, false and null.  Duplicate keys and tags are errors, and the expansion of aliases is bounded.  What is
written reads the same in versions 1.1 and 1.2, floats to the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from headway.errors import UserError

MAX_VALUES = 10_000  # of a document: far more than a recipe has, far fewer than an alias bomb
MAX_DEPTH = 30
MAX_NUMBER_CHARACTERS = 400
CORE, PLAIN = "tag:yaml.org,2002:", "plain"

KeyPath = tuple[str | int, ...]  # keys and indices from the top to a value


@dataclass(frozen=True)
class YamlDocument:
    """The value of a document, and the line of each key or item."""

    value: Any
    lines: Mapping[KeyPath, int]


def read(text: str, name: str) -> YamlDocument:
    """The document of a text; `name` is its name in messages."""
    try:
        node = yaml.compose(text, Loader=PlainScalarLoader)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{name}{line}: this is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{name}: this is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UserError(f"{name} is nested too deeply", allowed=f"{MAX_DEPTH} levels") from None
    builder = NodeReader(name)
    value = builder.value(node, ()) if node is not None else None
    return YamlDocument(value, builder.lines)


def scalar(text: str) -> Any:
    """The value of a plain scalar: null, true, false, a number, or a string."""
    for pattern, meaning in MEANINGS:
        if pattern.fullmatch(text):
            return meaning(text) if len(text) <= MAX_NUMBER_CHARACTERS else text
    return text


def write(value: Mapping[str, Any], comments: Mapping[KeyPath, str] | None = None) -> str:
    """The YAML of nested mappings in order, with comments above their keys; empty lines of a comment stay empty."""
    return "".join(f"{line}\n" for line in block(value, comments or {}, ()))


class PlainScalarLoader(yaml.SafeLoader):
    """Marks scalars that are neither quoted nor tagged as plain, without interpreting them."""

    yaml_implicit_resolvers = {None: [(PLAIN, re.compile("", re.DOTALL))]}  # noqa: RUF012  PyYAML's own name and form


@dataclass
class NodeReader:
    """Converts nodes to plain data; every value counts towards the limit, those of an alias each time."""

    name: str
    lines: dict[KeyPath, int] = field(default_factory=dict[KeyPath, int])
    count: int = 0

    def value(self, node: Node, path: KeyPath) -> Any:
        self.count += 1
        if self.count > MAX_VALUES or len(path) > MAX_DEPTH:
            allowed = f"{MAX_VALUES:,} values, {MAX_DEPTH} levels deep"
            raise UserError(f"{self.at(node)} the values are too many or too deep", allowed=allowed)
        if isinstance(node, ScalarNode) and node.tag in (PLAIN, f"{CORE}str"):
            return scalar(node.value) if node.tag == PLAIN else node.value
        if isinstance(node, SequenceNode) and node.tag == f"{CORE}seq":
            return [self.item(child, (*path, place)) for place, child in enumerate(node.value)]
        if isinstance(node, MappingNode) and node.tag == f"{CORE}map":
            return self.mapping(node, path)
        raise UserError(f"{self.at(node)} the tag {node.tag.replace(CORE, '!!')} is not read", do="write plain values")

    def item(self, node: Node, path: KeyPath) -> Any:
        self.lines[path] = node.start_mark.line + 1
        return self.value(node, path)

    def mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
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


def block(value: Mapping[str, Any], comments: Mapping[KeyPath, str], path: KeyPath) -> list[str]:
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
    """A float that reads back to the last bit, also in version 1.1, which requires the dot."""
    if value != value or value in (float("inf"), float("-inf")):
        return f"{value}".replace("inf", ".inf").replace("nan", ".nan")
    digits, e, exponent = repr(value).partition("e")
    return f"{digits}{'' if '.' in digits else '.0'}{e}{exponent}"


def quoted(text: str) -> str:
    """A string, in quotes where a reader could take it for something else."""
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
