"""Settings as text: recipes in YAML, and the words of options and variables, converted to the type of a setting.

YAML has the scalars of version 1.2, where `3e-4` is a number and `no` is a string.  PyYAML parses the structure; plain
scalars are interpreted here.  Only plain data is read: mappings, lists, strings, numbers, true, false and null.
Duplicate keys and tags are errors, and the expansion of aliases is bounded.  What is written reads the same in versions
1.1 and 1.2, floats to the last bit.

In an option or a variable a list is written `a,b`, a list of paths with the separator of PATH; `none` resets a setting
to its automatic choice.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Literal, cast, get_args, get_origin

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from headway.errors import UserError, nearest
from headway.setting import Setting, kinds_of

NUMBERS = re.compile(r"\d+(,\d+)+")
MAX_MAGNITUDE = 1e300
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
MAX_VALUES = 10_000  # of a document: far more than a recipe has, far fewer than an alias bomb
MAX_DEPTH = 30
MAX_NUMBER_CHARACTERS = 400
YAML_REMEDY = "write a setting as name: value, one to a line"
CORE, PLAIN = "tag:yaml.org,2002:", "plain"

KeyPath = tuple[str | int, ...]  # keys and indices from the top to a value


class WrongTypeError(Exception):
    """A value does not have the type of its setting."""


def fit(setting: Setting, value: object, subject: str) -> Any:
    """The value in the type and bounds of a setting; `subject` begins the error message: the setting and its value."""
    try:
        converted = convert(setting.kind, value)
    except WrongTypeError:
        names = setting.choices
        if names and isinstance(value, str):
            allowed, meant = ", ".join(names), nearest(value, names)
            raise UserError(f"{subject} is not a choice", allowed=allowed, meant=meant) from None
        kinds = [describe_kind(kind) for kind in kinds_of(setting.kind) if kind is not NoneType]
        raise UserError(f"{subject} is not {' or '.join(kinds)}") from None
    low = -math.inf if setting.min_value is None else setting.min_value
    high = math.inf if setting.max_value is None else setting.max_value
    for number in converted if isinstance(converted, tuple) else (converted,):
        if isinstance(number, int | float) and not low <= number <= high:
            raise UserError(f"{subject} is out of bounds", allowed=bounds(setting))
        if setting.limit is not None and isinstance(number, int | float) and number > setting.limit:
            raise UserError(f"{subject} is out of bounds", allowed=f"{setting.min_value:g} to {setting.limit:,}")
    return converted


def bounds(setting: Setting) -> str:
    if setting.max_value is None:
        return f"{setting.min_value:g} or more"
    return f"{setting.min_value} to {setting.max_value}"


def describe_kind(kind: Any) -> str:
    """A type in words."""
    if get_origin(kind) is tuple:
        items = get_args(kind)
        return "a list" if items[-1] is Ellipsis else f"a list of {len(items)} numbers"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path"}[kind]


def convert(kind: Any, value: Any) -> Any:
    """The value in the first member of a union type that it fits."""
    for one in kinds_of(kind):
        with suppress(WrongTypeError):
            return convert_plain(one, value)
    raise WrongTypeError


def convert_plain(kind: Any, value: Any) -> Any:
    if get_origin(kind) is tuple:
        return convert_tuple(get_args(kind), value)
    if get_origin(kind) is Literal and value in get_args(kind) and isinstance(value, str):
        return value
    if kind is Path and isinstance(value, str | Path) and str(value):
        return Path(value)
    if kind in (int, float) and isinstance(value, int | float) and not isinstance(value, bool):
        # `1e4` is an integer too; infinities and NaN are no numbers
        if abs(value) < MAX_MAGNITUDE and (kind is float or value == int(value)):
            return kind(value)
    elif kind in (bool, str, NoneType) and isinstance(value, kind):
        return value
    raise WrongTypeError


def convert_tuple(items: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """A tuple; where its length is free, a single item needs no list."""
    endless = items[-1] is Ellipsis
    if endless and not isinstance(value, list | tuple | dict | None):
        value = [value]
    if not isinstance(value, list | tuple) or (not endless and len(value) != len(items)):
        raise WrongTypeError
    return tuple(convert(items[0], item) for item in value)


def parse_text(kind: Any, text: str) -> Any:
    """The value of a text for a type; the text itself if it has none, which `fit` then reports."""
    if NoneType in kinds_of(kind) and text.lower() in ("none", "null"):
        return None
    for one in kinds_of(kind):
        with suppress(WrongTypeError):
            return convert_plain(one, parse_plain(one, text))
    return text


def parse_plain(kind: Any, text: str) -> Any:
    if get_origin(kind) is tuple:
        items = get_args(kind)
        parts = text.split(os.pathsep) if items[0] is Path else [part.strip() for part in text.split(",")]
        return [parse_text(items[0], part) for part in parts]
    if kind is bool:
        return TRUTH.get(text.lower(), text)
    return yaml_scalar(text) if kind in (int, float) else text


def parse_size(text: str, name: str) -> Any:
    """The value of a field of an architecture's config, whose type is known to its own file only."""
    if NUMBERS.fullmatch(text):  # 2,2,6,2 without brackets
        text = f"[{text}]"
    return read_yaml(text, name).value if text[:1] in ("{", "[") else yaml_scalar(text)


