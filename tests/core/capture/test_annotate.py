"""``annotate`` around what can be suspended: a range for each stretch that runs, and nothing else differs."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools

import pytest

import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session
from opscope.readers.recording.reader import collect


class Told(list):
    """Texts as ranges begin (``+``) and end (``-``), in order, and whatever a test appends."""

    def texts(self) -> list[str]:
        """Of the ranges, as they begin."""
        return [one[1:] for one in self if one.startswith("+")]


@pytest.fixture
def told(monkeypatch) -> Told:
    """The user's ranges, heard where the emitter would write them."""
    heard, open_now = Told(), []

    class Emitter:
        active = True

        def prepare(self, text, category):
            return text

        def push(self, text):
            open_now.append(text)
            heard.append(f"+{text}")

        def pop(self):
            heard.append(f"-{open_now.pop()}")

    emitter = Emitter()
    monkeypatch.setattr(session, "emitter", lambda framework: emitter)
    yield heard
    assert not open_now


def test_tasks_that_wait_for_each_other_have_ranges_that_nest(tmp_path):
    """Through the recorder: no range is open while its coroutine waits."""

    @opscope.annotate("inner")
    async def inner(name):
        with opscope.annotate(f"{name} works"):
            sum(range(1000))
        await asyncio.sleep(0)
        return name

    @opscope.annotate("outer")
    async def outer(name):
        await asyncio.sleep(0)
        return await inner(name)

    async def main():
        assert await asyncio.gather(outer("a"), outer("b")) == ["a", "b"]

    session.start(RecorderCapture(tmp_path / "run"))
    try:
        asyncio.run(main())
    finally:
        session.stop()
    rows = collect(tmp_path / "run")["ranges"].sort("start").to_dicts()
    rows = [row for row in rows if row["domain"] == "opscope.user"]
    of = {name: [row for row in rows if row["text"] == name] for name in ("inner", "outer")}
    # three stretches of each of two: to the sleep, to the sleep in inner, to the end
    assert len(of["outer"]) == 6
    assert len(of["inner"]) == 4
    for name in ("a works", "b works"):
        (work,) = (row for row in rows if row["text"] == name)
        for around in of.values():
            assert sum(r["start"] <= work["start"] and work["end"] <= r["end"] for r in around) == 1
    ends = [(row["start"], row["end"]) for row in of["outer"]]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))


def test_the_body_of_a_coroutine_is_inside(told):
    @opscope.annotate("work")
    async def work():
        told.append("one")
        await asyncio.sleep(0)
        told.append("two")
        return 7

    assert inspect.iscoroutinefunction(work)
    assert work.__name__ == "work"
    waiting = work()
    assert inspect.iscoroutine(waiting)
    assert told == []  # the call alone runs nothing
    assert asyncio.run(_of(waiting)) == 7
    assert told == ["+work", "one", "-work", "+work", "two", "-work"]


async def _of(waiting):
    return await waiting


def test_a_generator_is_inside_whenever_it_runs(told):
    @opscope.annotate("items")
    def items(first):
        try:
            sent = yield first
            told.append(f"sent {sent}")
            try:
                yield 2
            except KeyError:
                told.append("thrown")
            yield 3
        finally:
            told.append("closed")
        return "end"

    assert inspect.isgeneratorfunction(items)
    made = items(1)
    assert told == []
    assert next(made) == 1
    assert told == ["+items", "-items"]
    assert made.send("x") == 2
    assert made.throw(KeyError("k")) == 3
    with pytest.raises(StopIteration) as end:
        next(made)
    assert end.value.value == "end"
    within = [
        "+items",
        "sent x",
        "-items",
        "+items",
        "thrown",
        "-items",
        "+items",
        "closed",
        "-items",
    ]
    assert told[2:] == within
    del told[:]
    left = items(1)
    next(left)
    left.close()
    assert told == ["+items", "-items", "+items", "closed", "-items"]
    del told[:]
    assert list(items(5)) == [5, 2, 3]
    assert len(told.texts()) == 4


def test_what_is_raised_is_what_the_body_raises(told):
    class Mine(Exception):
        pass

    @opscope.annotate("fails")
    def fails():
        yield 1
        raise Mine

    @opscope.annotate("waits")
    async def waits():
        await asyncio.sleep(0)
        raise Mine

    @opscope.annotate("stops")
    def stops():
        yield 1
        raise StopIteration

    made = fails()
    next(made)
    with pytest.raises(Mine):
        next(made)
    with pytest.raises(StopIteration):
        next(made)
    with pytest.raises(Mine):
        asyncio.run(waits())
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(stops())


def test_a_task_can_be_cancelled(told):
    @opscope.annotate("waits")
    async def waits():
        try:
            await asyncio.sleep(60)
        finally:
            told.append("cancelled")

    async def main():
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert told == ["+waits", "-waits", "+waits", "cancelled", "-waits"]


def test_an_asynchronous_generator(told):
    @opscope.annotate("items")
    async def items():
        try:
            await asyncio.sleep(0)
            sent = yield 1
            told.append(f"sent {sent}")
            try:
                yield 2
            except KeyError:
                told.append("thrown")
                yield 3
        finally:
            await asyncio.sleep(0)
            told.append("closed")

    assert inspect.isasyncgenfunction(items)

    async def whole():
        return [item async for item in items()]

    assert asyncio.run(whole()) == [1, 2]
    within = ["+items", "-items"] * 2 + ["+items", "sent None", "-items", "+items", "-items"]
    assert told == [*within, "+items", "closed", "-items"]
    del told[:]

    async def talk():
        made = items()
        assert await made.__anext__() == 1
        assert await made.asend("x") == 2
        assert await made.athrow(KeyError("k")) == 3
        await made.aclose()
        with pytest.raises(StopAsyncIteration):
            await made.__anext__()

    asyncio.run(talk())
    assert [one for one in told if one[0] not in "+-"] == ["sent x", "thrown", "closed"]
    assert told[-1] == "-items"


def test_an_asynchronous_generator_left_open_is_closed_once_by_the_loop(told):
    problems = []

    @opscope.annotate("items")
    async def items():
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            told.append("closed")

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: problems.append(context))
        kept.append(items())
        await kept[0].__anext__()
        dropped = items()
        await dropped.__anext__()
        del dropped
        gc.collect()
        await asyncio.sleep(0.01)

    kept = []
    asyncio.run(main())
    assert problems == []
    assert told.count("closed") == 2


def test_a_coroutine_that_never_ran_is_closed_without_a_word(told, recwarn):
    ran = []

    @opscope.annotate("work")
    async def work():
        ran.append(1)

    work().close()
    gc.collect()
    assert not ran
    assert told == []
    assert not recwarn.list
