"""Recordings belong to a call or to a block of code, never to the model."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import headway
from headway import Context, FixedState, State, Trace
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Block, Repeat, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.trace import sites_of
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.attention_map import AttentionMap, Readable, Weights
from headway.ops.pattern import Causal

DIM, HEADS = 16, 4


def translator() -> EncoderDecoder:
    def embed() -> TokenEmbed:
        return TokenEmbed(9, DIM, position=LearnedPosition(12, DIM))

    def decoder_block() -> Block:
        causal = Residual(SelfAttention(DIM, HEADS, pattern=Causal()))
        return Block(attn=causal, cross=Residual(CrossAttention(DIM, HEADS)))

    encoder = Trunk(embed(), Stack([Block(attn=Residual(SelfAttention(DIM, HEADS)))]))
    return EncoderDecoder(encoder, Trunk(embed(), Stack([decoder_block() for _ in range(2)])))


def sentences(length: int) -> Tensor:
    return torch.randint(0, 9, (2, length))


def test_sites_are_named_by_what_they_are() -> None:
    names = set(sites_of(translator()))
    assert {"encoder.0.attn.weights", "decoder.0.cross.weights", "decoder.1.cross.values", "decoder.1.out"} <= names


def test_record_reads_the_sites_that_match() -> None:
    model = translator()
    with headway.record(model, "*.cross.*") as trace:
        model(sentences(5), sentences(7))
    sites = {f"decoder.{i}.cross.{what}" for i in (0, 1) for what in ("input", "weights", "values", "heads")}
    assert set(trace.values) == sites
    amap = trace["decoder.1.cross.weights"]
    assert isinstance(amap, AttentionMap)
    assert amap.shape == (2, HEADS, 7, 5)


def test_a_site_may_be_called_by_its_module() -> None:
    model = translator()
    with headway.record(model, "decoder.*.cross.weights") as trace:
        model(sentences(5), sentences(7))
    assert trace["decoder.1.cross"] is trace["decoder.1.cross.weights"]
    with headway.record(model, "decoder.0") as trace:
        model(sentences(5), sentences(7))
    assert trace["decoder.0"] is trace["decoder.0.out"]


def test_all_attention_is_recorded_unless_told() -> None:
    model = translator()
    with headway.record(model) as trace:
        model(sentences(5), sentences(7))
    assert len(trace.values) == 5


def test_nothing_is_recorded_outside_the_block() -> None:
    model = translator()
    with headway.record(model) as trace:
        pass
    model(sentences(5), sentences(7))
    assert trace.values == {}


def test_a_model_remembers_nothing() -> None:
    model = translator()
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    with headway.record(model, "*"):
        model(sentences(5), sentences(7), ctx=Context(state=State()))
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before


def test_threads_do_not_see_each_others_recordings() -> None:
    model, lengths, traces = translator(), (3, 4, 5, 6), dict[int, Trace]()
    together = threading.Barrier(len(lengths))

    def request(length: int) -> None:
        with headway.record(model, "decoder.0.cross.weights") as trace:
            together.wait()
            model(sentences(length), sentences(2))
            together.wait()
        traces[length] = trace

    threads = [threading.Thread(target=request, args=(length,)) for length in lengths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for length in lengths:
        amap = traces[length]["decoder.0.cross"]
        assert isinstance(amap, Readable)
        assert amap.shape[3] == length


def test_a_request_may_carry_its_own_trace_inside_a_recording() -> None:
    model = translator()
    mine = Trace(model, "decoder.1.out")
    with headway.record(model, "decoder.0.out") as around:
        model(sentences(5), sentences(7), ctx=Context(trace=mine))
    assert set(mine.values) == {"decoder.1.out"}
    assert set(around.values) == {"decoder.0.out"}


@pytest.mark.parametrize("make", [State, lambda: FixedState(8)])
def test_the_steps_of_decoding_join_to_the_whole_map(make: type[State]) -> None:
    model, source, target = translator().eval(), sentences(5), sentences(6)
    with headway.record(model, "decoder.*.weights") as whole:
        model(source, target)
    with headway.record(model, "decoder.*.weights") as steps:
        ctx = model.remember(source, ctx=Context(state=make()))
        for letters in target.split(1, 1):
            model.decoder(letters, ctx)
    for name in whole.values:
        expected = whole[name]
        assert isinstance(expected, Readable)
        assert_close(steps.joined(name).full(), expected.full(), atol=1e-6, rtol=1e-5)


def test_a_head_is_switched_off_by_an_edit() -> None:
    """Zeroing one head's weights is removing its share of the output projection."""
    model = SelfAttention(DIM, HEADS)
    x = torch.randn(2, 5, DIM)

    def off(weights: Tensor) -> Tensor:
        return weights * torch.tensor([1.0, 0.0, 1.0, 1.0])[:, None, None]

    with headway.record(model, edit={"weights": off}) as trace:
        y = model(x)
    share = DIM // HEADS
    with torch.no_grad():
        model.out.weight[:, share : 2 * share] = 0
    assert_close(y, model(x))
    used = trace["weights"]
    assert isinstance(used, Weights)
    assert used.values[:, 1].eq(0).all()


def test_only_the_edited_site_is_explicit() -> None:
    model = translator()
    with headway.record(model, "*.weights", edit={"decoder.0.cross.weights": lambda w: w}) as trace:
        model(sentences(5), sentences(7))
    kinds = {name: type(values[0]) for name, values in trace.values.items()}
    assert kinds.pop("decoder.0.cross.weights") is Weights
    assert set(kinds.values()) == {AttentionMap}


def test_hidden_states_can_be_patched() -> None:
    """The output of a block, taken from another input, makes what follows that of the other input."""
    model, one, other = translator().encoder, sentences(5), sentences(5)
    with headway.record(model, "0.out") as seen:
        expected = model(other)
    patch = seen["0.out"]
    assert isinstance(patch, Tensor)
    with headway.record(model, edit={"0.out": lambda _: patch}):
        assert_close(model(one), expected)


def test_shared_layers_are_recorded_turn_by_turn() -> None:
    model = Repeat(Block(attn=Residual(SelfAttention(DIM, HEADS))), 3)
    with headway.record(model) as trace:
        model(torch.randn(1, 4, DIM))
    assert len(trace.all("block.attn.weights")) == 3


def test_weights_of_a_map_can_be_differentiated() -> None:
    model = SelfAttention(DIM, HEADS)
    with headway.record(model) as trace:
        model(torch.randn(1, 4, DIM))
    amap = trace["weights"]
    assert isinstance(amap, Readable)
    amap.rows(0, 2)[0, 0, 1, 0].backward()
    assert isinstance(model.q.weight.grad, Tensor)


def test_a_context_is_frozen() -> None:
    ctx = Context()
    with pytest.raises(AttributeError):
        ctx.keep = torch.ones(1)  # type: ignore[misc]
    assert replace(ctx, state=State()).state is not None


def test_linear_layers_show_nothing() -> None:
    assert sites_of(nn.Sequential(nn.Linear(2, 2), nn.ReLU())) == {}
