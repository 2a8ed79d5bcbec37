"""What the pages Roofline, Distributed and Compare ask besides tables: equal to what the reports say."""

import json

import pytest

import opscope
from opscope.reports import difference as reported
from opscope.viewer.question import Asked, Unanswered
from opscope.viewer.registry import questions
from opscope.viewer.viewed import Viewed
from tests import traces


def ask(profile, question, other=None, **given):
    found = questions()[question].answer(Asked(Viewed(profile, ("a",), other=other), given))
    return json.loads(json.dumps(found, allow_nan=False))


def test_the_difference_is_that_of_the_report(shared):
    a, b = (
        traces.load(shared / f"kineto/resnet50_{name}_step_span1.pt.trace.json.gz")
        for name in ("nw0", "nw4")
    )
    found = ask(a, "difference", b)
    step = a.diff(b, "step").row(0, named=True)
    assert found["step"] == step
    assert "data loader" in found["headline"]
    assert sum(a.diff(b)["change"]) == pytest.approx(step["change"])
    from opscope.profile.difference import difference_of

    assert found["headline"] == reported.headline(difference_of(a, b))


def test_without_a_second_run_there_is_no_difference(shared):
    profile = traces.load(shared / "dlprof/nsys_profile.sqlite")
    with pytest.raises(Unanswered, match="--compare"):
        ask(profile, "difference")


def test_the_roofs_are_those_of_the_device(shared):
    profile = traces.load(shared / "kineto/resnet50_nw4_step_span1.pt.trace.json.gz")
    device, _ = profile.device
    found = ask(profile, "roofs")
    assert found["device"] == device.name
    assert (found["bandwidth"], found["cache"]) == (device.bandwidth, device.cache())
    assert (found["tensor"], found["vector"]) == (dict(device.tensor), dict(device.vector))
    whole = profile.efficiency().drop_nulls("dtype")["duration"].sum()
    assert sum(found["worked"].values()) == whole


def test_an_unknown_device_has_no_roofs_and_a_reason(shared):
    profile = traces.load(shared / "nsys/multiprocessing_nogpu_2020.sqlite")
    found = ask(profile, "roofs")
    assert (found["device"], found["bandwidth"], found["tensor"]) == (None, None, {})
    assert found["reason"] == profile.device[1]


def test_without_collectives_nobody_waits(shared):
    profile = traces.load(shared / "dlprof/nsys_profile.sqlite")
    assert ask(profile, "waits") == {
        "ranks": [],
        "waiting": [],
        "left_out": {"ranks": 0, "time": 0},
    }


@pytest.mark.parametrize("ranks", [3, 40])
def test_the_waiting_of_the_matrix_is_that_of_the_stragglers(trace_of, ranks):
    """One rank after the other is late; what is left out of the matrix is added up."""
    rows = []
    for rank in range(ranks):
        told = (
            f'process_group/0 = group() -> () {{rank={rank}, size={ranks}, ranks="0-{ranks - 1}"}}'
        )
        rows.append(a_range(rank, 0, 0, told, "spec"))
        for late in range(ranks):
            start = 1_000_000 * (late + 1)
            own = 50_000 + 1_000 * late if late == rank else 10 * rank
            call = 'c10d::allreduce_([f32[8]], _) -> ([=0], _) {process_group="0"}'
            rows.append(a_range(rank, start - 2, start - 1, call, "communication"))
            text = "gloo:all_reduce(f32[8])"
            rows.append(a_range(rank, start + own, start + 200_000, text, "communication", 2))
    profile = opscope.profile.Profile(
        trace_of(
            ranges=sorted(rows, key=lambda one: one["start"]),
            processes=[{"process": rank, "rank": rank, "clock_domain": 0} for rank in range(ranks)],
            clocks=[{"clock_domain": 0, "machine": "one"}],
        )
    )
    found = ask(profile, "waits")
    caused = profile.stragglers()["caused_waiting"].sum()
    drawn = sum(time or 0 for row in found["waiting"] for time in row)
    assert caused > 0
    assert drawn + found["left_out"]["time"] == caused
    assert len(found["ranks"]) == min(ranks, 32)
    assert found["left_out"]["ranks"] == max(0, ranks - 32)


def a_range(process, start, end, text, category, thread=1):
    return {"process": process, "thread": thread, "end_thread": thread, "start": start, "end": end,
            "text": text, "domain": "opscope.torch", "category": category,
            "kind": "mark" if category == "spec" else "pushpop"}  # fmt: skip


def test_a_table_without_sums_is_searched_too(shared):
    profile = traces.load(shared / "kineto/resnet50_nw4_step_span1.pt.trace.json.gz")
    found = ask(profile, "table", name="utilization", q="no such text")
    assert (found["total"], found["matching"], found["sums"]) == (6, 0, {})
