"""Tasks of texts: causal, masked, spans.  What is drawn, what is hidden, and what nobody may see.

Axes:  M chosen tokens   C width
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from headway.data.order import Steps, StreamWindows, random_for
from headway.data.shards import Shards, write_shards
from headway.data.tokenizer import Roles
from headway.data.tokenizer_training import train_characters
from headway.errors import UserError
from headway.nn.head import MLMHead
from headway.nn.trunk import Trunk
from headway.tasks.batches import Row
from headway.tasks.causal_lm import CausalLM
from headway.tasks.masked_lm import MaskedLM
from headway.tasks.span_corruption import SpanCorruption, parts
from headway.training.dataset import Batches, SpanExamples
from headway.training.groups import groups
from headway.training.learner import Learner
from headway.training.optimiser import AdamW, Constant, Optimiser
from headway.zoo import mixtral
from tests.conftest import CASES
from tests.tasks.learners import LETTERS, MARKED, MODELS, PIECES, Learning, rows_of

CAUSAL, MASKED = CausalLM(LETTERS), MaskedLM(PIECES)
some = settings(max_examples=max(10, CASES // 3))


def stored(folder: str, lengths: list[int], vocab: int = 10_000) -> Shards:
    """Documents whose ids are their places in the stream."""
    ends = list(accumulate(lengths, initial=0))
    rows = [[range(begin, begin + length)] for begin, length in zip(ends, lengths, strict=False)]
    return write_shards(Path(folder) / "shards", rows, 1, vocab)


# ---- causal


@pytest.mark.slow
@some
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=12).filter(lambda lengths: sum(lengths) > 1),
    length=st.integers(1, 9),
    rows=st.integers(1, 4),
    epoch=st.integers(0, 3),
)
def test_every_token_is_said_once_in_an_epoch(lengths: list[int], length: int, rows: int, epoch: int) -> None:
    total, firsts = sum(lengths), set(accumulate(lengths, initial=0))
    length = min(length, total - 1)
    said = Counter[int]()
    with TemporaryDirectory() as folder:
        shards = stored(folder, lengths)
        order = StreamWindows(total, length, rows, seed=3).epoch(epoch)
        for numbers in order:
            batch = CAUSAL.collate(SpanExamples(shards, length).rows(numbers), random_for())
            assert batch.targets <= batch.tokens
            said.update(batch.wanted.tolist())
            for read in rows_of(batch.read):
                assert torch.equal(read, torch.arange(len(read)) + read[0])  # of one document, in order
                assert not {*read.tolist()[1:]} & firsts
    begin, end = min(min(numbers) for numbers in order), max(max(numbers) for numbers in order) + length
    assert begin < length
    assert total - end <= length
    assert said == Counter(place for place in range(begin + 1, end + 1) if place not in firsts)


def test_a_document_sees_no_other_and_begins_at_the_first_place() -> None:
    learning = Learning("causal", "gpt2")
    with TemporaryDirectory() as folder:
        shards = stored(folder, [5, 4, 7], LETTERS.vocab)
        rows = SpanExamples(shards, 12).rows([2])
    batch = CAUSAL.collate(rows, random_for())
    assert [row.tolist() for row in rows_of(batch.read)] == [[2, 3], [5, 6, 7], [9, 10, 11, 12, 13]]
    assert batch.wanted.tolist() == [3, 4, 6, 7, 8, 10, 11, 12, 13, 14]
    assert batch.read.rows is not None
    assert batch.read.rows.positions.tolist() == [[0, 1, 0, 1, 2, 0, 1, 2, 3, 4]]
    losses = CAUSAL.predicted(learning.model, batch).losses()
    changed = [(row + 20 if at == 1 else row,) for at, (row,) in enumerate(rows)]
    others = CAUSAL.predicted(learning.model, CAUSAL.collate(changed, random_for())).losses()
    assert_close(losses[[0, 1, 5, 6, 7, 8, 9]], others[[0, 1, 5, 6, 7, 8, 9]])
    assert (losses[2:5] != others[2:5]).all()


def test_a_text_has_its_frame_in_the_stream_where_the_tokenizer_has_one() -> None:
    assert CAUSAL.frame == ([LETTERS.bos], [LETTERS.eos])
    assert CAUSAL.extra_config() == {"bos_token_id": LETTERS.bos, "eos_token_id": LETTERS.eos}
    assert (MASKED.frame, SpanCorruption(MARKED, 1, (5, 6)).frame) == (([], []), ([], []))


@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_rows_of_one_token_have_nothing_to_say(model: str) -> None:
    learning = Learning("causal", model)
    alone, two = ([(np.array(row),) for row in rows] for rows in ([[5], [6]], [[5], [7, 8], [6]]))
    mixed = CAUSAL.collate(two, random_for())
    assert (mixed.targets, mixed.tokens, mixed.wanted.tolist()) == (1, 1, [8])
    nothing = CAUSAL.collate(alone, random_for())
    assert nothing.targets == 0
    loss = CAUSAL.loss(learning.model, nothing)
    assert loss.item() == 0
    grads = torch.autograd.grad(loss, list(learning.model.parameters()), materialize_grads=True)
    assert not any(grad.any() for grad in grads)


@pytest.mark.parametrize("name", ["gpt2", "mixtral"])
def test_a_run_over_texts_of_one_token_goes_on(name: str) -> None:
    model = {**MODELS["causal"], "mixtral": mixture}[name]()
    learner = Learner(model, CAUSAL.loss, Optimiser(AdamW(1e-3), groups(model)), Constant(0), seed=0)
    with TemporaryDirectory() as folder:
        batches = Batches(CAUSAL, SpanExamples(stored(folder, [1] * 9), 2), Steps(StreamWindows(9, 2, 2, 0)), 0)
        updates = [learner.learn(step, batches[step]) for step in (1, 2, 3)]
    assert [(update.loss, update.targets, update.skipped) for update in updates] == [(0.0, 0, False)] * 3


def mixture() -> Trunk:
    """Its routers have a loss of their own, by each batch's share of the targets."""
    return mixtral.build(mixtral.Config(vocab=LETTERS.vocab, dim=16, layers=1, heads=2, kv_heads=2, hidden=16))


