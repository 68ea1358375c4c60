"""A model that fits its data: an architecture's config with the vocabulary, the lengths and the classes of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from headway.data.kinds import Kind
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError, listed
from headway.zoo.build import architecture
from headway.zoo.plain import from_plain
from headway.zoo.presets import PRESETS

Sizes = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Need:
    """What a model must read, write and tell apart."""

    reader: Tokenizer
    writer: Tokenizer
    longest: int
    classes: int = 0

    @property
    def joint(self) -> bool:
        return self.reader is self.writer


def one_vocabulary(need: Need, sizes: Sizes) -> Sizes:
    if not need.joint:
        raise UserError(
            "this architecture reads and writes the same words", do="leave out --data.target-tokenizer, or --preset"
        )
    return {"vocab": need.reader.vocab}


def two_tables(need: Need, sizes: Sizes) -> Sizes:
    """The Transformer's: `vocab` is the target's."""
    if need.joint:
        return {"vocab": need.writer.vocab}
    tied = "target" if sizes.get("tied") == "all" else sizes.get("tied", "none")
    return {"vocab": need.writer.vocab, "source_vocab": need.reader.vocab, "tied": tied}


def two_sides(need: Need, sizes: Sizes) -> Sizes:
    return {"vocab": need.reader.vocab, "target_vocab": None if need.joint else need.writer.vocab}


def with_context(need: Need, sizes: Sizes) -> Sizes:
    return {"vocab": need.reader.vocab, "context": need.longest}


FITS: dict[str, Callable[[Need, Sizes], Sizes]] = {
    "albert": with_context,
    "bart": one_vocabulary,
    "bert": with_context,
    "gpt2": with_context,
    "llama": with_context,
    "marian": one_vocabulary,
    "mixtral": with_context,
    "rnn": two_sides,
    "seq2seq": two_sides,
    "t5": one_vocabulary,
    "transformer": two_tables,
}

JOINT = tuple(name for name, fit in FITS.items() if fit is one_vocabulary)
PAIRED = ("transformer", "rnn", "seq2seq", "t5", "bart", "marian")
READING = ("bert", "albert")
WRITING = ("gpt2", "llama", "mixtral")
OBJECTIVES = {"causal": WRITING, "masked": READING, "span": PAIRED}
TOPS = {Kind.LABELS: "rows", Kind.TAGS: "tokens", Kind.TEXTS: "words"}  # of an encoder


def dropouts(name: str, known: set[str], dropout: float, sizes: Sizes) -> Sizes:
    """The rates that `--train.dropout` stands for: those of layers and of the embedding."""
    rates = ({"dropout"} | {"embed_dropout"} - {*sizes}) & known
    if dropout > 0 and not rates:
        raise UserError(f"--train.dropout {dropout:g}: {name} has none", do="leave it out")
    return dict.fromkeys(rates, dropout)


def suited(kind: Kind, objective: str) -> tuple[str, ...]:
    """The architectures that can learn from such data."""
    return {Kind.PAIRS: PAIRED, Kind.LABELS: READING, Kind.TAGS: READING}.get(kind, OBJECTIVES[objective])


def check_suited(preset: str, kind: Kind, objective: str) -> None:
    allowed = suited(kind, objective)
    if PRESETS[preset].architecture not in allowed:
        what = f"{kind.value}, {objective}" if kind is Kind.TEXTS else kind.value
        names = [name for name, one in PRESETS.items() if one.architecture in allowed]
        raise UserError(f"{preset} cannot learn this task ({what})", allowed=listed(names, 6))


def config_for(name: str, sizes: Sizes, need: Need, kind: Kind, dropout: float | None) -> object:
    """The config of architecture `name`: its sizes, and what the data asks for."""
    known = {field.name for field in fields(architecture(name).Config)}
    told = {**sizes, **FITS[name](need, sizes)}
    if name in READING:
        told["top"] = TOPS[kind]
    if need.classes:
        told["classes"] = need.classes
    if dropout is not None:
        told |= dropouts(name, known, dropout, sizes)
    # the fused kernel has no dropout on a CPU: a third of the speed, for little
    if "attention_dropout" in known and "attention_dropout" not in sizes:
        told["attention_dropout"] = 0.0
    return from_plain(architecture(name).Config, told)
