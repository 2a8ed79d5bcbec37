"""Answers at one time: in turns, with an end; one that is slow, left or hostile keeps no other from its own."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from opscope.core import progress
from opscope.core.lru_cache import LRUCache
from opscope.viewer import work
from opscope.viewer.work import Busy, Work


class Slow:
    """A function that ends when it is let go; ``checks``: it says how far it is, each time it is let go."""

    def __init__(self, checks: bool = False) -> None:
        self.begun, self.go, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.checks = checks

    def __call__(self):
        self.begun.set()
        try:
            with progress.stage("counting", 3) as stage:
                while not self.go.wait(0.01):
                    if self.checks:
                        stage.add(0)
                        stage._open()  # what a stage within it does
            return "slow"
        finally:
            self.ended.set()


async def begun(*slow):
    for one in slow:
        while not one.begun.is_set():
            await asyncio.sleep(0.001)


def run(main):
    return asyncio.run(asyncio.wait_for(main, 60))


def test_an_answer_is_returned_and_its_error_raised():
    async def main():
        doing = Work()
        assert await doing.do("a", lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await doing.do("a", lambda: 1 // 0)
        assert doing.running() == []

    run(main())


def test_no_more_than_four_at_a_time_and_the_first_come_first():
    async def main():
        doing, order = Work(), []
        held = [Slow() for _ in range(4)]
        tasks = [asyncio.create_task(doing.do("held", one)) for one in held]
        await begun(*held)
        later = [
            asyncio.create_task(doing.do("later", lambda n=n: order.append(n))) for n in range(5)
        ]
        await asyncio.sleep(0.3)
        assert order == []
        held[0].go.set()
        await asyncio.gather(*later)
        assert sorted(order) == list(range(5))
        assert order[0] == 0
        for one in held:
            one.go.set()
        assert await asyncio.gather(*tasks) == ["slow"] * 4

    run(main())


def test_more_than_wait_are_refused_at_once(monkeypatch):
    monkeypatch.setattr(work, "_WAITING", 2)

    async def main():
        doing = Work()
        held = [Slow() for _ in range(6)]
        tasks = [asyncio.create_task(doing.do("held", one)) for one in held]
        await begun(*held[:4])
        with pytest.raises(Busy, match="too many"):
            await doing.do("late", lambda: 1)
        for one in held:
            one.go.set()
        await asyncio.gather(*tasks)

    run(main())


@pytest.mark.parametrize("left", ["timed out", "the page went on"])
@pytest.mark.parametrize("checks", [True, False])
def test_answers_that_nobody_waits_for_keep_no_other_from_its_turn(left, checks):
    async def main():
        doing = Work(patience=0.2 if left == "timed out" else 60)
        held = [Slow(checks) for _ in range(4)]
        tasks = [asyncio.create_task(doing.do("held", one)) for one in held]
        await begun(*held)
        if left == "timed out":
            for task in tasks:
                with pytest.raises(Busy, match="the answer took longer"):
                    await task
        else:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        assert doing.running() == []
        doing._patience = 60.0
        assert await doing.do("quick", lambda: 1) == 1
        if checks:  # those that say how far they are end by themselves, once their turn is needed
            more = [await doing.do("quick", lambda: 1) for _ in range(3)]
            assert more == [1, 1, 1]
            while not held[0].ended.is_set():
                await asyncio.sleep(0.001)
        for one in held:
            one.go.set()

    run(main())


def test_an_answer_that_takes_long_lets_others_pass():
    async def main():
        doing = Work(long=0.05)
        held = [Slow() for _ in range(4)]
        tasks = [asyncio.create_task(doing.do("held", one)) for one in held]
        await begun(*held)
        assert await doing.do("quick", lambda: 1) == 1
        assert [one["question"] for one in doing.running()] == ["held"] * 4
        for one in held:
            one.go.set()
        assert await asyncio.gather(*tasks) == ["slow"] * 4

    run(main())


def test_slow_answers_are_bounded_in_number(monkeypatch):
    """No hundred threads, however many questions a page gives up."""

    async def main():
        doing, held = Work(patience=0.3, long=0.0), []
        for _ in range(40):
            held.append(Slow())
            task = asyncio.create_task(doing.do("held", held[-1]))
            await asyncio.sleep(0.02)
            task.cancel()
            with suppress(Busy, asyncio.CancelledError):
                await task
        bound = work._AT_ONCE + work._BESIDE
        assert sum(one.begun.is_set() for one in held) <= bound
        with pytest.raises(Busy, match="other questions"):
            await doing.do("late", lambda: 1)
        for one in held:
            one.go.set()
        while doing._running:
            await asyncio.sleep(0.001)
        doing._patience = 60.0
        assert await doing.do("late", lambda: 1) == 1

    run(main())


def test_a_question_is_refused_in_words_once_only_abandoned_answers_keep_it_from_its_turn(
    monkeypatch,
):
    """It does not wait for as long as an answer may take, and is answered once one of them has ended."""
    monkeypatch.setattr(work, "_STUCK", 0.05)

    async def main():
        doing, held = Work(patience=60, long=0.0), []
        for number in range(work._AT_ONCE + work._BESIDE):
            held.append(Slow())
            task = asyncio.create_task(doing.do("held", held[-1]))
            await begun(held[-1])
            if number:  # the page still waits for the first
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            else:
                waited = task
        late = asyncio.create_task(doing.do("late", lambda: 1))
        await asyncio.sleep(0.5)
        assert not late.done()
        waited.cancel()
        with pytest.raises(Busy, match="16 answers that nobody waits for any more"):
            await late
        held[3].go.set()
        assert await doing.do("late", lambda: 1) == 1
        for one in held:
            one.go.set()

    run(main())


def test_what_is_being_done_is_said():
    async def main():
        doing, slow = Work(), Slow()
        task = asyncio.create_task(doing.do("overview", slow))
        await begun(slow)
        while not (found := doing.running()) or found[0]["doing"] is None:
            await asyncio.sleep(0.001)
        assert found[0]["question"] == "overview"
        assert (found[0]["doing"], found[0]["done"], found[0]["total"]) == ("counting", 0, 3)
        slow.go.set()
        await task

    run(main())


def test_giving_up_is_no_fault_that_an_analysis_catches_and_nothing_half_made_is_kept():
    async def main():
        doing, kept, slow = Work(patience=0.2), LRUCache(10), Slow(checks=True)

        def careless():
            try:
                return slow()
            except Exception:  # noqa: BLE001 - as some analyses catch the faults of their parts
                return "half"

        held = [
            asyncio.create_task(doing.do("held", lambda: kept.get("key", careless)))
            for _ in range(4)
        ]
        await begun(slow)
        await asyncio.wait(held)
        doing._patience = 60.0
        assert await doing.do("quick", lambda: 1) == 1
        while doing._running:
            await asyncio.sleep(0.001)
            if slow.ended.is_set():
                slow.go.set()
        assert kept.get("key", lambda: "whole") == "slow"

    run(main())