# ---- masked


def hidden_statistics(count: int) -> tuple[float, ...]:
    """The share of chosen places, and of these the shares that show the mask, another word and what stood there."""
    rows: list[Row] = [(np.full(100, 50),) for _ in range(count)]
    batch = MASKED.collate(rows, random_for("statistics"))
    shown = torch.cat(rows_of(batch.read))[batch.chosen]
    mask, same = (shown == PIECES.mask).double().mean(), (shown == 50).double().mean()
    return batch.targets / (100 * count), mask.item(), 1 - mask.item() - same.item(), same.item()


def test_as_many_tokens_are_hidden_as_in_bert() -> None:
    share, mask, other, same = hidden_statistics(400)  # 40 000 tokens, 6000 chosen: within four deviations
    assert share == pytest.approx(0.15, abs=0.0072)
    assert mask == pytest.approx(0.8, abs=0.021)
    assert other == pytest.approx(0.1, abs=0.016)  # one in as many as there are words is by chance what stood there
    assert same == pytest.approx(0.1, abs=0.016)


@pytest.mark.slow
@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6), key=st.integers(0, 999))
def test_what_is_hidden_is_asked_for_and_the_frame_never(lengths: list[int], key: int) -> None:
    rows: list[Row] = [(np.arange(5, 5 + length),) for length in lengths]
    batch = MASKED.collate(rows, random_for(key))
    read, start = torch.cat(rows_of(batch.read)), 0
    whole = torch.cat([torch.tensor([PIECES.bos, *range(5, 5 + length), PIECES.eos]) for length in lengths])
    assert torch.equal(whole[batch.chosen], batch.wanted)
    assert len(set(batch.chosen.tolist())) == batch.targets
    untouched = torch.ones(len(whole), dtype=torch.bool)
    untouched[batch.chosen] = False
    assert torch.equal(read[untouched], whole[untouched])
    for length in lengths:
        inside = [at - start for at in batch.chosen.tolist() if start <= at < start + length + 2]
        assert inside  # one in each row, at least
        assert 0 < min(inside) <= max(inside) < length + 1
        start += length + 2


@pytest.mark.slow
def test_a_short_row_hides_each_of_its_tokens_alike() -> None:
    chosen = Counter(int(MASKED.hidden(np.arange(3), random_for(key)).chosen[0]) for key in range(3000))
    assert all(count > 850 for count in chosen.values())


