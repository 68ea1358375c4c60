"""Recurrent parts: equal to torch's where torch has them, and lawful in batches, chunks and recordings.

Axes:  B batch   T steps   S memory   C width of inputs   M width of memory   H hidden width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.context import EMPTY, Context, PackedLengths
from headway.nn.head import AttentionPool, FirstToken, LastToken, MeanPool
from headway.nn.recurrent import BidirectionalEncoder, Cell, GRUCell, LSTMCell, RecurrentEncoder, RNNCell
from headway.nn.recurrent_attention import (
    Alignment,
    FirstBackward,
    FixedContext,
    Maxout,
    RecurrentDecoder,
    state_and_input,
)
from headway.nn.state import FixedState, State
from headway.nn.trace import Trace, record, sites_of
from headway.ops.attention_map import Readable, Weights

C, H, M, T, S = 5, 6, 8, 9, 7
close = {"atol": 5e-6, "rtol": 1e-5}

CELLS: dict[type[Cell], type[nn.RNNCellBase]] = {RNNCell: nn.RNNCell, LSTMCell: nn.LSTMCell, GRUCell: nn.GRUCell}
ENCODERS: dict[str, Callable[[], RecurrentEncoder]] = {
    "rnn": lambda: RecurrentEncoder(C, H, cell=RNNCell),
    "lstm": lambda: RecurrentEncoder(C, H, cell=LSTMCell, layers=2),
    "gru": lambda: RecurrentEncoder(C, H, layers=2),
    "both ways rnn": lambda: BidirectionalEncoder(C, H, cell=RNNCell),
    "both ways lstm": lambda: BidirectionalEncoder(C, H, cell=LSTMCell),
    "both ways gru": lambda: BidirectionalEncoder(C, H, layers=2),
}
ONE_WAY = ["rnn", "lstm", "gru"]


def search() -> RecurrentDecoder:
    """RNNsearch as in the paper."""
    alignment = Alignment.additive(H, M, 4)
    readout = Maxout(C, H, M, 3)
    return RecurrentDecoder(C, H, M, attention=alignment, pool=FirstBackward(), pool_dim=M // 2, readout=readout)


DECODERS: dict[str, Callable[[], RecurrentDecoder]] = {
    "search": search,
    "aligned lstm": lambda: RecurrentDecoder(C, H, M, attention=Alignment.additive(H, M, 4), cell=LSTMCell),
    "aligned rnn": lambda: RecurrentDecoder(C, H, M, attention=Alignment.dot(H, M), cell=RNNCell, pool=FirstToken()),
    "dot": lambda: RecurrentDecoder(C, M, M, attention=Alignment.dot(M, M), pool=LastToken()),
    "bilinear": lambda: RecurrentDecoder(C, H, M, attention=Alignment.bilinear(H, M), pool=AttentionPool(M, 2)),
    "input fed": lambda: RecurrentDecoder(C, H, M, attention=Alignment.additive(H + C, M, 4), query=state_and_input),
    "fixed": lambda: RecurrentDecoder(C, H, M, attention=FixedContext()),
    "fixed mean": lambda: RecurrentDecoder(C, H, M, attention=FixedContext(MeanPool()), cell=LSTMCell),
}
ATTENDING = ["search", "aligned lstm", "aligned rnn", "dot", "bilinear", "input fed"]

encoders = pytest.mark.parametrize("name", ENCODERS)
every = pytest.mark.parametrize("name", [*ENCODERS, *DECODERS])
decoders = pytest.mark.parametrize("name", DECODERS)
attending = pytest.mark.parametrize("name", ATTENDING)


def built(name: str) -> nn.Module:
    torch.manual_seed(1)
    return (ENCODERS.get(name) or DECODERS[name])().eval()


def inputs(batch: int = 3, length: int = T) -> Tensor:
    return torch.randn(batch, length, C, generator=torch.Generator().manual_seed(2))


def remembering(batch: int = 3) -> Context:
    """Memories of 7, 4 and 1 states, padded."""
    keep = torch.arange(S) < torch.tensor([7, 4, 1])[:batch, None]
    return Context(
        memory=torch.randn(batch, S, M, generator=torch.Generator().manual_seed(3)), memory_keep=keep[:, None]
    )


def given_memory(name: str, batch: int = 3) -> Context:
    return remembering(batch) if name in DECODERS else EMPTY


def row(ctx: Context, index: int) -> Context:
    if ctx.memory is None or ctx.memory_keep is None:
        return ctx
    part = slice(index, index + 1)
    return replace(ctx, memory=ctx.memory[part], memory_keep=ctx.memory_keep[part])


def chunkings(total: int) -> st.SearchStrategy[list[int]]:
    cuts = st.sets(st.integers(1, total - 1), max_size=total - 1)
    return cuts.map(lambda at: [b - a for a, b in zip([0, *sorted(at)], [*sorted(at), total], strict=True)])


STATES: list[Callable[[], State]] = [State, lambda: FixedState(T), lambda: FixedState(4 * T)]


# ---- equal to torch's


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("context", [0, 4])
def test_a_cell_is_torchs(cell: type[Cell], context: int) -> None:
    ours, theirs = cell(C, H, context=context), CELLS[cell](C + context, H)  # type: ignore[call-arg]
    theirs.load_state_dict(ours.state_dict())
    x, c = torch.randn(3, T, C), torch.randn(3, T, context)
    hidden = tuple(torch.randn(3, H) for _ in range(cell.parts))
    expected = hidden if cell.parts > 1 else hidden[0]
    for t, gates in enumerate(ours.inputs(x).unbind(1)):
        hidden = ours.step(gates + c[:, t] @ ours.context_weight.T, hidden)
        expected = theirs(torch.cat([x[:, t], c[:, t]], -1), expected)
    assert_close(hidden if cell.parts > 1 else hidden[0], expected)


@pytest.mark.parametrize("cell", CELLS)
def test_an_encoder_is_its_cell_step_by_step(cell: type[Cell]) -> None:
    encoder, unit, x = RecurrentEncoder(C, H, cell=cell), cell(C, H), inputs()
    weights = {name.removesuffix("_l0"): value for name, value in encoder.rnn.state_dict().items()}
    unit.load_state_dict(weights)
    hidden, states = (torch.zeros(3, H),) * cell.parts, list[Tensor]()
    for gates in unit.inputs(x).unbind(1):
        hidden = unit.step(gates, hidden)
        states.append(hidden[0])
    assert_close(encoder(x), torch.stack(states, 1), **close)


def test_both_ways_is_one_way_from_each_end() -> None:
    both, x = BidirectionalEncoder(C, H), inputs()
    there, back = RecurrentEncoder(C, H), RecurrentEncoder(C, H)
    weights = both.rnn.state_dict()
    there.rnn.load_state_dict({name: weights[name] for name in there.rnn.state_dict()})
    back.rnn.load_state_dict({name: weights[f"{name}_reverse"] for name in back.rnn.state_dict()})
    assert_close(both(x), torch.cat([there(x), back(x.flip(1)).flip(1)], -1), **close)


def test_a_decoder_is_the_loop_of_the_paper() -> None:
    decoder, x, ctx = search(), inputs(1), row(remembering(), 0)
    assert ctx.memory is not None
    cell = nn.GRUCell(C + M, H)
    cell.load_state_dict(decoder.cell.state_dict())
    s, outs = torch.tanh(decoder.first(ctx.memory[:, 0, M // 2 :])), list[Tensor]()
    for y in x.unbind(1):
        c = decoder.attention(s[:, None], ctx)[:, 0]  # type: ignore[operator]
        s = cell(torch.cat([y, c], -1), s)
        outs.append(decoder.readout(s, c, y))
    assert_close(decoder(x, ctx), torch.stack(outs, 1), **close)


def test_maxout_by_hand() -> None:
    part = Maxout(1, 1, 1, 2)
    for layer in (part.state, part.context, part.input):
        nn.init.zeros_(layer.weight)
    part.state.bias.data = torch.tensor([1.0, 3.0, 2.0, -1.0])
    one = torch.ones(1)
    assert part(one, one, one).tolist() == [3.0, 2.0]


# ---- batches


@every
def test_a_batch_is_its_rows(name: str) -> None:
    part, x, ctx = built(name), inputs(), given_memory(name)
    rows = [part(x[i : i + 1], row(ctx, i)) for i in range(3)]
    assert_close(part(x, ctx), torch.cat(rows), atol=5e-6, rtol=0)


@every
@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("left", [0, 1, 3])
def test_padding_on_either_side_changes_nothing(name: str, length: int, left: int) -> None:
    part, x, ctx = built(name), inputs(), given_memory(name)
    keep = torch.ones(3, 1, T, dtype=torch.bool)
    keep[1, :, :left] = keep[1, :, left + length :] = False
    here = slice(left, left + length)
    y = part(x, replace(ctx, keep=keep))
    assert_close(y[1:2, here], part(x[1:2, here], row(ctx, 1)), **close)
    noise = x.masked_fill(~keep[:, 0, :, None], 9.0)
    assert_close(part(noise, replace(ctx, keep=keep))[1:2, here], y[1:2, here], atol=0, rtol=0)
    assert_close(y[::2], part(x, ctx)[::2], **close)


@encoders
def test_an_encoder_gives_zeros_at_padding(name: str) -> None:
    keep = torch.ones(3, 1, T, dtype=torch.bool)
    keep[1, :, 4:] = keep[2] = False  # the last row is empty
    y = built(name)(inputs(), Context(keep=keep))
    assert y[1, 4:].eq(0).all()
    assert y[2].eq(0).all()


@pytest.mark.slow
@every
@given(lengths=st.lists(st.integers(1, T), min_size=3, max_size=3))
@settings(max_examples=10)
def test_packed_is_padded(name: str, lengths: list[int]) -> None:
    part, rows, ctx = built(name), PackedLengths.of(lengths), given_memory(name)
    x = inputs(3, rows.longest)
    packed = part(rows.pack(x), replace(ctx, rows=rows))
    assert_close(packed, rows.pack(part(x, replace(ctx, keep=rows.keep))), **close)


@decoders
def test_packed_memory_is_padded_memory(name: str) -> None:
    decoder, x, ctx = built(name), inputs(), remembering()
    assert ctx.memory is not None
    rows = PackedLengths.of([7, 4, 1])
    packed = Context(memory=rows.pack(ctx.memory), memory_rows=rows)
    assert_close(decoder(x, packed), decoder(x, ctx), **close)


@decoders
def test_memory_padded_on_the_left_is_the_same_memory(name: str) -> None:
    decoder, x, ctx = built(name), inputs(2), remembering(2)
    assert ctx.memory is not None
    turned, keep = ctx.memory.clone(), torch.ones(2, 1, S, dtype=torch.bool)
    turned[1], keep[1, :, :3] = ctx.memory[1].roll(3, 0), False
    assert_close(decoder(x, Context(memory=turned, memory_keep=keep)), decoder(x, ctx), **close)


# ---- chunks


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ONE_WAY, *DECODERS])
@given(sizes=chunkings(T))
@settings(max_examples=10)
def test_chunks_are_the_whole(name: str, sizes: list[int]) -> None:
    part, x, ctx = built(name), inputs(), given_memory(name)
    full = part(x, ctx)
    for make in STATES:
        called = replace(ctx, state=make())
        assert_close(torch.cat([part(chunk, called) for chunk in x.split(sizes, 1)], 1), full, **close)


@pytest.mark.parametrize("name", [*ONE_WAY, *DECODERS])
@pytest.mark.parametrize("make", STATES)
@pytest.mark.parametrize("whole", [0, 1])
def test_padded_chunks_go_on_as_alone(name: str, make: Callable[[], State], whole: int) -> None:
    """The first chunk of row 1 is nothing but padding; the mask may be made for all chunks beforehand."""
    part, x, ctx, state = built(name), inputs(), given_memory(name), make()
    keep = torch.ones(3, 1, T, dtype=torch.bool)
    keep[1, :, :4] = False
    outs = list[Tensor]()
    for first, last in ((0, 3), (3, 6), (6, 7), (7, T)):
        known = keep if whole else keep[:, :, :last]
        outs.append(part(x[:, first:last], replace(ctx, keep=known, state=state)))
    assert_close(torch.cat(outs, 1)[1:2, 4:], part(x[1:2, 4:], row(ctx, 1)), **close)


@pytest.mark.parametrize("name", [*ONE_WAY, *DECODERS])
@pytest.mark.parametrize("make", STATES)
def test_beams_reorder(name: str, make: Callable[[], State]) -> None:
    part, x, ctx, order = built(name), inputs(), given_memory(name), torch.tensor([2, 0, 2])
    called = replace(ctx, state=make())
    part(x[:, :4], called)
    assert called.state is not None
    called.state.reorder(order)
    if ctx.memory is not None and ctx.memory_keep is not None:
        ctx = replace(ctx, memory=ctx.memory[order], memory_keep=ctx.memory_keep[order])
    rest = part(x[order, 4:], replace(ctx, state=called.state))
    assert_close(rest, part(x[order], ctx)[:, 4:], **close)


# ---- recordings


@attending
def test_one_map_for_all_steps(name: str) -> None:
    decoder, x, ctx = built(name), inputs(), remembering()
    plain = decoder(x, ctx)
    with record(decoder, "attention") as trace:
        assert_close(decoder(x, ctx), plain, atol=0, rtol=0)
    amap, values, contexts = (trace[f"attention.{what}"] for what in ("weights", "values", "heads"))
    assert isinstance(amap, Readable)
    assert isinstance(values, Tensor)
    assert isinstance(contexts, Tensor)
    assert amap.shape == (3, 1, T, S)
    assert_close(amap.full().sum(-1), torch.ones(3, 1, T))
    assert amap.full()[1, :, :, 4:].eq(0).all()
    assert_close(amap.full() @ values, contexts, **close)


@attending
def test_every_site_is_shown(name: str) -> None:
    decoder = built(name)
    trace = Trace(decoder, "*")
    decoder(inputs(), replace(remembering(), trace=trace))
    assert set(trace.values) == set(sites_of(decoder))


@attending
@given(sizes=chunkings(T))
@settings(max_examples=5)
def test_maps_of_chunks_join_to_the_whole(name: str, sizes: list[int]) -> None:
    decoder, x, ctx = built(name), inputs(), remembering()
    whole = Trace(decoder, "attention.weights")
    decoder(x, replace(ctx, trace=whole))
    chunks = Trace(decoder, "attention.weights")
    called = replace(ctx, trace=chunks, state=State())
    for chunk in x.split(sizes, 1):
        decoder(chunk, called)
    assert_close(chunks.joined("attention").full(), whole.joined("attention").full(), **close)


@attending
def test_an_identity_edit_changes_nothing(name: str) -> None:
    decoder, x, ctx = built(name), inputs(), remembering()
    shapes = list[tuple[int, ...]]()

    def seen(weights: Tensor) -> Tensor:
        shapes.append(tuple(weights.shape))
        return weights

    lazy, edited = Trace(decoder, "attention.weights"), Trace(decoder, edit={"attention.weights": seen})
    plain = decoder(x, replace(ctx, trace=lazy))
    assert_close(decoder(x, replace(ctx, trace=edited)), plain, **close)
    assert shapes == [(3, 1, 1, S)] * T
    used, told = edited["attention.weights"], lazy["attention.weights"]
    assert isinstance(used, Weights)
    assert isinstance(told, Readable)
    assert_close(used.full(), told.full(), **close)


@attending
def test_edits_are_felt_and_shown(name: str) -> None:
    decoder, x, ctx = built(name), inputs(), remembering()

    def first_only(weights: Tensor) -> Tensor:
        return torch.zeros_like(weights).index_fill(-1, torch.tensor([0]), 1.0)

    trace = Trace(decoder, "attention", edit={"attention.weights": first_only})
    decoder(x, replace(ctx, trace=trace))
    assert ctx.memory is not None
    contexts = trace["attention.heads"]
    assert isinstance(contexts, Tensor)
    assert_close(contexts, ctx.memory[:, None, :1].expand(-1, -1, T, -1))
    blind = Trace(decoder, edit={"attention.heads": torch.zeros_like})
    assert (decoder(x, replace(ctx, trace=blind)) - decoder(x, ctx)).abs().max() > 1e-3


# ---- gradients, capture, length 1


@every
@pytest.mark.parametrize("padded", [0, 1])
def test_gradients_are_those_of_finite_differences(name: str, padded: int) -> None:
    part, ctx = built(name).double(), given_memory(name, 2)
    keep = torch.tensor([[1, 1, 1], [0, 1, 1]], dtype=torch.bool)[:, None] if padded else None
    memory = torch.zeros(0) if ctx.memory is None else ctx.memory
    leaves = [leaf.double().detach().requires_grad_() for leaf in (inputs(2, 3), memory, *part.parameters())]
    names = [name for name, _ in part.named_parameters()]

    def call(x: Tensor, memory: Tensor, *weights: Tensor) -> Tensor:
        called = replace(ctx, keep=keep, memory=None if ctx.memory is None else memory)
        return torch.func.functional_call(part, dict(zip(names, weights, strict=True)), (x, called))

    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)


@pytest.mark.long
@every
def test_a_part_is_captured_whole(name: str) -> None:
    torch._dynamo.reset()
    part, x, ctx = built(name), inputs(), given_memory(name)
    with torch._dynamo.config.patch(allow_rnn=True):  # torch's own layers are captured only so
        assert_close(torch.compile(part, backend="eager", fullgraph=True)(x, ctx), part(x, ctx), **close)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ONE_WAY, *DECODERS])
def test_compiled_steps_are_one_graph(name: str) -> None:
    torch._dynamo.reset()
    part, x, counter = built(name), inputs(), CompileCounter()
    ctx = replace(given_memory(name), state=FixedState(T))
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        step = torch.compile(part, backend=counter, fullgraph=True)
        outs = [part(x[:, :4], ctx), *(step(x[:, i : i + 1], ctx) for i in range(4, T - 2)), part(x[:, T - 2 :], ctx)]
        assert_close(torch.cat(outs, 1), part(x, given_memory(name)), **close)
    assert counter.frame_count == 1


@every
def test_one_token_is_enough(name: str) -> None:
    part, x, ctx = built(name), inputs(1, 1), row(given_memory(name), 2)
    y = part(x, ctx)
    assert y.shape[:2] == (1, 1)
    assert y.isfinite().all()


# ---- errors


def test_errors_say_what_to_do() -> None:
    x, ctx = inputs(), remembering()
    decoder, rows = search(), PackedLengths.of([2, 1])
    with pytest.raises(UserError, match="backwards cannot be called in chunks; call it without a state"):
        BidirectionalEncoder(C, H)(x, Context(state=State()))
    with pytest.raises(UserError, match="given no memory; pass Context"):
        decoder(x)
    with pytest.raises(UserError, match="given no memory; pass Context"):
        RecurrentDecoder(C, H, M, attention=FixedContext())(x)
    with pytest.raises(UserError, match="the memory has 3 rows and the input 2"):
        decoder(x[:2], ctx)
    for part in (decoder, RecurrentEncoder(C, H)):
        with pytest.raises(UserError, match="packed rows cannot be appended to a decoding state"):
            part(inputs(1, 3), replace(remembering(2), rows=rows, state=State()))
    with pytest.raises(UserError, match="keep is 3×9×9 for 9 tokens; allowed: B 1 9"):
        RecurrentEncoder(C, H)(x, Context(keep=torch.ones(3, T, T, dtype=torch.bool)))
    state, one = State(), torch.ones(3, 1, 1, dtype=torch.bool)
    decoder(x, replace(ctx, state=state))
    with pytest.raises(UserError, match="keep is 3×1×1 for 1 tokens after 9; allowed: B 1 10"):
        decoder(x[:, :1], replace(ctx, state=state, keep=one))
