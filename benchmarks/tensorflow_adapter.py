"""Measure the cost of the TensorFlow adapter: µs per eager op, graph op and step, beside TF's profiler.

    python benchmarks/tensorflow_adapter.py [seconds per measurement]

All variants run in one process, in turns, and the best turn counts. Read the ratios; times depend on the
machine. ``off`` is the adapter installed without a listener; ``sizes`` is a graph with sizes that are known
only when it runs.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import emit, session

ROUNDS = 5
EAGER, GRAPH = 100, 400


def eager():
    x = tf.ones((4, 4))

    def step():
        for _ in range(EAGER):
            tf.raw_ops.Relu(features=x)

    return step, EAGER


def chain(x):
    for _ in range(GRAPH // 4):
        x = tf.matmul(x, x)
        x = tf.nn.softmax(x)
        x = tf.cumsum(x)
        x = tf.nn.l2_loss(x) * x
    return x


def graph():
    x = tf.ones((4, 4))
    function = tf.function(chain)
    return (lambda: function(x)), GRAPH


def sizes():
    x = tf.ones((4, 4))
    function = tf.function(chain, input_signature=[tf.TensorSpec((None, None))])
    return (lambda: function(x)), GRAPH


def steps():
    """A step with only Keras's callbacks before and after it."""
    callbacks = keras.callbacks.CallbackList([], model=None)

    def step():
        for number in range(100):
            callbacks.on_train_batch_begin(number)
            callbacks.on_train_batch_end(number)

    return step, 100


def best_of(step, seconds):
    """Return seconds per call, the least of the repeats."""
    step()
    step()
    best = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - start)
    return best


def without(make, seconds):
    return best_of(make()[0], seconds)


def off(make, seconds):
    opscope.init(["tensorflow", "keras"])
    try:
        return best_of(make()[0], seconds)
    finally:
        opscope.shutdown()


def recording(make, seconds, python=False, **options):
    opscope.init(["tensorflow", "keras"], **options)
    folder = Path(tempfile.mkdtemp())
    session.start(RecorderCapture(folder))
    native = emit._native
    if python:
        emit.write_natively(None)
    try:
        return best_of(make()[0], seconds)
    finally:
        emit.write_natively(native)
        session.stop()
        opscope.shutdown()
        shutil.rmtree(folder)


def bare(make, seconds):
    return recording(make, seconds, source=False)


def from_python(make, seconds):
    return recording(make, seconds, python=True)


def profiler(make, seconds):
    folder = tempfile.mkdtemp()
    step = make()[0]
    tf.profiler.experimental.start(folder)
    try:
        return best_of(step, min(seconds, 0.1))
    finally:
        tf.profiler.experimental.stop(save=False)
        shutil.rmtree(folder)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    variants = {
        "nothing": without,
        "off": off,
        "recording": recording,
        "  without source": bare,
        "  ranges from Python": from_python,
        "TensorFlow's profiler": profiler,
    }
    print(f"{'':26}{'':24}{'µs each':>10}{'ratio':>8}{'µs added':>11}")
    for make in (eager, graph, sizes, steps):
        many = make()[1]
        times = {name: [] for name in variants}
        for _ in range(ROUNDS):
            for name, run in variants.items():
                times[name].append(run(make, seconds / ROUNDS) / many * 1e6)
        base = min(times["nothing"])
        for name, found in times.items():
            least = min(found)
            title = f"{make.__name__} ({many})" if name == "nothing" else ""
            print(f"{title:26}{name:24}{least:10.3f}{least / base:8.2f}{least - base:11.3f}")
    assert np.isfinite(base)


if __name__ == "__main__":
    main()
