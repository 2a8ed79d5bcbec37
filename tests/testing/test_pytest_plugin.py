"""The pytest plug-in without any framework: measures of a wrapped function, stored expectations, reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points

import pytest

from opscope.testing.expected import Expected, Fact, read, write
from tests.testing.pytest_runs import PLUGIN, ROOT, message, properties, run_pytest

LIBRARY = """
import numpy as np
import opscope

SHAPE = 3

def multiply(a, b):
    return a @ b

def step():
    for _ in range(2):
        multiply_all(np.ones((SHAPE, 4), np.float32), np.ones((4, 5), np.float32))

def multiply_all(a, b):
    return multiply(a, b)
"""
TESTS = """
import time
import pytest
import library
import opscope as package

package.wrap(library, "multiply")

@pytest.fixture(scope="module")
def slow(opscope):
    return opscope.repeat(lambda: time.sleep(0.05), times=16, warm=1)

def test_counts(opscope):
    with opscope.measure() as m:
        library.step()
    assert m.ops == 2
    assert m.dtypes == {"f32"}
    assert m.is_known("ops") and not m.is_known("kernels")
    m.check("step")

@pytest.mark.parametrize("size", [2, 3])
def test_sizes(opscope, size):
    with opscope.measure() as m:
        for _ in range(size):
            library.step()
    m.check()

def test_too_many(opscope):
    with opscope.measure() as m:
        library.step()
    assert m.ops < 2

def test_kernels(opscope):
    with opscope.measure() as m:
        library.step()
    assert m.kernels == 0

def test_unknown_in_arithmetic(opscope):
    with opscope.measure() as m:
        library.step()
    assert 2 * m.flops < 10

def test_misspelt(opscope):
    with opscope.measure() as m:
        library.step()
    with pytest.raises(AttributeError, match="it has allocations"):
        m.kernel

def test_not_over(opscope):
    with opscope.measure() as m:
        with pytest.raises(RuntimeError, match="is not over"):
            m.ops

def test_faster(opscope, slow):
    quick = opscope.repeat(lambda: None, times=16, warm=1)
    assert quick.faster_than(slow, by=1.5).ratio > 1.5

def test_not_faster(opscope, slow):
    quick = opscope.repeat(lambda: None, times=16, warm=1)
    slow.faster_than(quick, by=1.5)

def test_one_step(opscope, slow):
    with opscope.measure() as m:
        library.step()
    m.faster_than(slow)
"""


def project(folder):
    folder.joinpath("library.py").write_text(LIBRARY)
    folder.joinpath("test_step.py").write_text(TESTS)
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run that stores expectations, and all that it wrote."""
    folder = project(tmp_path_factory.mktemp("project"))
    summary = folder / "summary.md"
    status, output, cases = run_pytest(
        folder, "--opscope-update", f"--opscope-summary={summary}", "--opscope-keep=kept"
    )
    return folder, status, output, cases, summary.read_text("utf-8")


def test_counts_are_asserted_and_stored(first):
    folder, status, output, cases, _ = first
    assert status == 1  # some of the tests are meant to fail
    assert message(cases["test_counts"]) is None, output
    stored = folder.joinpath("step.opscope.toml").read_text("utf-8")
    assert '["program cpu"]\nops = 2\n' in stored
    assert 'dtypes = ["f32"]' in stored
    assert '"library.multiply forward" = 2' in stored
    # what cannot be known here is not stored, and never as 0
    assert "kernels" not in stored
    assert "flops" not in stored.split("[", 1)[1]


def test_parametrised_tests_have_files_of_their_own(first):
    folder, _, output, cases, _ = first
    for size in (2, 3):
        assert message(cases[f"test_sizes[{size}]"]) is None, output
        assert (
            f"ops = {2 * size}\n" in folder.joinpath(f"test_sizes-{size}.opscope.toml").read_text()
        )


def test_a_count_that_fails_says_what_was_counted_in_few_lines(first):
    said = message(first[3]["test_too_many"])
    lines = [line for line in said.splitlines() if line.startswith("E ")]
    assert "assert ops: 2 < 2" in said
    assert "2 calls of library.multiply" in said
    assert len(lines) <= 10


@pytest.mark.parametrize("test", ["test_kernels", "test_unknown_in_arithmetic"])
def test_what_cannot_be_known_fails_with_its_reason(first, test):
    said = message(first[3][test])
    assert "cannot be known here: " in said
    assert {"test_kernels": "no GPU was used", "test_unknown_in_arithmetic": "no cost model"}[
        test
    ] in said


def test_misuse_raises(first):
    for test in ("test_misspelt", "test_not_over"):
        assert message(first[3][test]) is None