@pytest.mark.parametrize("model", ["bert", "albert"])
def test_only_hidden_tokens_go_through_the_output_layer(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learning = Learning("masked", model)
    trunk = learning.model
    assert isinstance(trunk, Trunk)
    assert isinstance(trunk.head, MLMHead)
    seen, whole = list[int](), trunk.head.words.loss

    def spy(x: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        seen.append(len(x))
        return whole(x, targets, smoothing)

    monkeypatch.setattr(trunk.head.words, "loss", spy)
    batch = MASKED.collate(learning.rows([20, 9]), random_for(0))
    MASKED.loss(trunk, batch)
    assert seen == [batch.targets]
    assert batch.targets < 15


def test_a_masked_task_needs_a_mask() -> None:
    bare = train_characters(["abc"], 300, Roles(bos="<s>", eos="</s>"))
    with pytest.raises(UserError, match="no mask token"):
        MaskedLM(bare).collate([(np.arange(5),)], random_for(0))


# ---- spans

MARKS = tuple(range(1000, 1020))


def spans(share: float = 0.15, length: float = 3.0, marks: tuple[int, ...] = MARKS) -> SpanCorruption:
    return SpanCorruption(MARKED, 1, marks, share, length)


def restored(source: list[int], target: list[int], task: SpanCorruption) -> list[int]:
    """The text: in the place of each mark what follows it in the target."""
    end, runs = MARKED.eos, dict[int, list[int]]()
    assert (source[-1], target[-1]) == (end, end)
    for id in target[:-1]:
        if id in task.sentinels:
            runs[id] = []
        else:
            runs[list(runs)[-1]].append(id)
    return [id for piece in source[:-1] for id in (runs[piece] if piece in task.sentinels else [piece])]


@pytest.mark.slow
@given(
    row=st.lists(st.integers(5, 900), min_size=1, max_size=60),
    share=st.floats(0.02, 0.95),
    length=st.floats(1.0, 8.0),
    marks=st.integers(2, 20),
    key=st.integers(0, 999),
)
def test_source_and_target_give_the_text_back(
    row: list[int], share: float, length: float, marks: int, key: int
) -> None:
    task = spans(share, length, MARKS[:marks])
    source, target = (side.tolist() for side in task.corrupted(np.array(row), random_for(key)))
    assert restored(source, target, task) == row
    first, second = ([id for id in side if id in MARKS] for side in (source, target))
    runs = len(first)
    assert first == list(MARKS[:runs])
    assert second == list(MARKS[: runs + 1])
    gone = len(target) - len(second) - 1
    assert gone == round(min(max(len(row) * share, 1), len(row) - 1))
    assert len(source) <= len(row) + 1
    assert (runs == 0) == (len(row) == 1)
    for at in range(len(source) - 1):  # between two runs something is left, and every run has taken something
        assert not (source[at] in MARKS and source[at + 1] in MARKS)
    assert all(not (target[at] in MARKS and target[at + 1] in MARKS) for at in range(len(target) - 2) if runs)


@pytest.mark.parametrize(
    ("length", "gone", "runs"), [(1, 0, 0), (2, 1, 1), (3, 1, 1), (4, 1, 1), (5, 1, 1), (200, 30, 10), (40, 6, 2)]
)
def test_share_and_length_of_runs_are_as_asked(length: int, gone: int, runs: int) -> None:
    for key in range(20):
        source, target = spans().corrupted(np.arange(5, 5 + length), random_for(key))
        assert (len(source), len(target)) == (length - gone + runs + 1, gone + runs + 2)


@pytest.mark.slow
def test_a_run_may_stand_anywhere() -> None:
    places = Counter(int(spans().corrupted(np.arange(5), random_for(key))[1][1]) for key in range(2000))
    assert set(places) == set(range(5))
    assert min(places.values()) > 320  # of 400 each: within four deviations


def test_spans_by_hand() -> None:
    source, target = spans(0.5, 2.0).corrupted(np.arange(10, 18), random_for(0))
    assert source.tolist() == [1000, 12, 13, 1001, 16, 17, MARKED.eos]
    assert target.tolist() == [1000, 10, 11, 1001, 14, 15, 1002, MARKED.eos]
    one = spans().collate([(np.array([7]),)], random_for(0))
    assert (rows_of(one.source)[0].tolist(), one.wanted.tolist()) == ([7, MARKED.eos], [1000, MARKED.eos])


@pytest.mark.slow
def test_parts_are_drawn_evenly() -> None:
    found = Counter(tuple(parts(5, 3, random_for(key)).tolist()) for key in range(3000))
    assert set(found) == {(1, 1, 3), (1, 3, 1), (3, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 1)}
    assert min(found.values()) > 410  # of 500 each
    assert parts(4, 1, random_for(0)).tolist() == [4]
    assert parts(0, 0, random_for(0)).tolist() == []


def test_two_marks_are_needed() -> None:
    with pytest.raises(UserError, match="1 tokens to mark spans with"):
        spans(marks=(1000,))


# ---- room


@pytest.mark.parametrize(("task", "name"), [(CAUSAL, "causal"), (MASKED, "masked"), (spans(), "spans")])
def test_a_span_of_the_stream_fills_the_context_and_no_more(
    task: CausalLM | MaskedLM | SpanCorruption, name: str
) -> None:
    context, most = 24, 0
    row = np.arange(5, 5 + task.stride(context) + 1)
    for key in range(50):
        batch = task.collate([(row,)], random_for(key))
        most = max(most, (batch.source if name == "spans" else batch.read).ids.shape[1])  # pyright: ignore
    assert most <= context
    assert most == context or name == "spans"  # where one mark stands for several tokens