def parse_sizes(words: Mapping[str, str] | None) -> dict[str, Any]:
    """The sizes of a model, as they are typed behind --model."""
    return {name.replace("-", "_"): lists_to_tuples(parse_size(word, name)) for name, word in (words or {}).items()}


def lists_to_tuples(value: Any) -> Any:
    """A config field as presets have it: with tuples for the lists of YAML."""
    if isinstance(value, dict):
        return {name: lists_to_tuples(inner) for name, inner in cast("dict[str, Any]", value).items()}
    return tuple(map(lists_to_tuples, cast("list[Any]", value))) if isinstance(value, list) else value


# ---- YAML


@dataclass(frozen=True)
class YamlDocument:
    """The value of a document, and the line of each key or item."""

    value: Any
    lines: Mapping[KeyPath, int]


def read_yaml(text: str, name: str) -> YamlDocument:
    """The document of a text; `name` is its name in messages."""
    try:
        node = yaml.compose(text, Loader=PlainScalarLoader)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        do = "indent with spaces" if "'\\t'" in (error.problem or "") else YAML_REMEDY
        raise UserError(f"{name}{line}: this is not YAML: {error.problem or error.context}", do=do) from None
    except ReaderError as error:
        line, code = text.count("\n", 0, error.position) + 1, ord(text[error.position])
        said = f"{name} line {line}: this is not YAML: U+{code:04X} may not stand there"
        raise UserError(said, do="delete that character") from None
    except RecursionError:
        raise UserError(f"{name} is nested too deeply", allowed=f"{MAX_DEPTH} levels") from None
    builder = NodeReader(name)
    value = builder.value(node, ()) if node is not None else None
    return YamlDocument(value, builder.lines)


def yaml_scalar(text: str) -> Any:
    """The value of a plain scalar: null, true, false, a number, or a string."""
    for pattern, meaning in MEANINGS:
        if pattern.fullmatch(text):
            return meaning(text) if len(text) <= MAX_NUMBER_CHARACTERS else text
    return text


def write_yaml(value: Mapping[str, Any], comments: Mapping[KeyPath, str] | None = None) -> str:
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
            return yaml_scalar(node.value) if node.tag == PLAIN else node.value
        if isinstance(node, SequenceNode) and node.tag == f"{CORE}seq":
            self.lines |= {(*path, at): child.start_mark.line + 1 for at, child in enumerate(node.value)}
            return [self.value(child, (*path, at)) for at, child in enumerate(node.value)]
        if isinstance(node, MappingNode) and node.tag == f"{CORE}map":
            return self.mapping(node, path)
        raise UserError(f"{self.at(node)} the tag {node.tag.replace(CORE, '!!')} is not read", do="write plain values")

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
