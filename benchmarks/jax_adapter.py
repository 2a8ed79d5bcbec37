"""Measure the cost of the JAX adapter: µs per jitted call and step-time ratios, compared with jax.profiler.

    python benchmarks/jax_adapter.py [seconds per measurement]

All variants run in one process, in turns, and the best turn counts. Read the ratios; times depend on the
machine. ``off`` is the adapter installed without a listener, ``recorded`` opscope's ranges alone,
``Python`` the same without the native code that writes ranges, ``profiler`` jax.profiler alone, ``captured`` both, as in
``opscope run``; the empty step shows the cost of a step's range.
"""

import runpy
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp

import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.backends.xplane_capture import XPlaneCapture
from opscope.core.capture import emit, session

ROUNDS = 5
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "jax_cnn.py"


def tiny_call():
    function = jax.jit(lambda x: x + 1)
    x = jnp.ones(4)

    def step():
        for _ in range(100):
            function(x)

    return step, 100


def empty_step():
    def step():
        for number in range(100):
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                pass

    return step, 100


def training():
    module = runpy.run_path(str(EXAMPLE))
    _, images, labels = next(iter(module["batches"](1, 32)))
    state = [module["init"](jax.random.key(1))]
    train = module["train_step"]

    def step():
        state[0], loss = train(state[0], images, labels)
        loss.block_until_ready()

    return step, 1


@contextmanager
def profiler(folder):
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 2
    jax.profiler.start_trace(str(folder), profiler_options=options)
    try:
        yield
    finally:
        jax.profiler.stop_trace()


@contextmanager
def capture(made):
    session.start(made)
    try:
        yield
    finally:
        session.stop()


@contextmanager
def from_python(recording):
    with recording:
        native = emit._native
        emit.write_natively(None)
        try:
            yield
        finally:
            emit.write_natively(native)


@contextmanager
def nothing():
    yield


def microseconds(step, many, seconds):
    """Return µs per item of the fastest step within the time; a step has ``many`` items."""
    step()
    best, end = float("inf"), time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        step()
        best = min(best, time.perf_counter() - begin)
    return best / many * 1e6


def main(seconds):
    for title, make in (
        ("jitted call", tiny_call),
        ("empty step", empty_step),
        ("CNN step", training),
    ):
        plain, many = make()
        best = {}
        with tempfile.TemporaryDirectory() as root:
            for turn in range(ROUNDS):
                folder = Path(root) / str(turn)
                variants = {
                    "plain": (plain, False, nothing()),
                    "off": (None, True, nothing()),
                    "recorded": (None, True, capture(RecorderCapture(folder / "r"))),
                    "Python": (None, True, from_python(capture(RecorderCapture(folder / "p")))),
                    "profiler": (plain, False, profiler(folder / "j")),
                    "captured": (None, True, capture(XPlaneCapture(folder / "x"))),
                }
                for name, (step, installed, around) in variants.items():
                    if installed:
                        opscope.init("jax")
                        step, _ = make()
                    with around:
                        found = microseconds(step, many, seconds)
                    if installed:
                        opscope.shutdown()
                    best[name] = min(best.get(name, found), found)
        print(title)
        for name, took in best.items():
            print(f"  {name:9} {took:10.2f} µs  {took / best['plain']:5.2f} ×")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.3)
