"""A step by the library is a step by torch: same logits, same KV cache, whatever is decoded."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import GPT2Config, GPT2LMHeadModel

import headway
from headway.errors import UserError
from headway.generate import lowering
from headway.generate.decoding import generate
from headway.generate.lowering import lower
from headway.generate.request import Stop
from headway.generate.session import NATIVE_ROWS, DecodingSession
from headway.generate.step_program import OpKind, StepProgram
from headway.generate.weight_layout import arrange
from headway.native.library import Unusable
from headway.nn.context import EMPTY, Context
from headway.nn.low_precision import pack, quantise
from headway.nn.state import FixedState
from headway.nn.trunk import Trunk
from headway.zoo import gpt2
from tests.generate.models import MODELS, PROMPTS, built, memory_of
from tests.laws.subjects import Subject
from tests.native.decoders import RandomDecoder, by_torch, library, needs_library

pytestmark = needs_library
MORE = 9
# what of the table of models has a part without a lowering
BY_TORCH = {
    *("chunks", "sinks"),  # patterns of absolute positions
    "shared",  # layers that share their parameters
    *("zoo opt, post-norm, narrow", "zoo olmo, clipped"),  # words widened before their positions; bounds
    *("zoo mixtral", "mixture model", "zoo qwen2-moe", "zoo gpt-oss", "zoo deepseek-v2", "zoo deepseek-v3"),  # experts
    *("rnnsearch", "luong", "rnnenc", "recurrent model", "bench gru", "zoo rnnsearch decoder", "zoo seq2seq decoder"),
    *("zoo captioner decoder", "zoo captioner decoder, hard"),  # recurrent
    "zoo clip text",  # has no head of words
    "zoo llava decoder",  # patches among words
    *(
        "zoo gemma",
        "zoo t5gemma decoder",
        "zoo olmo2",
        "zoo gpt-neox",
        "zoo falcon",
    ),  # norms behind sublayers, and parallel ones
}


def pair(model: Trunk, prompts: list[list[int]], memory: Context = EMPTY) -> tuple[DecodingSession, DecodingSession]:
    """A session by the library and one by torch, both of which have read the prompts."""
    ours = DecodingSession(model, prompts, MORE, memory=memory)
    theirs = by_torch(DecodingSession(model, prompts, MORE, memory=memory))
    assert_close(ours.prompt(), theirs.prompt())
    assert ours.program is not None
    return ours, theirs


def assert_same_step(ours: DecodingSession, theirs: DecodingSession, tokens: Tensor) -> Tensor:
    assert ours.native_step(tokens) is not None
    ours.rewind(ours.read - 1)
    logits, expected = ours.step(tokens), theirs.step(tokens)
    assert_near(logits, expected)
    assert ours.read == theirs.read
    return expected


def native(session: DecodingSession, tokens: Tensor) -> Tensor:
    logits = session.native_step(tokens)
    assert logits is not None
    return logits


def assert_near(found: Tensor, expected: Tensor) -> None:
    """Equal but for the order of sums in float32."""
    assert_close(found, expected, atol=2e-5 * float(expected.abs().max()), rtol=0)


def tokens_for(rows: int, step: int) -> Tensor:
    return torch.tensor([(7 * row + 3 * step + 1) % 23 for row in range(rows)])


@pytest.mark.parametrize("seed", range(24))
def test_random_decoders_over_ragged_rows(seed: int) -> None:
    decoder, draw = RandomDecoder(seed), Random(seed)
    model, rows = decoder.model(), draw.choice([1, 2, 3, 5])
    if draw.random() < 0.5:
        arrange(model)
    longest = draw.choice([6, 22])  # less and more than a vector of keys
    lengths = [draw.randint(1, longest) for _ in range(rows)] if draw.random() < 0.7 else [4] * rows
    prompts = [[draw.randrange(23) for _ in range(length)] for length in lengths]
    ours, theirs = pair(model, prompts, decoder.context(rows))
    ours.program.set = draw.randrange(len(library().sets))  # type: ignore[union-attr]
    for step in range(3):
        assert_same_step(ours, theirs, tokens_for(rows, step))
    for session in (ours, theirs):  # beams, of which some end
        session.select(torch.arange(rows).repeat_interleave(2), list(range(rows)))
    assert_same_step(ours, theirs, tokens_for(2 * rows, 3))
    chosen = torch.tensor([0, 0, *range(2, 2 * rows)])
    for session in (ours, theirs):
        session.select(chosen, list(range(rows)))
    assert_same_step(ours, theirs, tokens_for(2 * rows, 4))
    for session in (ours, theirs):  # rows that end, then a draft that is taken back
        session.select(torch.tensor([2 * rows - 1]), [rows - 1])
        session.rewind(session.read - 2)
    for step in range(2):
        assert_same_step(ours, theirs, tokens_for(1, step))
    for mine, other in zip(ours.state.buffers.values(), theirs.state.buffers.values(), strict=True):
        assert (len(mine.known), mine.known.start, int(mine.filled)) == (
            len(other.known),
            other.known.start,
            int(other.filled),
        )
        assert_close(mine.known.at, other.known.at)
        for x, y in zip(mine.tensors, other.tensors, strict=True):
            assert_near(x[:, :, : len(mine.known)], y[:, :, : len(mine.known)])


@pytest.mark.parametrize("seed", range(8))
def test_tokens_of_beams_stay_where_they_are_stored(seed: int) -> None:
    """Beams that take each other's place again and again, of sentences that end one by one."""
    decoder, draw = RandomDecoder(seed), Random(seed)
    model, rows, beams = decoder.model(), 3, 3
    prompts = [[draw.randrange(23) for _ in range(draw.choice([2, 4]))] for _ in range(rows)]
    ours, theirs = pair(model, prompts, decoder.context(rows))
    ours.program.set = draw.randrange(len(library().sets))  # type: ignore[union-attr]
    ours.native_step(tokens_for(rows, 0))
    theirs.step(tokens_for(rows, 0))
    chosen, sources = torch.arange(rows).repeat_interleave(beams), list(range(rows))
    for step in range(1, 6):
        for session in (ours, theirs):
            session.select(chosen, sources)
        assert_near(native(ours, tokens_for(len(chosen), step)), theirs.step(tokens_for(len(chosen), step)))
        left = len(chosen) // beams
        sources = sorted(draw.sample(range(left), left - (step in (2, 4))))
        chosen = torch.tensor([source * beams + draw.randrange(beams) for source in sources for _ in range(beams)])
    assert any(buffers.origins is not None for buffers in ours.state.buffers.values())
    for mine, other in zip(ours.state.buffers.values(), theirs.state.buffers.values(), strict=True):
        for x, y in zip(mine.tensors, other.tensors, strict=True):
            assert_near(x, y)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6, 7, 12, 13, 40])
