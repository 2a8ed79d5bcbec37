"""Make the profiles in ``profiles/``: python tests/readers/onnxruntime/make_profiles.py

Needs onnx and onnxruntime; the files are named after its version. Those that are kept are of 1.17 (numpy<2),
which writes fences, and of 1.31. What they hold differs from run to run only in times, sizes and numbers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import onnxruntime

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tests.on_onnxruntime import models  # noqa: E402

RUNS = 2


def main() -> None:
    """Run the CNN and the loop under the profiler, the CNN optimised."""
    version = ".".join(onnxruntime.__version__.split(".")[:2])
    levels = onnxruntime.GraphOptimizationLevel
    for made, level in (
        (models.cnn(), levels.ORT_ENABLE_ALL),
        (models.loop(), levels.ORT_DISABLE_ALL),
    ):
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        options.graph_optimization_level = level
        options.intra_op_num_threads = 1
        options.profile_file_prefix = str(HERE / "profiles" / "new")
        session = onnxruntime.InferenceSession(made.proto.SerializeToString(), options)
        for _ in range(RUNS):
            session.run(None, made.feed)
        os.replace(session.end_profiling(), HERE / "profiles" / f"{made.name}_{version}.json")


if __name__ == "__main__":
    main()
