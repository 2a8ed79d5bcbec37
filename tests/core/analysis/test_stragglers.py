"""Ranks that are late: who enters last, what the others wait, and how evenly ranks work."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.ops.exchanges import exchange_pieces
from opscope.core.analysis.ranks.stragglers import waits_for
from opscope.core.analysis.steps.warm_up import warm_up_of_job
from opscope.profile import Profile

US = 1_000


def a_range(process, start, end, text, category, thread=1):
    return {"process": process, "thread": thread, "end_thread": thread, "start": start, "end": end,
            "text": text, "domain": "opscope.torch", "category": category,
            "kind": "mark" if category == "spec" else "pushpop"}  # fmt: skip


def group(process, ranks, name="0"):
    told = f'process_group/{name} = group() -> () {{rank={process}, size={ranks}, ranks="0-{ranks - 1}"}}'
    return a_range(process, 0, 0, told, "spec")


def all_reduce(process, start, end, name="0"):
    """The call returns at once; the backend's thread is in the collective from ``start`` to ``end``."""
    params = "" if name is None else f' {{process_group="{name}"}}'
    call = f"c10d::allreduce_([f32[8]], _) -> ([=0], _){params}"
    return [
        a_range(process, start - 2, start - 1, call, "communication"),
        a_range(process, start, end, "gloo:all_reduce(f32[8])", "communication", thread=2),
    ]


def job(trace_of, *rows, ranks=2, grouped=True) -> Profile:
    flat = [one for row in rows for one in (row if isinstance(row, list) else [row])]
    told = [group(rank, ranks) for rank in range(ranks)] if grouped else []
    flat = sorted([*told, *flat], key=lambda one: one["start"])
    processes = [{"process": rank, "rank": rank, "clock_domain": 0} for rank in range(ranks)]
    clocks = [{"clock_domain": 0, "machine": "one"}]
    return Profile(trace_of(ranges=flat, processes=processes, clocks=clocks))


def step(process, number, start, end):
    return a_range(process, start, end, f"step {number}", "step")


def test_the_rank_that_enters_last_is_the_straggler(trace_of):
    """Rank 1 is 30 µs late, then 20; then rank 0 is 5 µs late."""
    profile = job(
        trace_of,
        *[all_reduce(rank, (100 + late) * US, 200 * US) for rank, late in enumerate((0, 30))],
        *[all_reduce(rank, (300 + late) * US, 400 * US) for rank, late in enumerate((0, 20))],
        *[all_reduce(rank, (500 + late) * US, 600 * US) for rank, late in enumerate((5, 0))],
    )
    first, second = profile.stragglers().rows(named=True)
    assert (first["rank"], first["compared"], first["last"]) == (1, 3, 2)
    assert (first["lateness"], first["median_lateness"]) == (50 * US, 25 * US)
    assert (first["max_lateness"], first["caused_waiting"]) == (30 * US, 50 * US)
    assert (first["waiting_time"], second["waiting_time"]) == (5 * US, 50 * US)
    assert (second["rank"], second["last"], second["caused_waiting"]) == (0, 1, 5 * US)
    assert first["usual_kind"] == "all_reduce"


def test_the_waiting_of_all_others_is_caused_by_the_last(trace_of):
    late = (0, 10, 40)
    rows = [all_reduce(rank, (100 + late[rank]) * US, 200 * US) for rank in range(3)]
    worst = job(trace_of, *rows, ranks=3).stragglers().row(0, named=True)
    assert (worst["rank"], worst["lateness"], worst["caused_waiting"]) == (2, 40 * US, 70 * US)


def test_ranks_that_enter_together_have_no_last(trace_of):
    rows = [all_reduce(rank, 100 * US + 300 * rank, 200 * US) for rank in range(2)]
    assert job(trace_of, *rows).stragglers()["last"].to_list() == [0, 0]


def test_a_rank_alone_is_compared_with_nobody(trace_of):
    profile = job(trace_of, all_reduce(0, 100 * US, 200 * US), ranks=2)
    assert profile.stragglers().is_empty()
    (row,) = profile.collective_waits().rows(named=True)
    assert (row["time"], row["uncompared_time"]) == (100 * US, 100 * US)
    assert (row["waiting_time"], row["transfer_time"], row["waiting_share"]) == (None, None, None)


times = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(51, 90)), min_size=1, max_size=6
)