@pytest.mark.parametrize("sizes", [(5, 3), (70, 21), (130, 1040), (64, 530)], ids=str)
def test_products_of_float32(sizes: tuple[int, int], rows: int) -> None:
    """Weights that lie output by output and input by input, in tiles that are not whole, on every instruction set."""
    inputs, outputs = sizes
    table, bias, tokens = torch.randn(rows, inputs), torch.randn(outputs), torch.arange(rows)
    for weight in (torch.randn(outputs, inputs), torch.randn(inputs, outputs).T):
        program = StepProgram(library(), 4)
        x = program.register("x", inputs)
        program.embed(x, table, None, 1.0)
        program.linear(x, program.register("logits", outputs), weight, bias)
        for program.set in range(len(library().sets)):
            found = program.run(tokens, 0, None, Context(state=FixedState(4)))
            program.frame = None
            assert found is not None
            assert_near(found, table @ weight.T + bias)


@pytest.mark.parametrize("subject", MODELS, ids=str)
def test_every_model_that_writes(subject: Subject) -> None:
    model, memory = built(subject), memory_of(subject, [0, 1, 2, 3])
    session = DecodingSession(model, PROMPTS, MORE, memory=memory)
    assert (session.program is None) == (subject.name in BY_TORCH)
    if session.program is not None:
        ours, theirs = pair(model, PROMPTS, memory)
        for step in range(MORE):
            assert_same_step(ours, theirs, tokens_for(len(PROMPTS), step))


@pytest.mark.parametrize("seed", range(12))
def test_random_decoders_in_int8(seed: int) -> None:
    """Where float32 rounds otherwise, an activation may get the next integer: logits differ by less than that."""
    decoder = RandomDecoder(seed)
    model, rows = decoder.model(), 1 + seed % 3
    quantise(model)
    pack(model)
    prompts = [[(5 * row + at) % 23 for at in range(1 + row)] for row in range(rows)]
    ours, theirs = pair(model, prompts, decoder.context(rows))
    assert any(op.kind == OpKind.LINEAR_INT8 for op in ours.program.ops)  # type: ignore[union-attr]
    for step in range(MORE):
        logits, expected = ours.native_step(tokens_for(rows, step)), theirs.step(tokens_for(rows, step))
        assert_close(logits, expected, atol=float(expected.abs().max()) / 64, rtol=0)


