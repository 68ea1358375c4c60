"""Dynamic batching: what is asked together, what is not, and that an answer does not depend on its batch."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from headway.errors import UserError
from headway.generate.request import Interrupt, InterruptedCall
from headway.loading import load
from headway.serve.api_errors import ApiError
from headway.serve.batching import MAX_TOGETHER, BatchQueue, QueuedCall, answer_together, answered
from headway.serve.engine import Overloaded
from headway.serve.serve_options import EngineLimits, ServeOptions
from headway.serve.served_models import ModelPool
from headway.serve.streaming import ClientLeftError
from tests.serve.server import GatedEngine


class Asked:
    """Answers with capitals, once it may; `calls` are the inputs that it was called with."""

    def __init__(self) -> None:
        self.calls, self.may, self.begun = list[list[str]](), Event(), Event()

    def __call__(self, inputs: list[str], interrupt: Interrupt) -> list[str]:
        self.calls.append(inputs)
        self.begun.set()
        assert self.may.wait(10)
        interrupt()
        if "bad" in inputs:
            raise UserError("bad")
        return [one.upper() for one in inputs]


@contextmanager
def queue(limit: int = 100) -> Generator[BatchQueue]:
    found = BatchQueue("test", limit)
    try:
        yield found
    finally:
        found.close(drain=False)


def run(calls: list[tuple[list[str], str | None]], cancelled: tuple[int, ...] = ()) -> tuple[Asked, list[Any]]:
    """Calls that come while another is being answered."""
    asked = Asked()

    async def ask() -> list[Any]:
        with queue() as waiting:
            first = waiting.submit(QueuedCall(["first"], asked))
            await asyncio.to_thread(asked.begun.wait, 10)
            futures = [waiting.submit(QueuedCall(inputs, asked, group)) for inputs, group in calls]
            for at in cancelled:
                futures[at].cancel()
            await asyncio.sleep(0)  # in which the queue hears of it
            asked.may.set()
            await first
            return await asyncio.gather(*futures, return_exceptions=True)

    return asked, asyncio.run(ask())


def test_requests_of_a_group_are_answered_together() -> None:
    asked, found = run([(["a"], "x"), (["b"], "y"), (["c", "d"], "x"), (["e"], None), (["f"], None)])
    assert found == [["A"], ["B"], ["C", "D"], ["E"], ["F"]]
    assert asked.calls == [["first"], ["a", "c", "d"], ["b"], ["e"], ["f"]]


def test_a_call_is_bounded() -> None:
    asked, found = run([([str(at)] * 10, "x") for at in range(7)])
    assert [len(one) for one in found] == [10] * 7
    assert max(map(len, asked.calls)) <= MAX_TOGETHER
    assert len(asked.calls) == 1 + 3


def test_what_is_wrong_with_one_is_not_told_to_another() -> None:
    asked, found = run([(["a"], "x"), (["bad"], "x"), (["c"], "x")])
    assert found[0] == ["A"]
    assert isinstance(found[1], UserError)
    assert found[2] == ["C"]
    assert asked.calls[1:] == [["a", "bad", "c"], ["a"], ["bad"], ["c"]]


def test_who_has_left_is_not_answered() -> None:
    asked, found = run([(["a"], "x"), (["b"], "x"), (["c"], None)], cancelled=(0, 2))
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1] == ["B"]
    assert asked.calls == [["first"], ["b"]]


def test_what_is_written_for_nobody_is_interrupted() -> None:
    """While somebody of a batch still waits it goes on."""
    asked, call = Asked(), [QueuedCall([name], Asked()) for name in ("leaves", "stays", "leaves too")]
    for one in (call[0], call[2]):
        one.left.set()
    asked.may.set()
    together = [QueuedCall(one.inputs, asked, "x", left=one.left) for one in call]
    answer_together(together[:2])
    answer_together(together[2:])
    assert [one.future.exception() is None for one in together] == [True, True, False]
    assert isinstance(together[2].future.exception(), InterruptedCall)


def test_inputs_are_released_however_a_request_ends() -> None:
    asked, released = Asked(), list[str]()

    async def ask() -> None:
        waiting = BatchQueue("test", 3)

        def call(name: str) -> QueuedCall:
            return QueuedCall([name], asked, None, lambda: released.append(name))

        first = waiting.submit(call("first"))
        await asyncio.to_thread(asked.begun.wait, 10)
        bad, left, never = (waiting.submit(call(name)) for name in ("bad", "left", "never"))
        with pytest.raises(Overloaded) as error:
            waiting.submit(call("refused"))
        assert error.value.retry_after >= 1
        left.cancel()
        asked.may.set()
        assert await first == ["FIRST"]
        with pytest.raises(UserError):
            await bad
        assert await never == ["NEVER"]
        await asyncio.to_thread(waiting.close, drain=True)

    asyncio.run(ask())
    assert sorted(released) == ["bad", "first", "left", "never", "refused"]
    assert released.count("refused") == 1


def test_a_request_has_so_much_time() -> None:
    asked = Asked()

    async def never() -> Any:
        await asyncio.Event().wait()

    async def ask() -> None:
        waiting = BatchQueue("test", 3)
        with pytest.raises(ApiError) as error:
            await answered(never, waiting, QueuedCall(["a"], asked), 0.05)
        assert (error.value.status, error.value.code) == (503, "timeout")
        asked.may.set()
        await asyncio.to_thread(waiting.close, drain=True)

    asyncio.run(ask())


def test_who_leaves_while_it_waits_makes_room_at_once() -> None:
    asked, released = Asked(), list[str]()

    async def left() -> Any:
        return {"type": "http.disconnect"}

    async def ask() -> None:
        waiting = BatchQueue("test", 1)
        first = waiting.submit(QueuedCall(["first"], asked))
        await asyncio.to_thread(asked.begun.wait, 10)
        for name in ("a", "b"):
            with pytest.raises(ClientLeftError):
                await answered(left, waiting, QueuedCall([name], asked, release=lambda: released.append("one")), 60)
            assert waiting.waiting == 0
        asked.may.set()
        await first
        await asyncio.to_thread(waiting.close, drain=True)

    asyncio.run(ask())
    assert asked.calls == [["first"]]
    assert released == ["one"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["labels", "pairs", "tags", "vectors"])
def test_an_answer_does_not_depend_on_its_batch(folders: dict[str, Path], name: str) -> None:
    model = load(folders[name])
    texts = ["the cat sat on the mat", "a", "red big house", "", "on and on ran the dog, after a cat"] * 3
    together = [one.to_dict() for one in model.predict(texts)]
    for text, one in zip(texts[:5], together, strict=False):
        alone = model.predict(text).to_dict()
        numbers = alone.get("probabilities", {})
        assert one.get("probabilities", {}) == pytest.approx(numbers, abs=5e-6)
        if name == "vectors":
            assert one["output"] == pytest.approx(alone["output"], abs=5e-6)
        else:
            assert one["output"] == alone["output"]


@pytest.mark.slow
def test_models_are_loaded_when_asked_for_and_leave_where_memory_is_short(folders: dict[str, Path]) -> None:
    chosen = {name: folders[name] for name in ("labels", "tags", "masked")}

    async def ask() -> None:
        pool = ModelPool(chosen, ServeOptions(memory=45_000 / 2**30), GatedEngine)
        sizes = {name: slot.bytes for name, slot in pool.slots.items()}
        assert sum(sizes.values()) > 45_000 > max(sizes.values()) * 2
        assert pool.held() == []
        async with pool.lease("labels") as first:
            async with pool.lease("labels") as again:
                assert again is first
            async with pool.lease("tags"):
                with pytest.raises(ApiError) as error:  # both are in use
                    await pool.take("masked")
                assert error.value.status == 503
        async with pool.lease("masked"):
            loaded = {name for name, slot in pool.slots.items() if slot.loaded}
        assert loaded == {"labels", "masked"}  # tags was used longest ago
        assert not pool.slots["tags"].leases
        pool.close(drain=True)
        assert pool.held() == []

    asyncio.run(ask())


def test_a_model_that_never_fits_is_refused_at_once(folders: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="raise memory="):
        ModelPool({"labels": folders["labels"]}, ServeOptions(memory=1e-7), GatedEngine)


@pytest.mark.slow
def test_the_kv_cache_counts(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """A row has keys and values of each layer; there is one more than slots, whose prompt is read."""

    async def ask(memory: float, slots: int) -> int:
        options = ServeOptions(limits=EngineLimits(slots=slots), memory=memory)
        pool = ModelPool({"causal": folders["causal"]}, options, GatedEngine)
        try:
            async with pool.lease("causal") as served:
                return served.bytes
        finally:
            pool.close(drain=True)

    few, many = asyncio.run(ask(1.0, 2)), asyncio.run(ask(1.0, 12))
    config: Any = load(folders["causal"]).config
    assert many - few == 10 * config.context * config.layers * 2 * config.dim * 4
    with pytest.raises(ApiError) as error:
        asyncio.run(ask(0.001, 1000))
    assert error.value.status == 503
    assert "lower slots= or context=" in capsys.readouterr().out
