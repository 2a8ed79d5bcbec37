"""Every example under `opscope run`, with no GPU: which backend records it, and what the report begins with."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import opscope
from opscope import load
from opscope.backends import has_gpu

ROOT = Path(opscope.__file__).resolve().parents[1]
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NO_GPU = "no GPU is visible, so there are no kernels to record"
#: Example → the modules that it needs, the backend that records it and why.
RUNS = {
    "torch_lenet.py": (("torch",), "recorder", NO_GPU),
    "torch_input.py": (("torch",), "recorder", NO_GPU),
    "torch_ranks.py": (("torch",), "recorder", NO_GPU),
    "keras_cnn.py": (("keras", "tensorflow"), "recorder", NO_GPU),
    "tensorflow_loop.py": (("tensorflow",), "recorder", NO_GPU),
    "onnxruntime_cnn.py": (("onnxruntime", "onnx"), "recorder", NO_GPU),
    "onnxruntime_transformer.py": (("onnxruntime", "onnx"), "recorder", NO_GPU),
    "opscope_paddle/train.py": (("paddle",), "recorder", NO_GPU),
    "openvino_mlp.py": (("openvino", "opscope_openvino"), "recorder", NO_GPU),
    "jax_cnn.py": (
        ("jax",),
        "xplane",
        "the program uses JAX, whose profiler records its operations",
    ),
    "jax_mlp.py": (
        ("jax", "flax", "optax"),
        "xplane",
        "the program uses JAX, whose profiler records its operations",
    ),
    "mindspore_lenet.py": (
        ("mindspore",),
        "mindspore",
        "the program uses MindSpore, whose profiler records its operators",
    ),
}
#: Tiny ops on a CPU, with Python between them. The more a machine has to do besides, the longer the ops take, and
#: the smaller is the part between them: the same program was at 2 to 36 %. All three say so, with the figures.
PYTHON = ("healthy", "borderline host-bound", "host-bound")
#: Example → the answers of the diagnosis that are true of it, each looked at in the tables: steps, ops, parts.
ANSWERS = {
    # 400 to 480 outermost ops a step, half of them making images; median 0.5 µs, so 28 to 36 % is Python
    "torch_lenet.py": PYTHON,
    # no workers: each batch is made by 16 windows in the loop, 19 to 47 % of a step
    "torch_input.py": ("input-bound",),
    # 74 ops a step of 0.8 ms; two ranks that wait for each other's gradients, in gloo's collectives or beside
    "torch_ranks.py": (
        *PYTHON,
        *(
            "communication-bound",
            "borderline communication-bound",
            "straggler",
            "borderline straggler",
        ),
    ),
    # 370 ops a step by the eager optimizer, 24 % outside; tf.data hands over arrays that are in memory
    "keras_cnn.py": (*PYTHON, "input-bound", "borderline input-bound"),
    # 97 ops a step, one of them the tf.function; 25 to 28 % outside
    "tensorflow_loop.py": PYTHON,
    # one run of the session is the step: 2 to 4 % outside
    "onnxruntime_cnn.py": PYTHON[:2],
    # 2 % outside in the median; one step of 40 builds the next session, and takes 40 % of all time
    "onnxruntime_transformer.py": PYTHON[:2],
    "opscope_paddle/train.py": PYTHON,
    # one run of 0.3 ms a step, and 0.1 ms to describe it and to make the next batch
    "openvino_mlp.py": PYTHON,
    # 200 and 330 ops a step of 1 to 2 µs: the jitted step is one, the loops of the host are the rest
    "jax_cnn.py": PYTHON,
    "jax_mlp.py": PYTHON,
    # the step's graph is compiled in the first two steps; where that was all at the start, the rest is Python
    "mindspore_lenet.py": ("compilation", "borderline compilation", *PYTHON),
}
#: It trains nothing: it writes files of TensorRT's and reports on them itself.
NOTHING = {"tensorrt_report.py"}


def test_every_example_is_here():
    if not EXAMPLES.is_dir():
        pytest.skip("an installed package has no examples beside it")
    found = {path.name for path in EXAMPLES.glob("*.py")} | {"opscope_paddle/train.py"}
    assert found == {*RUNS, *NOTHING}
    assert ANSWERS.keys() == RUNS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_an_example_is_recorded_and_its_report_says_where_the_time_went(tmp_path, name):
    modules, backend, why = RUNS[name]
    if not EXAMPLES.is_dir():
        pytest.skip("an installed package has no examples beside it")
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    if has_gpu():
        pytest.skip("on a GPU another backend records")
    path = [str(ROOT), str((EXAMPLES / name).parent), os.environ.get("PYTHONPATH")]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "opscope",
            "run",
            "-o",
            "a",
            "--",
            sys.executable,
            str(EXAMPLES / name),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("opscope: backend ")]
    assert said == [f"opscope: backend {backend}: {why}"]
    assert "Where the time went: " in done.stderr
    assert "Top ops, all shapes of each together" in done.stderr
    profile = load(tmp_path / "a.opscope")
    answer = profile.diagnosis().row(0, named=True)
    assert answer["finding"] in ANSWERS[name], answer["text"]
    assert answer["finding"] in done.stderr
    # a cause is named for sure only where it is far over its limit, and a healthy run has none that is
    limit = {"host-bound": 0.3, "healthy": 0.0}.get(answer["finding"].removeprefix("borderline "))
    if limit:
        sure = not answer["finding"].startswith("borderline")
        assert answer["share"] > (limit * 1.25 if sure else limit / 1.25)
    summary = profile.summary().to_dicts()[0]
    assert summary["steps"] >= 5
    # what no op covers is told: a gap of the recording, or programs that are compiled
    without = summary["device_unattributed_time"] / summary["device_time"]
    told = re.findall(
        r"^([\d.]+) % of the time (?:has no op|compiles programs)", done.stderr, re.MULTILINE
    )
    # either has a line from 5 % on
    assert sum(map(float, told)) == pytest.approx(without * 100, abs=10.1)
    compiles = "inside steps, compiling a program" in profile.unattributed()["reason"].to_list()
    assert compiles or "of the time compiles" not in done.stderr
