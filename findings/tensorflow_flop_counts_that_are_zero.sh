#!/usr/bin/env bash
# One would guess: TensorFlow's `float_operation` count raises or warns where a graph has ops or shapes that it
# cannot count.
# What happens: they count as 0. A product whose batch is not known, an Einsum, a tanh and everything inside a loop
# add nothing to a total that is given as a plain number.
# Seen with: tensorflow-cpu 2.21.0
# Why it matters to a profiler: the total is the usual reference for a Keras model's FLOPs; with a dynamic batch or
# attention by einsum it is far too low, and looks exact.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'tensorflow-cpu==2.21.0'
cd "$folder"
export TF_CPP_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import contextlib
import os

import tensorflow as tf

Spec = tf.TensorSpec
options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
options["output"] = "none"


def flops(function, *specs):
    graph = tf.function(function).get_concrete_function(*specs).graph
    return tf.compat.v1.profiler.profile(graph, options=options).total_float_ops


rows = {
    "product (4, 5) (5, 6)": (flops(lambda a, b: a @ b, Spec((4, 5)), Spec((5, 6))), 240),
    "the same, batch not known": (flops(lambda a, b: a @ b, Spec((None, 5)), Spec((5, 6))), 0),
    "batched product, 3 of them": (flops(lambda a, b: a @ b, Spec((3, 4, 5)), Spec((3, 5, 6))), 720),
    "the same as an einsum": (
        flops(lambda a, b: tf.einsum("bij,bjk->bik", a, b), Spec((3, 4, 5)), Spec((3, 5, 6))), 0,
    ),
    "10 products in a loop": (
        flops(lambda a: tf.while_loop(lambda i, x: i < 10, lambda i, x: (i + 1, x @ a), (0, a)), Spec((4, 4))), 0,
    ),
}
print("tensorflow", tf.__version__)
for name, (counted, _) in rows.items():
    print(f"{name:28} {counted}")
assert all(counted == expected for counted, expected in rows.values()), rows
PYTHON
