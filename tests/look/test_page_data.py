"""Pieces by name, as a server gives them."""

from __future__ import annotations

import pytest

from headway import UserError
from headway.look.bundle import SIDES, pack_bundle
from headway.look.page_data import PageData
from tests.look.read_back import raw, sites_of
from tests.look.recordings import drawn, numbered, site


def test_every_piece_can_be_asked_for() -> None:
    found = pack_bundle([drawn(site("0.attn", numbered(300)), site("1.attn", ("a", "b")))])
    data = PageData(drawn(site("0.attn", numbered(300)), site("1.attn", ("a", "b"))), 0, SIDES[0])
    assert len(found.blobs) > 8
    details = {each["detail"]["blob"]: each["detail"] for each in sites_of(found).values() if each["detail"]}
    for id in found.blobs:
        if id not in details or None not in details[id]["layout"].values():
            assert data.blob(id) == raw(found, id), id


@pytest.mark.parametrize(
    "id", ["", "0", "0.t9", "0.d9", "0.m0", "0.m0.9.0.0.0", "0.m0.0.9.0.0", "0.m0.0.a.0.0.0", "0.x0", "1.t0", "0.t-1"]
)
def test_a_piece_that_is_none_is_told(id: str) -> None:
    data = PageData(drawn(site("0.attn", ("a", "b"))), 0, 256)
    with pytest.raises(UserError, match="there is no blob"):
        data.blob(id)
