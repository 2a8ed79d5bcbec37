"""Run the example's model in ONNX Runtime on the GPU, for gpu_check.sh. Usage: gpu_onnxruntime.py RESULT.json"""

from __future__ import annotations

import json
import runpy
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "onnxruntime_cnn.py"
RUNS, BATCH = 20, 64


def main(target, providers=("CUDAExecutionProvider",)):
    """Run the model ``RUNS`` times; write what is known of it to ``target``."""
    import opscope

    if "CUDAExecutionProvider" in providers and hasattr(ort, "preload_dlls"):
        ort.preload_dlls()  # those of the wheels of CUDA and cuDNN
    opscope.init("onnxruntime")
    made = runpy.run_path(str(EXAMPLE))["model"]().SerializeToString()
    session = ort.InferenceSession(made, providers=list(providers))
    if session.get_providers()[0] != providers[0]:
        raise SystemExit(f"the session runs on {session.get_providers()[0]}, not on {providers[0]}")
    images = np.random.default_rng(1).standard_normal((BATCH, 1, 28, 28)).astype(np.float32)
    begin = time.perf_counter()
    for _ in range(RUNS):
        session.run(None, {"images": images})
    took = (time.perf_counter() - begin) / RUNS * 1e3
    found = {"program": "onnxruntime", "runs": RUNS, "step_ms": took}
    Path(target).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:2], *([tuple(sys.argv[2:])] if sys.argv[2:] else []))
