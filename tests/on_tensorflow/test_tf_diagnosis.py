"""Causes planted in live trainings with TensorFlow and Keras on the CPU are named first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import opscope

pytest.importorskip("tensorflow")
ROOT = Path(opscope.__file__).resolve().parents[1]
SLOW_LOADER = """
import time
import numpy as np, tensorflow as tf, keras

def samples():
    for _ in range(8):
        time.sleep(0.5)
        yield np.ones((16, 32), "float32"), np.ones((16,), "int32")

signature = (tf.TensorSpec((16, 32), tf.float32), tf.TensorSpec((16,), tf.int32))
data = tf.data.Dataset.from_generator(samples, output_signature=signature)
model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
model.fit(data, verbose=0)
"""
RETRACED = """
import tensorflow as tf
import opscope

@tf.function
def step(x, count):
    for _ in range(count):
        x = tf.nn.relu(x @ x)
    return x

for number in range(6):
    opscope.step()
    step(tf.ones((4 + number, 4 + number)), 200)
opscope.step()
"""


@pytest.mark.parametrize(
    ("program", "finding", "to_try"),
    [(SLOW_LOADER, "input-bound", "prefetch"), (RETRACED, "compilation", "reduce_retracing")],
    ids=["slow loader", "a new shape in each step"],
)
def test_a_planted_cause_is_named_first(tmp_path, program, finding, to_try):
    (tmp_path / "train.py").write_text(program)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "opscope", "run", "-o", "out", "--backend", "recorder", "--",
         sys.executable, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = opscope.load(tmp_path / "out.opscope").diagnosis().to_dicts()
    assert rows[0]["finding"] == finding, rows
    assert to_try in rows[0]["to_try"]
