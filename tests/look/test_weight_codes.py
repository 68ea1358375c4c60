"""Rows of weights as codes: what a page says of them is true, for every kind of row and length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from headway.look.tiles import RowFacts, row_facts
from headway.look.weight_codes import HIDDEN, MIN_DECIMALS, STRONGEST, byte_planes, encode_rows
from headway.ops.attention_map import Weights
from tests.look.read_back import DecodedRows, decode_rows

ROWS = 64


def softmax(logits: Tensor) -> Tensor:
    return (logits - logits.amax(-1, keepdim=True)).exp() / (logits - logits.amax(-1, keepdim=True)).exp().sum(-1, True)


def normal(spread: float) -> Callable[[int], Tensor]:
    def make(keys: int) -> Tensor:
        return softmax(torch.randn(ROWS, keys, generator=torch.Generator().manual_seed(keys)) * spread)

    return make


def sink(keys: int) -> Tensor:
    """Most weight on the first key, and a long flat rest."""
    logits = torch.randn(ROWS, keys, generator=torch.Generator().manual_seed(1))
    logits[:, 0] += 8
    return softmax(logits)


def near(keys: int) -> Tensor:
    """Falls with the distance, as by ALiBi: far weights are 0 in float32."""
    at = torch.linspace(0, keys - 1, ROWS)[:, None]
    return softmax(-0.5 * (at - torch.arange(keys)).abs())


def one_hot(keys: int) -> Tensor:
    return torch.eye(keys)[torch.arange(ROWS) % keys]


def causal(keys: int) -> Tensor:
    """Row r sees r + 1 keys; the rest is hidden."""
    logits = torch.randn(ROWS, keys, generator=torch.Generator().manual_seed(2)) * 2
    hidden = torch.arange(keys) > torch.linspace(0, keys - 1, ROWS).round()[:, None]
    return torch.where(hidden, HIDDEN, softmax(logits.masked_fill(hidden, -torch.inf)))


KINDS: dict[str, Callable[[int], Tensor]] = {
    "uniform": lambda keys: torch.full((ROWS, keys), 1 / keys),
    "flat, as in a vision transformer": normal(0.3),
    "usual": normal(2.0),
    "sharp": normal(6.0),
    "a sink": sink,
    "near": near,
    "one key": one_hot,
    "causal": causal,
}
every_row = pytest.mark.parametrize("kind", KINDS)
every_length = pytest.mark.parametrize("keys", [16, 50, 128, 577, 4096])


def both(kind: str, keys: int, strongest: int = STRONGEST) -> tuple[np.ndarray, DecodedRows]:
    exact = KINDS[kind](keys)
    return exact.double().numpy(), decode_rows(encode_rows(exact[None], strongest))


@every_row
@every_length
def test_shown_rows_sum_to_one(kind: str, keys: int) -> None:
    _, shown = both(kind, keys)
    assert np.abs(shown.balanced().sum(-1) - 1).max() <= 0.01


@every_row
@every_length
@pytest.mark.parametrize("strongest", [STRONGEST, 10**9])
def test_every_digit_is_right_and_every_bound_holds(kind: str, keys: int, strongest: int) -> None:
    exact, shown = both(kind, keys, strongest)
    exact = np.where(exact < 0, np.nan, exact)
    assert (shown.decimals >= MIN_DECIMALS).all()
    unit = 10.0 ** -shown.decimals.astype(float)[:, None]
    numbers = np.round(shown.balanced() / unit) * unit  # as it is written
    off = np.where(shown.rounded, np.abs(numbers - exact), 0)
    assert (off <= unit / 2 * (1 + 1e-6)).all()
    assert off.max() <= 0.0005 * (1 + 1e-6)
    bounded = shown.limits > 0
    assert (exact[bounded] <= shown.limits[bounded] * (1 + 1e-9)).all()
    assert (shown.balanced()[bounded] <= shown.limits[bounded]).all()
    if strongest > keys:
        assert not bounded.any()


@every_row
@every_length
def test_the_strongest_keys_are_rounded_and_in_order(kind: str, keys: int) -> None:
    exact, shown = both(kind, keys)
    order = np.argsort(-exact, -1, kind="stable")
    found, right, told = shown.balanced(), 0, 0
    for row, best in enumerate(order):
        assert shown.rounded[row, best[: min(STRONGEST, keys)]][exact[row, best[: min(STRONGEST, keys)]] > 0].all()
        if exact[row, best[0]] - exact[row, best[1]] > 10.0 ** -float(shown.decimals[row]):
            told, right = told + 1, right + int(found[row].argmax() == best[0])
    assert right >= 0.999 * told


@every_row
@every_length
def test_entropy_and_strongest_key_are_those_of_the_exact_weights(kind: str, keys: int) -> None:
    exact = KINDS[kind](keys).clamp(min=0)
    facts: RowFacts = row_facts(Weights(exact[None, None]))
    raw = np.frombuffer(facts.entropy_bytes(), np.uint8).reshape(2, -1).T.copy().view(np.float16)[:, 0]
    wide = exact.double().numpy()
    expected = -(wide * np.log(np.maximum(wide, 1e-300))).sum(-1)
    assert np.abs(raw.astype(float) - expected).max() <= 0.01
    assert facts.weights[0].equal(exact.amax(-1))
    assert facts.peak[0] == exact.max()


@every_length
def test_hidden_keys_and_no_others_are_hidden(keys: int) -> None:
    exact, shown = both("causal", keys)
    assert (np.isnan(shown.weights) == (exact < 0)).all()
    for kind in KINDS.keys() - {"causal"}:
        assert not np.isnan(both(kind, keys)[1].weights).any()  # weights of 0 too can be seen


def test_flat_rows_have_finer_steps() -> None:
    """Weights of 1/577 that differ by a fifth must not look the same."""
    row = torch.full((1, 1, 577), 1 / 577)
    row[..., :12] *= 1.2
    shown = decode_rows(encode_rows(row / row.sum(), STRONGEST))
    assert shown.weights[0, 0] == pytest.approx(1.2 * shown.balanced()[0, 100], rel=0.02)


def test_a_literal_row() -> None:
    found = encode_rows(torch.tensor([[[0.5896, 0.4, 0.0100, 0.0003, 0.0001, HIDDEN]]]), 2)
    assert (found.decimals.tolist(), found.floors.tolist()) == ([[3]], [[400]])
    assert found.codes.tolist() == [
        [[5 + 190, 5, 3, 1, 1, 0]]
    ]  # 10 of 400.5 units: below 400.5 / 801^(1/3), in class 2


def test_what_is_no_weight_breaks_nothing() -> None:
    found = encode_rows(torch.tensor([[[torch.nan, 1.1, torch.inf, 0.0]]]), STRONGEST)
    assert decode_rows(found).balanced()[0].tolist() == pytest.approx([0, 1, 1, 0], abs=1e-3)


def test_planes_are_low_bytes_first() -> None:
    assert byte_planes(np.array([[0x0102, 0x0304]], np.uint16)) == bytes([2, 4, 1, 3])
