"""Check a recording of TensorFlow, and files of TensorFlow's own profiler, for ``gpu_check.sh``.

    python -m opscope run -o FOLDER/loop.opscope -- python examples/tensorflow_loop.py
    python scripts/gpu_results_tensorflow.py loop FOLDER

The recording has the ops; the kernels come from TensorFlow's profiler. This script runs the example under
that profiler, alone and beside opscope: the profiler must record the same. Without a GPU, checks that need
one are skipped. Writes FOLDER/loop.checks.json; exits with 1 if a check fails.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import polars as pl
import tensorflow as tf

import opscope

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "tensorflow_loop.py"
STEPS, BATCH = 8, 32
LAYERS = {"conv1", "conv2", "dense1", "dense2"}
PASSING = ["_Arg", "_Retval", "_Send", "_Recv"]


def by_hand():
    """The matrix FLOPs of the example's training: forward, gradients of the weights and of the input."""
    convs = [(28, 1, 8), (14, 8, 16)]
    each = [2 * BATCH * side * side * out * 9 * into for side, into, out in convs]
    each += [2 * BATCH * 7 * 7 * 16 * 32, 2 * BATCH * 32 * 10]
    return STEPS * (3 * sum(each) - each[0])  # the images need no gradient


def text(*names):
    return pl.col(names).cast(pl.String)


def recorded(profile, gpu):
    """The checks of the recording; ``None`` for a check that cannot be made here."""
    ops = profile.ops().with_columns(text("op", "layer", "direction", "device"))
    shaped = ops.filter(pl.col("inputs").is_not_null() | pl.col("outputs").is_not_null())
    model = ops.filter(pl.col("layer").is_in(LAYERS), ~pl.col("op").is_in(PASSING))
    backward = model.filter(pl.col("direction") == "backward")
    matrix = model.filter(pl.col("matrix_flops") > 0)
    on_gpu = matrix.filter(pl.col("device").str.starts_with("cuda"))
    return {
        f"all {STEPS} steps were seen": profile.summary()["steps"].item() == STEPS,
        "at least 99 % of op time has shapes": shaped["self_time"].sum()
        >= 0.99 * ops["self_time"].sum(),
        "layers were seen forward and backward": set(backward["layer"]) == LAYERS
        and set(model.filter(pl.col("direction") == "forward")["layer"]) == LAYERS,
        "each backward op has its forward op": len(backward) > 0
        and backward["forward_op_id"].null_count() == 0,
        f"matrix FLOPs equal the count by hand ({matrix['matrix_flops'].sum()} of {by_hand()})": matrix[
            "matrix_flops"
        ].sum()
        == by_hand(),
        "products and convolutions ran on the GPU": 0 < len(matrix) == len(on_gpu) if gpu else None,
    }


def profile_by_hand(folder, beside):
    """Run the example under TensorFlow's profiler; with ``beside``, opscope records too."""
    recorded = tempfile.TemporaryDirectory()
    if beside:
        opscope.init(["tensorflow"])
    tf.profiler.experimental.start(folder)
    if beside:
        with opscope.capture(Path(recorded.name, "run.opscope"), backend="recorder"):
            runpy.run_path(str(EXAMPLE), run_name="__main__")
    else:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    tf.profiler.experimental.stop()
    recorded.cleanup()


def taken(beside):
    """Run the example under TensorFlow's profiler in its own process, and load the file."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, __file__, "--profile", folder, "beside" if beside else "alone"],
            check=True,
        )
        profile = opscope.load(folder)
        profile.ops(), profile.kernels(), profile.summary()
    return profile


def names(profile):
    """Count some ops in a file of TensorFlow's profiler."""
    ops = profile.ops().with_columns(text("op"))
    return Counter(one for one in ops["op"] if one in ("Conv2D", "MatMul", "MaxPool", "Relu")
                   or "Conv2DBackprop" in one)  # fmt: skip


def of_ops(profile):
    """Return kernel time, and the time of kernels with an op."""
    kernels = profile.kernels()
    whole = kernels["duration"].sum()
    return whole, kernels.filter(pl.col("op_id").is_not_null())["duration"].sum()


def profiled(gpu):
    """The checks of files of TensorFlow's profiler: ops on the CPU, kernels on a GPU."""
    profile, beside = taken(False), taken(True)
    row = profile.summary().row(0, named=True)
    whole, attributed = of_ops(profile)
    theirs, with_op = of_ops(beside)
    kinds = profile.ops()["op"].cast(pl.String).to_list()
    device, why = profile.device
    return {
        "TensorFlow's profiler: its file has products and convolutions": all(
            any(kind in one for one in kinds) for kind in ("MatMul", "Conv2D")
        ),
        "TensorFlow's profiler: it records the same ops beside opscope": len(names(profile)) > 0
        and names(profile) == names(beside),
        "TensorFlow's profiler: kernels were captured": whole > 0 if gpu else None,
        "TensorFlow's profiler: at least 99 % of kernel time has an op": (
            whole > 0 and attributed >= 0.99 * whole
        )
        if gpu
        else None,
        "TensorFlow's profiler: at least 99 % of kernel time has an op beside opscope": (
            theirs > 0 and with_op >= 0.99 * theirs
        )
        if gpu
        else None,
        "TensorFlow's profiler: attributed + unattributed = total": (
            row["attributed_time"] + row["unattributed_time"] == whole
        )
        if gpu
        else None,
        f"TensorFlow's profiler: the device's peaks are known ({device.name if device else why})": (
            device is not None and bool(device.vector)
        )
        if gpu
        else None,
    }


def main():
    if sys.argv[1] == "--profile":
        return profile_by_hand(sys.argv[2], sys.argv[3] == "beside")
    name, folder = sys.argv[1], Path(sys.argv[2])
    gpu = bool(tf.config.list_physical_devices("GPU"))
    profile = opscope.load(folder / f"{name}.opscope")
    checks = recorded(profile, gpu) | profiled(gpu)
    facts = [
        f"opscope {opscope.__version__}, TensorFlow {tf.__version__}, {'GPU' if gpu else 'no GPU'}",
        *(f"note: {note}" for note in profile.notes()["what"].cast(pl.String)),
    ]
    found = json.dumps({"checks": checks, "facts": facts}, indent=1, default=str)
    (folder / f"{name}.checks.json").write_text(found, encoding="utf-8")
    sys.exit(False in checks.values())


if __name__ == "__main__":
    main()
