"""The workbench: each choice by name makes a model that works, and choices that exclude each other are told."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.context import Context
from headway.nn.state import State
from headway.zoo import workbench
from headway.zoo.choices import CELLS
from headway.zoo.workbench import ARRANGEMENTS, FFNS, MIXERS, NORMS, POSITIONS, Config, build

SMALL = Config(vocab=13, context=16, dim=16, layers=2, heads=4)
T = 9


def choices() -> dict[str, Config]:
    """Every pair of sight and positions, and every other choice by itself."""
    found = {
        f"{sight}, {positions}": replace(SMALL, sight=sight, positions=positions)
        for sight, positions in product(workbench.SIGHTS, POSITIONS)
    }
    for name, table in (("norm", NORMS), ("arrangement", ARRANGEMENTS), ("ffn", FFNS)):
        found |= {f"{name} {choice}": replace(SMALL, **{name: choice}) for choice in table}
    for mixer, sight in product((*CELLS, "convolution"), workbench.SIGHTS):
        found[f"{sight} {mixer}"] = replace(SMALL, mixer=mixer, positions="none", sight=sight)
    found |= {f"window {sight}": replace(SMALL, window=3, sight=sight) for sight in workbench.SIGHTS}
    return found


CHOICES = choices()


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_works_and_learns(name: str) -> None:
    config, tokens = CHOICES[name], torch.randint(13, (2, T))
    model = build(config).eval()
    logits = model(tokens)
    assert logits.shape == (2, T, 13)
    changed = torch.cat([tokens[:, :6], (tokens[:, 6:] + 1) % 13], 1)
    heard = (model(changed)[:, :6] - logits[:, :6]).abs().max()
    assert (heard == 0) == (config.sight == "causal")
    logits.square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("name", [name for name, c in CHOICES.items() if c.sight == "causal"])
def test_a_causal_choice_goes_on_from_a_state(name: str) -> None:
    model, tokens = build(CHOICES[name]).eval(), torch.randint(13, (2, T))
    ctx = Context(state=State())
    steps = [model(part, ctx) for part in tokens.split([4, 1, 4], 1)]
    assert_close(torch.cat(steps, 1), model(tokens), atol=5e-6, rtol=1e-5)


def test_plain_and_gated_layers_weigh_the_same() -> None:
    def weights(ffn: str) -> int:
        blocks = build(Config(dim=96, layers=1, ffn=ffn)).stack.blocks
        return sum(p.numel() for p in blocks[0].ffn.body.parameters() if p.dim() == 2)

    assert weights("relu") == weights("gelu") == weights("swiglu") == weights("geglu") == 8 * 96**2


def test_all_mixers_are_tried() -> None:
    assert {config.mixer for config in CHOICES.values()} == set(MIXERS)


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"norm": "rsm"}, r"no norm 'rsm'; allowed: layer, rms; did you mean 'rms'\?"),
        ({"positions": "rotry"}, r"no positions 'rotry'; .*did you mean 'rotary'\?"),
        ({"ffn": "swiglue"}, r"no ffn 'swiglue'; .*did you mean 'swiglu'\?"),
        ({"mixer": "gru"}, "a recurrent mixer has no use for positions='rotary' and window=None"),
        ({"mixer": "gru", "positions": "none", "window": 4}, "has no use for positions='none' and window=4"),
        ({"ffn": "moe", "experts": 1}, r"MoE\(top=2\) with 1 experts"),
    ],
)
def test_choices_that_cannot_be_are_told(sizes: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        build(replace(SMALL, **sizes))
