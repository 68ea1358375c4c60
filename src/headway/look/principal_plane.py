"""Vectors in two dimensions, by their first two principal components: tokens as a site reads them, or other things.

Axes:  N vectors   C width
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headway.errors import UserError
from headway.look.recording import Recording
from headway.look.run_data import Json, json_number
from headway.ops.principal_components import principal_directions

UNITS = 9999  # of a coordinate in a page, from the middle to the farthest point
MAX_SIDE = 2048  # of the matrix that is decomposed: its cost grows with the third power
MAX_ROWS = 8192  # of a map: each is two numbers of the page


class Plane(NamedTuple):
    """Vectors projected on their first two principal components, and the share of their variance along each."""

    points: Tensor  # N 2
    shares: tuple[float, float]


@dataclass(frozen=True, eq=False)
class PointCloud:
    """Vectors of other things than this input's tokens, with one plane for each of their `layers`.

    `classes` colour them, where they have some; `active` are, for each token of the input, those that it activates and
    how strongly.
    """

    title: str
    noun: str
    labels: tuple[str, ...]
    layers: Mapping[str, Plane]
    classes: tuple[str, ...] = ()
    axis: str = ""  # of the tokens that activate them
    active: tuple[tuple[tuple[int, float], ...], ...] = ()

    def __post_init__(self) -> None:
        if len(self.labels) < 2:
            raise UserError(f"{len(self.labels)} {self.noun} in {self.title}", allowed="2 or more for a map")


@torch.no_grad()
def principal_plane(x: Tensor) -> Plane:
    """N C → N 2.  Along a direction in which nothing varies, all are 0."""
    x = x.detach().double().cpu()
    around = x - x.mean(0)
    whole = float(around.square().sum())
    points = around.new_zeros(len(x), 2)
    if whole > 0:
        found = around @ principal_directions(around, 2)
        points[:, : found.shape[1]] = found
    along = points.square().sum(0)
    first, second = (along / whole if whole > 0 else along).tolist()
    return Plane(points, (first, second))


def site_planes(recording: Recording) -> dict[str, Plane]:
    """What the queries of each site are made of, as a plane."""
    return {
        name: principal_plane(x)
        for name, x in recording.site_inputs().items()
        if 2 <= len(x) <= MAX_ROWS and min(x.shape) <= MAX_SIDE and bool(x.isfinite().all())
    }


def plane_to_json(plane: Plane) -> Json:
    """Points in units of their farthest coordinate, `reach`."""
    reach = float(plane.points.abs().max()) or 1.0
    points = (plane.points * (UNITS / reach)).round().int().flatten().tolist()
    return {"points": points, "reach": json_number(reach), "shares": [json_number(share) for share in plane.shares]}


def cloud_to_json(cloud: PointCloud) -> Json:
    return {
        "title": cloud.title,
        "noun": cloud.noun,
        "labels": list(cloud.labels),
        "classes": list(cloud.classes),
        "axis": cloud.axis,
        "active": [[[at, json_number(code)] for at, code in token] for token in cloud.active],
        "layers": [{"name": name, **plane_to_json(plane)} for name, plane in cloud.layers.items()],
    }


def clouds_to_json(clouds: Sequence[PointCloud]) -> list[Json]:
    return [cloud_to_json(cloud) for cloud in clouds]
