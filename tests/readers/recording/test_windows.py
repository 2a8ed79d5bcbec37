"""Which device work of a part counts: what was launched while its ranges were recorded."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from opscope.core import recording_format
from opscope.readers.recording.ranges import Texts, ranges
from opscope.readers.recording.windows import BEFORE, with_windows


@pytest.mark.parametrize(
    ("error", "kept"), [(0, [3, 4]), (150, [2, 3, 4]), (50_000_000, [1, 2, 3, 4])]
)
def test_what_was_launched_before_the_ranges_were_recorded_is_left_out(trace_of, error, kept):
    """In a program that runs already the profiler begins first; what lies within the clock's error counts,
    and all of it where the clocks are not tied."""
    at = {1: 500, 2: 900, 3: 1_000, 4: 1_100}
    calls = [
        {"process": 0, "thread": 1, "start": start, "end": start + 10, "correlation": number}
        for number, start in at.items()
    ]
    ran = [
        {
            "process": 0,
            "device": 0,
            "stream": 7,
            "start": 2_000 + n,
            "end": 2_001 + n,
            "correlation": n,
        }
        for n in at
    ]
    trace = trace_of(
        processes=[{"process": 0, "host": "h", "pid": 1, "start_time": 1}],
        calls=calls,
        kernels=[{**one, "name": "k"} for one in ran],
        memops=[{**one, "kind": "HtoD"} for one in ran],
        clocks=[{"clock_domain": 0, "kind": "perf_counter_ns", "error_ns": error}],
    )
    trace.origin.update(profiling=(400, "kernels"), recorded=(1_000, 9_000), window=None)
    trace.origin.update(
        kernels=True,
        window={"start": 400, "end": 9_000, "first_step": None, "last_step": None, "ended": None,
                "chosen": False},
    )  # fmt: skip
    (part,) = with_windows([trace])
    for name in ("kernels", "memops"):
        assert part[name]["correlation"].to_list() == kept
    assert len(part["calls"]) == len(at)
    told = dict(part["notes"].select("what", "how_many").rows())
    assert told.get(BEFORE, 0) == 2 * (len(at) - len(kept))
    assert part["windows"].select(pl.len()).item() == 0


def test_a_range_that_ends_in_the_log_of_native_code_ends_there():
    """Somebody attached: the first step began in Python, and native code took over inside it."""
    step, op, pop = 7, 8, recording_format.POP_BASE
    words = {
        "domain": ["opscope.step", "opscope.torch"],
        "category": ["step", None],
        "text": ["step 3", "op"],
    }
    texts = Texts(np.array([step, op]), np.array([3, 0]), pl.DataFrame(words))
    python = [(step, 10)]
    native = [(op, 20), (pop, 30), (pop - 3, 40), (step, 41), (recording_format.PAYLOAD, 5), (op, 50), (pop, 60),
              (pop - 3, 70)]  # fmt: skip
    logs = {0: np.array(python), recording_format.SOURCE_THREADS: np.array(native)}
    notes: list[tuple[str, str, int]] = []
    table = ranges(logs, texts, dict.fromkeys(logs, 4000), 100, notes)
    assert table.select("thread", "start", "end", "text", "payload").rows() == [
        (4000, 10, 40, "step 3", None), (4000, 20, 30, "op", None),
        (4000, 41, 70, "step 3", None), (4000, 50, 60, "op", 5),
    ]  # fmt: skip
    assert not notes
