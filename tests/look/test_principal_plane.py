"""The planes of the embedding map: exact projections of what each site reads."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from headway.errors import UserError
from headway.look.head_edits import HeadEdit
from headway.look.principal_plane import UNITS, PointCloud, plane_to_json, principal_plane, site_planes
from headway.nn.trace import Off
from tests.look.readers import read

MODELS = ["gpt2", "bert", "transformer", "rnn", "vit", "swin", "mvitv2", "captioner, vit", "whisper", "sets"]


@pytest.mark.parametrize("name", MODELS)
def test_planes_are_projections_of_what_sites_read(name: str) -> None:
    recording = read(name)
    planes = site_planes(recording)
    assert planes
    for site, x in recording.site_inputs().items():
        if len(x) < 2:
            continue
        assert len(x) == len(recording.sites[site].rows)
        around = x.double() - x.double().mean(0)
        sizes = torch.linalg.svdvals(around)
        whole = sizes.square().sum()
        points, shares = planes[site]
        assert_close(torch.tensor(shares).double(), (sizes.square() / whole)[:2], atol=1e-6, rtol=1e-6)
        # distances along the plane are never longer than those between the vectors
        near, far = ((x[:, None] - x[None]).norm(dim=-1) for x in (points, around))
        assert bool((near <= far + 1e-9).all())
        _, _, directions = torch.linalg.svd(around, full_matrices=False)
        assert_close(points.abs(), (around @ directions[:2].mT).abs(), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "bert", "vit", "captioner, vit"])
def test_inputs_are_those_of_the_details(name: str) -> None:
    recording = read(name)
    inputs = recording.site_inputs()
    for site, detail in recording.details(*recording.sites).items():
        if detail.x is not None:
            assert_close(inputs[site], detail.x)


def test_an_edited_run_has_planes_of_its_own() -> None:
    recording = read("vit")
    first, second = list(recording.sites)[:2]
    before = recording.site_inputs()
    after = recording.under(HeadEdit(first, 0, Off())).site_inputs()
    assert_close(after[first], before[first])
    assert float((after[second] - before[second]).abs().max()) > 1e-3


def test_coordinates_of_a_page() -> None:
    plane = principal_plane(torch.tensor([[0.0, 0.0], [4.0, 0.0], [2.0, 1.0]]))
    told = plane_to_json(plane)
    found = torch.tensor(told["points"]).double().view(-1, 2) / UNITS * told["reach"]
    assert_close(found, plane.points, atol=told["reach"] / UNITS, rtol=0)


def test_equal_vectors_are_one_point() -> None:
    points, shares = principal_plane(torch.ones(3, 4))
    assert_close(points, torch.zeros(3, 2, dtype=torch.float64))
    assert shares == (0.0, 0.0)


def test_a_cloud_has_two_points_at_least() -> None:
    with pytest.raises(UserError, match="2 or more"):
        PointCloud("x.txt", "samples", ("one",), {})
