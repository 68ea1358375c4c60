"""Pieces by name, as a server gives them."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from headway import UserError
from headway.look.bundle import ALL, SIDES, pack_bundle
from headway.look.page_data import PageData, opening_row
from tests.look.read_back import raw, sites_of
from tests.look.readers import loaded, read
from tests.look.recordings import drawn, numbered, site


@pytest.mark.slow
def test_every_piece_can_be_asked_for() -> None:
    found = pack_bundle([drawn(site("0.attn", numbered(300)), site("1.attn", ("a", "b")))])
    data = PageData(drawn(site("0.attn", numbered(300)), site("1.attn", ("a", "b"))), 0, SIDES[0], ALL)
    assert len(found.blobs) > 8
    details = {each["detail"]["blob"]: each["detail"] for each in sites_of(found).values() if each["detail"]}
    for id in found.blobs:
        if id not in details or None not in details[id]["layout"].values():
            assert data.blob(id) == raw(found, id), id


def test_the_exact_weights_of_a_query_can_be_asked_for() -> None:
    """All heads of one query, float32; NaN where a key is hidden."""
    recording = loaded("gpt2").attend("the cat")
    data, weights = PageData(recording, 0, 256), recording["0.attn"].full()[0]
    for row in range(weights.shape[1]):
        found = torch.frombuffer(bytearray(data.blob(f"0.r0.{row}")), dtype=torch.float32).view(len(weights), -1)
        assert_close(found.nan_to_num(0), weights[:, row])
        assert found.isnan().equal((torch.arange(weights.shape[2]) > row).expand_as(found))
    for row in ("-1", str(weights.shape[1]), "x", ""):
        with pytest.raises(UserError, match=f"0.attn has no row {row}"):
            data.blob(f"0.r0.{row}")


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("text classes", 0),  # [CLS]
        ("vit", 0),
        ("clip", 0),
        ("text vectors", 1),  # all tokens decide: the first that is not special
        ("vit, mean", 0),
        ("gpt2", None),  # the steps of the outcome say it
        ("captioner, vit", None),
    ],
)
def test_a_page_opens_with_the_row_that_decides(name: str, row: int | None) -> None:
    recording = read(name)
    last = list(recording.sites.values())[-1]
    assert opening_row(recording, last) == row


@pytest.mark.parametrize(
    "id", ["", "0", "0.t9", "0.d9", "0.m0", "0.m0.9.0.0.0", "0.m0.0.9.0.0", "0.m0.0.a.0.0.0", "0.x0", "1.t0", "0.t-1"]
)
def test_a_piece_that_is_none_is_told(id: str) -> None:
    data = PageData(drawn(site("0.attn", ("a", "b"))), 0, 256)
    with pytest.raises(UserError, match="there is no blob"):
        data.blob(id)
