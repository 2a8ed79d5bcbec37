"""Make many reports in two threads, which takes half to three quarters of the time of one thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from opscope.core import progress

_Made = TypeVar("_Made")
#: If there are fewer reports than this, they are made in one thread, because they share most computations.
_MANY: Final = 8
#: Reports that take long, with their time relative to the usual 50 ms on a trace of 400,000 kernels.
_WEIGHTS: Final = {
    "advice": 60, "advice_combined": 5, "by_layer": 6, "by_op": 5, "by_source": 6, "call_tree": 12,
    "critical_totals": 5, "detail": 12, "diagnosis": 22, "idle_ops": 4, "operators": 6,
    "operators_by_inputs": 5, "operators_by_source": 5, "roofline": 14, "roofline_kernel": 2,
    "sequences": 4, "utilization": 3,
}  # fmt: skip

#: Reports that are made after all others, because the others add notes.
_LAST: Final = frozenset({"notes"})


def made(names: Iterable[str], make: Callable[[str], _Made]) -> dict[str, _Made]:
    """Return ``make(name)`` for each name, in the order of the names. Raises what ``make`` raises.

    One thread begins with the first name, another with the last, until they meet: reports of one subject are
    next to each other, so a thread can reuse what it computed. More than two would need too much memory.
    Notes are made last, so that they contain the notes of all reports, whichever thread made them.
    """
    order = list(names)
    with progress.stage("making reports", sum(map(_weight, order))) as stage:

        def one(name: str) -> _Made:
            frame = make(name)
            stage.add(_weight(name))
            return frame

        early = [name for name in order if name not in _LAST]
        if len(early) < _MANY or _processors() < 2:
            frames = {name: one(name) for name in early}
        else:
            frames = _by_two(early, one)
        return {name: frames[name] if name in frames else one(name) for name in order}


def _weight(name: str) -> int:
    return _WEIGHTS.get(name, 1)


def _by_two(order: list[str], make: Callable[[str], _Made]) -> dict[str, _Made]:
    frames: dict[str, _Made] = {}
    waiting, failed = list(order), list[BaseException]()
    taking = threading.Lock()

    def take(index: int) -> str | None:
        with taking:
            return waiting.pop(index) if waiting and not failed else None

    def from_the_last() -> None:
        try:
            while (name := take(-1)) is not None:
                frames[name] = make(name)
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            failed.append(error)

    # a daemon thread, so that Ctrl-C, which reaches the caller's thread, does not wait for it
    other = threading.Thread(target=from_the_last, name="opscope-reports", daemon=True)
    other.start()
    try:
        while (name := take(0)) is not None:
            frames[name] = make(name)
    except BaseException as error:
        failed.append(error)
        raise
    other.join()
    if failed:
        raise failed[0]
    return {name: frames[name] for name in order}


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
