"""Laws of sequence models, tried on every subject that claims them.

Axes:  B batch   T tokens   C width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.context import EMPTY, Context, PackedLengths
from headway.nn.moe import MoE
from headway.nn.state import FixedState, State
from headway.nn.trace import Trace, record, sites_of
from headway.nn.trunk import encoder_of
from headway.ops.attention_map import AttentionMap, Readable
from tests.laws.subjects import Subject, Trait, cases, changed, having

LENGTH = 11
close = {"atol": 2e-5, "rtol": 1e-4}


def obeying(*traits: Trait) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("subject", having(*traits), ids=str)


def run(subject: Subject, x: Tensor, ctx: Context = EMPTY, model: nn.Module | None = None) -> Tensor:
    model = subject.build() if model is None else model
    with torch.no_grad():
        return model(x, subject.with_memory(x.shape[0], ctx))


def at(subject: Subject, y: Tensor, tokens: slice | list[int] | Tensor) -> Tensor:
    """The outputs of these tokens; a whole row's, where it has one alone."""
    return y if Trait.OF_ROWS in subject.traits else y[:, tokens]


# ---- causality


@obeying(Trait.CAUSAL)
@pytest.mark.parametrize("cut", [1, 4, LENGTH - 1])
def test_the_future_is_unseen(subject: Subject, cut: int) -> None:
    x, model = subject.sample(3, LENGTH), subject.build()
    other = torch.cat([x[:, :cut], changed(x[:, cut:])], 1)
    # an expert's product has as many rows as tokens chose it, those of the future among them, and rounds by that
    rounds = any(isinstance(part, MoE) for part in model.modules())
    same = {"atol": 1e-6, "rtol": 1e-5} if rounds else {"atol": 0, "rtol": 0}
    assert_close(run(subject, x, model=model)[:, :cut], run(subject, other, model=model)[:, :cut], **same)


@obeying(Trait.CAUSAL)
def test_the_future_gets_no_gradient(subject: Subject) -> None:
    model, x = subject.build(), subject.sample(2, LENGTH)
    inputs = embedded(model, x)
    y = inputs.call(subject.with_memory(2))
    (grad,) = torch.autograd.grad(y[:, 4].square().sum(), inputs.leaf)
    assert grad[:, 5:].eq(0).all()
    assert grad[:, 4].ne(0).any()


class embedded:  # noqa: N801
    """A model's first float values as a leaf that gradients reach: its inputs, or the vectors of its tokens."""

    def __init__(self, model: nn.Module, x: Tensor):
        self.model, self.x = model, x
        self.leaf = (x if x.is_floating_point() else self.words(x)).detach().requires_grad_()

    @property
    def words(self) -> nn.Module:
        return encoder_of(self.model).embed.token  # type: ignore[return-value]

    def call(self, ctx: Context) -> Tensor:
        if self.x.is_floating_point():
            return self.model(self.leaf, ctx)
        hook = self.words.register_forward_hook(lambda *_: self.leaf)
        try:
            return self.model(self.x, ctx)
        finally:
            hook.remove()


# ---- batches


@pytest.mark.slow
@obeying(Trait.PADDED)
@pytest.mark.parametrize("length", [1, 6])
def test_padding_on_the_right_changes_nothing(subject: Subject, length: int) -> None:
    x = subject.sample(3, LENGTH)
    keep = torch.ones(3, 1, LENGTH, dtype=torch.bool)
    keep[1, :, length:] = False
    alone = run_row(subject, x, 1, slice(0, length))
    padded = run(subject, x, Context(keep=keep))
    assert padded.isfinite().all()
    assert_close(at(subject, padded[1:2], slice(length)), alone, **close)
    noise = torch.where(keep[:, 0, :, *[None] * (x.dim() - 2)], x, changed(x))
    assert_close(at(subject, run(subject, noise, Context(keep=keep))[1:2], slice(length)), alone, **close)


