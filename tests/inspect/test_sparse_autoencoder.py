"""A dictionary finds the atoms that data is made of, tells more with as many numbers than principal directions do,
and changes a model where, and only where, it is put in.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.inspect import sparse_autoencoder
from headway.inspect.activations import one_site, token_vectors, vector_edit
from headway.inspect.sparse_autoencoder import (
    Penalty,
    SAEConfig,
    SAEStep,
    SAETraining,
    SparseAutoencoder,
    Sparseness,
    Top,
    explained_by_principal,
    load_sae,
    quality,
    resample,
    train_sae,
    usage,
)
from headway.nn.trace import record
from headway.nn.trunk import Trunk
from headway.zoo import gpt2

DIM, TRUE, ACTIVE = 32, 48, 3
WAYS: list[Sparseness] = [Top(ACTIVE), Penalty(0.25)]
BRIEF = SAETraining(steps=800, batch=128, lr=1e-2)


def known_atoms() -> Tensor:
    return F.normalize(torch.randn(TRUE, DIM, generator=torch.Generator().manual_seed(1)), dim=1)


def made_of(atoms: Tensor, count: int, seed: int) -> Tensor:
    """Vectors of a few atoms each, somewhere in space and of some size."""
    random = torch.Generator().manual_seed(seed)
    picks = torch.rand(count, TRUE, generator=random).topk(ACTIVE).indices
    codes = torch.zeros(count, TRUE).scatter(1, picks, 0.5 + torch.rand(count, ACTIVE, generator=random))
    return 7.0 * (codes @ atoms) + 2.0


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: type(way).__name__)
def learned(request: pytest.FixtureRequest) -> tuple[SparseAutoencoder, list[SAEStep]]:
    return train_sae(made_of(known_atoms(), 8000, 2), SAEConfig(DIM, 64, request.param), BRIEF)


@pytest.mark.slow
def test_atoms_that_data_is_made_of_are_found(learned: tuple[SparseAutoencoder, list[SAEStep]]) -> None:
    nearest = (known_atoms() @ learned[0].atoms.mT).max(1).values  # TRUE
    assert (nearest > 0.95).float().mean() > 0.9


@pytest.mark.slow
def test_more_is_told_than_by_as_many_principal_directions(learned: tuple[SparseAutoencoder, list[SAEStep]]) -> None:
    atoms = known_atoms()
    found = quality(learned[0], made_of(atoms, 8000, 2), made_of(atoms, 2000, 3))
    assert found.explained > 0.85
    assert found.explained > found.principal + 0.3
    assert found.components == round(found.active)
    assert found.active < 2.5 * ACTIVE
    assert found.left == 0


@pytest.mark.slow
def test_atoms_have_length_one(learned: tuple[SparseAutoencoder, list[SAEStep]]) -> None:
    assert_close(learned[0].atoms.norm(dim=1), torch.ones(64))


def test_as_many_codes_as_are_wished() -> None:
    codes = torch.tensor([[0.1, 3.0, 0.0, 2.0], [0.0, 0.0, 0.5, 0.0]])
    assert_close(Top(2).sparsify(codes), torch.tensor([[0.0, 3.0, 0.0, 2.0], [0.0, 0.0, 0.5, 0.0]]))
    assert torch.equal(Top(4).sparsify(codes), codes)
    assert torch.equal(Penalty(0.5).sparsify(codes), codes)
    assert Penalty(0.5).cost(codes).item() == pytest.approx(0.5 * (5.1 + 0.5) / 2)


@pytest.mark.slow
def test_a_costlier_penalty_keeps_fewer() -> None:
    data, brief = made_of(known_atoms(), 2000, 2), replace(BRIEF, steps=300)
    cheap, dear = (train_sae(data, SAEConfig(DIM, 64, Penalty(weight)), brief)[0] for weight in (0.03, 0.3))
    assert usage(dear, data).sum() < usage(cheap, data).sum()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=lambda way: type(way).__name__)
def test_a_seed_decides_every_bit(way: Sparseness) -> None:
    data, brief = made_of(known_atoms(), 500, 2), SAETraining(steps=40, batch=64)
    one, two, other = (
        train_sae(data, SAEConfig(DIM, 32, way), replace(brief, seed=seed))[0].state_dict() for seed in (5, 5, 6)
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["atoms"], other["atoms"])


@pytest.mark.slow
def test_dead_atoms_are_revived(monkeypatch: pytest.MonkeyPatch) -> None:
    data, brief = made_of(known_atoms(), 4000, 2), replace(BRIEF, steps=400)
    made, moments = train_sae(data, SAEConfig(DIM, 64, Top(ACTIVE)), brief)
    monkeypatch.setattr(sparse_autoencoder, "resample", lambda *given: None)
    without, _ = train_sae(data, SAEConfig(DIM, 64, Top(ACTIVE)), brief)
    dead, left_dead = (int((usage(one, data) == 0).sum()) for one in (made, without))
    assert dead < left_dead / 2
    assert sum(moment.revived for moment in moments) >= left_dead
    assert moments[-1].revived == 0  # in the end atoms are left in peace


def test_a_revived_atom_is_what_is_missing_and_what_is_remembered_of_it_is_forgotten() -> None:
    data = made_of(known_atoms(), 500, 2)
    made = SparseAutoencoder(SAEConfig(DIM, 8, Top(2)), torch.Generator().manual_seed(0))
    made.fit_to(data)
    inner = made.normalised(data)
    optimiser = torch.optim.Adam(made.parameters())
    (made.decode(made.encode(inner)) - inner).square().sum().backward()
    optimiser.step()
    before = made.atoms.detach().clone()
    missing = F.normalize(inner - made.decode(made.encode(inner)).detach(), dim=1)
    resample(made, torch.tensor([3]), inner, optimiser, torch.Generator().manual_seed(0))
    assert (missing @ made.atoms[3]).max() > 0.9999
    kept = torch.tensor([at for at in range(8) if at != 3])
    assert torch.equal(made.atoms[kept], before[kept])
    remembered = optimiser.state[made.atoms]["exp_avg"]
    assert remembered[3].abs().max() == 0
    assert remembered[kept].abs().max() > 0


@pytest.mark.slow
def test_vectors_many_times_longer_than_others_are_left_alone() -> None:
    data = made_of(known_atoms(), 1000, 2)
    sinks = torch.full((50, DIM), 3000.0)
    made, _ = train_sae(torch.cat([sinks, data]), SAEConfig(DIM, 64, Top(ACTIVE)), replace(BRIEF, steps=200))
    plain, _ = train_sae(data, SAEConfig(DIM, 64, Top(ACTIVE)), replace(BRIEF, steps=200))
    assert torch.equal(made(sinks), sinks)
    assert not torch.equal(made(data), data)
    assert_close(made.centre, plain.centre)
    found = quality(made, data, torch.cat([data[:100], sinks]))
    assert found.left == 50
    assert found.explained == pytest.approx(quality(plain, data, data[:100]).explained, abs=0.1)


def test_principal_directions_of_known_data() -> None:
    """Two of three independent directions with variances 9, 4 and 1."""
    data = torch.randn(4000, 3) * torch.tensor([3.0, 2.0, 1.0]) + 5.0
    assert explained_by_principal(data, data, 1) == pytest.approx(9 / 14, abs=0.03)
    assert explained_by_principal(data, data, 2) == pytest.approx(13 / 14, abs=0.03)
    assert explained_by_principal(data, data, 3) == pytest.approx(1.0)


@pytest.mark.parametrize("way", [Top(3), Penalty(0.2)], ids=str)
def test_a_saved_dictionary_is_the_same_again(tmp_path: Path, way: Sparseness) -> None:
    data = made_of(known_atoms(), 300, 2)
    made, _ = train_sae(data, SAEConfig(DIM, 16, way, "3.out"), SAETraining(steps=5))
    made.save(tmp_path / "atoms")
    again = load_sae(tmp_path / "atoms")
    assert again.config == made.config
    assert torch.equal(again(data), made(data))
    assert {file.name for file in (tmp_path / "atoms").iterdir()} == {"config.json", "model.safetensors"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"headway_dictionary": 9}, "layout 9"),
        ({"headway_dictionary": None}, "no dictionary"),
        ({"atoms": 17}, "not those"),
        ({"atom": 16}, "no field 'atom'"),
    ],
    ids=str,
)
def test_a_folder_of_something_else_is_refused(tmp_path: Path, wrong: dict[str, object], said: str) -> None:
    SparseAutoencoder(SAEConfig(DIM, 16, Top(3))).save(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **wrong}))
    with pytest.raises(UserError, match=said):
        load_sae(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Top(0),
        lambda: Penalty(0.0),
        lambda: Penalty(float("nan")),
        lambda: SAEConfig(8, 4, Top(5)),
        lambda: SAEConfig(8, 0, Penalty()),
        lambda: SAETraining(steps=0),
        lambda: SAETraining(lr=0.0),
        lambda: train_sae(torch.randn(5, 3), SAEConfig(4, 8, Top(2)), SAETraining(steps=1)),
        lambda: train_sae(torch.randn(1, 4), SAEConfig(4, 8, Top(2)), SAETraining(steps=1)),
        lambda: train_sae(torch.ones(9, 4), SAEConfig(4, 8, Top(2)), SAETraining(steps=1)),
        lambda: train_sae(torch.full((9, 4), float("nan")), SAEConfig(4, 8, Top(2)), SAETraining(steps=1)),
    ],
)
def test_what_cannot_be_is_told(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(UserError):
        wrong()


def small() -> Trunk:
    model = gpt2.build(gpt2.Config(vocab=20, context=12, dim=16, layers=2, heads=4, hidden=32)).eval()
    assert isinstance(model, Trunk)
    return model


@pytest.mark.parametrize("site", ["0.out", "0.attn.heads", "0.attn.values", "embed.out"])
@torch.no_grad()
def test_vectors_of_a_site_and_their_change(site: str) -> None:
    """One vector for each token; an edit that changes none changes nothing, and one of a token no earlier one."""
    model, tokens = small(), torch.arange(12).view(2, 6)
    with record(model, site) as trace:
        plain = model(tokens)
    found = token_vectors(site, trace[site])
    assert found.shape == (12, 16)
    with record(model, site, edit={site: vector_edit(site, lambda x: x.clone())}):
        assert torch.equal(model(tokens), plain)
    moved = torch.zeros(12, 1).index_fill(0, torch.tensor([9]), 1.0)  # the fourth token of the second row
    with record(model, site, edit={site: vector_edit(site, lambda x: x + moved)}):
        other = model(tokens)
    differs = (other != plain).any(-1)
    assert differs.tolist() == [[False] * 6, [False] * 3 + [True] * 3]


@torch.no_grad()
def test_heads_of_a_token_stand_side_by_side() -> None:
    model, tokens = small(), torch.arange(6)[None]
    with record(model, "0.attn.heads") as trace:
        model(tokens)
    heads = trace["0.attn.heads"]
    assert isinstance(heads, Tensor)
    assert torch.equal(token_vectors("0.attn.heads", heads)[4], heads[0, :, 4].flatten())


def test_one_site_is_meant() -> None:
    model = small()
    assert one_site(model, "1") == "1.out"
    assert one_site(model, "*.1.out") == "1.out"
    assert one_site(model, "0.attn.h*") == "0.attn.heads"
    with pytest.raises(UserError, match=r"means 3 sites.*0\.out"):
        one_site(model, "*.out")
    with pytest.raises(UserError, match=r"attention weights, which are no vectors"):
        one_site(model, "0.attn.weights")
    with pytest.raises(UserError, match=r"did you mean '1\.out'"):
        one_site(model, "1.uot")
