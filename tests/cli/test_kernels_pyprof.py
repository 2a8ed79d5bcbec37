"""`opscope kernels --style pyprof`: its columns and flags; `-` reads a trace from stdin."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from opscope.cli import spooled
from opscope.cli import start as application
from opscope.core.pyprof.table import COLUMNS

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from make_nvprof import make

HEADINGS = (
    "Idx SeqId AltSeqId TId Layer Trace Direction Sub Module Op Kernel Params Sil(ns) TC Device Stream Grid"
    " Block FLOPs Bytes"
)


class Result:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def kernels(monkeypatch, capsys):
    """Runs the command in this process and returns what came of it."""

    def call(*args, stdin=None):
        monkeypatch.setattr("sys.argv", ["opscope", "kernels", *map(str, args)])
        if stdin is not None:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = application.run()
        out, err = capsys.readouterr()
        return Result(status, out, err)

    return call


@pytest.fixture(scope="module")
def net(tmp_path_factory) -> Path:
    """A database of nvprof with PyProf's markers: 12 kernels."""
    path = tmp_path_factory.mktemp("nvprof") / "net.sqlite"
    make(path, 12)
    return path


def test_the_default_is_pyprof_s_eight_columns_separated_by_spaces(kernels, net):
    done = kernels(net, "--style", "pyprof")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "Idx Direction Sub Module Op Kernel Params Sil(ns)"
    assert len(lines) == 13
    assert {len(line.split(" ")) for line in lines} == {8}
    first = lines[1].split(" ")
    assert first[:6] == [
        "1",
        "fprop",
        "0",
        "torch.nn.functional",
        "linear",
        "volta_sgemm_128x64_nn",
    ]
    assert first[6] == "M=512,N=16,K=512,fp16,"


def test_awk_adds_up_the_time(net):
    listing = [
        sys.executable,
        "-m",
        "opscope",
        "kernels",
        str(net),
        "--style",
        "pyprof",
        "-c",
        "sil,op",
    ]
    awk = r"{s += $1} END {print s}"
    done = subprocess.run(
        ["bash", "-c", '"$@" | awk "$AWK"', "bash", *listing],
        env={**os.environ, "AWK": awk}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    alone = subprocess.run(listing, capture_output=True, text=True, check=True)
    assert int(done.stdout) == sum(int(line.split()[0]) for line in alone.stdout.splitlines()[1:])


def test_csv_has_every_field_in_quotes(kernels, net):
    done = kernels(net, "--style", "pyprof", "--csv", "-c", ",".join(COLUMNS))
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0] == ",".join(f'"{one}"' for one in HEADINGS.split())
    assert all(line.startswith('"') and line.endswith('"') for line in lines)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert len(rows) == 12
    assert rows[1]["Op"] == "add"
    assert kernels(net, "--style", "pyprof", "--csv", "-c", "all").out == done.out


def test_columns_of_a_width_share_what_is_left_between_kernel_and_parameters(kernels, net):
    done = kernels(net, "--style", "pyprof", "-w", "100")
    lines = done.out.splitlines()
    # 55 for the others, a space after each of the eight
    assert {len(line) for line in lines} == {7 + 5 + 3 + 15 + 15 + 10 + 2 * 22 + 8}
    assert lines[0].startswith("Idx     Direc Sub Module          Op              Kernel ")
    assert lines[1].startswith(
        "      1 fprop   0 torch.nn.functi linear          volta_sgemm_128x64_nn "
    )
    assert kernels(net, "--style", "pyprof", "-w", "0").out.startswith("Idx Direction ")


def test_a_width_too_small_is_refused_with_the_least(kernels, net):
    done = kernels(net, "--style", "pyprof", "-w", "54")
    assert (done.status, done.out) == (2, "")
    assert "need a width of at least 55" in done.err
    assert kernels(net, "--style", "pyprof", "-w", "55").status == 0


