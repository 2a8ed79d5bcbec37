"""``opscope report`` of many ranks: its options, and what it says where an engine is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.made_ranks import rank_files

ROOT = Path(__file__).resolve().parents[2]


def opscope(
    *words: object, folder: Path, hidden: tuple[str, ...] = ()
) -> subprocess.CompletedProcess:
    """Run the command; the modules ``hidden`` cannot be imported in it."""
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({hidden!r}))\n"
        "from opscope.cli import main\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    program = folder / "opscope_without.py"
    program.write_text(code)
    return subprocess.run(
        [sys.executable, program, *map(str, words)],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,  # a command that serves would never end
        check=False,
    )


def test_ranks_are_read_by_processes_and_kept(tmp_path):
    files = rank_files(tmp_path, 4)
    command = ("report", *files, "--json", "--reports", "summary,communication")
    plain = opscope(*command, folder=tmp_path)
    many = opscope(*command, "--jobs", 2, "--parts", tmp_path / "parts", folder=tmp_path)
    assert many.returncode == plain.returncode == 0, many.stderr
    assert json.loads(many.stdout) == json.loads(plain.stdout)
    assert len(list((tmp_path / "parts").glob("*.parquet"))) == 4
    again = opscope(*command, "--parts", tmp_path / "parts", folder=tmp_path)
    assert json.loads(again.stdout) == json.loads(plain.stdout)


def test_the_first_screen_says_how_many_ranks_it_is_of(tmp_path):
    files = rank_files(tmp_path, 3)
    files[1].write_text('{"traceEvents": [')
    done = opscope("report", *files, "--jobs", 2, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 of 3" in done.stdout
    assert f"left out: {files[1]}: " in done.stderr


@pytest.mark.parametrize(
    ("option", "module", "extra"), [("--dask", "distributed", "cluster"), ("--ray", "ray", "ray")]
)
def test_an_engine_that_is_not_installed_is_named_with_its_extra(tmp_path, option, module, extra):
    [file] = rank_files(tmp_path, 1)
    done = opscope("report", file, option, "tcp://127.0.0.1:1", folder=tmp_path, hidden=(module,))
    assert done.returncode == 2
    assert f"pip install 'opscope[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--jobs", 2, "--dask", "tcp://x"), "--jobs and --dask cannot be combined"),
        (("--jobs", 2, "--html", "a.html"), "--html needs single events"),
        (("--parts", "p", "--rank", 1), "--rank needs single events"),
    ],
)
def test_options_that_exclude_each_other_are_told(tmp_path, words, said):
    [file] = rank_files(tmp_path, 1)
    done = opscope("report", file, *words, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_the_help_says_who_may_run_code():
    from typer.testing import CliRunner

    from opscope.cli.app import app

    shown = " ".join(
        CliRunner().invoke(app, ["report", "--help-all"], env={"COLUMNS": "300"}).output.split()
    )
    assert "Whoever controls the scheduler can run code here and on the workers" in shown
    assert "Whoever controls the cluster can run code here and on the workers" in shown


@pytest.mark.parametrize(
    "words",
    [("report", "--html", "x.html"), ("export", "--to", "perfetto")],
)
def test_commands_that_need_events_refuse_a_merged_job_in_a_line(tmp_path, words):
    files = rank_files(tmp_path, 2)
    assert opscope("partial", *files, "-o", tmp_path / "parts", folder=tmp_path).returncode == 0
    job = tmp_path / "job.opscope"
    assert opscope("merge", tmp_path / "parts", "-o", job, folder=tmp_path).returncode == 0
    rest = [tmp_path / one if one == "x.html" else one for one in words[1:]]
    done = opscope(words[0], job, *rest, folder=tmp_path)
    assert done.returncode == 2
    assert "open the rank's own file" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x.html").exists()