@given(times, st.booleans())
def test_waiting_and_transfer_add_up_to_the_time_in_collectives(trace_of, made, grouped):
    rows, whole, least = [], 0, 0
    for number, (one, other, end) in enumerate(made):
        at = 1000 * number + 10
        name = "0" if grouped else None
        rows += [all_reduce(0, at + one, at + end, name), all_reduce(1, at + other, at + end, name)]
        whole += 2 * end - one - other
        least += 2 * (end - max(one, other))
    table = job(trace_of, *rows, grouped=grouped).collective_waits()
    assert table["time"].sum() == whole
    for row in table.rows(named=True):
        waits, moves = row["waiting_time"] or 0, row["transfer_time"] or 0
        assert waits + moves + row["uncompared_time"] == row["time"]
    if not grouped:
        assert table["waiting_time"].to_list() == [None]
    else:
        assert (table["waiting_time"].sum(), table["transfer_time"].sum()) == (whole - least, least)


def test_the_rank_with_most_work_is_first_though_all_steps_are_equally_long(trace_of):
    """Both ranks' steps take 100 µs; rank 0 waits 40 of them for rank 1."""
    rows = []
    for number in range(3):
        at = 100 * number
        rows += [step(rank, number, at * US, (at + 100) * US) for rank in range(2)]
        rows += [all_reduce(rank, (at + 50 + 40 * rank) * US, (at + 98) * US) for rank in range(2)]
    first, second = job(trace_of, *rows).step_imbalance().rows(named=True)
    assert (first["rank"], first["steps"], first["median_step"]) == (1, 3, 100 * US)
    assert (first["median_work"], second["median_work"]) == (100 * US, 60 * US)
    assert (first["most_work"], second["most_work"]) == (3, 0)
    assert (first["over_mean"], second["over_mean"]) == (1.25, 0.75)


def test_work_is_unknown_where_waiting_is(trace_of):
    rows = [step(rank, 0, 0, 100 * US) for rank in range(2)]
    rows += [all_reduce(rank, (50 + 40 * rank) * US, 98 * US, name=None) for rank in range(2)]
    for row in job(trace_of, *rows, grouped=False).step_imbalance().rows(named=True):
        assert row["median_step"] == 100 * US
        assert [row[name] for name in ("median_work", "over_mean", "most_work")] == [None] * 3


def test_steps_of_one_process_are_compared_with_none(trace_of):
    assert job(trace_of, step(0, 0, 0, 100), step(1, 7, 0, 100)).step_imbalance().is_empty()


def test_collectives_of_a_device_without_launches_are_those_of_its_ops(trace_of):
    """Ascend's tasks are called after the model's node; their ranges stand for kernels and have no length."""
    told = {"AllReduce-op5": '() {direction="communication", core="HCCL"}', "Add-op1": "() {}"}
    times = {"AllReduce-op5": (100, 160), "Add-op1": (0, 40)}
    kernels = [
        {"process": 0, "device": 0, "stream": 3, "start": start, "end": end, "name": name,
         "op_key": f"mindspore/{name}"}
        for name, (start, end) in sorted(times.items())
    ]  # fmt: skip
    specs = [
        {"process": 0, "framework": "mindspore", "graph": "mindspore", "key": name,
         "text": name + text}
        for name, text in told.items()
    ]  # fmt: skip
    profile = Profile(trace_of(kernels=kernels, specs=specs, ranges=[step(0, 0, 0, 200)]))
    (row,) = profile.steps().rows(named=True)
    assert (row["communication_part"], row["kernel_part"]) == (60, 40)
    assert profile.collective_waits()["time"].to_list() == [60]
    assert profile.communication()["communication_time"].to_list() == [60]


def test_who_waited_for_whom(trace_of):
    """Rank 2 lets both others wait, then rank 0 lets them wait; together they make up what each caused."""
    first, second = (0, 10, 40), (25, 0, 5)
    rows = [all_reduce(rank, (100 + first[rank]) * US, 200 * US) for rank in range(3)]
    rows += [all_reduce(rank, (300 + second[rank]) * US, 400 * US) for rank in range(3)]
    profile = job(trace_of, *rows, ranks=3)
    pairs = {pair[:2]: pair[2] for pair in waits_for(profile.of(exchange_pieces)).rows()}
    assert pairs == {(2, 0): 40 * US, (2, 1): 30 * US, (0, 1): 25 * US, (0, 2): 20 * US}
    caused = dict(profile.stragglers().select("process", "caused_waiting").rows())
    for late in (0, 2):
        assert caused[late] == sum(time for (one, _), time in pairs.items() if one == late)
    assert caused[1] == 0


def test_what_is_warm_up_of_one_rank_is_that_of_the_job_unless_a_rank_had_no_other_step():
    times = {0: [90, *[10] * 9], 1: [10] * 10}
    rows = [
        {"process": process, "step": step, "start": step * 100, "time": time, "seen": True}
        for process, of in times.items()
        for step, time in enumerate(of)
    ]
    few = {"process": 2, "step": 0, "start": 0, "time": 10, "seen": True}
    warm = warm_up_of_job(pl.DataFrame([*rows, few]))
    assert warm.to_list() == [True, *[False] * 9, True, *[False] * 9, False]
