"""Clouds of points for the explorer: samples of data layer by layer, and the features of a trained dictionary.

Axes:  N samples or tokens   C width   A features
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from headway.data.idx import image_files
from headway.data.kinds import LABELLED, DataKind
from headway.data.text_lines import TABLE_SUFFIXES, suffix_of
from headway.errors import UserError
from headway.figures import printable
from headway.inspect.activations import Samples, by_token, layer_means, one_site, query_of, samples_in, subsample
from headway.inspect.sparse_autoencoder import SparseAutoencoder, load_sae
from headway.look.principal_plane import PointCloud, principal_plane
from headway.look.recording import Recording
from headway.model import Model
from headway.nn.trace import record

MAX_SAMPLES = 1000
MAX_CLASSES = 24  # in colours; a column of more values is no column of classes
MAX_ACTIVE = 16  # features of a token
NAMED_BY = 3  # tokens that a feature is named by
LABEL_CHARACTERS = 120


def sample_cloud(model: Model, data: Path, most: int = MAX_SAMPLES) -> PointCloud:
    """The samples of a file or folder, at most so many: the mean of each one's tokens after each layer."""
    found = labelled_samples(data, most, files=model.task.takes_files)
    layers = {name: principal_plane(x) for name, x in layer_means(model, found.samples).items()}
    labels = tuple(printable(name, LABEL_CHARACTERS) for name in found.names)
    return PointCloud(f"{len(labels)} samples of {data.name}", "samples", labels, layers, found.classes)


class LabelledSamples(NamedTuple):
    """Samples, what a person knows each by, and its class where the data has classes."""

    samples: Samples
    names: tuple[str, ...]
    classes: tuple[str, ...]


def labelled_samples(data: Path, most: int, *, files: bool) -> LabelledSamples:
    """At most so many samples; `files` are known by their names without the folders, which are private in a page."""
    if data.is_dir() or suffix_of(data) in TABLE_SUFFIXES or image_files([data])[0]:
        query = query_of(data)
        found = query.first
        if found.kind is DataKind.PAIRS:  # two columns of texts may be texts and their classes
            found = query.read(DataKind.LABELS)
        if found.kind in LABELLED:
            kept = subsample(found, lambda record: record.fields[0], most)
            classes = tuple(str(record.fields[1]) for record in kept)
            names = tuple(record.name if record.place is None else file_name(record.name) for record in kept)
            samples = Samples(tuple(record.handed[0] for record in kept), found.kind, data)
            return LabelledSamples(samples, names, classes if 2 <= len(set(classes)) <= MAX_CLASSES else ())
    samples = samples_in(data, most)
    names = tuple(file_name(name) if files else name for name in samples.inputs)
    return LabelledSamples(samples, names, ())


def file_name(path: str) -> str:
    """The name of a file and of its folder, which may be its class, or the file that it is one of."""
    return "/".join(Path(path).parts[-2:])


@torch.no_grad()
def feature_cloud(recording: Recording, dictionary: SparseAutoencoder, name: str) -> PointCloud:
    """The features of a dictionary by the directions of their atoms, and which of them each token activates.

    A feature is named by the tokens of this input that activate it most.
    """
    model = recording.run.model
    site = one_site(model, dictionary.config.site)
    with record(model, site) as trace:
        recording.run.call()
    x = by_token(site, torch.cat([each for each in trace.all(site) if isinstance(each, torch.Tensor)], -2)).flatten(
        0, -2
    )
    if x.shape[-1] != dictionary.config.dim:
        said = f"the dictionary {name} is for vectors of width {dictionary.config.dim}, and {site} has {x.shape[-1]}"
        raise UserError(said, do="take a dictionary that was trained on this model")
    axes = [axis for each in recording.sites.values() for axis in (each.rows, each.columns) if len(axis) == len(x)]
    if not axes:
        raise UserError(
            f"{site} has {len(x)} vectors here, and no axis of the page has so many", do="take another site"
        )
    codes = dictionary.codes(x)  # N A
    labels = [f"feature {at}" + named_by(codes[:, at], axes[0].labels) for at in range(codes.shape[1])]
    active = tuple(
        tuple(
            (at, value)
            for value, at in zip(*(each.tolist() for each in row.topk(min(MAX_ACTIVE, len(row)))), strict=True)
            if value > 0
        )
        for row in codes
    )
    plane = principal_plane(dictionary.atoms)
    return PointCloud(f"features of {name}", "features", tuple(labels), {site: plane}, (), axes[0].name, active)


def named_by(codes: torch.Tensor, labels: Sequence[str]) -> str:
    """The tokens that activate a feature most: `: cat, dog`."""
    best = codes.topk(min(NAMED_BY, len(codes)))
    words = [
        printable(labels[at].strip(), 20)
        for code, at in zip(best.values.tolist(), map(int, best.indices), strict=True)
        if code > 0
    ]
    return f": {', '.join(dict.fromkeys(words))}" if words else ""


def clouds_of(model: Model, samples: Path | None, dictionary: Path | None) -> CloudSource:
    """What else a page shows beside its input, for each recording anew where it depends on the input."""
    fixed = [] if samples is None else [sample_cloud(model, samples)]
    return CloudSource(
        fixed, None if dictionary is None else load_sae(dictionary), "" if dictionary is None else dictionary.name
    )


class CloudSource:
    """The clouds of a page, by its first recording."""

    def __init__(self, fixed: Sequence[PointCloud], dictionary: SparseAutoencoder | None, name: str):
        self.fixed, self.dictionary, self.name = fixed, dictionary, name

    def __call__(self, recording: Recording) -> list[PointCloud]:
        features = [] if self.dictionary is None else [feature_cloud(recording, self.dictionary, self.name)]
        return [*self.fixed, *features]