def test_time_is_a_ratio_to_a_reference_with_the_test_of_a_difference(first):
    cases = first[3]
    assert message(cases["test_faster"]) is None
    said = message(cases["test_not_faster"])
    assert "not beyond 1.5 times by more than the noise of" in said
    assert "cannot be known here" in message(cases["test_one_step"])
    assert "times as fast" in properties(cases["test_faster"])["opscope.faster_than"]


def test_junit_has_the_counts_as_properties(first):
    assert properties(first[3]["test_counts"])["opscope.step.ops"] == "2"


def test_the_summary_is_a_table_of_markdown(first):
    lines = first[4].splitlines()
    assert lines[0].startswith("### Performance: ")
    assert lines[2:4] == ["| test | | counts |", "|---|---|---|"]
    assert any("`test_step.py::test_counts` | ✅ | ops 2" in line for line in lines)
    assert any("`test_step.py::test_not_faster` | ❌" in line for line in lines)


def test_profiles_are_kept_where_asked(first):
    assert [path.name for path in first[0].joinpath("kept").glob("test_counts-*.opscope")]


def test_a_slowdown_is_told_by_counts_alone(first):
    folder = first[0]
    library = folder / "library.py"
    library.write_text(LIBRARY.replace("range(2)", "range(3)").replace("SHAPE = 3", "SHAPE = 7"))
    try:
        status, output, cases = run_pytest(folder, "test_step.py::test_sizes", "-n0")
    finally:
        library.write_text(LIBRARY)
    assert status == 1
    said = message(cases["test_sizes[2]"]).splitlines()
    assert "ops 6, expected 4" in "\n".join(said), output
    assert "  library.multiply forward is called 6 times, before 4" in said
    assert said[-1] == "  meant? pytest --opscope-update writes what is measured now"
    assert "opscope.test_sizes-2.differs" in properties(cases["test_sizes[2]"])


def test_workers_of_xdist_report_to_one_summary(first):
    folder = first[0]
    pytest.importorskip("xdist")
    summary = folder / "workers.md"
    status, output, _ = run_pytest(
        folder,
        "-n2",
        "test_step.py::test_sizes",
        "test_step.py::test_counts",
        f"--opscope-summary={summary}",
    )
    assert status in (0, 1), output
    lines = summary.read_text("utf-8").splitlines()
    assert len([line for line in lines if line.startswith("| `test_step.py::")]) == 3


def test_what_is_unknown_skips_where_the_project_says_so(tmp_path):
    folder = project(tmp_path)
    folder.joinpath("pytest.ini").write_text("[pytest]\nopscope_unknown = skip\n")
    status, output, cases = run_pytest(folder, "test_step.py::test_kernels")
    assert status == 0, output
    assert "no GPU was used" in message(cases["test_kernels"])


def test_without_an_expectation_for_the_framework_a_test_fails(tmp_path):
    folder = project(tmp_path)
    folder.joinpath("step.opscope.toml").write_text('["torch 2.1 cpu"]\nops = 2\n')
    status, _, cases = run_pytest(folder, "test_step.py::test_counts")
    assert status == 1
    said = message(cases["test_counts"])
    assert "step.opscope.toml expects nothing of program cpu (it has torch 2.1 cpu)" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('["program cpu"]\nopps = 2\n', "did you mean 'ops'?"),
        ('["program cpu"]\nops = "2"\n', "is no value, or has a wrong tolerance"),
        ('["program cpu"]\nops = true\n', "is no value, or has a wrong tolerance"),
        ('["program cpu"]\nops = {value = 2, within = "x"}\n', "has a wrong tolerance"),
        ('["program cpu"]\nops = {value = 2, within = -1}\n', "has a wrong tolerance"),
        ('["program cpu"]\nops = {within = 2}\n', "has a wrong tolerance"),
        ('["program cpu".calls]\nx = "y"\n', "no table of whole numbers"),
        ("ops = 2", "ops is no section"),
        ("x = [", "not a file of expectations"),
    ],
)
def test_a_wrong_file_of_expectations_is_one_error_that_names_it(tmp_path, text, said):
    path = tmp_path / "step.opscope.toml"
    path.write_text(text)
    with pytest.raises(pytest.fail.Exception) as raised:
        read(path)
    assert said in str(raised.value)
    assert str(path) in str(raised.value)


def test_no_file_expects_nothing(tmp_path):
    assert read(tmp_path / "step.opscope.toml") == {}


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "step.opscope.toml"
    facts = {"ops": Fact(1_000_000), "flops": Fact(5, "2%", True), "dtypes": Fact(["bf16", "f32"])}
    sections = {"torch 2.13 cpu": Expected(facts, {'a "b" \\ \x7f': 3}), "jax": Expected({})}
    write(path, sections)
    assert read(path) == sections


