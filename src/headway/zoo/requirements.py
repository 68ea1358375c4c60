"""A model for given data: an architecture's config with the vocabulary, the context, the classes and the head it needs.

What the data asks for is the same for every architecture, `DataRequirements`; which fields of a config take its
vocabularies is a property of the architecture, `VOCABULARY` in its file of the zoo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Protocol, cast, get_type_hints

from headway.errors import UserError
from headway.zoo.build import architecture
from headway.zoo.config_io import from_plain, to_plain

Sizes = Mapping[str, Any]


@dataclass(frozen=True)
class DataRequirements:
    """What the data and the task ask of a model."""

    longest: int  # tokens of a row at most
    source_vocab: int | None = None  # None: it reads no text
    target_vocab: int | None = None  # None: one tokenizer for both sides
    classes: int = 0
    head: str | None = None  # the value of the config field `top`, where an encoder has several heads to choose from
    fields: Sizes = field(default_factory=dict[str, Any])  # other config fields: sizes of images, features of frames

    @property
    def joint(self) -> bool:
        """Whether source and target have one tokenizer."""
        return self.target_vocab is None

    @property
    def source(self) -> int:
        assert self.source_vocab is not None, "an architecture of texts for data without a tokenizer"
        return self.source_vocab

    @property
    def target(self) -> int:
        return self.source if self.target_vocab is None else self.target_vocab


class Vocabulary(Protocol):
    """How the config of an architecture takes the vocabularies of the data."""

    @property
    def joint_only(self) -> bool:
        """Whether source and target must have one tokenizer."""
        ...

    def sizes(self, required: DataRequirements, given: Sizes) -> Sizes:
        """Fields of the config, beside those that are given."""
        ...


@dataclass(frozen=True)
class OneVocabulary:
    joint_only: bool = True

    def sizes(self, required: DataRequirements, given: Sizes) -> Sizes:
        if not required.joint:
            do = "leave out data.target_tokenizer, or model.preset"
            raise UserError("this architecture reads and writes the same words", do=do)
        return {"vocab": required.source}


@dataclass(frozen=True)
class VocabularyAndContext:
    joint_only: bool = False

    def sizes(self, required: DataRequirements, given: Sizes) -> Sizes:
        return {"vocab": required.source, "context": required.longest}


@dataclass(frozen=True)
class OptionalSource:
    joint_only: bool = False

    def sizes(self, required: DataRequirements, given: Sizes) -> Sizes:
        if required.joint:
            return {"vocab": required.target}
        tied = "target" if given.get("tied") == "all" else given.get("tied", "none")
        return {"vocab": required.target, "source_vocab": required.source, "tied": tied}


@dataclass(frozen=True)
class OptionalTarget:
    joint_only: bool = False

    def sizes(self, required: DataRequirements, given: Sizes) -> Sizes:
        return {"vocab": required.source, "target_vocab": required.target_vocab}


@dataclass(frozen=True)
class FromFields:
    joint_only: bool = False

    def sizes(self, required: DataRequirements, given: Sizes) -> Sizes:
        return required.fields


ONE_VOCABULARY = OneVocabulary()  # `vocab`, of both sides
VOCABULARY_AND_CONTEXT = VocabularyAndContext()  # `vocab`, and positions up to `context`
OPTIONAL_SOURCE_VOCAB = OptionalSource()  # `vocab` is the target's, `source_vocab` where that is another one
OPTIONAL_TARGET_VOCAB = OptionalTarget()  # `vocab` is the source's, `target_vocab` where that is another one
FROM_FIELDS = FromFields()  # it reads images, sounds or numbers: the data names the fields


def vocabulary_of(name: str) -> Vocabulary:
    return cast(Any, architecture(name)).VOCABULARY


def config_for(name: str, sizes: Sizes, required: DataRequirements, dropout: float | None) -> object:
    """The config of architecture `name`: its sizes, and what the data asks for."""
    kind, known = architecture(name).Config, {*known_sizes(name, sizes)}
    check_sizes(name, sizes)
    values = {**sizes, **vocabulary_of(name).sizes(required, sizes)}
    if required.head is not None and get_type_hints(kind).get("top") is str:  # Mixtral's is the number of experts
        values["top"] = required.head
    if required.classes:
        values["classes"] = required.classes
    if dropout is not None:
        values |= dropouts(name, known, dropout, sizes)
    # the fused kernel has no dropout on a CPU: a third of the speed, for little
    if "attention_dropout" in known and "attention_dropout" not in sizes:
        values["attention_dropout"] = 0.0
    return from_plain(kind, folded(kind, values))


def dropouts(name: str, known: set[str], dropout: float, sizes: Sizes) -> Sizes:
    """The config fields that `train.dropout` sets: dropout of layers and of the embedding."""
    rates = ({"dropout"} | {"embed_dropout"} - {*sizes}) & known
    if dropout > 0 and not rates:
        raise UserError(f"train.dropout {dropout:g}: {name} has none", do="leave it out")
    return dict.fromkeys(rates, dropout)


def check_sizes(name: str, sizes: Sizes) -> None:
    """Refuses sizes below 1, but 0 where that is an architecture's default."""
    for known in fields(architecture(name).Config):
        value: Any = sizes.get(known.name)
        for number in value if isinstance(value, tuple | list) else (value,):
            if type(number) is int and number < (0 if known.default == 0 else 1):
                raise UserError(f"model.{known.name} {value}", allowed="whole numbers of 1 or more")


def known_sizes(name: str, sizes: Sizes) -> list[str]:
    """The fields of an architecture's config, and those of an encoder's config inside it."""
    kind = architecture(name).Config
    own = [field.name for field in fields(kind)]
    inner = from_plain(kind, {"encoder": sizes["encoder"]}).encoder if "encoder" in sizes else None
    return [*own, *(field.name for field in fields(inner))] if is_dataclass(inner) else own


def folded(kind: type, values: Sizes) -> Sizes:
    """Values with those of an encoder's config inside it moved there."""
    own = {field.name for field in fields(kind)}
    encoder: Any = values.get("encoder")
    if is_dataclass(encoder):
        encoder = {"kind": type(encoder).__name__, **to_plain(encoder)}
    if not isinstance(encoder, Mapping):
        return values
    inner = {key: value for key, value in values.items() if key not in own}
    return {**{key: value for key, value in values.items() if key in own}, "encoder": {**encoder, **inner}}
