"""Communication that nothing hides: counted ns by ns, on real traces, and where it cannot be told."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.advice.communicated import collective_kernels
from opscope.core.advice.detectors.unoverlapped_communication import DETECTOR, LEAST
from opscope.core.advice.finding import CannotTell
from opscope.core.tables.intervals import merge, subtract
from tests import traces
from tests.core.advice.job_rows import (
    ALL_REDUCE,
    gloo_all_reduce,
    job,
    kernel,
    one,
    open_at,
    profile,
    ranged,
)

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = (
    "a vision transformer on 16 GPUs, of which one was profiled",
    "kineto/vision_transformer_rank0.json.gz",
)


def test_the_exposed_time_is_what_runs_beside_no_computation():
    made = profile(
        kernels=[kernel(0, 400), kernel(300, 600, ALL_REDUCE, stream=9), kernel(600, 1000)]
    )
    found = one(DETECTOR, made)
    assert (found.time, found.saving_least, found.saving_most) == (200, 0, 200)
    rows, factors = found.edit.kernels
    assert (rows.tolist(), factors.tolist()) == ([1], [pytest.approx(1 / 3)])
    assert "all_reduce: 1 collectives" in found.evidence


times = st.lists(
    st.tuples(st.booleans(), st.integers(0, 60), st.integers(1, 30)), min_size=1, max_size=12
)


@given(times)
def test_exposed_time_is_as_counted_ns_by_ns(made):
    rows = [
        kernel(start, start + length, ALL_REDUCE if talks else "gemm", stream=place)
        for place, (talks, start, length) in enumerate(made)
    ]
    # a long computation at the end, so that the profile has one
    of = profile(kernels=[*rows, kernel(1000, 1010)])
    comm = [(start, start + length) for talks, start, length in made if talks]
    work = [(start, start + length) for talks, start, length in made if not talks]
    hidden = open_at(work, 0, 200)
    exposed = open_at(comm, 0, 200) - hidden
    kernels = collective_kernels(of)
    assert sorted(kernels["exposed"].to_list()) == sorted(
        len(open_at([span], 0, 200) - hidden) for span in comm
    )
    window = 1010 - min(start for _, start, _ in made)
    answer = DETECTOR.find(of)
    assert (len(answer) == 1) == (len(exposed) > 0 and len(exposed) >= LEAST * window)
    if answer:
        assert answer[0].time == answer[0].saving_most == len(exposed)


def test_hidden_communication_is_nothing_to_change():
    made = profile(kernels=[kernel(0, 1000), kernel(100, 900, ALL_REDUCE, stream=9)])
    assert DETECTOR.find(made) == []
    assert DETECTOR.find(profile(kernels=[kernel(0, 1000)])) == []


def test_the_worst_rank_bounds_the_saving():
    made = profile(
        kernels=[
            *(kernel(0, 500, process=rank, device=rank) for rank in range(2)),
            kernel(500, 600, ALL_REDUCE, process=0, device=0),
            kernel(500, 800, ALL_REDUCE, process=1, device=1),
            *(kernel(800, 900, process=rank, device=rank) for rank in range(2)),
        ],
        processes=[{"process": rank, "rank": rank + 4} for rank in range(2)],
    )
    found = one(DETECTOR, made)
    assert found.time == found.saving_most == 300
    assert "rank 5" in found.what
    assert len(found.edit.kernels[0]) == 2, "all ranks are edited"


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (profile(kernels=[kernel(0, 9, ALL_REDUCE)]), "no computation"),
        (profile(), "neither kernels nor ops"),
        (
            job(*(ranged(10, 20, "c10d::allreduce_([f32[8]], _)", "communication", rank)
                  for rank in range(2))),
            "not when they ran",
        ),
    ],
)  # fmt: skip
def test_where_it_cannot_be_told_the_reason_says_why(made, why):
    answer = DETECTOR.find(made)
    assert isinstance(answer, CannotTell)
    assert why in answer.reason


def test_on_a_cpu_the_backend_s_time_beside_no_op_counts():
    rows = [
        row
        for rank in range(2)
        for row in (ranged(100, 400, "aten::mm(f32[8,8], f32[8,8])", process=rank),
                    *gloo_all_reduce(rank, 300, 600))
    ]  # fmt: skip
    found = one(DETECTOR, job(*rows))
    assert (found.time, found.edit) == (200, None)


@pytest.mark.parametrize(
    ("name", "place", "advice"),
    [
        # no kernel beside any of its 2,020 all-reduces: legacy DDP of one stream
        ("ddp_memory_v100", "nccl:all_reduce", "bucket_cap_mb"),
        # embeddings go by all-to-all, of which most is exposed; gradients are reduced beside the backward pass
        ("ddp_rank3of8_a100_stacks", "all_to_all", "async_op=True"),
        ("sampled_rank0", "all_to_all", "async_op=True"),
        ("vision_transformer_rank0", "nccl:all_reduce", "bucket_cap_mb"),
        ("nccl_meta", "nccl:all_reduce", "bucket_cap_mb"),
    ],
)
def test_real_traces(shared, name, place, advice):
    loaded = traces.load(shared / "kineto" / f"{name}.json.gz")
    found = one(DETECTOR, loaded)
    row = loaded.communication().row(0, named=True)
    assert found.time == row["communication_time"] - row["overlap_time"]
    assert place in found.evidence
    assert advice in found.recommendation
    # the union of the kernels' times, without any frame of the analysis
    kernels = loaded.trace["kernels"]
    talks = kernels["name"].cast(pl.String).str.contains("(?i)nccl")
    spans = [
        merge(*(kernels.filter(part)[name].to_numpy() for name in ("start", "end")))
        for part in (talks, ~talks)
    ]
    start, end = subtract(*spans)
    assert int((end - start).sum()) >= found.time, "the window leaves out what is outside the steps"
    assert np.all(found.edit.kernels[1] <= 1)


@pytest.mark.parametrize(
    "name", ["resnet50_nw0_step_span1.pt.trace", "timesformer_h100", "qwen1.5_0.5b_h100"]
)
def test_real_traces_of_one_device_have_no_communication(shared, name):
    assert DETECTOR.find(traces.load(shared / "kineto" / f"{name}.json.gz")) == []


def test_a_rank_that_waits_for_another_is_not_told_to_overlap(shared):
    """17.2 and 8.2 ms of 299.8 in 33 transfers each, none hidden: what the one has beyond the other is waiting,
    and the 8.2 ms are 2.7 %."""
    loaded = traces.load(shared / "nsys" / "fsdp_h100x2_2026.sqlite")
    assert loaded.communication()["communication_time"].sort().to_list() == [8229100, 17172652]
    assert DETECTOR.find(loaded) == []


def test_a_source_of_collectives_alone_cannot_tell(shared):
    answer = DETECTOR.find(traces.load(shared / "mindspore" / "mindinsight_cluster"))
    assert isinstance(answer, CannotTell)


def test_waiting_for_a_late_rank_is_not_to_be_hidden():
    """Rank 0 is in the collective for 500 ns, of which it waits 490 for rank 1: even work shortens that."""
    rows = [
        row
        for rank, begin in enumerate((100, 590))
        for row in (
            ranged(0, 90 + 490 * rank, "aten::mm(f32[8,8], f32[8,8])", process=rank),
            *gloo_all_reduce(rank, begin, 600),
        )
    ]
    made = job(*rows)
    assert made.communication().sort("rank")["waiting_time"].to_list() == [490, 0]
    assert DETECTOR.find(made) == []


def test_a_collective_on_the_stream_of_the_computation_is_a_cause():
    work = [kernel(0, 400), kernel(600, 1000)]
    made = profile(kernels=[*work, kernel(400, 600, ALL_REDUCE)])
    (found,) = DETECTOR.find(made)
    assert "is on the stream of the computation (stream" in found.evidence
    assert found.recommendation.startswith("Put the collectives on a stream of their own first")
    made = profile(kernels=[*work, kernel(400, 600, ALL_REDUCE, stream=9)])
    (found,) = DETECTOR.find(made)
    assert "stream of the computation" not in found.evidence
    # a stream on which next to nothing is computed is no computation's
    made = profile(
        kernels=[*work, kernel(400, 600, ALL_REDUCE, stream=9), kernel(600, 601, stream=9)]
    )
    (found,) = DETECTOR.find(made)
    assert "stream of the computation" not in found.evidence
