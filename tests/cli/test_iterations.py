"""``opscope iterations``: the list, and the range that it recommends."""

from __future__ import annotations

import json

import pytest

from opscope.cli import start as application
from opscope.profile import Profile


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command line in this process; returns the exit code and stdout."""

    def call(*args):
        monkeypatch.setattr("sys.argv", ["opscope", "iterations", *map(str, args)])
        status = application.run()
        return status, capsys.readouterr().out

    return call


@pytest.fixture
def trained(trace_of, tmp_path):
    """A profile of nine marked steps, the first of which is ten times as long."""
    ranges, time = [], 1_000_000
    for number in range(9):
        length = 10_000 if number == 0 else 1_000
        one = {"process": 0, "thread": 1, "kind": "pushpop", "start": time, "end": time + length}
        ranges.append(
            {**one, "domain": "opscope.step", "category": "step", "text": f"step {number}"}
        )
        ranges.append({**one, "domain": "opscope.x", "category": "forward", "text": "x::mm()"})
        time += length
    path = tmp_path / "trained.opscope"
    Profile(trace_of(ranges=ranges)).save(path)
    return path


def test_the_list_has_a_line_for_each_and_recommends_a_range_with_its_reason(run, trained):
    status, out = run(trained, "-w", 0)
    assert status == 0
    head, *rows = out.splitlines()[1:11]
    assert head.split()[:3] == ["iteration", "process", "begin"]
    assert [row.split()[0] for row in rows] == list("012345678")
    assert rows[0].split()[2:4] == ["0", "ns"], "begins are counted from the first"
    assert (
        "stable: 1 to 8, 8 in a row with the same work, each within 0 % of their median, after 1 of warm-up"
        in out
    )
    assert "--iter-start 1 --iter-stop 8" in out


def test_json_and_csv_have_every_column(run, trained):
    status, out = run(trained, "--json")
    rows = json.loads(out)
    assert status == 0
    assert [row["warm_up"] for row in rows] == [True, *[False] * 8]
    assert rows[0]["start"] == 1_000_000
    _, text = run(trained, "--csv", "-c", "iteration,stable")
    assert text.splitlines()[:3] == ["iteration,stable", "0,false", "1,true"]


def test_chosen_columns_are_a_table_of_these(run, trained):
    _, out = run(trained, "-c", "iteration,stable", "--top", 2)
    assert [line.split() for line in out.splitlines()[1:4]] == [
        ["iteration", "stable"], ["0", "no"], ["1", "yes"],
    ]  # fmt: skip


def test_where_there_is_none_the_reason_is_said(run, trace_of, tmp_path):
    one = {"process": 0, "thread": 1, "kind": "pushpop", "start": 0, "end": 10}
    path = tmp_path / "once.opscope"
    Profile(
        trace_of(ranges=[{**one, "domain": "opscope.x", "category": "forward", "text": "x::mm()"}])
    ).save(path)
    status, out = run(path)
    assert status == 0
    assert "no stable range: fewer than 6 ops outside any other" in out


def test_prefill_and_decode_steps_of_a_server_are_summed_up_apart(run, trace_of, tmp_path):
    ranges, time = [], 0
    for number in range(8):
        length, name = (
            (5_000, "context_1(80)_generation_0(0)"),
            (1_000, "context_0(0)_generation_9(9)"),
        )
        length, name = length if number in (0, 4) else name
        one = {"process": 0, "thread": 1, "kind": "pushpop", "start": time, "end": time + length}
        ranges.append({**one, "domain": "user", "text": f"execute_{name}"})
        ranges.append({**one, "start": time + 1, "domain": "opscope.x", "text": "x::mm()"})
        time += length
    path = tmp_path / "served.opscope"
    Profile(trace_of(ranges=ranges)).save(path)
    status, out = run(path, "-w", 0)
    assert status == 0
    assert "prefill: 2, 5.00 µs each (median)" in out
    assert "decode: 6, 1.00 µs each (median)" in out
