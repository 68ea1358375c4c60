"""Laws of the decoding loop, tried on every small model that writes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.generate.decoding import Job, generate
from headway.generate.request import Generated, Reason, Stop
from headway.generate.sampling import Greedy, RandomSampler
from headway.generate.session import DecodingSession, encode_sources, unpadded
from headway.nn.context import Context
from headway.nn.trunk import EncoderDecoder
from headway.zoo.build import build
from tests.generate.models import MODELS, PROMPTS, built, memory_of, naive, subject, told
from tests.laws.subjects import CONTEXT, Subject

pytestmark = pytest.mark.slow

LLAMA, GPT = subject("llama"), subject("gpt")
writing = pytest.mark.parametrize("subject", MODELS, ids=str)


def same(a: list[Generated], b: list[Generated]) -> None:
    """The same tokens for the same reasons, and log-probabilities within rounding."""
    assert [(one.tokens, one.reason) for one in a] == [(one.tokens, one.reason) for one in b]
    for one, other in zip(a, b, strict=True):
        assert_close(torch.tensor(one.logprobs), torch.tensor(other.logprobs), atol=1e-5, rtol=0)


@writing
def test_cached_is_naive(subject: Subject) -> None:
    found = generate(built(subject), PROMPTS, stop=Stop(9), memory=memory_of(subject, [0, 1, 2, 3]))
    for row, (prompt, one) in enumerate(zip(PROMPTS, found, strict=True)):
        tokens, logprobs = naive(subject, prompt, row, 9)
        assert list(one.tokens) == tokens
        assert_close(torch.tensor(one.logprobs), torch.tensor(logprobs), atol=1e-5, rtol=0)
        assert one.score == pytest.approx(sum(logprobs), abs=1e-4)


@writing
@pytest.mark.parametrize("how", [Greedy(), RandomSampler(temperature=2.0, top_k=12, seed=5)], ids=["greedy", "sample"])
def test_a_batch_is_its_prompts(subject: Subject, how: Greedy | RandomSampler) -> None:
    """In any order, with rows that end at different steps."""
    model, stop = built(subject), Stop(9, tokens=(3, 8, 16))
    alone = [generate(model, [p], how, stop, memory=memory_of(subject, [i]))[0] for i, p in enumerate(PROMPTS)]
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        prompts = [PROMPTS[row] for row in order]
        found = generate(model, prompts, how, stop, memory=memory_of(subject, order))
        same(found, [alone[row] for row in order])


@writing
@pytest.mark.parametrize("chunk", [1, 3])
def test_prompts_read_in_pieces_are_whole(subject: Subject, chunk: int) -> None:
    memory, stop = memory_of(subject, [0, 1, 2, 3]), Stop(5)
    same(
        generate(built(subject), PROMPTS, stop=stop, memory=memory, chunk=chunk),
        generate(built(subject), PROMPTS, stop=stop, memory=memory),
    )


def test_padding_stands_on_either_side() -> None:
    left, right = padded(left=True), padded(left=False)
    assert left[0].tolist() != right[0].tolist()
    assert unpadded(*left) == unpadded(*right) == PROMPTS


def padded(left: bool) -> tuple[Tensor, Tensor]:
    widest = max(len(prompt) for prompt in PROMPTS)
    gaps = [widest - len(prompt) for prompt in PROMPTS]
    ids = [[0] * gap + p if left else p + [0] * gap for p, gap in zip(PROMPTS, gaps, strict=True)]
    keep = [[False] * gap + [True] * len(p) for p, gap in zip(PROMPTS, gaps, strict=True)]
    return torch.tensor(ids), torch.tensor(keep if left else [row[::-1] for row in keep])


def test_a_tensor_holds_prompts_of_one_length() -> None:
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    same(generate(built(GPT), ids), generate(built(GPT), ids.tolist()))


def test_steps_are_streamed_as_they_come() -> None:
    stop = Stop(6, tokens=(3,))
    steps = list(Job(built(GPT), PROMPTS, stop).stream())
    found = generate(built(GPT), PROMPTS, stop=stop)
    assert {one.reason for one in found} == {Reason.TOKEN, Reason.LENGTH}
    for row, one in enumerate(found):
        mine = [step for batch in steps for step in batch if step.row == row]
        assert tuple(step.token for step in mine) == one.tokens
        assert [step.reason for step in mine] == [None] * (len(mine) - 1) + [one.reason]
    assert [len(batch) for batch in steps] == [sum(len(one.tokens) > step for one in found) for step in range(6)]


def test_finished_rows_are_no_longer_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, step = list[int](), DecodingSession.step
    monkeypatch.setattr(DecodingSession, "step", lambda feed, tokens: rows.append(len(tokens)) or step(feed, tokens))
    found = generate(built(GPT), PROMPTS, stop=Stop(6, tokens=(3,)))
    assert sum(rows) == sum(len(one.tokens) - 1 for one in found)


def test_the_head_reads_one_token_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes, head = list[tuple[int, ...]](), DecodingSession.head
    monkeypatch.setattr(DecodingSession, "native_step", lambda feed, tokens: None)
    monkeypatch.setattr(DecodingSession, "head", lambda feed, x: shapes.append(tuple(x.shape[:-1])) or head(feed, x))
    generate(built(LLAMA), PROMPTS, stop=Stop(3))
    assert shapes == [(4,), (4,), (4,)]


def test_a_request_keeps_its_draws_whatever_is_beside_it() -> None:
    """Each row has its own way to choose, and its own seed."""
    hows = [RandomSampler(seed=1), RandomSampler(temperature=0.5, seed=2), Greedy(), RandomSampler(top_p=0.9, seed=1)]
    found = generate(built(LLAMA), [[1, 2]] * 4, hows, Stop(12))
    back = generate(built(LLAMA), [[1, 2]] * 4, hows[::-1], Stop(12))
    same(found, back[::-1])
    same(found[:1], generate(built(LLAMA), [[1, 2]], hows[0], Stop(12)))
    seeds = [RandomSampler(seed=seed) for seed in range(20)]
    assert len(set(told(generate(built(LLAMA), [[1, 2]] * 20, seeds, Stop(12))))) > 15


# ---- encoder and decoder


def translator() -> EncoderDecoder:
    torch.manual_seed(0)
    model = build("transformer-tiny", dim=16, heads=4, layers=2, vocab=20).eval()
    assert isinstance(model, EncoderDecoder)
    return model


def test_a_translator_reads_ragged_sources() -> None:
    model, sources = translator(), [[5, 6, 7], [8, 9, 10, 11, 12], [13]]
    keep = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]], dtype=torch.bool)
    plain = model.remember(torch.tensor([row + [0] * (5 - len(row)) for row in sources]), Context(keep=keep[:, None]))
    ragged, stop = encode_sources(model, sources), Stop(10)
    a, b = (generate(model.decoder, [[1]] * 3, stop=stop, memory=memory) for memory in (plain, ragged))
    same(a, b)


def test_equal_sources_need_no_packing() -> None:
    model = translator()
    memory = encode_sources(model, [[1, 2, 3], [4, 5, 6]])
    assert memory.memory_rows is None
    assert generate(model.decoder, [[1]] * 2, stop=Stop(4), memory=memory)


# ---- ends


def test_the_stop_token_belongs_to_the_tokens_but_not_to_the_body() -> None:
    (one,) = generate(built(GPT), [[1, 2, 3]], stop=Stop(6, tokens=(3,)))
    assert one.reason is Reason.TOKEN
    assert one.tokens[-1] == 3
    assert one.body == one.tokens[:-1]
    assert len(one.logprobs) == len(one.tokens)
    (long,) = generate(built(GPT), [[1, 2, 3]], stop=Stop(6))
    assert long.body == long.tokens
    assert len(long.tokens) == 6


def letters(tokens: tuple[int, ...] | list[int]) -> str:
    """A text of one letter for each token; 5 is silent, as special tokens are."""
    return "".join(chr(ord("a") + token) for token in tokens if token != 5)


def test_a_stop_string_ends_the_text_before_it() -> None:
    (free,) = generate(built(LLAMA), [[4]], stop=Stop(10))
    text = letters(free.tokens)
    stop = Stop(10, strings=("never there", text[2:5], text[3:6]), decode=letters)
    (one,) = generate(built(LLAMA), [[4]], stop=stop)
    assert one.reason is Reason.STRING
    assert one.tokens == free.tokens[: len(one.tokens)]
    assert letters(one.tokens) == text[:5]
    assert stop.text(one.tokens) == text[:2]


def test_a_text_ends_before_its_stop_token() -> None:
    stop = Stop(tokens=(3,), decode=letters)
    assert stop.text([0, 1, 3]) == "ab"
    assert stop.text([0, 1]) == "ab"
    assert stop.text([]) == ""


@pytest.mark.parametrize("how", [Greedy(), RandomSampler(seed=3)], ids=["greedy", "sample"])
def test_no_end_before_the_least_length(how: Greedy | RandomSampler) -> None:
    everything = tuple(range(1, 23))
    (one,) = generate(built(GPT), [[1, 2, 3]], how, Stop(9, min_new_tokens=5, tokens=everything))
    assert set(one.tokens[:5]) == {0}
    assert len(one.tokens) >= 6
    stop = Stop(9, min_new_tokens=5, strings=("a",), decode=letters, tokens=everything)
    (one,) = generate(built(GPT), [[1, 2, 3]], how, stop)
    assert len(one.tokens) == 5
    assert one.reason is Reason.STRING


def test_the_context_ends_a_continuation() -> None:
    """The last token is never read, so it needs no position."""
    prompts = [[1] * CONTEXT, [1] * (CONTEXT - 2), [1]]
    found = generate(built(GPT), prompts, stop=Stop(10))
    assert [len(one.tokens) for one in found] == [1, 3, 10]
    assert [one.reason for one in found] == [Reason.CONTEXT, Reason.CONTEXT, Reason.LENGTH]
    (short,) = generate(built(LLAMA), [[1, 2, 3]], stop=Stop(10), context=5)
    assert (len(short.tokens), short.reason) == (3, Reason.CONTEXT)


def test_no_prompts_no_continuations() -> None:
    assert generate(built(GPT), []) == []
    assert list(Job(built(GPT), []).stream()) == []


def test_a_text_may_begin_with_nothing() -> None:
    same(generate(built(GPT), [[], [4, 5]], bos=7), generate(built(GPT), [[7], [4, 5]]))


# ---- bad requests


@pytest.mark.parametrize(
    ("prompts", "told"),
    [
        ([[1], []], "prompt 1 is empty; pass bos="),
        ([[1] * 25], "prompt 0 has 25 tokens and the model a context of 24; shorten it to 24 tokens"),
        ([[1, 99]], "prompt 0 holds the token 99; allowed: 0 to 22"),
        ([[-1]], "prompt 0 holds the token -1"),
        (torch.zeros(2, 2, 2, dtype=torch.long), "prompts of shape"),
    ],
)
def test_a_bad_prompt_is_told(prompts: list[list[int]], told: str) -> None:
    with pytest.raises(UserError, match=told):
        generate(built(GPT), prompts)


def test_bad_settings_are_told() -> None:
    model = built(GPT)
    with pytest.raises(UserError, match="3 ways to choose for 2 prompts"):
        generate(model, [[1], [2]], [Greedy()] * 3)
    with pytest.raises(UserError, match="chunk=0"):
        generate(model, [[1]], chunk=0)
    with pytest.raises(UserError, match=r"Stop\(max_new_tokens=0\)"):
        Stop(0)
    with pytest.raises(UserError, match="min_new_tokens"):
        Stop(3, min_new_tokens=4)
    with pytest.raises(UserError, match="decode"):
        Stop(strings=("x",))
    with pytest.raises(UserError, match="empty stop string"):
        Stop(strings=("",), decode=letters)
    with pytest.raises(UserError, match="without a way to read"):
        Stop().text([1])
    t5 = subject("t5 decoder")
    with pytest.raises(UserError, match="a memory of 2 rows for 1 prompts"):
        generate(built(t5), [[1]], memory=memory_of(t5, [0, 1]))
    with pytest.raises(UserError, match="same shape"):
        unpadded(torch.zeros(2, 3), torch.ones(2, 1, dtype=torch.bool))


def test_a_model_must_be_ready() -> None:
    with pytest.raises(UserError, match=r"training mode.*model.eval\(\)"):
        generate(GPT.build().train(), [[1]])  # type: ignore[arg-type]
    broken = GPT.build()
    nn.init.constant_(broken.stack.norm.weight, float("nan"))  # type: ignore[union-attr]
    with pytest.raises(UserError, match="not finite"):
        generate(broken, [[1]])  # type: ignore[arg-type]
    with pytest.raises(UserError, match="an empty source"):
        encode_sources(translator(), [[1], []])


@pytest.mark.parametrize("everywhere", [False, True])
def test_hooks_are_called(everywhere: bool) -> None:
    model, calls = GPT.build(), list[tuple[int, ...]]()
    linear = next(part for part in model.modules() if isinstance(part, nn.Linear))

    def note(part: nn.Module, given: tuple[Tensor, ...], found: Tensor) -> None:
        if part is linear:
            calls.append(tuple(found.shape))

    register = nn.modules.module.register_module_forward_hook if everywhere else linear.register_forward_hook
    handle = register(note)
    try:
        generate(model, [[1, 2, 3]], stop=Stop(3))  # type: ignore[arg-type]
    finally:
        handle.remove()
    assert len(calls) == 3


@pytest.mark.parametrize("how", [Greedy(), RandomSampler(temperature=2.0, seed=5)], ids=["greedy", "sample"])
def test_a_text_goes_on_behind_a_full_context(how: Greedy | RandomSampler) -> None:
    """By the definition: where the context is full, the model reads the last tokens alone; so in a batch as alone."""
    model, prompts, stop, reread = built(GPT), PROMPTS[:3], Stop(3 * CONTEXT), 10

    def continued(prompt: list[int]) -> list[int]:
        ids, first, generator = list(prompt), 0, torch.Generator().manual_seed(how.seed)
        for _ in range(stop.max_new_tokens):
            if len(ids) - first > CONTEXT:
                first = len(ids) - reread
            logits = model(torch.tensor([ids[first:]]))[0, -1].detach()
            ids.append(how.pick(how.process(logits, ids), generator))
        return ids[len(prompt) :]

    found = Job(model, prompts, stop, reread=reread).generate(how)
    assert [list(one.tokens) for [one] in found] == [continued(prompt) for prompt in prompts]
    assert all(one.reason is Reason.LENGTH for [one] in found)
