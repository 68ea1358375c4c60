"""What a trained model looks at, read off a few held-out examples while the fast kernels run as always.

An encoder–decoder shows which pieces of the source it looked at for each piece it wrote; a classifier what its class
token looked at; a language model or a tagger which pieces look at which.

Axes:  B batch   H heads   T queries   S keys
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.app.report.heat import Map, Ribbon
from headway.app.report.pictures import Picture
from headway.data.tokenizer import Tokenizer
from headway.look.words import piece
from headway.nn.attention import Attention, CrossAttention
from headway.nn.context import Context
from headway.nn.head import Classifier, FirstToken, LastToken, main_of
from headway.nn.model import EncoderDecoder, Trunk
from headway.nn.towers import Projection
from headway.nn.trace import Trace, record, sites_of
from headway.ops.reading import Readable
from headway.train.loop import Sample

PIECES = 40  # on each side of a map of alignment
FEW = 24  # pieces in a map of self-attention, of which there are several
LONG = 200  # pieces of a ribbon
HEADS = 3  # that are drawn one by one
SIGHTS = 4  # examples
ALIGNED = (
    "Rows are the pieces that were written, from top to bottom; columns are those of the source, in the order in which "
    "they are read. A bright cell is a piece that the model looked at before it wrote. Weights are the mean over the "
    "heads of {site}, of all layers the most decided one."
)
WITHIN = "Rows are the pieces of a text, columns the pieces that each of them looks at, in the last layer."
READ = "What the token that the class is read from looks at in the last layer, the mean over heads: brightest is most."


@dataclass(frozen=True)
class Sights:
    """Figures, and how they are to be read."""

    how: str = ""
    figures: tuple[Map | Ribbon | Picture, ...] = ()


NOTHING = Sights()


@dataclass(frozen=True)
class Example:
    """A text by its ids; `written` are the ids of what a model wrote for it, after `begin`."""

    read: tuple[int, ...]
    written: tuple[int, ...] = ()
    begin: int = 0
    title: str = ""


@torch.inference_mode()
def alignments(model: EncoderDecoder, examples: Sequence[Example], reader: Tokenizer, writer: Tokenizer) -> Sights:
    """For each example the source (columns) that each written piece (rows) looked at: the mean over a layer's heads.

    The layer is the one whose weights are the most decided, the same for all examples: layers divide the work, and in
    most models one of them aligns.
    """
    sites = attention_sites(model, lambda part: isinstance(part, CrossAttention), "decoder.")
    if not sites or not examples:
        return NOTHING
    found = [written_maps(model, example, sites) for example in examples]
    chosen = min(sites, key=lambda site: sum(float(maps[site].entropy().mean()) for maps in found))
    drawn = (
        mapped(one.title, one.written, one.read, maps[chosen].full()[0].mean(0), PIECES, writer, reader)
        for one, maps in zip(examples, found, strict=True)
    )
    return Sights(ALIGNED.format(site=chosen.removesuffix(".weights")), tuple(drawn))


def written_maps(model: EncoderDecoder, one: Example, sites: Sequence[str]) -> dict[str, Readable]:
    """The maps of the sites, B H T S, where row t is the look before piece t was written."""
    source = torch.tensor([one.read])
    target = torch.tensor([[one.begin, *one.written[:-1]]])
    with record(model, *sites) as trace:
        model(source, target)
    return {site: latest(trace, site) for site in sites}


@torch.inference_mode()
def self_maps(model: Trunk, example: Example, words: Tokenizer) -> Sights:
    """Which pieces of one text look at which, in the last layer: the mean over heads, and a few heads."""
    ids = example.read[:FEW]
    return within(model, torch.tensor([ids]), pieces(words, ids), WITHIN)


@torch.inference_mode()
def within(model: Trunk, inputs: Tensor, names: Sequence[str], how: str) -> Sights:
    """Which parts of one input, by their names, look at which in the last layer."""
    sites = attention_sites(model, lambda part: True, "")
    if not sites:
        return NOTHING
    heads = last_map(model, inputs, sites[-1])  # H T S
    views = [("the mean of all heads", heads.mean(0)), *((f"head {at + 1}", heads[at]) for at in range(len(heads)))]
    some = views[: HEADS + 1] if len(heads) > 1 else views[1:]
    return Sights(how, tuple(Map(name, list(names), list(names), weights.float().tolist()) for name, weights in some))


@torch.inference_mode()
def ribbons(model: Trunk, examples: Sequence[Example], words: Tokenizer) -> Sights:
    """For each text what the token that its class is read from looked at, in the last layer: the mean over heads."""
    sites = attention_sites(model, lambda part: True, "")
    if not sites:
        return NOTHING
    found = list[Ribbon]()
    for one in examples:
        ids = one.read[:LONG]
        row = read_row(model, last_map(model, torch.tensor([ids]), sites[-1]).mean(0))  # S
        found.append(Ribbon(one.title, [piece(words, id) for id in ids], row.tolist()))
    return Sights(READ, tuple(found))


def read_row(model: Trunk, weights: Tensor) -> Tensor:
    """The row of the token that the head reads, or the mean of all rows where it reads all: T S → S"""
    head = main_of(model.head)
    pool = head.pool if isinstance(head, Classifier | Projection) else None
    if isinstance(pool, FirstToken):
        return weights[0]
    return weights[-1] if isinstance(pool, LastToken) else weights.mean(0)


def last_map(model: Trunk, inputs: Tensor, site: str) -> Tensor:
    """H T S of one input."""
    with record(model, site) as trace:
        model.features(inputs, Context())
    return latest(trace, site).full()[0]


def latest(trace: Trace, site: str) -> Readable:
    """What a site showed last; layers that share their parameters show several maps."""
    seen = trace.all(site)[-1]
    assert isinstance(seen, Readable)
    return seen


def attention_sites(model: nn.Module, wanted: Callable[[nn.Module], bool], under: str) -> list[str]:
    """The sites of a model's attention weights, first layer first."""
    return [
        name
        for name, (part, what) in sites_of(model).items()
        if what == "weights" and isinstance(part, Attention) and wanted(part) and name.startswith(under)
    ]


def mapped(
    title: str,
    rows: Sequence[int],
    columns: Sequence[int],
    weights: Tensor,
    most: int,
    down: Tokenizer,
    across: Tokenizer,
) -> Map:
    """A map of pieces, cut to its first `most` rows and columns."""
    cut = weights[:most, :most].float()
    return Map(title, pieces(down, rows[:most]), pieces(across, columns[:most]), cut.tolist())


def pieces(words: Tokenizer, ids: Iterable[int]) -> list[str]:
    return [piece(words, id) for id in ids]


def titled(sample: Sample) -> str:
    told = f"{short(sample.source)} → {short(sample.answer)}"
    return told if sample.answer == sample.wanted else f"{told} (should be {short(sample.wanted)})"


def short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
