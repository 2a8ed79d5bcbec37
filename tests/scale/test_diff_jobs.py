"""The difference of two jobs rank by rank: of merged jobs it equals that of the files, and it adds up to the ns."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import opscope
from opscope.cli.app import app
from opscope.core.analysis.diff.rankwise import (
    CHANGES,
    PARTS,
    RANKED,
    rank_table,
    rounded,
    step_table,
)
from opscope.scale.merge import merge
from opscope.scale.partial import write_partial
from tests.made_job import job_files
from tests.made_ranks import rank_files

STEPS = 6
SAME = ("step", "part", "rank", "rank_step")


def training(rank_slow=None, how="compute", more=200, first=0, steps=STEPS):
    def program(rank):
        for step in range(first, first + steps):
            yield ("step", step)
            for kind, usual in (("input", 40), ("launch", 20), ("compute", 300)):
                yield (kind, usual + more * ((rank, kind) == (rank_slow, how)))
            yield ("all_reduce", "0", 1024)

    return program


def made(folder, ranks, program, **options):
    folder.mkdir()
    return job_files(folder, ranks, program, **options)


def merged_of(files, folder):
    for one in files:
        write_partial(one, folder)
    return merge(folder)


def adds_up(a, b) -> None:
    """Hold that the parts of each rank and of each step add up to its change, and the steps to the ranks' sums."""
    for by in ("rank", "rank_step"):
        rows = a.diff(b, by).filter(pl.col("change").is_not_null())
        assert len(rows)
        assert (rows["b"] - rows["a"]).to_list() == rows["change"].to_list()
        assert rows.select(pl.sum_horizontal(CHANGES))[:, 0].to_list() == rows["change"].to_list()
    steps, ranks = a.diff(b, "rank_step"), a.diff(b, "rank")
    for side in ("a", "b"):
        held = steps.drop_nulls(side).group_by("rank").agg(pl.col(side).sum(), pl.len())
        means = {rank: whole // many for rank, whole, many in held.rows()}
        known = ranks.drop_nulls(side)
        assert means == dict(known.select("rank", side).rows())
    step, parts = a.diff(b, "step").row(0, named=True), a.diff(b, "part")
    assert parts["change"].sum() == step["change"] == step["b"] - step["a"]


@pytest.mark.parametrize("how", ["compute", "input"])
@pytest.mark.parametrize("hosts", [0, 2], ids=["one clock", "clocks 50 ms apart"])
def test_the_rank_that_became_slower_is_named_and_why(tmp_path, how, hosts):
    apart = {rank: 50_000.0 * (rank // 2) for rank in range(4)} if hosts else None
    options = {"offset_us": apart, "hosts": hosts}
    files = [
        made(tmp_path / "a", 4, training(), **options),
        made(tmp_path / "b", 4, training(2, how), **options),
    ]
    a, b = (merged_of(one, tmp_path / f"parts{number}") for number, one in enumerate(files))
    adds_up(a, b)
    first, *others = a.diff(b, "rank").rows(named=True)
    cause = {"compute": "compute", "input": "data_loader"}[how]
    assert (first["rank"], first["verdict"], first["cause"]) == (2, "slower", cause)
    assert first["work_change"] == first[f"{cause}_change"] == first["change"] == 200_000
    assert [one["verdict"] for one in others] == ["same"] * 3
    assert [one["cause"] for one in others] == ["waiting"] * 3
    assert [one["exposed_communication_change"] for one in others] == [200_000] * 3
    loaded = [opscope.load(one) for one in files]
    for by in SAME:
        wanted = loaded[0].diff(loaded[1], by)
        for x in (a, loaded[0]):
            for y in (b, loaded[1]):
                assert_frame_equal(x.diff(y, by), wanted, check_exact=True)


def test_nothing_is_said_of_equal_jobs(tmp_path):
    a, b = (merged_of(made(tmp_path / name, 3, training()), tmp_path / f"p{name}") for name in "ab")
    rows = a.diff(b, "rank")
    assert rows["verdict"].to_list() == ["same"] * 3
    assert rows["cause"].to_list() == [None] * 3
    assert a.diff(b, "op_total")["change"].to_list().count(0) == len(a.diff(b, "op_total"))


def test_ranks_and_steps_that_one_job_lacks_have_no_change(tmp_path):
    """B has a rank more, and its steps have other numbers: they are compared in their order."""
    a = merged_of(made(tmp_path / "a", 2, training()), tmp_path / "pa")
    b = merged_of(made(tmp_path / "b", 3, training(1, steps=4, first=100)), tmp_path / "pb")
    adds_up(a, b)
    rows = {row["rank"]: row for row in a.diff(b, "rank").rows(named=True)}
    assert (rows[2]["change"], rows[2]["reason"]) == (None, "only B has the rank")
    assert (rows[1]["steps_a"], rows[1]["steps_b"]) == (6, 4)
    steps = a.diff(b, "rank_step").filter(pl.col("rank") == 1)
    assert steps.select("step_a", "step_b").rows() == [
        (0, 100), (1, 101), (2, 102), (3, 103), (4, None), (5, None)
    ]  # fmt: skip
    assert steps["reason"].to_list() == [None] * 4 + ["only A has the step"] * 2


@pytest.mark.parametrize("sides", ["merged, merged", "merged, loaded", "loaded, merged"])
def test_totals_of_ops_and_kernels_add_up_to_the_device_time(tmp_path, sides):
    files = [rank_files(tmp_path, 3, slow=1)]
    (tmp_path / "other").mkdir()
    files.append(rank_files(tmp_path / "other", 4))
    kinds = sides.split(", ")
    jobs = [
        merged_of(one, tmp_path / f"p{number}") if kind == "merged" else opscope.load(one)
        for number, (kind, one) in enumerate(zip(kinds, files, strict=True))
    ]
    ops, kernels = (jobs[0].diff(jobs[1], by) for by in ("op_total", "kernel_total"))
    for side, job in zip(("a", "b"), jobs, strict=True):
        summary = job.summary().row(0, named=True)
        assert ops[side].sum() == summary["device_time"] > 0
        assert kernels[side].sum() == summary["kernel_time"] > 0
    assert (ops["b"] - ops["a"]).to_list() == ops["change"].to_list()
    # parts are compared without ops, which one side does not know
    assert jobs[0].diff(jobs[1], "cause")["op"].null_count() == len(PARTS) + 1
    assert jobs[0].diff(jobs[1], "op").is_empty()


def test_of_real_traces(shared, tmp_path):
    one = [shared / f"kineto/sampled_rank{rank}.json.gz" for rank in (0, 1)]
    other = [shared / "kineto/nccl_meta.json.gz"]
    merged = [merged_of(files, tmp_path / str(len(files))) for files in (one, other)]
    loaded = [opscope.load(files) for files in (one, other)]
    wanted = loaded[0].diff(loaded[1], "step")
    assert_frame_equal(merged[0].diff(merged[1], "step"), wanted, check_exact=True)
    # of files a part's mean is rounded op by op, of merged jobs as one
    parts = [one.diff(other, "part").sort("part") for one, other in (merged, loaded)]
    for side in ("a", "b"):
        assert parts[0][side].sum() == parts[1][side].sum() == wanted[side][0]
        off = (parts[0][side] - parts[1][side]).abs().max()
        assert off <= 3, off
        assert parts[0][side].is_null().to_list() == parts[1][side].is_null().to_list()


def test_a_part_that_one_run_does_not_know_is_told():
    row = {"process": 0, "rank": 0, "step": 1, "time": 100, "work": None, **dict.fromkeys(PARTS)}
    a = pl.DataFrame([{**row, "compute": 60, "other": 40}], schema=RANKED)
    b = pl.DataFrame([{**row, "compute": 60, "data_loader": 30, "other": 10}], schema=RANKED)
    for made_of in (rank_table, step_table):
        (found,) = made_of(a, b).rows(named=True)
        assert found["reason"] == "not known in A: data loader"
        assert found["change"] == 0
        assert (found["data_loader_change"], found["other_change"]) == (30, -30)
        assert found["copies_change"] is None


def test_a_process_without_a_rank_is_compared_by_its_place():
    row = {"rank": None, "step": 1, "time": 100, "work": None, **dict.fromkeys(PARTS), "other": 100}
    a, b = (
        pl.DataFrame([{**row, "process": one} for one in numbers], schema=RANKED)
        for numbers in ((4, 9), (0, 1, 2))
    )
    found = rank_table(a, b).select("process_a", "process_b").rows()
    assert sorted(found, key=str) == [(4, 0), (9, 1), (None, 2)]


@given(
    arrays.arrays(np.int64, (5, 4), elements=st.integers(0, 1 << 40)),
    arrays.arrays(np.int64, 5, elements=st.integers(1, 1000)),
)
def test_means_are_rounded_so_that_they_add_up(total, many):
    means = rounded(total, many)
    assert (means.sum(1) == total.sum(1) // many).all()
    assert (np.abs(means * many[:, None] - total) < many[:, None]).all()


def test_the_command_shows_ranks_in_each_form(tmp_path):
    for name, program in (("a", training()), ("b", training(1))):
        merged_of(made(tmp_path / name, 2, program), tmp_path / f"p{name}").save(
            tmp_path / f"{name}.opscope"
        )
    jobs = [str(tmp_path / f"{name}.opscope") for name in "ab"]
    run = CliRunner().invoke
    plain = run(app, ["diff", *jobs, "-w", "0"])
    assert plain.exit_code == 0, plain.output
    assert "ranks by their own work: 1 slower, 0 faster, of 2 that both have" in plain.output
    assert "rank 1 became slower most: +200 µs a step, mostly compute" in plain.output
    assert "A and B are merged jobs" in plain.output
    told = json.loads(run(app, ["diff", *jobs, "--json"]).stdout)
    assert [row["rank"] for row in told["ranks"]] == [1, 0]
    assert len(told["rank_steps"]) == 2 * STEPS
    assert sum(row["change"] for row in told["parts"]) == told["step"]["change"]
    assert "| 1 | 385 µs | 585 µs |" in run(app, ["diff", *jobs, "--markdown"]).stdout
    csv = run(app, ["diff", *jobs, "--csv", "--table", "rank"]).stdout
    assert csv.splitlines()[0].startswith("rank,process_a,process_b,a,b,change")
    limited = run(app, ["diff", *jobs, "--fail-on", "op:aten::mm>5%"])
    assert limited.exit_code == 2
    assert "a merged job does not know the time of an op in a step" in limited.output
    assert run(app, ["diff", *jobs, "--fail-on", "step>5%"]).exit_code == 1
