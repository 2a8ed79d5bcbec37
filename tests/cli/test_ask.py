"""``opscope ask``: the answers of ``opscope mcp`` from the command line."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from opscope.agents.answering import reply
from opscope.agents.runs import Runs
from tests.command import opscope
from tests.planted_truths import made

ROOT = Path(__file__).resolve().parents[2]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
FILE = "synchronising_reads-nsys-8x2.sqlite"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ask")
    for cause in ("synchronising reads", "healthy", "late rank"):
        made.make(cause, 0, folder)
    return folder


@pytest.mark.parametrize(
    ("words", "call", "given"),
    [
        (["diagnose"], "diagnose", {}),
        (["advise sync_calls"], "advise", {"detectors": ["sync_calls"]}),
        (["advise", "--set", "detectors=sync_calls,host_bound"], "advise", {"detectors": ["sync_calls", "host_bound"]}),
        (["op_totals", "--set", "match=mm", "--set", "columns=op,calls"], "ask",
         {"question": "op_totals", "match": "mm", "columns": ["op", "calls"]}),
        (["idle", "--set", "with=by=stream"], "ask", {"question": "idle", "with": {"by": "stream"}}),
        (["steps", "--set", "steps=2:3", "--tokens", "600"], "ask",
         {"question": "steps", "steps": "2:3", "tokens": 600}),
        (["whatif aten::mm=0.5"], "whatif", {"ops": ["aten::mm=0.5"]}),
        (["diff healthy-kineto-8x2.json"], "diff", {"other": "healthy-kineto-8x2.json"}),
        (["which ranks are late"], "ask", {"question": "which ranks are late"}),
    ],
)  # fmt: skip
def test_the_answer_is_that_of_the_tool(folder, words, call, given):
    done = opscope("ask", FILE, *words, "--json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    runs = Runs((folder,))
    runs.open([FILE])
    expected = reply(runs, call, given)
    assert json.loads(done.stdout) == expected.content


def test_several_files_are_the_ranks_of_a_job(folder):
    files = sorted(path.name for path in folder.glob("late_rank*rank?.json"))
    answer = json.loads(opscope("ask", *files, "diagnose", "--json", cwd=folder).stdout)
    assert answer["where"] == {"rank": 1}


def test_the_lines_for_people_end_in_commands_that_run(folder):
    done = opscope("ask", FILE, "diagnose", cwd=folder)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "verdict: cause"
    (command,) = (line for line in done.stdout.splitlines() if line.startswith("next: "))
    words = shlex.split(command.removeprefix("next: ").partition("  # ")[0])
    again = opscope(*words[1:], cwd=folder)
    assert "train.py:90" in again.stdout
    assert "47.3 ms" in again.stdout, "numbers are in units that people read"


def test_what_is_wrong_ends_with_status_2_and_one_line(folder):
    for words in (["diagnose", "--set", "steps"], ["diagnose", "--set", "steps=x"], ["diagnose all of it"],
                  ["steps", "--set", "sort=tme"], ["zzz qqq"]):  # fmt: skip
        done = opscope("ask", FILE, *words, cwd=folder)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert len(done.stderr.splitlines()) == 1
    done = opscope("ask", FILE, "diagnose", "--gpu", "Foo", cwd=folder)
    assert (done.returncode, done.stderr[:22]) == (2, "opscope: --gpu 'Foo': ")
    done = opscope("ask", "absent.json", "diagnose", cwd=folder)
    assert done.returncode == 2
    assert "absent.json" in done.stderr


def test_open_says_what_the_run_is(folder):
    answer = json.loads(opscope("ask", FILE, "open", "--json", cwd=folder).stdout)
    assert answer["run"] == f"1: {FILE}"
    assert ["steps", 8, "count"] in answer["rows"]


def test_a_merged_job_answers_and_says_what_it_lacks(folder, tmp_path):
    files = sorted(map(str, folder.glob("late_rank*rank?.json")))
    assert opscope("partial", *files, "-o", "parts", cwd=tmp_path).returncode == 0
    assert opscope("merge", "parts", "-o", "job.opscope", cwd=tmp_path).returncode == 0
    answer = json.loads(opscope("ask", "job.opscope", "diagnose", "--json", cwd=tmp_path).stdout)
    assert (answer["cause"]["name"], answer["where"]) == ("straggler", {"rank": 1})
    done = opscope("ask", "job.opscope", "whatif aten::mm=0", cwd=tmp_path)
    assert done.returncode == 2
    assert "hold no events one by one" in done.stderr
    lacking = json.loads(
        opscope("ask", "job.opscope", "critical_path", "--json", cwd=tmp_path).stdout
    )
    assert "open the rank's own file" in lacking["cannot_tell"][0]


def test_the_server_without_its_sdk_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "opscope.agents.server", raising=False)
    done = opscope("mcp")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "opscope: the MCP server needs the extra: pip install 'opscope[mcp]'\n"


def test_asking_loads_no_sdk(folder):
    code = "import sys; from opscope.cli import start; start.run(); print('mcp' in sys.modules, file=sys.stderr)"
    words = [sys.executable, "-c", code, "ask", FILE, "diagnose", "--json"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=True, env=ENVIRON
    )
    assert done.stderr == "False\n"
