"""What a training with a planted slow loader and a fast one beside it must show, in every framework.

A batch of the slow loader sleeps ``SLOW_S``, a step of the fast one ``STEP_S``. On a busy machine, where steps and
fetches take longer, both sleep longer in proportion, so that no verdict changes.
"""

from __future__ import annotations

import time

SLOW_S, STEP_S = 0.05, 0.3
BATCHES, FAST_BATCHES = 6, 4


#: The longest that a sleep in proportion may be: the first step may compile for long.
_MOST_S = 3.0
_ended: dict[str, float] = {}
#: How long the last step took that ``step_took`` was told.
_last_step = 0.0


def work() -> None:
    """What a step of the fast loader does beside its training: 25 times what came since the last one."""
    time.sleep(_in_proportion("work", STEP_S, 25))
    _ended["work"] = time.monotonic()


def slowly(seconds: float = SLOW_S) -> None:
    """What a batch of the slow loader takes, in the program's thread: as long as its last step, at least."""
    time.sleep(_in_proportion("slowly", seconds, 1))
    _ended["slowly"] = time.monotonic()


def _in_proportion(what: str, least: float, times: float) -> float:
    passed = time.monotonic() - _ended.get(what, time.monotonic())
    return max(least, min(passed * times, _MOST_S))


def step_took(seconds: float) -> None:
    """Tell ``slower_than_steps`` how long a step took without the wait for its batch."""
    global _last_step
    _last_step = seconds


def slower_than_steps(seconds: float) -> None:
    """What a batch takes that is read ahead on another thread: twice as long as a step."""
    time.sleep(max(seconds, min(2 * _last_step, _MOST_S)))


def check(profile, slow: str, fast: str | None, source: str | None = None) -> None:
    """``slow`` and ``fast``: parts of the loaders' names or source lines."""
    found = profile.data_preparation().rows(named=True)

    def one(part: str) -> dict:
        chosen = [row for row in found if part in f"{row['loader']} {row['source']}"]
        assert len(chosen) == 1, found
        return chosen[0]

    accused = one(slow)
    assert accused["verdict"] == "input-bound", found
    # a part of the sleep may be over before the batch is asked for
    assert accused["total"] >= BATCHES * SLOW_S * 1e9 / 2
    assert accused["bound_steps"] >= BATCHES - 2
    assert [row for row in found if row["verdict"] == "input-bound"] == [accused]
    steps = profile.input_waits()
    assert steps["reason"].null_count() == len(steps)
    slow_steps = steps.filter(
        steps["source"].eq_missing(accused["source"]) & (steps["loader"] == accused["loader"])
    )
    # the first may compile for long, the last asks again and hears that there is no more
    assert slow_steps["input_bound"].sum() >= BATCHES - 2
    if fast is not None:
        innocent = one(fast)
        assert innocent["verdict"] == "not input-bound", found
        # the first step with it has the end of the slow one's epoch, or makes its iterator
        assert innocent["bound_steps"] <= 1
        assert innocent["steps"] >= FAST_BATCHES - 1
    if source is not None:
        assert source in (accused["source"] or "")
