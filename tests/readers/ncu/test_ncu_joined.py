"""Counters of one run joined to the kernels of another, by name and order; what does not match is said."""

from __future__ import annotations

import polars as pl
import pytest

import opscope
from opscope.cli.start import run
from opscope.errors import BadInput
from opscope.profile import Profile
from opscope.readers.ncu.joined import plain, with_counters

from . import made

TIME = "gpu__time_duration.sum"


@pytest.fixture
def traced(trace_of):
    """A trace whose kernels run on (stream, name) in order, each with a grid."""

    def make(*ran: tuple[int, str], grid: str = "2,1,1", calls: bool = True):
        rows = [{"process": 0, "device": 0, "stream": stream, "start": 1000 * n, "end": 1000 * n + 500,
                 "name": name, "correlation": n, "grid": grid} for n, (stream, name) in enumerate(ran)]  # fmt: skip
        called = [{"process": 0, "thread": 1, "start": 10 * n, "end": 10 * n + 5, "name": "cudaLaunchKernel",
                   "correlation": n} for n in range(len(ran))]  # fmt: skip
        return trace_of(kernels=rows, ranges=[], **({"calls": called} if calls else {}))

    return make


def counted(tmp_path, *ran: tuple[int, str], grid: str = "(2, 1, 1)"):
    rows = [(made.about(n, name, stream=stream, grid=grid), {TIME: ("ns", str(100 + n))})
            for n, (stream, name) in enumerate(ran)]  # fmt: skip
    path = tmp_path / "ncu.csv"
    path.write_text(made.long(rows))
    return path


def joined(trace) -> list:
    frame = Profile(trace).counters()
    return frame.select("name", "stream", "correlation", TIME).sort("correlation").rows()


def notes(trace) -> dict:
    return {what: many for _, what, many in trace["notes"].rows()}


def test_the_nth_execution_gets_the_counters_of_the_nth(tmp_path, traced):
    ran = [(7, "add"), (7, "mul"), (7, "add")]
    trace = with_counters(traced(*ran), counted(tmp_path, *ran))
    assert joined(trace) == [("add", 7, 0, 100), ("mul", 7, 1, 101), ("add", 7, 2, 102)]
    assert notes(trace) == {
        "kernels got counters of another run, by name and order on their device and stream": 3
    }


def test_streams_are_lined_up_each_by_itself(tmp_path, traced):
    """Two streams may swap places from run to run, the order on a stream stays."""
    trace = with_counters(
        traced((7, "add"), (13, "add"), (13, "add")),
        counted(tmp_path, (13, "add"), (13, "add"), (7, "add")),
    )
    assert joined(trace) == [("add", 7, 0, 102), ("add", 13, 1, 100), ("add", 13, 2, 101)]


def test_streams_of_other_numbers_are_not_compared(tmp_path, traced):
    trace = with_counters(
        traced((20, "add"), (20, "mul")), counted(tmp_path, (7, "add"), (7, "mul"))
    )
    assert [row[3] for row in joined(trace)] == [100, 101]
    assert any(what.endswith("by name and order on their device") for what in notes(trace))


def test_kernels_that_ran_another_number_of_times_are_left_out_and_named(tmp_path, traced):
    trace = with_counters(
        traced((7, "add"), (7, "mul"), (7, "mul"), (7, "own")),
        counted(tmp_path, (7, "add"), (7, "mul"), (7, "other")),
    )
    assert [row[0] for row in joined(trace)] == ["add"]
    said = notes(trace)
    assert said["counters of kernels that ran another number of times here, left out: mul"] == 1
    assert said["counters of kernels that the trace does not have, left out: other"] == 1
    assert said["kernels without counters: ncu did not measure them: own"] == 1


def test_kernels_of_other_grids_are_left_out(tmp_path, traced):
    ran = [(7, "add"), (7, "mul")]
    with pytest.raises(BadInput, match="same program"):
        with_counters(traced(*ran, grid="4,1,1"), counted(tmp_path, *ran))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "void at::native::add<4, (anonymous namespace)::F>(int, float*)",
            "at::native::add<4,<unnamed>::F>",
        ),
        ("kernel(int const*, int*)", "kernel"),
        ("void gemm<float, (int)32>(Params)", "void gemm<float,(int)32>(Params)"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
    ],
)
def test_names_are_compared_as_all_tools_write_them(one, other):
    assert plain(one) == plain(other)


def test_names_of_different_kernels_stay_different():
    names = [
        "add<float>(int)",
        "add<double>(int)",
        "add<float>::operator()",
        "f(int)::{lambda(float)#1}",
    ]
    assert len({plain(name) for name in names}) == len(names)


def test_a_graphs_kernels_get_their_own_counters(tmp_path, traced):
    ran = [(7, "add"), (7, "mul"), (7, "add")]
    trace = traced(*ran)
    trace = trace.replace(
        kernels=trace["kernels"].with_columns(pl.lit(5, pl.Int64).alias("correlation"))
    )
    frame = Profile(with_counters(trace, counted(tmp_path, *ran))).counters()
    assert frame.sort("start").select("name", TIME).rows() == [
        ("add", 100),
        ("mul", 101),
        ("add", 102),
    ]


def test_counters_for_a_trace_without_kernels_are_refused(tmp_path, trace_of):
    with pytest.raises(BadInput, match="the trace has none"):
        with_counters(trace_of(), counted(tmp_path, (7, "add")))
    with pytest.raises(BadInput, match="no such file"):
        with_counters(trace_of(), tmp_path / "missing.csv")


def test_the_command_joins_a_file_of_counters(tmp_path, traced, monkeypatch, capsys):
    ran = [(7, "add"), (7, "mul")]
    profile = tmp_path / "run.opscope"
    Profile(traced(*ran)).save(profile)
    monkeypatch.setattr("sys.argv", ["opscope", "report", str(profile), "--counters",
                                     str(counted(tmp_path, *ran)), "--reports", "counters"])  # fmt: skip
    assert run() == 0
    out = capsys.readouterr().out
    assert "mul" in out
    assert "101" in out
    frame = opscope.load(profile, counters=counted(tmp_path, *ran)).counters()
    assert frame[TIME].to_list() == [100, 101]
