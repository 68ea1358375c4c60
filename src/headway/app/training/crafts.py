"""What is done with each kind of data: how it is made ready, what can learn from it, and what is chosen to, by size."""

from __future__ import annotations

from typing import NamedTuple

from headway.app.training import ready as texts
from headway.app.training import ready_described as described
from headway.app.training import ready_media as media
from headway.app.training import ready_nameless as nameless
from headway.app.training.material import Material
from headway.app.training.ready import Make
from headway.data.kinds import Kind
from headway.errors import UserError, listed
from headway.zoo.presets import PRESETS

PAIRED = ("transformer", "rnn", "seq2seq", "t5", "bart", "marian")
READING = ("bert", "albert")
WRITING = ("gpt2", "llama", "mixtral")
SEEING = ("vit", "swin", "swinv2", "mvit", "mvitv2", "resnet", "lrnet", "clip_image")
HIDING = ("mae", "simmim")
COMPARING = ("simclr",)
TELLING = ("captioner", "vit_captioner")
HEARING = ("conformer",)

TRANSLATORS = ("transformer-nano", "transformer-tiny", "transformer-small", "transformer-base")
ENCODERS = ("bert-tiny", "bert-mini", "bert-small", "bert-medium")


class Craft(NamedTuple):
    """`architectures` can learn it; `ladder` are presets, the smallest first, of which one is chosen."""

    ready: Make
    architectures: tuple[str, ...]
    ladder: tuple[str, ...]
    objective: str | None = None  # where data of one kind may be learned from in several ways

    def told(self, kind: Kind) -> str:
        """The task, for a sentence."""
        return f"{kind.value}, {self.objective}" if self.objective else kind.value


CRAFTS: dict[Kind, tuple[Craft, ...]] = {  # the usual way first
    Kind.PAIRS: (Craft(texts.pairs, PAIRED, TRANSLATORS),),
    Kind.LABELS: (Craft(texts.labels, READING, ENCODERS),),
    Kind.TAGS: (Craft(texts.tags, READING, ENCODERS),),
    Kind.TEXTS: (
        Craft(texts.causal, WRITING, ("gpt-nano", "gpt-micro", "gpt-mini", "gpt-baby", "gpt2"), "causal"),
        Craft(texts.masked, READING, ENCODERS, "masked"),
        Craft(texts.spans, PAIRED, ("t5-tiny", "t5-mini", "t5-small"), "span"),
    ),
    Kind.IMAGES: (
        Craft(media.images, SEEING, ("vit-nano", "resnet-nano", "resnet-18", "resnet-50")),
        Craft(nameless.masked, HIDING, ("mae-nano",), "masked"),
        Craft(nameless.contrastive, COMPARING, ("simclr-nano", "simclr-resnet-50"), "contrastive"),
    ),
    Kind.SOUNDS: (Craft(media.sounds, ("conformer",), ("conformer-nano", "conformer-s")),),
    Kind.SPEECH: (
        Craft(media.speech, HEARING, ("conformer-nano", "conformer-s")),
        Craft(described.dictation, HEARING, ("conformer-nano", "conformer-s"), "text"),
    ),
    Kind.CAPTIONS: (
        Craft(described.captions, TELLING, ("captioner-small", "captioner"), "text"),
        Craft(described.matches, ("clip", "image_text"), ("clip-nano", "clip-vit-b32"), "contrastive"),
    ),
    Kind.SERIES: (Craft(media.numbers, ("vectors",), ("vectors-small",)),),
    Kind.SETS: (Craft(media.numbers, ("vectors",), ("vectors-small",)),),
    Kind.FORECAST: (Craft(media.rows, ("forecaster",), ("forecaster-small",)),),
}


def craft_of(data: Material, objective: str | None, architecture: str | None) -> Craft:
    """How data is learned from: as asked, or as an architecture does, or as usual for its kind."""
    kind, ways = data.kind, CRAFTS[data.kind]
    if objective is not None:
        found = next((way for way in ways if way.objective == objective), None)
        if found is None:
            told = [way.objective for way in ways if way.objective]
            raise UserError(
                f"--objective {objective} has no meaning for {kind.value}",
                allowed=listed(told) if told else None,
                do=None if told else "leave it out",
            )
        return found
    return next((way for way in ways if architecture in way.architectures), ways[0])


def check_suited(preset: str, kind: Kind, craft: Craft) -> None:
    if PRESETS[preset].architecture not in craft.architectures:
        names = [name for name, one in PRESETS.items() if one.architecture in craft.architectures]
        raise UserError(f"{preset} cannot learn this task ({craft.told(kind)})", allowed=listed(names, 6))
