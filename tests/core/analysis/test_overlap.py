"""Overlap of computation, communication and copies, against a count of every ns."""

from __future__ import annotations

import polars as pl
from hypothesis import given

from tests.device_traces import OP, Ran, profiled, works

NCCL = "ncclDevKernel_AllReduce"


def ran(profile) -> dict:
    return {
        what: time for what, time in profile.overlap().select("running_work", "time").rows() if time
    }


def test_each_pair_and_all_three_have_a_row():
    work = [Ran(0, 40), Ran(10, 50, name=NCCL, stream=9), Ran(20, 60, stream=8, kind="HtoD")]
    assert ran(profiled(work)) == {
        "computation": 10, "computation and communication": 10, "all three": 20,
        "communication and copies": 10, "copies": 10,
    }  # fmt: skip
    assert len(profiled(work).overlap()) == 7


def test_a_kernel_of_a_collectives_op_communicates_whatever_its_name():
    ranges = [
        {**OP, "category": "communication", "text": "c10d::allreduce_()", "start": 0, "end": 10}
    ]
    assert ran(profiled([Ran(20, 30, 5, name="MEMCPY")], ranges=ranges)) == {"communication": 10}


@given(works(kinds=True))
def test_the_rows_of_a_device_add_up_to_its_busy_time(work):
    profile = profiled(work)
    frame = profile.overlap()
    for device, busy in profile.idle().select("device", "busy_time").rows():
        rows = frame.filter(pl.col("device") == device)
        assert rows["time"].sum() == busy
        mine = [one for one in work if one.device == device]
        counted: dict[str, int] = {}
        for now in range(75):
            running = {
                "copies" if one.kind else "communication" if one.name == NCCL else "computation"
                for one in mine
                if one.start <= now < one.end
            }
            order = [one for one in ("computation", "communication", "copies") if one in running]
            name = "all three" if len(order) == 3 else " and ".join(order)
            if name:
                counted[name] = counted.get(name, 0) + 1
        assert {
            what: time for what, time in rows.select("running_work", "time").rows() if time
        } == counted
