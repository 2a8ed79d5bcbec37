"""The pytest plug-in on each framework that is installed: a step is held to its counts, a slowdown is named."""

from __future__ import annotations

import importlib.util

import pytest

from tests.testing.frameworks_gate import PROGRAMS, TESTS
from tests.testing.pytest_runs import message, properties, run_pytest

NEEDS = {"onnxruntime": ("onnxruntime", "onnx")}


@pytest.mark.parametrize("framework", PROGRAMS)
def test_a_planted_slowdown_is_caught_by_counts_alone(framework, tmp_path):
    for name in NEEDS.get(framework, (framework,)):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed here")
    text, planted, named = PROGRAMS[framework]
    program = tmp_path / "program.py"
    program.write_text(text.lstrip().replace("PLANTED", "pass"))
    tmp_path.joinpath("test_program.py").write_text(TESTS)
    tmp_path.joinpath("pytest.ini").write_text(f"[pytest]\nopscope_frameworks = {framework}\n")
    # one thread: which of them an op ran on changes nothing, and the ops are the same
    env = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    status, output, cases = run_pytest(tmp_path, "--opscope-update", env=env)
    assert status == 0, output
    assert f'["{framework} ' in tmp_path.joinpath("step.opscope.toml").read_text("utf-8")
    assert int(properties(cases["test_step"])["opscope.step.ops"]) > 0
    status, output, _ = run_pytest(tmp_path, env=env)
    assert status == 0, output  # the counts of another process are the same
    program.write_text(text.lstrip().replace("PLANTED", planted))
    status, output, cases = run_pytest(tmp_path, "test_program.py::test_step", env=env)
    assert status == 1, output
    said = message(cases["test_step"])
    for words in named:
        assert words in said, said
    assert len(said.split("step: not as expected")[-1].strip().splitlines()) <= 10
