"""A model that fits its data: an architecture's config with the vocabulary, the lengths and the classes of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from headway.data.kinds import Kind
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.zoo.build import architecture
from headway.zoo.plain import from_plain, to_plain

Sizes = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Need:
    """What a model must read, write and tell apart."""

    reader: Tokenizer | None
    writer: Tokenizer | None
    longest: int
    classes: int = 0
    senses: Mapping[str, Any] = field(default_factory=dict[str, Any])  # fields of a config, of images or frames

    @property
    def joint(self) -> bool:
        return self.reader is self.writer

    @property
    def reads(self) -> int:
        """Words that it reads."""
        assert self.reader is not None
        return self.reader.vocab

    @property
    def writes(self) -> int:
        assert self.writer is not None
        return self.writer.vocab


def one_vocabulary(need: Need, sizes: Sizes) -> Sizes:
    if not need.joint:
        raise UserError(
            "this architecture reads and writes the same words", do="leave out --data.target-tokenizer, or --preset"
        )
    return {"vocab": need.reads}


def two_tables(need: Need, sizes: Sizes) -> Sizes:
    """The Transformer's: `vocab` is the target's."""
    if need.joint:
        return {"vocab": need.writes}
    tied = "target" if sizes.get("tied") == "all" else sizes.get("tied", "none")
    return {"vocab": need.writes, "source_vocab": need.reads, "tied": tied}


def two_sides(need: Need, sizes: Sizes) -> Sizes:
    return {"vocab": need.reads, "target_vocab": None if need.joint else need.writes}


def sensed(need: Need, sizes: Sizes) -> Sizes:
    return need.senses


def with_context(need: Need, sizes: Sizes) -> Sizes:
    return {"vocab": need.reads, "context": need.longest}


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
    **dict.fromkeys(("vit", "swin", "swinv2", "mvit", "mvitv2", "resnet", "lrnet", "conformer", "vectors"), sensed),
    **dict.fromkeys(("clip_image", "mae", "simmim", "simclr", "forecaster"), sensed),
    **dict.fromkeys(("captioner", "vit_captioner", "clip", "image_text"), sensed),
}

JOINT = tuple(name for name, fit in FITS.items() if fit is one_vocabulary)
# what stands on an encoder that can have several things there
TOPS: dict[str, dict[Kind, str]] = {
    **{name: {Kind.LABELS: "rows", Kind.TAGS: "tokens", Kind.TEXTS: "words"} for name in ("bert", "albert")},
    "vit": {Kind.IMAGES: "classes"},
    "conformer": {Kind.SOUNDS: "rows", Kind.SPEECH: "ctc"},
}


def dropouts(name: str, known: set[str], dropout: float, sizes: Sizes) -> Sizes:
    """The rates that `--train.dropout` stands for: those of layers and of the embedding."""
    rates = ({"dropout"} | {"embed_dropout"} - {*sizes}) & known
    if dropout > 0 and not rates:
        raise UserError(f"--train.dropout {dropout:g}: {name} has none", do="leave it out")
    return dict.fromkeys(rates, dropout)


def config_for(name: str, sizes: Sizes, need: Need, kind: Kind, dropout: float | None) -> object:
    """The config of architecture `name`: its sizes, and what the data asks for."""
    known = {*known_sizes(name, sizes)}
    check_sizes(name, sizes)
    told = {**sizes, **FITS[name](need, sizes)}
    if name in TOPS:
        told["top"] = need.senses.get("top", TOPS[name][kind])
    if need.classes:
        told["classes"] = need.classes
    if dropout is not None:
        told |= dropouts(name, known, dropout, sizes)
    # the fused kernel has no dropout on a CPU: a third of the speed, for little
    if "attention_dropout" in known and "attention_dropout" not in sizes:
        told["attention_dropout"] = 0.0
    return from_plain(architecture(name).Config, folded(name, told))


def check_sizes(name: str, sizes: Sizes) -> None:
    """Refuses sizes below 1, but 0 where that is what an architecture has by itself."""
    for known in fields(architecture(name).Config):
        value: Any = sizes.get(known.name)
        for number in value if isinstance(value, tuple | list) else (value,):
            if type(number) is int and number < (0 if known.default == 0 else 1):
                raise UserError(f"--model.{known.name.replace('_', '-')} {value}", allowed="whole numbers of 1 or more")


def known_sizes(name: str, sizes: Sizes) -> list[str]:
    """The fields of an architecture's config, and those of an encoder that it holds whole."""
    own = [field.name for field in fields(architecture(name).Config)]
    inner = from_plain(architecture(name).Config, {"encoder": sizes["encoder"]}).encoder if "encoder" in sizes else None
    return [*own, *(field.name for field in fields(inner))] if is_dataclass(inner) else own


def folded(name: str, told: Sizes) -> Sizes:
    """Sizes of an encoder that a config holds whole, put into it."""
    own = {field.name for field in fields(architecture(name).Config)}
    encoder: Any = told.get("encoder")
    if is_dataclass(encoder):
        encoder = {"kind": type(encoder).__name__, **to_plain(encoder)}
    if not isinstance(encoder, Mapping):
        return told
    inner = {key: value for key, value in told.items() if key not in own}
    return {**{key: value for key, value in told.items() if key in own}, "encoder": {**encoder, **inner}}
