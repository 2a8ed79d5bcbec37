"""The pytest plug-in on each framework that is installed: a step is held to its counts, a slowdown is named."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.testing.frameworks_gate import (
    BY_HAND,
    COUNTS,
    PROGRAMS,
    SAID_OF_WORSE,
    TEST_WORSE,
    TESTS,
    WORSE,
)
from tests.testing.pytest_runs import message, properties, run_pytest

NEEDS = {"onnxruntime": ("onnxruntime", "onnx"), "keras": ("keras", "tensorflow")}
#: One thread: which of them an op ran on changes nothing, and the ops are the same.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def needs(framework):
    """Skip where the framework, or what its program needs, is not installed."""
    for name in NEEDS.get(framework, (framework,)):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed here")


@pytest.mark.parametrize("framework", BY_HAND)
def test_every_count_is_as_counted_by_hand_and_what_is_unknown_is_no_zero(framework, tmp_path):
    needs(framework)
    program, counts = BY_HAND[framework]
    tmp_path.joinpath("program.py").write_text(program)
    tmp_path.joinpath("test_program.py").write_text(COUNTS)
    observed = "keras tensorflow" if framework == "keras" else framework
    tmp_path.joinpath("pytest.ini").write_text(f"[pytest]\nopscope_frameworks = {observed}\n")
    status, output, _ = run_pytest(tmp_path, env=ENVIRONMENT)
    assert status == 0, output
    assert json.loads(tmp_path.joinpath("counts.json").read_text()) == counts


@pytest.mark.parametrize("framework", PROGRAMS)
def test_a_planted_slowdown_is_caught_by_counts_alone(framework, tmp_path):
    needs(framework)
    text, planted, named = PROGRAMS[framework]
    program = tmp_path / "program.py"
    program.write_text(text.lstrip().replace("PLANTED", "pass"))
    tmp_path.joinpath("test_program.py").write_text(TESTS)
    tmp_path.joinpath("pytest.ini").write_text(f"[pytest]\nopscope_frameworks = {framework}\n")
    env = ENVIRONMENT
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


def test_six_regressions_are_named_by_op_line_and_layer_in_ten_lines(tmp_path):
    needs("torch")
    tmp_path.joinpath("program.py").write_text(WORSE.lstrip())
    tmp_path.joinpath("test_program.py").write_text(TEST_WORSE)
    tmp_path.joinpath("pytest.ini").write_text("[pytest]\nopscope_frameworks = torch\n")
    status, output, _ = run_pytest(
        tmp_path, "--opscope-update", "test_program.py::test_step[]", env=ENVIRONMENT
    )
    assert status == 0, output
    tmp_path.joinpath("group").unlink(missing_ok=True)  # torch's store, which most often removes it
    status, output, cases = run_pytest(tmp_path, env=ENVIRONMENT)
    assert status == 1, output
    assert message(cases["test_step[]"]) is None
    for worse, words in SAID_OF_WORSE.items():
        said = message(cases[f"test_step[{worse}]"])
        assert all(each in said for each in words), said
        assert len(said.split("step: not as expected")[1].split("meant?")[0].splitlines()) <= 10