@obeying(Trait.PADDED)
@pytest.mark.parametrize("length", [1, 6])
def test_padding_on_the_left_changes_nothing(subject: Subject, length: int) -> None:
    x = subject.sample(3, LENGTH)
    keep = torch.ones(3, 1, LENGTH, dtype=torch.bool)
    keep[1, :, : LENGTH - length] = False
    positions = (keep[:, 0].cumsum(1) - 1).clamp(min=0)
    padded = run(subject, x, Context(keep=keep, positions=positions))
    assert padded.isfinite().all()
    real = slice(LENGTH - length, None)
    assert_close(at(subject, padded[1:2], real), run_row(subject, x, 1, real), **close)


def run_row(subject: Subject, x: Tensor, row: int, part: slice) -> Tensor:
    """One row by itself, with its own row of the batch's memory."""
    ctx = rows_of(subject.with_memory(x.shape[0]), torch.tensor([row]))
    with torch.no_grad():
        return subject.build()(x[row : row + 1, part], ctx)


@obeying()
def test_a_batch_is_its_rows(subject: Subject) -> None:
    x = subject.sample(3, LENGTH)
    rows = [run_row(subject, x, row, slice(None)) for row in range(3)]
    assert_close(run(subject, x), torch.cat(rows), atol=5e-6, rtol=0)


@pytest.mark.slow
@obeying(Trait.PACKED)
@given(lengths=st.lists(st.integers(1, LENGTH), min_size=1, max_size=4))
@cases(15)
def test_packed_is_padded(subject: Subject, lengths: list[int]) -> None:
    rows = PackedLengths.of(lengths)
    x = subject.sample(len(lengths), rows.longest)
    padded = run(subject, x, Context(keep=rows.keep))
    model = subject.build()
    with torch.no_grad():
        packed = model(rows.pack(x), subject.with_memory(len(lengths), Context(rows=rows)))
    assert_close(packed, padded if Trait.OF_ROWS in subject.traits else rows.pack(padded), **close)


# ---- decoding


def chunkings(total: int) -> st.SearchStrategy[list[int]]:
    """Every way to cut a length into pieces."""
    cuts = st.sets(st.integers(1, total - 1), max_size=total - 1)
    return cuts.map(lambda at: [b - a for a, b in zip([0, *sorted(at)], [*sorted(at), total], strict=True)])


STATES: list[Callable[[], State]] = [State, lambda: FixedState(LENGTH), lambda: FixedState(3 * LENGTH)]


@pytest.mark.slow
@obeying(Trait.CACHED)
@given(sizes=chunkings(LENGTH))
@cases(15)
def test_chunks_are_the_whole(subject: Subject, sizes: list[int]) -> None:
    x, model = subject.sample(2, LENGTH), subject.build()
    full = run(subject, x, model=model)
    for make in STATES:
        state = make()
        chunks = [run(subject, chunk, Context(state=state), model) for chunk in x.split(sizes, 1)]
        assert_close(torch.cat(chunks, 1), full, **close)


@pytest.mark.slow
@obeying(Trait.CACHED)
@pytest.mark.parametrize("make", STATES)
def test_padded_prompts_go_on_as_alone(subject: Subject, make: Callable[[], State]) -> None:
    """Left-padded prompts of two lengths, then token by token: each row as it would be by itself."""
    x, model, short = subject.sample(2, LENGTH), subject.build(), 3
    keep = torch.ones(2, 1, LENGTH, dtype=torch.bool)
    keep[1, :, : 6 - short] = False
    positions = (keep[:, 0].cumsum(1) - 1).clamp(min=0)
    state, outs = make(), []
    for first, last in [(0, 6), *((i, i + 1) for i in range(6, LENGTH))]:
        ctx = Context(keep=keep[:, :, :last], positions=positions[:, first:last], state=state)
        outs.append(run(subject, x[:, first:last], ctx, model))
    expected = run_row(subject, x, 1, slice(6 - short, None))
    assert_close(torch.cat(outs, 1)[1:2, 6 - short :], expected, **close)


