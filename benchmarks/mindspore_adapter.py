"""Print what recording costs a MindSpore program, beside MindSpore's own profiler.

Usage: python benchmarks/mindspore_adapter.py [graph|pynative] [steps]

LeNet and a small transformer are trained bare, with opscope's recorder, with opscope and MindSpore's profiler
(the backend ``mindspore``), and with ``mindspore.profiler`` alone, in turns. Times are ms a step, ms of CPU time a step
(which a busy machine changes least) and ms for ending, the least of all turns; take ratios. MindSpore searches for the number of threads of each
kernel in its first steps, so that many are run before the first is timed.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

os.environ.setdefault("GLOG_v", "3")
ROOT = Path(__file__).resolve().parents[1]
#: Steps before the first that is timed, and how often each way is run.
WARM_UP, TURNS = 60, 2
sys.path.insert(0, str(ROOT))

from mindspore import profiler  # noqa: E402

import opscope  # noqa: E402
from opscope import backends  # noqa: E402
from opscope.core.capture import session  # noqa: E402
from tests.on_mindspore.graph_models import LeNet, Transformer, made, trained  # noqa: E402


def timed(step, data, steps):
    """Return ms of each step, and ms of CPU time of all threads."""
    times = []
    for _ in range(steps):
        begin, cpu = perf_counter(), process_time()
        trained(step, data, 1)
        times.append(((perf_counter() - begin) * 1e3, (process_time() - cpu) * 1e3))
    return times


def bare(step, data, steps, folder):
    """Return ms of each step of the training alone, and 0."""
    return timed(step, data, steps), 0.0


def captured(name, step, data, steps, folder):
    """Return ms of each step under a backend of opscope, and ms to end it."""
    opscope.init()
    session.start(backends.make(name, folder))
    trained(step, data, 2)
    times = timed(step, data, steps)
    begin = perf_counter()
    session.stop()
    end = (perf_counter() - begin) * 1e3
    opscope.shutdown()
    return times, end


def theirs(step, data, steps, folder):
    """Return the same under ``mindspore.profiler``."""
    own = profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder)),
    )
    own.start()
    trained(step, data, 2)
    times = timed(step, data, steps)
    begin = perf_counter()
    own.stop()
    return times, (perf_counter() - begin) * 1e3


WAYS = {
    "bare": bare,
    "recorder": functools.partial(captured, "recorder"),
    "mindspore backend": functools.partial(captured, "mindspore"),
    "mindspore.profiler": theirs,
}


def main() -> None:
    graph = "pynative" not in sys.argv[1:]
    steps = next((int(one) for one in sys.argv[1:] if one.isdigit()), 50)
    print(
        f"{'graph' if graph else 'PyNative'} mode, {steps} steps: ms a step (ratio to bare), CPU ms a step (ratio), ms to end"
    )
    for kind in (LeNet, Transformer):
        step, _, data = made(kind, graph)
        trained(step, data, WARM_UP)
        times: dict[str, list[tuple[float, float]]] = {}
        ends: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as root:
            for turn in range(TURNS):
                for name, run in WAYS.items():
                    took, end = run(step, data, steps, f"{root}/{turn}-{name}")
                    times.setdefault(name, []).extend(took)
                    ends[name] = min(end, ends.get(name, end))
        alone = [min(one) for one in zip(*times["bare"], strict=True)]
        for name, all_of in times.items():
            ms, cpu = (min(one) for one in zip(*all_of, strict=True))
            print(
                f"{kind.__name__:12} {name:20} {ms:8.2f} ({ms / alone[0]:4.2f})  {cpu:8.2f} "
                f"({cpu / alone[1]:4.2f})  {ends[name]:8.1f}"
            )


if __name__ == "__main__":
    main()