def test_an_update_keeps_tolerances_and_other_sections(tmp_path):
    folder = project(tmp_path)
    stored = folder / "step.opscope.toml"
    stored.write_text(
        '["torch 2.1 cpu"]\nops = 9\n\n[program]\nops = { value = 7, within = "60%" }\n'
    )
    status, output, _ = run_pytest(folder, "test_step.py::test_counts", "--opscope-update")
    assert status == 0, output
    text = stored.read_text()
    assert '[program]\nops = { value = 2, within = "60%" }\n' in text
    assert '["torch 2.1 cpu"]\nops = 9\n' in text
    assert "wrote step.opscope.toml [program]" in output


@pytest.mark.parametrize(
    ("fact", "admitted", "refused"),
    [
        (Fact(100), [100], [99, 101]),
        (Fact(100, within="2%"), [98, 102], [97, 103]),
        (Fact(100, within=3), [97, 103], [96, 104]),
        (Fact(100, at_most=True), [0, 100], [101]),
        (Fact(100, within=1, at_most=True), [0, 101], [102]),
        (Fact(["f32"]), [["f32"]], [["f32", "f64"], []]),
    ],
)
def test_tolerances(fact, admitted, refused):
    assert all(map(fact.admits, admitted))
    assert not any(map(fact.admits, refused))


def test_the_plug_in_imports_pytest_alone():
    program = textwrap.dedent(
        """
        import pytest, sys
        before = set(sys.modules)
        import json
        before |= set(sys.modules)
        import opscope.testing.pytest_plugin
        print(json.dumps(sorted(set(sys.modules) - before)))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert json.loads(done.stdout) == [
        *("opscope", "opscope.callbacks", "opscope.testing"),
        *("opscope.testing.pytest_plugin", "opscope.version"),
    ]


WAYS = """
import asyncio
import pytest
import library
import opscope as package
from opscope.errors import SessionError

package.wrap(library, "multiply")

@pytest.fixture(params=[1, 2])
def measured(opscope, request):
    with opscope.measure() as m:
        for _ in range(request.param):
            library.step()
    return request.param, m

@pytest.fixture(scope="class")
def of_class(opscope):
    with opscope.measure() as m:
        library.step()
    return m

@pytest.mark.usefixtures("of_class")
class TestSteps:
    def test_fixture(self, measured):
        times, m = measured
        assert m.ops == 2 * times

    def test_method(self, opscope, of_class):
        with opscope.measure() as m:
            library.step()
        assert m.ops == of_class.ops == 2

def test_async(opscope):
    async def steps():
        async def one():
            await asyncio.sleep(0)
            library.step()
        await asyncio.gather(one(), one())
    with opscope.measure() as m:
        asyncio.run(steps())
    assert m.ops == 4

def test_nested(opscope):
    with opscope.measure() as outer:
        library.step()
        with pytest.raises(SessionError):
            with opscope.measure():
                library.step()
    with opscope.measure() as after:
        library.step()
    assert (outer.ops, after.ops) == (2, 2)
"""


def test_fixtures_classes_coroutines_and_nested_measures(tmp_path):
    folder = project(tmp_path)
    folder.joinpath("test_step.py").write_text(WAYS)
    status, output, cases = run_pytest(folder)
    assert status == 0, output
    assert {"test_fixture[1]", "test_fixture[2]", "test_method", "test_async"} <= set(cases)


def test_without_the_plug_in_the_fixture_is_not_there(tmp_path):
    folder = project(tmp_path)
    folder.joinpath("test_step.py").write_text("def test_step(opscope): pass")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:opscope", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env)
    assert done.returncode == 1
    assert "fixture 'opscope' not found" in done.stdout


def test_under_opscope_run_a_measurement_refuses_to_be_asked(tmp_path):
    folder = project(tmp_path)
    folder.joinpath("test_step.py").write_text(WAYS.split("@pytest.fixture(params")[0] + UNDER)
    outer = [sys.executable, "-m", "opscope", "run", "--no-report", "-o", "outer", "--"]
    installed = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", PLUGIN]
    command = [*outer, sys.executable, "-m", "pytest", *plugin, "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "nothing was recorded here: what runs the tests (opscope run" in done.stdout
    assert folder.joinpath("outer.opscope").exists()


UNDER = """
def test_step(opscope):
    with opscope.measure() as m:
        library.step()
    assert m.ops == 2
"""