@obeying(Trait.CACHED)
@pytest.mark.parametrize("make", STATES)
def test_reordered_rows_go_on_as_their_new_selves(subject: Subject, make: Callable[[], State]) -> None:
    x, model, rows = subject.sample(3, LENGTH), subject.build(), torch.tensor([2, 0, 2])
    state, before = make(), subject.with_memory(3)
    after = rows_of(before, rows)
    with torch.no_grad():
        model(x[:, :5], replace(before, state=state))
        state.reorder(rows)
        rest = model(x[rows][:, 5:], replace(after, state=state))
        assert_close(rest, model(x[rows], after)[:, 5:], **close)


@obeying(Trait.REWINDS)
@pytest.mark.parametrize("make", STATES)
@pytest.mark.parametrize("length", [0, 3, 6])
def test_what_is_taken_back_was_never_there(subject: Subject, make: Callable[[], State], length: int) -> None:
    """Some tokens to keep, others that were wrong, then back and on."""
    x, model, state = subject.sample(2, LENGTH), subject.build(), make()
    for chunk in (x[:, :4], x[:, 4:6], changed(x[:, 6:9])):
        run(subject, chunk, Context(state=state), model)
    state.truncate(length)
    chunks = [run(subject, chunk, Context(state=state), model) for chunk in x[:, length:].split(2, 1)]
    assert_close(torch.cat(chunks, 1), run(subject, x, model=model)[:, length:], **close)


@pytest.mark.parametrize("subject", sorted(set(having(Trait.CACHED)) - set(having(Trait.REWINDS)), key=str), ids=str)
def test_what_is_carried_cannot_be_taken_back(subject: Subject) -> None:
    state = State()
    run(subject, subject.sample(2, 4), Context(state=state))
    with pytest.raises(UserError, match="cannot be set back"):
        state.truncate(3)


def rows_of(ctx: Context, rows: Tensor) -> Context:
    """A context with these rows of its memory."""
    if ctx.memory is None or ctx.memory_keep is None:
        return ctx
    return replace(ctx, memory=ctx.memory[rows], memory_keep=ctx.memory_keep[rows])


# torch captures its own recurrent layers only where it is asked to
captured = torch._dynamo.config.patch(allow_rnn=True)


@obeying(Trait.CACHED, Trait.CAPTURED)
@pytest.mark.long
@captured
def test_a_compiled_step_is_the_whole(subject: Subject) -> None:
    """Prompt eagerly, then compiled steps in a fixed state, one graph for all of them, then eagerly again."""
    torch._dynamo.reset()
    x, model, counter = subject.sample(2, LENGTH), subject.build(), CompileCounter()
    step, state = torch.compile(model, backend=counter, fullgraph=True), FixedState(2 * LENGTH)
    outs = [run(subject, x[:, :4], Context(state=state), model)]
    outs += [run(subject, x[:, i : i + 1], Context(state=state), step) for i in range(4, LENGTH - 2)]
    outs += [run(subject, x[:, LENGTH - 2 :], Context(state=state), model)]
    assert_close(torch.cat(outs, 1), run(subject, x, model=model), **close)
    assert counter.frame_count == 1


# one whose step is captured above is captured as a whole in the proofs
WHOLE = [subject for subject in having(Trait.CAPTURED) if Trait.CACHED not in subject.traits]
STEPPING = [pytest.param(subject, marks=pytest.mark.proof) for subject in having(Trait.CACHED, Trait.CAPTURED)]


@pytest.mark.parametrize("subject", [*WHOLE, *STEPPING], ids=str)
@pytest.mark.long
@captured
def test_a_model_is_captured_whole(subject: Subject) -> None:
    torch._dynamo.reset()
    x, model = subject.sample(2, LENGTH), subject.build()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert_close(run(subject, x, model=compiled), run(subject, x, model=model), **close)


# ---- recordings