def test_a_loaded_model_in_int8_takes_the_library(tmp_path: Path) -> None:
    """Files of GPT-2 have their weights transposed."""
    config = GPT2Config(vocab_size=23, n_positions=16, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    model = headway.load(tmp_path, dtype="int8").model
    assert lower(model, 16) is not None


def gpt(**options: int) -> Trunk:
    return gpt2.build(gpt2.Config(**{"vocab": 23, "context": 16, "dim": 8, "layers": 1, "heads": 2} | options)).eval()


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3])
def test_threads_share_the_work(rows: int) -> None:
    ours, theirs = pair(gpt(dim=192, heads=4, vocab=200), [[1, 2, 3]] * rows)
    before = torch.get_num_threads()
    try:
        for threads in (2, 3, 1, 2):
            torch.set_num_threads(threads)
            assert_same_step(ours, theirs, tokens_for(rows, threads))
    finally:
        torch.set_num_threads(before)


def changed(change: str) -> Trunk:
    model = gpt()
    part = model.stack.blocks[0].ffn.body  # type: ignore[union-attr]
    match change:
        case "hook":
            part.up.register_forward_hook(lambda *given: None)
        case "forward":
            part.forward = lambda x, ctx: x
        case "training":
            part.train()
        case "subclass":
            part.up.__class__ = type("Other", (nn.Linear,), {})
        case "double":
            model.double()
        case "activation":
            part.act = torch.tanh
        case "parametrized":
            nn.utils.parametrizations.weight_norm(part.up)
        case "strided":
            part.up.weight.data = torch.randn(64, 16)[::2, ::2]
        case _:
            pass
    return model


@pytest.mark.parametrize(
    "change", ["hook", "forward", "training", "subclass", "double", "activation", "parametrized", "strided"]
)
def test_what_has_no_lowering_is_for_torch(change: str) -> None:
    assert lower(changed("nothing"), 8) is not None
    assert lower(changed(change), 8) is None


def test_recordings_and_edits_take_the_torch_path() -> None:
    model = gpt()
    session, theirs = pair(model, [[1, 2, 3]])
    with headway.record(model, "*.attn.weights") as trace:
        assert session.native_step(tokens_for(1, 0)) is None
        session.step(tokens_for(1, 0))
    assert trace["0.attn.weights"].shape == (1, 2, 1, 4)
    theirs.step(tokens_for(1, 0))
    assert_same_step(session, theirs, tokens_for(1, 1))  # and the next goes on from there


def test_many_rows_and_autocast_take_the_torch_path() -> None:
    session = DecodingSession(gpt(), [[1]] * (NATIVE_ROWS + 1), 4)
    session.prompt()
    assert session.native_step(tokens_for(NATIVE_ROWS + 1, 0)) is None
    few, _ = pair(gpt(), [[1]])
    with torch.autocast("cpu"):
        assert few.native_step(tokens_for(1, 0)) is None


def test_what_torch_refuses_is_refused() -> None:
    """A token that is not there, a position beyond the table, a cache that is full: nothing is written for them."""
    session, _ = pair(gpt(), [[1, 2]])
    with pytest.raises(IndexError):
        session.step(torch.tensor([23]))
    session, _ = pair(gpt(context=3), [[1, 2]])
    session.step(torch.tensor([3]))
    with pytest.raises(UserError, match="position 3 lies beyond"):
        session.step(torch.tensor([3]))
    session, _ = pair(gpt(), [[1, 2]])
    for _ in range(MORE):
        session.step(torch.tensor([3]))
    with pytest.raises(UserError, match="room for 11"):
        session.step(torch.tensor([3]))


def test_weights_that_change_are_seen() -> None:
    """Programs point at the weights of a model and do not copy them."""
    model = gpt()
    ours, theirs = pair(model, [[1, 2, 3]])
    with torch.no_grad():
        model.stack.blocks[0].ffn.body.up.weight.mul_(3)  # type: ignore[union-attr]
    assert_same_step(ours, theirs, tokens_for(1, 0))


def test_infinite_weights_are_not_hidden() -> None:
    model = gpt()
    with torch.no_grad():
        model.stack.blocks[0].attn.body.v.bias.fill_(float("nan"))  # type: ignore[union-attr]
    with pytest.raises(UserError, match="not finite"):
        generate(model, [[1, 2]], stop=Stop(3))
    session = DecodingSession(model, [[1]], 2)
    session.prompt()
    assert session.step(torch.tensor([1])).isnan().all()


def test_without_the_library_everything_works(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = generate(gpt2_seeded(), [[1, 2], [3]], stop=Stop(4))
    monkeypatch.setattr(lowering, "native_library", lambda: Unusable("not built"))
    assert DecodingSession(gpt2_seeded(), [[1]], 1).program is None
    assert [one.tokens for one in generate(gpt2_seeded(), [[1, 2], [3]], stop=Stop(4))] == [
        one.tokens for one in expected
    ]


def gpt2_seeded() -> Trunk:
    torch.manual_seed(0)
    return gpt()
