"""Activations of a model: the vectors of any site, and the mean over each sample's tokens after each layer.

Samples are the lines of a file (texts; or names of images or sounds, for a model of these), the rows of a table, the
files of a folder, or Python values.

Sites of blocks and embeddings hold … C, a vector for each token or cell.  Those of attention values and heads hold
B H T D: the vector of a token is the concatenation of its heads.

Axes:  N samples or vectors   B batch   T tokens   C width   H heads   D head width
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headway.data.idx import image_files
from headway.data.kinds import HEARD, NUMERIC, PICTURED, TEXTUAL, DataKind
from headway.data.order import batched
from headway.data.recognise import recognise
from headway.data.recognise_media import media_inputs
from headway.data.records import Record, as_records, is_paths
from headway.data.splits import place
from headway.data.text_lines import TABLE_SUFFIXES, read_lines, suffix_of
from headway.errors import UserError, counted, listed
from headway.evaluation import EvalData, EvalQuery, Evaluable, recognised
from headway.inspect.presentation import check_counts
from headway.model import Model
from headway.nn.attention import merge, split
from headway.nn.context import Context
from headway.nn.head import MeanPool
from headway.nn.trace import Edit, Seen, matching, record, sites_of
from headway.nn.trunk import Trunk, encoder_of
from headway.tasks.base import Task

FEATURES = "features"  # the input of the head, where layers have no site: of a recurrent encoder
WEIGHTS = "weights"  # of attention: a map, no vectors
BY_HEADS = ("values", "heads")
KINDS = {"texts": TEXTUAL, "images": PICTURED, "sounds": HEARD, "numbers": NUMERIC}  # of data, by what models read

T = TypeVar("T")


def layers_of(model: nn.Module, trunk: Trunk) -> list[str]:
    """The sites of a trunk's layers, by their names in the model: its embedding and all its blocks.

    Of nested blocks, such as the stages of a pyramid, the innermost.
    """
    names = {module: name for name, (module, what) in sites_of(model).items() if what == "out"}
    inside = set(trunk.stack.modules())
    return [
        name
        for module, name in names.items()
        if module is trunk.embed or (module in inside and not names.keys() & set(list(module.modules())[1:]))
    ]


@torch.no_grad()
def pooled_layers(
    model: nn.Module,
    trunk: Trunk,
    inputs: Tensor,
    ctx: Context,
    real: Context | None = None,
    marks: Sequence[Tensor] = (),
) -> dict[str, Tensor]:
    """The mean of each sample's tokens after each layer, N C, by the layers' names.

    `real` has the mask of the tokens to average, where the model reads more than these.  A layer that is called several
    times, because its parameters are shared, has a name for each call: `0.out@2`.
    """
    sites = layers_of(model, trunk)
    with record(model, *sites) as trace:
        features = trunk.features(inputs, ctx, *marks)
    inner, mean, found = trunk.inner(ctx) if real is None else real, MeanPool(), dict[str, Tensor]()
    for site in sites:
        values = trace.all(site)
        for turn, value in enumerate(values):
            assert isinstance(value, Tensor)
            found[site if len(values) == 1 else f"{site}@{turn}"] = mean(value, inner)
    return found if len(found) > 1 else {**found, FEATURES: mean(features, inner)}


def one_site(model: nn.Module, glob: str) -> str:
    """The one site with vectors that a glob matches."""
    names = [name for name in matching(glob, sites_of(model)) if quantity(name) != WEIGHTS]
    if not names:
        allowed = [name for name in sites_of(model) if quantity(name) != WEIGHTS]
        allowed.sort(key=lambda name: quantity(name) != "out")  # whole blocks first
        said, do = f"{glob!r} shows attention weights, which are no vectors", "choose a site such as '*.0.out'"
        raise UserError(said, allowed=listed(allowed), do=do)
    if len(names) > 1:
        raise UserError(f"{glob!r} means {len(names)} sites", allowed=f"one of {listed(names)}")
    return names[0]


def token_vectors(site: str, value: Seen) -> Tensor:
    """A vector for each token, N C, row by row."""
    if not isinstance(value, Tensor) or value.dim() < 2:
        raise UserError(f"{site!r} shows no vectors", do="choose the out of a block")
    return by_token(site, value).flatten(0, -2)


def vector_edit(site: str, change: Callable[[Tensor], Tensor]) -> Edit:
    """An edit of a site by a function of its vectors, N C → N C."""

    def edit(value: Tensor) -> Tensor:
        tokens = by_token(site, value)
        tokens = change(tokens.flatten(0, -2)).view(tokens.shape)
        return split(tokens, value.shape[1]) if quantity(site) in BY_HEADS else tokens

    return edit


def by_token(site: str, value: Tensor) -> Tensor:
    """… C: attention's B H T D becomes B T (H D)."""
    return merge(value) if quantity(site) in BY_HEADS else value


