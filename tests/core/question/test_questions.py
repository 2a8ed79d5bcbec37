"""Every question: its method, its parameters, its answer; and the files that a script makes of all questions."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from opscope.cli import start as application
from opscope.core.analysis.device.short_kernels import short_kernels
from opscope.core.question import index, methods, registry
from opscope.core.question.record import CATEGORIES, Lacks, Rows, Sums
from opscope.profile import Profile

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "make_questions.py"
QUESTIONS = [registry.question(name) for name in index.QUESTIONS]
IDS = [question.name for question in QUESTIONS]


@pytest.fixture
def profile(trace_of) -> Profile:
    """Kernels of 1 to 12 µs, some of them behind each other on two streams."""
    call = {"process": 0, "thread": 1, "name": "cudaLaunchKernel"}
    ran = {"process": 0, "device": 0}
    calls = [
        {**call, "start": 20_000 * n, "end": 20_000 * n + 3_000, "correlation": n}
        for n in range(12)
    ]
    kernels = [
        {**ran, "stream": n % 2, "start": 20_000 * n + 4_000, "end": 20_000 * n + 5_000 + 1_000 * n,
         "name": f"k{n % 3}", "correlation": n}
        for n in range(12)
    ]  # fmt: skip
    return Profile(trace_of(calls=calls, kernels=kernels))


@pytest.mark.parametrize("question", QUESTIONS, ids=IDS)
def test_a_method_has_the_parameters_of_its_answer_and_documents_its_columns(question):
    method = inspect.getattr_static(Profile, question.name)
    method = method if inspect.isfunction(method) else getattr(Profile, question.name)
    names = [name for name in inspect.signature(method).parameters if name not in ("self", "where")]
    assert names == list(question.signature)
    assert {name for name in names if name != CATEGORIES} == set(question.parameters)
    said = inspect.getdoc(method)
    for frame in question.frames:
        assert f"``{frame.call}``: {frame.row}." in said
        assert frame.method == question.name


@pytest.mark.parametrize("question", QUESTIONS, ids=IDS)
def test_a_default_is_a_value_that_its_parameter_accepts(question):
    for name, parameter in question.parameters.items():
        default = question.value(name, {})
        if default is not inspect.Parameter.empty:
            values = default if name == question.several else (default,)
            assert [parameter.read(value) for value in values] == list(values)
        assert len(parameter.meaning.split()) > 1
        assert parameter.accepts


@pytest.mark.parametrize("question", QUESTIONS, ids=IDS)
def test_what_a_report_is_asked_with_is_accepted_by_its_question(question):
    for report in question.reports:
        for name, value in report.asked.items():
            if name == CATEGORIES:
                continue
            values = value if name == question.several else (value,)
            assert [question.parameters[name].read(one) for one in values] == list(values)
        assert report.of is question
        assert index.REPORTS[report.name] == question.name
    merged = question.merged if isinstance(question.merged, tuple) else (question.merged,)
    for way in merged:
        assert way is None or isinstance(way, (Sums, Rows, Lacks))


@pytest.mark.parametrize(
    "question", [q for q in QUESTIONS if q.name != "diff"], ids=lambda q: q.name
)
def test_wrong_arguments_are_refused_before_anything_is_computed(question, profile):
    method = getattr(profile, question.name)
    with pytest.raises(TypeError, match=r"nonsense|required"):
        method(nonsense=1)
    wrong = object()
    for name in question.parameters:
        given = ((wrong,), {}) if name == question.several else ((), {name: wrong})
        if question.parameters[name].textual:
            with pytest.raises(ValueError, match=f"^{name}: "):
                method(*given[0], **given[1])


def test_a_profile_is_asked_by_method_by_name_and_by_record_alike(profile):
    frame = profile.short_kernels(below="5us")
    assert_frame_equal(frame, profile.ask("short_kernels", below=5_000))
    assert_frame_equal(frame, profile.ask(registry.question("short_kernels"), 5_000))
    with pytest.raises(KeyError, match="nothing"):
        profile.ask("nothing")


def test_a_report_with_a_parameter_is_the_answer_of_the_function_with_that_value(
    profile, tmp_path, monkeypatch, capsys
):
    expected = short_kernels(profile.kernels(categories=True), 6_000)
    assert len(expected) > 0
    assert not expected.equals(short_kernels(profile.kernels(categories=True)))
    assert_frame_equal(
        profile.short_kernels(below="6us"),
        expected.with_columns(pl.col("name", "op").cast(pl.String)),
    )
    profile.save(tmp_path / "run.opscope")
    path = str(tmp_path / "run.opscope")

    def run(*more: str) -> str:
        monkeypatch.setattr("sys.argv", ["opscope", "report", path, *more])
        assert application.run() == 0
        return capsys.readouterr().out

    found = json.loads(run("--reports", "short_kernels:below=6us", "--json"))
    assert found == {"schema": "opscope.report/1", "short_kernels": expected.to_dicts()}
    assert run("--reports", "short_kernels:below=6us").startswith(
        "Short kernels (less than 6 µs)\n"
    )
    assert run("--reports", "short_kernels").startswith("Short kernels (less than 10 µs)\n")


def test_a_value_that_only_the_answer_can_judge_ends_the_command_with_its_reason(
    profile, tmp_path, monkeypatch, capsys
):
    profile.save(tmp_path / "run.opscope")
    path = str(tmp_path / "run.opscope")
    monkeypatch.setattr(
        "sys.argv", ["opscope", "report", path, "--reports", "advice:detectors=nope"]
    )
    assert application.run() == 2
    assert "no detector named 'nope'" in capsys.readouterr().err


def test_reports_of_one_question_are_asked_each_in_its_own_way():
    for question in QUESTIONS:
        ways = [json.dumps(dict(report.asked), default=list) for report in question.reports]
        assert len(set(ways)) == len(ways), question.name


def test_a_module_is_loaded_once_its_question_is_asked_for():
    code = (
        "import sys; from opscope.core.question import methods, registry;"
        "assert 'waits' not in registry.reports(); list(registry.reports());"
        "print([name for name in sys.modules if name.startswith('opscope.core.analysis.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_table_of_contents_and_the_stub_are_up_to_date():
    pytest.importorskip("ruff")
    if not SCRIPT.is_file():
        pytest.skip("the source distribution has no scripts")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stub_has_every_method():
    stub = Path(methods.__file__).with_suffix(".pyi").read_text("utf-8")
    for name in set(index.QUESTIONS) - {"diff"}:
        assert f"    def {name}(" in stub
