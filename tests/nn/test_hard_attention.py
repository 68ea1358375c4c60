"""Hard attention, its draws and what it shows; the gate on what is seen; the words' output.

Axes:  B batch   T steps   S places   H hidden width   M width of memory
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.context import Context
from headway.nn.hard_attention import ArgmaxChoice, DeepOutput, Gated, HardAlignment, SampledChoice
from headway.nn.recurrent import LSTMCell
from headway.nn.recurrent_attention import Alignment, RecurrentDecoder
from headway.nn.trace import Trace
from headway.ops.attention_map import Readable
from headway.ops.losses import Baseline, reinforce

B, T, S, C, H, M = 3, 4, 6, 5, 7, 8


def decoder(kind: type[Alignment] = HardAlignment) -> RecurrentDecoder:
    torch.manual_seed(2)
    attention = Gated(kind.additive(H, M, 5), H)
    readout = DeepOutput(C, H, M)
    return RecurrentDecoder(C, H, M, attention=attention, cell=LSTMCell, readout=readout).eval()


def seen(part: RecurrentDecoder, seed: int = 0, times: int = 1) -> dict[str, Tensor]:
    """What each site of the attention shows, as tensors, where each row comes so many times."""
    draw = torch.Generator().manual_seed(1)
    memory, x = torch.randn(B, S, M, generator=draw), torch.randn(B, T, C, generator=draw)
    ctx = Context(memory=memory.repeat(times, 1, 1), trace=Trace(part, "*"))
    torch.manual_seed(seed)
    out = part(x.repeat(times, 1, 1), ctx)
    assert ctx.trace is not None
    found = {name.rpartition(".")[2]: ctx.trace[name] for name in ctx.trace.values}
    return {"out": out} | {name: x.full() if isinstance(x, Readable) else x for name, x in found.items()}


# ---- choices


def test_the_likeliest_place_has_all() -> None:
    weights = torch.tensor([[[[0.2, 0.5, 0.3], [0.9, 0.0, 0.1], [0.0, 0.0, 0.0]]]])
    assert ArgmaxChoice()(weights).tolist() == [[[[0, 1, 0], [1, 0, 0], [0, 0, 0]]]]  # no weight at all: no place


def test_draws_are_as_likely_as_the_weights() -> None:
    weights = torch.tensor([0.1, 0.0, 0.6, 0.3])
    drawn = SampledChoice()(weights.expand(1, 1, 5000, 4))
    assert drawn.sum(-1).eq(1).all()
    assert_close(drawn.mean((0, 1, 2)), weights, atol=0.03, rtol=0)
    assert drawn[..., 1].sum() == 0


def test_a_share_of_the_draws_is_left_out() -> None:
    weights = torch.tensor([0.25, 0.75])
    drawn = SampledChoice(expected=0.3)(weights.expand(1, 1, 5000, 2))
    soft = (drawn == weights).all(-1).float().mean()
    assert float(soft) == pytest.approx(0.3, abs=0.03)
    assert_close(drawn.mean((0, 1, 2)), weights, atol=0.03, rtol=0)


def test_no_share_above_all() -> None:
    with pytest.raises(UserError, match="SampledChoice\\(expected=1\\)"):
        SampledChoice(expected=1.0)


# ---- hard attention


def test_it_looks_at_one_place_and_says_which() -> None:
    found = seen(decoder())
    assert_close(found["weights"].sum(-1), torch.ones(B, 1, T))
    assert found["chosen"].sum(-1).eq(1).all()
    assert found["chosen"].argmax(-1).equal(found["weights"].argmax(-1))
    assert_close(found["heads"], found["chosen"] @ found["values"])


@pytest.mark.parametrize("training", [False, True])
def test_what_training_needs_is_told(training: bool) -> None:
    part = decoder().train(training)
    found = seen(part)
    logs = found["weights"].log()
    assert_close(found["log_chance"], (found["chosen"] * logs).sum(-1)[:, 0])
    assert_close(found["entropy"], -(found["weights"] * logs).sum(-1)[:, 0])


@pytest.mark.slow
def test_draws_follow_torchs_seed_and_nothing_else() -> None:
    part = decoder().train()
    part.attention.body.learns = SampledChoice()  # type: ignore[attr-defined]
    again, other = seen(part, seed=5), [seen(part, seed=seed) for seed in range(8)]
    assert all(torch.equal(again[name], x) for name, x in seen(part, seed=5).items())
    assert len({tuple(found["chosen"].argmax(-1).flatten().tolist()) for found in other}) > 1
    part.eval()
    assert all(torch.equal(x, seen(part, seed=9)[name]) for name, x in seen(part, seed=5).items())
    part.attention.body.tells = SampledChoice()  # type: ignore[attr-defined]
    assert len({tuple(seen(part, seed=seed)["chosen"].argmax(-1).flatten().tolist()) for seed in range(8)}) > 1


def test_no_gradient_passes_a_choice_but_the_chance_has_one() -> None:
    part = decoder().train()
    score = part.attention.body.score.v  # type: ignore[attr-defined]
    found = seen(part)
    assert torch.autograd.grad(found["out"].sum(), score, allow_unused=True, retain_graph=True) == (None,)
    (grad,) = torch.autograd.grad(found["log_chance"].sum(), score)
    assert grad.abs().max() > 0
    soft = seen(decoder(Alignment))
    assert "chosen" not in soft


@pytest.mark.slow
def test_drawn_contexts_are_soft_ones_on_average() -> None:
    """What hard attention sees in the first step, over many draws, is what soft attention sees."""
    hard, soft = decoder().train(), decoder(Alignment)
    soft.load_state_dict(hard.state_dict())
    hard.attention.body.learns = SampledChoice()  # type: ignore[attr-defined]
    first = seen(hard, times=4000)["heads"][:, 0, 0].unflatten(0, (-1, B)).mean(0)  # B M
    assert_close(first, seen(soft)["heads"][:, 0, 0], atol=0.08, rtol=0)


PLACES, KINDS = 9, 3


def marked(rows: int, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Memories of nine places, each of some kind, one of which is marked; the marked place, and its kind."""
    kinds, at = torch.randint(KINDS, (rows, PLACES), generator=draw), torch.randint(PLACES, (rows,), generator=draw)
    mark = F.one_hot(at, PLACES)[..., None]
    return torch.cat([F.one_hot(kinds, KINDS), mark], -1).float(), at, kinds[torch.arange(rows), at]