def quantity(site: str) -> str:
    return site.rpartition(".")[2]


@dataclass(frozen=True)
class Samples:
    """`inputs` are texts or files; `kind` is that of their data, or None for lines, which any model may read."""

    inputs: tuple[str, ...]
    kind: DataKind | None
    source: Path

    def __len__(self) -> int:
        return len(self.inputs)


def samples_in(data: str | Path | Iterable[Any], most: int | None = None) -> Samples:
    """The samples of a file or folder, or inputs and records as they are; at most so many of them, always the same."""
    if not isinstance(data, str | Path):
        inputs = [one if isinstance(one, str) else as_records([one])[0].handed[0] for one in data]
        return Samples(tuple(subsample(inputs, str, most)), None, Path("samples"))
    path = Path(data)
    if suffix_of(path) in TABLE_SUFFIXES and not path.is_dir():
        given = recognise([path])
        kept = subsample(recognised(given), lambda record: record.fields[0], most)
        return Samples(tuple(record.handed[0] for record in kept), given.kind, path)
    return Samples(tuple(subsample(lines_in(path), str, most)), None, path)


def lines_in(path: Path) -> list[str]:
    """The images and sounds of a folder, or the images of an IDX file, by names; or the lines of a file."""
    return media_inputs(str(path)) if path.is_dir() or image_files([path])[0] else lines_of(path)


def lines_of(path: Path) -> list[str]:
    """The lines of a file that are not blank."""
    lines = list[str]()
    for line in read_lines(path):
        if line.problem:
            raise UserError(str(line.problem))
        if line.bare.strip():
            lines.append(line.bare)
    if not lines:
        raise UserError(f"{path} is empty", do="give a file with a text, or the name of a file, on each line")
    return lines


def subsample(things: Iterable[T], text: Callable[[T], str], most: int | None) -> list[T]:
    """At most `most` of them, in order.  Chosen by a hash of their texts, since files are often sorted by class."""
    if most is None:
        return list(things)
    check_counts(most=most)
    chosen = nsmallest(most, enumerate(things), key=lambda pair: (place(text(pair[1]), 0), pair[0]))
    return [thing for _, thing in sorted(chosen, key=lambda pair: pair[0])]


@dataclass(frozen=True)
class RecordsQuery(EvalQuery):
    """Records instead of files: they are what the model is for."""

    records: tuple[Record, ...] = ()

    def read(self, kind: DataKind | None) -> EvalData:
        return EvalData(kind or DataKind.TEXTS, counted(len(self.records), "record"), lambda: iter(self.records))

    def fitted(self, model: Evaluable, first: EvalData, named: str) -> tuple[Task, EvalData]:
        return model.task, self.read(model.task.data_kind)


def query_of(data: Any, **query: Any) -> EvalQuery:
    """Data as for `headway.evaluate`: a path or several and what is known about them, or an iterable of records."""
    if isinstance(data, str | Path) or is_paths(data):
        return EvalQuery.of(data, **query)
    return RecordsQuery(records=tuple(as_records(data)))


def inputs_of(samples: Samples, task: Task) -> Sequence[str]:
    """What a model of a task reads of samples; refuses what is of another kind."""
    noun = task.noun
    if noun == "texts" and samples.source.is_dir():
        raise UserError(f"the model reads texts, and {samples.source} is a folder", do="give a file of texts")
    if samples.kind is not None and samples.kind not in KINDS[noun]:
        holds = "texts" if samples.kind in TEXTUAL else f"data for {samples.kind.value}"
        raise UserError(f"the model reads {noun}, and {samples.source} holds {holds}", do=f"give it {noun}")
    if samples.kind is not None or noun == "texts":
        return samples.inputs
    near = (samples.source.parent / name for name in samples.inputs)  # names in a listing may be relative to it
    pairs = zip(samples.inputs, near, strict=True)
    return [task.locate(str(file) if not Path(name).exists() and file.exists() else name) for name, file in pairs]


def layer_means(model: Model, samples: Samples) -> dict[str, Tensor]:
    """The mean over each sample's tokens after each layer, N C, by the layers' names."""
    net, task, inputs = model.model, model.task, inputs_of(samples, model.task)
    sums, counts = dict[str, Tensor](), torch.zeros(len(inputs), 1)
    for rows in batched(task.encoder_rows(net, inputs), task.encoder_batch):
        read = task.encoder_input(net, rows)
        owners = torch.tensor([row.sample for row in rows])
        weights = (torch.ones(len(rows)) if read.counts is None else read.counts.float())[:, None]  # B 1
        counts.index_add_(0, owners, weights)
        called = read.inputs, read.context, read.real, read.marks
        for name, mean in pooled_layers(net, encoder_of(net), *called).items():
            total = sums.setdefault(name, mean.new_zeros(len(inputs), mean.shape[1]))
            total.index_add_(0, owners, mean * weights)
    return {name: total / counts for name, total in sums.items()}