def test_a_call_stack_in_columns_is_its_last_file(kernels, tmp_path, trace_of):
    from opscope.profile import Profile

    where = {"process": 0, "thread": 1}
    stack = "{'traceMarker': ['/home/me/main.py:7', '/home/me/net.py:42']}"
    profile = Profile(trace_of(
        ranges=[{**where, "kind": "pushpop", "domain": "", "text": stack, "start": 0, "end": 9}],
        calls=[{**where, "name": "cudaLaunchKernel", "start": 1, "end": 2, "correlation": 1}],
        kernels=[{"process": 0, "device": 0, "stream": 7, "start": 3, "end": 4, "name": "k", "correlation": 1}],
    ))  # fmt: skip
    profile.save(tmp_path / "run.opscope")
    run = tmp_path / "run.opscope"
    whole = kernels(run, "--style", "pyprof", "-c", "trace,altseq").out.splitlines()[1]
    assert whole == "/home/me/main.py:7,/home/me/net.py:42 -"
    cut = kernels(run, "--style", "pyprof", "-c", "trace,sil", "-w", "40").out.splitlines()[1]
    assert cut == f"{'net.py:42':25} {'1':>10} "


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["--csv", "-w", "150"], "--csv and -w cannot be combined"),
        (["-c", "idx,silicon"], "no column named 'silicon'"),
        (["-c", "idx,sil,idx"], "column 'idx' is given twice"),
        (["--sort", "duration"], "no column named 'duration'"),
        (["--csv", "--json"], "cannot be combined"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(kernels, net, args, what):
    done = kernels(net, "--style", "pyprof", *args)
    assert (done.status, done.out) == (2, "")
    assert what in done.err
    assert len(done.err.splitlines()) == 1


def test_an_unknown_style_is_refused(kernels, net):
    done = kernels(net, "--style", "pyprov")
    assert done.status == 2
    assert "did you mean 'pyprof'" in done.err


def test_the_first_rows_the_largest_and_json(kernels, net):
    first = kernels(net, "--style", "pyprof", "--top", "3").out.splitlines()
    assert [line.split()[0] for line in first] == ["Idx", "1", "2", "3"]
    largest = kernels(net, "--style", "pyprof", "-c", "idx", "--sort", "sil").out.splitlines()
    rows = json.loads(kernels(net, "--style", "pyprof", "--json", "-c", "all").out)
    assert [row["idx"] for row in rows] == list(range(1, 13))
    assert int(largest[1]) == max(rows, key=lambda row: row["sil"])["idx"]
    assert rows[0]["altseq"] is None


def test_plain_kernels_are_as_before(kernels, net):
    table = kernels(net).out
    assert table.startswith("Kernels\n")
    assert "share" in table
    assert kernels(net, "--style", "opscope").out == table


def test_a_trace_comes_from_stdin(kernels, net):
    whole = kernels(net, "--style", "pyprof").out
    trace = net.read_bytes()
    assert kernels("-", "--style", "pyprof", stdin=trace).out == whole
    assert kernels("--style", "pyprof", stdin=trace).out == whole  # as PyProf's < net.dict
    assert kernels("-", stdin=trace).out == kernels(net).out


def test_the_copy_of_stdin_is_private_and_gone_afterwards(kernels, net, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []
    copy = spooled._copy

    def watched(source, to):
        copy(source, to)
        seen.append([stat.S_IMODE(one.stat().st_mode) for one in (to.parent, to)])

    monkeypatch.setattr(spooled, "_copy", watched)
    assert kernels("-", "--style", "pyprof", stdin=net.read_bytes()).status == 0
    assert seen == [[0o700, 0o600]]
    assert list(tmp_path.iterdir()) == []


def test_a_stdin_beyond_the_limit_is_refused_and_its_copy_gone(kernels, net, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(spooled, "LIMIT", 1000)
    done = kernels("-", stdin=net.read_bytes())
    assert (done.status, done.out) == (2, "")
    assert "stdin is larger than 1,000 bytes (that is the limit)" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "stdin", "what"),
    [
        (["-", "--style", "pyprof"], b"", "stdin is empty"),
        (["-", "-"], b"x", "- (stdin) can be given only once"),
        (["-"], b"no trace at all", "opscope: stdin: not a trace"),
    ],
)
def test_a_stdin_that_is_no_trace_is_refused(kernels, args, stdin, what):
    done = kernels(*args, stdin=stdin)
    assert (done.status, done.out) == (2, "")
    assert what in done.err


def test_no_file_is_a_usage_error_without_the_style(kernels):
    done = kernels(stdin=b"")
    assert done.status == 2
    assert "Missing argument 'FILE'" in done.err


def test_a_terminal_is_not_read_as_a_trace(kernels, monkeypatch):
    class Terminal(io.TextIOWrapper):
        def isatty(self):
            return True

    for args, what in ((["-"], "stdin is a terminal"), (["--style", "pyprof"], "FILE is missing")):
        monkeypatch.setattr("sys.stdin", Terminal(io.BytesIO(b"")))
        done = kernels(*args)
        assert done.status == 2
        assert what in done.err


def test_dictionaries_are_written_and_read_from_a_file_and_from_stdin(kernels, net, tmp_path):
    whole = kernels(net, "--style", "pyprof", "-c", "all").out
    done = kernels(net, "--style", "pyprof", "--dict")
    assert (done.status, done.err) == (0, "")
    assert len(done.out.splitlines()) == 12
    path = tmp_path / "net.dict"
    path.write_text(done.out)
    assert kernels(path, "--style", "pyprof", "-c", "all").out == whole
    assert kernels("--style", "pyprof", "-c", "all", stdin=done.out.encode()).out == whole
    assert kernels("-", "--style", "pyprof", "--dict", stdin=done.out.encode()).out == done.out


@pytest.mark.parametrize(
    "more",
    [["--csv"], ["--json"], ["-w", "150"], ["-c", "idx"], ["--top", "3"], ["--sort", "sil"], []],
)
def test_dictionaries_have_no_other_form(kernels, net, more):
    done = kernels(net, "--dict", *(["--style", "pyprof"] if more else []), *more)
    assert done.status == 2
    assert "--dict is for --style pyprof alone" in done.err


def test_a_hostile_dictionary_is_one_error_and_never_run(kernels, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.dict").write_text("{'kShortName': open('owned', 'w')}\n")
    done = kernels("net.dict", "--style", "pyprof")
    assert (done.status, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert "net.dict: line 1 is no dictionary of PyProf's parse" in done.err
    assert not Path("owned").exists()


def test_a_profile_without_kernels_is_headings_and_a_word(kernels, tmp_path, trace_of):
    from opscope.profile import Profile

    Profile(trace_of()).save(tmp_path / "run.opscope")
    done = kernels(tmp_path / "run.opscope", "--style", "pyprof", "-c", "idx,op")
    assert (done.status, done.out) == (0, "Idx Op\n")
    assert "no kernels in this profile" in done.err


def test_cells_that_a_spreadsheet_would_run_are_told(kernels, tmp_path, trace_of):
    from opscope.profile import Profile

    kernel = {"process": 0, "device": 0, "stream": 7, "start": 1, "end": 2}
    Profile(trace_of(kernels=[{**kernel, "name": "=cmd"}])).save(tmp_path / "run.opscope")
    assert "1 cell of the CSV begins with" in kernels(tmp_path / "run.opscope", "--style", "pyprof", "--csv", "-c", "all").err  # fmt: skip
    Profile(trace_of(kernels=[{**kernel, "name": "k"}])).save(tmp_path / "two.opscope")
    assert kernels(tmp_path / "two.opscope", "--style", "pyprof", "--csv", "-c", "all").err == ""


def test_a_pipe_that_is_closed_early_ends_quietly(net):
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m opscope kernels {net} --style pyprof | head -1"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("Idx ")
    assert done.stderr == ""
