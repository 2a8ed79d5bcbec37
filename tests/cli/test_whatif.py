"""``opscope whatif``: the question from the command line, and what it refuses."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from opscope.cli.app import app
from opscope.profile import Profile
from opscope.readers.errors import BadInput


@pytest.fixture
def saved(trace_of, tmp_path) -> str:
    where = {"process": 0, "thread": 1, "domain": "opscope.torch", "category": "forward"}
    profile = Profile(
        trace_of(
            ranges=[{**where, "text": "mm()", "start": 0, "end": 20}],
            calls=[{"process": 0, "thread": 1, "name": "cudaLaunchKernel", "start": 10, "end": 14,
                    "correlation": 1}],
            kernels=[{"process": 0, "device": 0, "stream": 7, "name": "gemm", "start": 16, "end": 100,
                      "correlation": 1}],
        )
    )  # fmt: skip
    return str(profile.save(tmp_path / "run.opscope") or tmp_path / "run.opscope")


def asked(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["whatif", *words])
    if isinstance(result.exception, BadInput):
        return 2, str(result.exception)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("words", "new"),
    [(["--kernel", "gemm=0.5"], 58), (["--op", "mm=0"], 6), (["--host", "0.5"], 95),
     (["--launches", "0"], 94), (["--kernel", "g*=0", "--launches", "0"], 16)],
)  # fmt: skip
def test_the_new_time_is_told(saved, words, new):
    status, out = asked(saved, *words, "--json")
    assert status == 0
    row = json.loads(out)[0]
    assert (row["wall_time"], row["new_wall_time"], row["saving"]) == (100, new, 100 - new)
    status, out = asked(saved, *words)
    assert status == 0
    assert "new wall time" in out


@pytest.mark.parametrize(
    "words",
    [[], ["--op", "mm"], ["--op", "=1"], ["--op", "mm=fast"], ["--op", "nosuch=0"], ["--kernel", "mm=0"],
     ["--copies", "-1"], ["--host", "nan"], ["--launches", "inf"], ["--op", "mm=1e9"],
     ["--host", "0", "--csv", "--json"]],
)  # fmt: skip
def test_a_question_that_means_nothing_ends_with_status_2(saved, words):
    assert asked(saved, *words)[0] == 2


def test_a_file_that_is_no_trace_ends_with_status_2(tmp_path):
    (tmp_path / "x.json").write_text("{")
    assert asked(str(tmp_path / "x.json"), "--host", "0")[0] == 2
