"""`opscope dlprof --mode tensorflow1`: a program of sessions (tf.compat.v1) is recorded op by op."""

from __future__ import annotations

import polars as pl

import opscope
from tests.dlprof_bench import Bench

SESSION = """
import sys
import numpy as np
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
x = v1.placeholder(tf.float32, [8, 16], name="x")
w = v1.get_variable("w", [16, 4])
y = tf.nn.relu(v1.matmul(x, w, name="product"))
step = v1.train.get_or_create_global_step()
train = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(y), global_step=step)
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    for _ in range(3):
        session.run(train, {x: np.ones((8, 16), "f4")})
sys.exit(5)
"""


def test_the_ops_of_sessions_are_recorded_with_shapes_and_gradients(tmp_path):
    bench = Bench(tmp_path)
    (tmp_path / "train.py").write_text(SESSION)
    done = bench.dlprof("--mode=tensorflow1", "--reports=summary", "--", "python", "train.py")
    assert done.returncode == 5, done.stderr
    assert bench.left() == ["dlprof.opscope", "dlprof_summary.csv"]
    ops = opscope.load(tmp_path / "dlprof.opscope").ops()
    products = ops.filter(pl.col("op").str.contains("MatMul"))
    assert products.group_by("direction").len().sort("direction").rows() == [
        ("backward", 3), ("forward", 3),
    ]  # fmt: skip
    assert products["inputs"].to_list().count("f32[8,16], f32[16,4]") == 3
    assert ops["op"].str.contains("ResourceApplyGradientDescent").sum() == 3
