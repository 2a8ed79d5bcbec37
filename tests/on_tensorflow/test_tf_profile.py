"""TensorFlow's own profile beside us: its events, and the annotations of GPUs' kernels, are as without us."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

ROOT = Path(__file__).parents[2]
#: How TensorFlow divides work between its threads, which differs from run to run. The callback that ends
#: an executor wakes its caller before it returns: the last one may still be open, and so left out, when the
#: profile ends.
SCHEDULING = re.compile(r"ThreadpoolListener|ExecutorState|ExecutorDoneCallback|Iterator::")
#: Numbers that TensorFlow draws for each run.
DRAWN = re.compile(r";[0-9a-f]{16};")

PROGRAM = """
import contextlib, ctypes, json, sys
from pathlib import Path
observed = sys.argv[1] == "1"
if observed:
    import opscope
    opscope.init()
import keras, numpy as np, tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)
(path,) = Path(tf.__file__).parent.glob("libtensorflow_framework.so.*")
stack = ctypes.CDLL(str(path))
get, enable = (getattr(stack, "_ZN3tsl8profiler15AnnotationStack" + name) for name in (
    "3GetB5cxx11Ev", "6EnableEb"))
get.restype = ctypes.c_void_p

def now():
    text, size = ctypes.cast(get(), ctypes.POINTER(ctypes.c_uint64))[0:2]
    return ctypes.string_at(text, size).decode()

seen = []
def look(x):
    seen.append(now())
    return x

keras.utils.set_random_seed(1)
model = keras.Sequential(
    [keras.layers.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
X, Y = np.ones((12, 4), "float32"), np.ones((12, 1), "float32")

@tf.function
def graph(x):
    return tf.py_function(look, [tf.nn.relu(tf.matmul(x, x))], tf.float32)

@tf.function
def called(x):
    return tf.numpy_function(look, [tf.exp(x)], tf.float32) + 1

@tf.function(jit_compile=True)
def compiled(x):
    return tf.reduce_sum(tf.exp(x) @ x)

def work():
    model.fit(X, Y, batch_size=4, verbose=0)
    for _ in range(2):
        graph(tf.ones((3, 3)))
        called(tf.ones((3, 3)))
    tf.py_function(look, [tf.ones(2)], tf.float32)
    compiled(tf.ones((3, 3)))
    tf.nn.softmax(tf.ones((3, 3)))

capture = opscope.capture("run.opscope", backend="recorder") if observed else contextlib.nullcontext()
with capture:
    work()
    seen.clear()
    enable(True)  # as CuptiTracer does
    tf.profiler.experimental.start("profile")
    work()
    tf.profiler.experimental.stop()
    enable(False)
    told = list(seen)
from tensorflow.tsl.profiler.protobuf import xplane_pb2
(path,) = Path("profile").rglob("*.xplane.pb")
space = xplane_pb2.XSpace.FromString(path.read_bytes())
events = []
for plane in space.planes:
    for line in plane.lines:
        for event in line.events:
            stats = sorted(
                (plane.stat_metadata[one.metadata_id].name,
                 one.str_value or (plane.stat_metadata[one.ref_value].name if one.ref_value else ""))
                for one in event.stats)
            events.append([plane.name, plane.event_metadata[event.metadata_id].name, stats])
Path("found.json").write_text(json.dumps([told, events]))
"""


def run(folder: Path, observed: bool) -> tuple[list[str], Counter]:
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(int(observed))],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told, events = json.loads((folder / "found.json").read_text())
    counted = Counter(
        DRAWN.sub(";;", json.dumps(one)) for one in events if not SCHEDULING.search(one[1])
    )
    return told, counted


def test_tensorflows_profile_is_the_same_beside_us(tmp_path):
    told, events = run(tmp_path / "plain", observed=False)
    beside, seen = run(tmp_path / "beside", observed=True)
    assert len(told) == 5
    assert {"EagerPyFunc:EagerPyFunc", "PyFunc:PyFunc"} <= set(told)
    assert beside == told
    assert sum(events.values()) > 300
    assert (seen - events, events - seen) == (Counter(), Counter())
