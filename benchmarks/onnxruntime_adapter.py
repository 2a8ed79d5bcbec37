"""Measure the cost of the ONNX Runtime adapter: µs a run, and compared with ONNX Runtime's own profiler.

    python benchmarks/onnxruntime_adapter.py [seconds per measurement]

All variants run in one process, in turns, and the best turn counts. Read the ratios; times depend on the
machine. ``off`` is the adapter installed without a listener, ``recorded`` opscope's ranges alone, ``profiler``
ONNX Runtime's profiler alone, ``nodes`` both, as in ``opscope run``. Making a session is measured once.
"""

import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session as capture_session

ROUNDS = 7


def model(layers, width):
    """A chain of products with ReLU: two nodes a layer."""
    random = np.random.default_rng(0)
    weights, nodes, x = [], [], "x"
    for number in range(layers):
        values = random.standard_normal((width, width)).astype(np.float32) / width
        weights.append(numpy_helper.from_array(values, f"w{number}"))
        for op, inputs in (("MatMul", [x, f"w{number}"]), ("Relu", [f"y{number}MatMul"])):
            out = f"y{number}{op}"
            nodes.append(helper.make_node(op, inputs, [out], name=f"/layer{number}/{op}"))
            x = out
    one, other = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name in ("x", x)
    )
    graph = helper.make_graph(nodes, "chain", [one], [other], weights)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def made(proto, profiled=None):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    if profiled is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profiled)
    return ort.InferenceSession(proto, options, providers=["CPUExecutionProvider"])


@contextmanager
def capture(folder):
    capture_session.start(RecorderCapture(folder))
    try:
        yield
    finally:
        capture_session.stop()


@contextmanager
def nothing():
    yield


def microseconds(session, x, seconds):
    """Return µs of the fastest run within the time, in groups of ten."""
    feed = {"x": x}
    for _ in range(10):
        session.run(None, feed)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(10):
            session.run(None, feed)
        best = min(best, time.perf_counter() - begin)
    return best / 10 * 1e6


def main(seconds):
    for title, layers, width, rows in (
        ("a run of one product, 16 × 16", 1, 16, 1),
        ("a run of 20 nodes, 128 × 128, 32 rows", 10, 128, 32),
        ("a run of 40 nodes, 512 × 512, 64 rows", 20, 512, 64),
    ):
        proto = model(layers, width)
        x = np.ones((rows, width), np.float32)
        best, making = {}, {}
        with tempfile.TemporaryDirectory() as root:
            plain = made(proto)
            for turn in range(ROUNDS):
                folder = Path(root) / str(turn)
                for name in ("plain", "off", "recorded", "profiler", "nodes"):
                    if name in ("off", "recorded"):
                        opscope.init()
                    if name == "nodes":
                        opscope.init("onnxruntime")
                    begin = time.perf_counter()
                    session = plain
                    if name in ("profiler", "nodes"):
                        session = made(proto, Path(root) / "p" if name == "profiler" else None)
                        took = (time.perf_counter() - begin) * 1e6
                        making[name] = min(making.get(name, took), took)
                    around = capture(folder / name) if name in ("recorded", "nodes") else nothing()
                    with around:
                        found = microseconds(session, x, seconds)
                    opscope.shutdown()
                    best[name] = min(best.get(name, found), found)
                    del session
            begin = time.perf_counter()
            made(proto)
            making["plain"] = (time.perf_counter() - begin) * 1e6
        print(title)
        for name, took in best.items():
            more = took - best["plain"]
            print(f"  {name:9} {took:10.2f} µs  {took / best['plain']:5.2f} ×  {more:+8.2f} µs")
        times = ", ".join(f"{name} {took / 1000:.1f} ms" for name, took in making.items())
        print(f"  making the session: {times}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.3)
