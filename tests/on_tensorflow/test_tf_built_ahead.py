"""What TensorFlow's observer needs is compiled before the program's first op, and that is said, once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
from opscope.adapters.shared.compiled import BuildError  # noqa: E402
from opscope.adapters.tensorflow import running  # noqa: E402
from tests.compiler import Compiler  # noqa: E402

ROOT = Path(__file__).parents[2]


def test_a_run_compiles_before_the_program_and_says_so_once(tmp_path):
    try:
        libraries = running.observer_library().parent
        running.inputs_library(tf)
    except BuildError as error:
        pytest.skip(str(error))
    compiler = Compiler(tmp_path, libraries)
    (tmp_path / "train.py").write_text("""
import os, sys
sys.stderr.write("begins %s\\n" % os.path.exists("compiled"))
import tensorflow as tf, opscope
step = tf.function(lambda x: x * 2, input_signature=[tf.TensorSpec((None,))])
for _ in range(3):
    opscope.step()
    step(tf.ones(3))
""")
    for again in (False, True):
        done = subprocess.run(
            [sys.executable, "-m", "opscope", "run", "--no-report", sys.executable, "train.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **compiler.environment},
            capture_output=True,
            text=True,
            timeout=600,
        )
        said = [
            line for line in done.stderr.splitlines() if line.startswith(("opscope:", "begins"))
        ]
        built = [line for line in said if "building" in line]
        assert [line.partition(",")[0] for line in built] == [
            "opscope: building the TensorFlow observer",
            "opscope: building the TensorFlow size reader for this TensorFlow",
        ][: 0 if again else 2], done.stderr
        assert said[len(built)] == "begins True"
        assert compiler.made == ["annotations", "inputs"]