@obeying(Trait.ATTENDS)
def test_traced_is_untraced(subject: Subject) -> None:
    """Recording everything changes nothing, and the maps are what was used: rows sum to one, per head, or to less."""
    x, model = subject.sample(2, LENGTH), subject.build()
    plain = run(subject, x, model=model)
    with record(model, "*") as trace:
        ambient = run(subject, x, model=model)
    scoped = Trace(model, "*")
    assert_close(ambient, plain, atol=0, rtol=0)
    assert_close(run(subject, x, Context(trace=scoped), model), plain, atol=0, rtol=0)
    assert set(trace.values) == set(scoped.values) == set(sites_of(model))
    maps = [value for values in trace.values.values() for value in values if isinstance(value, Readable)]
    assert maps
    for amap in maps:
        sums = amap.full().sum(-1)
        if isinstance(amap, AttentionMap) and amap.sink is not None:
            assert bool((sums < 1).all())  # the sink has the rest
        else:
            assert_close(sums, torch.ones(amap.shape[:3]))


@obeying(Trait.ATTENDS)
def test_an_identity_edit_changes_nothing(subject: Subject) -> None:
    x, model = subject.sample(2, LENGTH), subject.build()
    plain = run(subject, x, model=model)
    seen = Trace(model, "*.weights")
    run(subject, x, Context(trace=seen), model)
    edited = Trace(model, edit={"*.weights": lambda weights: weights})
    assert_close(run(subject, x, Context(trace=edited), model), plain, **close)
    for name, values in seen.values.items():
        for lazy, used in zip(values, edited.values[name], strict=True):
            assert isinstance(lazy, Readable)
            assert isinstance(used, Readable)
            assert_close(lazy.full(), used.full(), **close)


@pytest.mark.slow
@obeying(Trait.ATTENDS)
def test_an_edit_is_felt(subject: Subject) -> None:
    x, model = subject.sample(2, LENGTH), subject.build()
    site = next(name for name in sites_of(model) if name.endswith("weights"))
    off = Trace(model, edit={site: torch.zeros_like})
    assert (run(subject, x, Context(trace=off), model) - run(subject, x, model=model)).abs().max() > 1e-4


# ---- order


@pytest.mark.slow
@obeying(Trait.ORDERLESS)
@given(order=st.permutations(range(LENGTH)))
def test_without_positions_order_is_carried_along(subject: Subject, order: list[int]) -> None:
    x = subject.sample(2, LENGTH)
    assert_close(run(subject, x[:, order]), run(subject, x)[:, order], **close)


@obeying(Trait.ORDERED)
def test_with_positions_order_matters(subject: Subject) -> None:
    x, order = subject.sample(2, LENGTH), torch.arange(LENGTH).flip(0)
    assert (run(subject, x[:, order]) - at(subject, run(subject, x), order)).abs().max() > 1e-3


@pytest.mark.slow
@obeying(Trait.SHIFTS)
@given(shift=st.integers(1, 40))
@cases(10)
def test_only_differences_of_positions_matter(subject: Subject, shift: int) -> None:
    x = subject.sample(2, LENGTH)
    moved = Context(positions=torch.arange(shift, shift + LENGTH)[None])
    assert_close(run(subject, x, moved), run(subject, x), **close)


# ---- gradients, and the shortest input


@obeying()
@pytest.mark.slow
def test_gradients_are_those_of_finite_differences(subject: Subject) -> None:
    model, x = subject.build().double(), subject.sample(1, 3)
    inputs = embedded(model, x.double() if x.is_floating_point() else x)
    ctx = subject.with_memory(1)
    ctx = ctx if ctx.memory is None else replace(ctx, memory=ctx.memory.double())

    def call(leaf: Tensor) -> Tensor:
        inputs.leaf = leaf
        return inputs.call(ctx)

    assert torch.autograd.gradcheck(call, (inputs.leaf,), fast_mode=True)
    parameters = tuple(model.parameters())

    def of_parameters(*values: Tensor) -> Tensor:
        names = dict(zip((name for name, _ in model.named_parameters()), values, strict=True))
        return torch.func.functional_call(model, names, (inputs.x, ctx))

    assert torch.autograd.gradcheck(of_parameters, parameters, fast_mode=True)


@obeying()
def test_one_token_is_enough(subject: Subject) -> None:
    x = subject.sample(1, 1)
    assert run(subject, x).isfinite().all()
    assert at(subject, run(subject, x), slice(1)).shape[:-1] == ((1,) if Trait.OF_ROWS in subject.traits else (1, 1))