@pytest.mark.slow
@pytest.mark.parametrize(("reward", "least", "most"), [(1.0, 0.95, 1.0), (0.1, 0.95, 1.0), (0.0, 0.0, 0.6)])
def test_where_to_look_is_learned_by_trial_and_not_without(reward: float, least: float, most: float) -> None:
    """To say the kind of the marked place it has to look there, and only REINFORCE can teach it that."""
    torch.manual_seed(0)
    draw, begin = torch.Generator().manual_seed(0), torch.zeros(32, 1, 4)
    look = HardAlignment.additive(16, KINDS + 1, 8)
    part = RecurrentDecoder(4, 16, KINDS + 1, attention=Gated(look, 16), readout=DeepOutput(4, 16, KINDS + 1))
    part.first.weight.data.zero_()  # or else it would begin with the mean of all places
    head = nn.Linear(4, KINDS)
    learned = [p for p in (*part.parameters(), *head.parameters()) if p is not part.first.weight]
    optimiser, baseline = torch.optim.Adam(learned, 1e-2), Baseline()
    for _ in range(250):
        memory, at, kind = marked(32, draw)
        trace = Trace(part, "attention.log_chance", "attention.entropy")
        losses = F.cross_entropy(head(part(begin, Context(memory=memory, trace=trace)))[:, 0], kind, reduction="none")
        chance, entropy = (trace[f"attention.{what}"].sum(1) for what in ("log_chance", "entropy"))
        drawn, baseline = reinforce(-losses, chance, entropy, baseline, reward=reward)
        optimiser.zero_grad()
        ((losses.sum() + drawn) / 32).backward()
        optimiser.step()
    memory, at, kind = marked(32, torch.Generator().manual_seed(9))
    trace = Trace(part.eval(), "attention.chosen")
    part(begin, Context(memory=memory, trace=trace))
    found = trace.joined("attention.chosen").full().argmax(-1)[:, 0, 0] == at
    assert least <= float(found.float().mean()) <= most


# ---- gate and output


def test_the_gate_is_between_nothing_and_all() -> None:
    part = decoder(Alignment)
    gate = part.attention.gate  # type: ignore[attr-defined]
    found = seen(part)
    assert found["gate"].shape == (B, T)
    assert ((found["gate"] > 0) & (found["gate"] < 1)).all()
    nn.init.zeros_(gate.weight)
    nn.init.constant_(gate.bias, -30.0)  # shut: the memory tells only how to begin
    shut = seen(part)
    ctx = Context(memory=torch.zeros(B, S, M))
    nn.init.zeros_(part.first.weight)
    draw = torch.Generator().manual_seed(1)
    torch.randn(B, S, M, generator=draw)
    assert_close(seen(part)["out"], part(torch.randn(B, T, C, generator=draw), ctx))
    assert not torch.equal(shut["out"], found["out"])


def test_an_edit_of_the_gate_is_felt() -> None:
    part = decoder(Alignment)
    memory, x = torch.randn(B, S, M), torch.randn(B, T, C)
    closed = Trace(part, edit={"attention.gate": torch.zeros_like})
    assert (part(x, Context(memory=memory, trace=closed)) - part(x, Context(memory=memory))).abs().max() > 1e-3


def test_the_deep_output_by_hand() -> None:
    out = DeepOutput(2, 1, 1)
    out.state.weight.data, out.state.bias.data = torch.tensor([[1.0], [2.0]]), torch.tensor([0.5, 0.0])
    out.context.weight.data = torch.tensor([[10.0], [20.0]])
    assert out(torch.tensor([3.0]), torch.tensor([0.1]), torch.tensor([100.0, 200.0])).tolist() == [104.5, 208.0]
