"""The use of devices: figures against a count instant by instant, and curves that add up to them."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.device.device_use import NO_GAPS, device_curve, device_use
from opscope.core.analysis.device.launches import NO_CONFIGURATION, NO_DEVICE, launches
from opscope.core.tables.trace import Trace, table_schema
from opscope.profile import Profile

#: 10 multiprocessors make the shares easy to count.
GPU = {"process": 0, "device": 0, "name": "unheard of", "cc": "8.0", "sm_count": 10}


def kernel(start: int, end: int, blocks: int | None = 5, **more: object) -> dict:
    grid = None if blocks is None else f"{blocks},1,1"
    return {"process": 0, "device": 0, "stream": 7, "start": start, "end": end, "name": "k",
            "grid": grid, "block": "1024,1,1", "registers": 32, "shared_dynamic": 0,
            "correlation": None, **more}  # fmt: skip


def step(number: int, start: int, end: int) -> dict:
    return {"process": 0, "thread": 1, "domain": "opscope.torch", "category": "step", "start": start,
            "end": end, "text": f"step {number}", "kind": "pushpop"}  # fmt: skip


def call(start: int, end: int, correlation: int) -> dict:
    return {"process": 0, "thread": 1, "start": start, "end": end, "name": "cudaLaunchKernel",
            "correlation": correlation}  # fmt: skip


def used(trace: Trace) -> dict:
    return Profile(trace).device_use().row(0, named=True)


def test_the_window_is_from_the_first_step_until_what_the_steps_launched_has_ended(trace_of):
    trace = trace_of(
        ranges=[step(1, 100, 150), step(2, 150, 200)],
        calls=[call(10, 12, 1), call(110, 112, 2), call(190, 192, 3), call(205, 206, 4)],
        kernels=[
            kernel(50, 120, correlation=1),  # launched before the steps: 20 of it are inside
            kernel(130, 150, correlation=2),
            kernel(210, 240, correlation=3),  # launched by the last step, which waits for nothing
            kernel(250, 300, correlation=4),  # launched after it
        ],
        devices=[GPU],
    )
    row = used(trace)
    assert (row["window"], row["kernel_busy"], row["kernels"]) == (140, 70, 3)
    assert row["gpu_utilization"] == pytest.approx(70 / 140)
    assert row["sm_efficiency"] == pytest.approx(0.5 * 70 / 140)


def test_without_steps_the_window_is_all_that_was_recorded(trace_of):
    trace = trace_of(
        ranges=[
            {**step(0, 0, 1000), "category": "forward", "text": "mm()"},
        ],
        kernels=[kernel(100, 200)],
        devices=[GPU],
    )
    row = used(trace)
    assert (row["window"], row["gpu_utilization"]) == (1000, 0.1)


def test_kernels_that_run_at_one_time_count_once_and_fill_the_device_at_most_once(trace_of):
    trace = trace_of(
        kernels=[kernel(0, 100, 6), kernel(50, 150, 7, stream=8), kernel(160, 200, 100)],
        devices=[GPU],
    )
    row = used(trace)
    assert (row["window"], row["kernel_busy"], row["kernel_time"]) == (200, 190, 240)
    # 6 of 10, then 13 of 10 at most 10, then 7, then none, then all
    assert row["sm_efficiency"] == pytest.approx((50 * 0.6 + 50 * 1.0 + 50 * 0.7 + 40 * 1.0) / 200)


def test_what_is_not_known_is_a_part_that_is_named(trace_of):
    trace = trace_of(
        kernels=[kernel(0, 100, 10), kernel(150, 250, None)], calls=[call(0, 1, 1)], devices=[GPU]
    )
    row = used(trace)
    assert row["gpu_utilization"] == pytest.approx(200 / 250)
    assert (row["grid_known"], row["occupancy_known"]) == (0.5, 0.5)
    assert row["sm_efficiency"] == pytest.approx(100 / 250)
    # one block of 32 warps for each multiprocessor, which holds 64
    assert row["achieved_occupancy"] == pytest.approx(0.5)
    assert row["occupancy_reason"] == NO_CONFIGURATION


def test_a_device_that_is_not_known_has_a_utilization_alone(trace_of):
    row = used(trace_of(kernels=[kernel(0, 100), kernel(150, 250)]))
    assert row["gpu_utilization"] == pytest.approx(200 / 250)
    assert (row["sm_efficiency"], row["achieved_occupancy"]) == (None, None)
    assert (row["grid_known"], row["occupancy_reason"]) == (0.0, NO_DEVICE)


def test_times_that_a_reader_laid_end_to_end_tell_no_utilization(trace_of):
    laid = [kernel(0, 100), kernel(100, 250), kernel(250, 260)]
    row = used(trace_of(kernels=laid, devices=[GPU]))
    assert (row["gpu_utilization"], row["sm_efficiency"]) == (None, None)
    assert row["utilization_reason"] == NO_GAPS
    assert row["achieved_occupancy"] is not None
    # calls tell when they were launched, and so that these times are true
    row = used(trace_of(kernels=laid, calls=[call(0, 1, 1)], devices=[GPU]))
    assert (row["gpu_utilization"], row["utilization_reason"]) == (1.0, None)


def test_of_a_run_that_was_captured_in_windows_only_these_count(trace_of):
    window = {"process": 0, "source": "kineto", "first_step": 1, "last_step": 2, "ended": "steps"}
    trace = trace_of(
        ranges=[step(0, 0, 100), step(1, 100, 200), step(2, 200, 300), step(3, 300, 900)],
        calls=[call(150, 151, 1)],
        kernels=[kernel(150, 200, correlation=1)],
        windows=[{**window, "start": 90, "end": 310}],
        devices=[GPU],
    )
    row = used(trace)
    assert (row["window"], row["gpu_utilization"]) == (200, 0.25)
    nothing = trace_of(
        kernels=[kernel(150, 200)],
        ranges=[{**step(0, 0, 900), "category": "forward", "text": "mm()"}],
        windows=[{**window, "start": 100, "end": 200}, {**window, "start": 400, "end": 500}],
        devices=[GPU],
    )
    assert used(nothing)["window"] == 200


def test_each_process_and_device_has_its_row(trace_of):
    trace = trace_of(
        kernels=[
            kernel(0, 100),
            kernel(0, 50, device=1),
            kernel(0, 30, process=1),
            kernel(0, 20, device=None),
        ],
        calls=[call(0, 200, 9), {**call(0, 300, 9), "process": 1}],
        devices=[GPU],
    )
    rows = Profile(trace).device_use().select("process", "device", "window", "kernel_busy").rows()
    assert rows == [(0, None, 200, 20), (0, 0, 200, 100), (0, 1, 200, 50), (1, 0, 300, 30)]


def test_without_kernels_there_are_no_rows(trace_of):
    cpu = Profile(trace_of(ranges=[step(1, 0, 10)]))
    assert cpu.device_use().is_empty()
    assert cpu.device_curve().is_empty()
    assert cpu.device_use().schema == Profile(trace_of(kernels=[kernel(0, 5)])).device_use().schema


def test_a_kernel_without_length_has_no_figures_and_no_curve(trace_of):
    profile = Profile(trace_of(kernels=[kernel(5, 5)], devices=[GPU]))
    row = profile.device_use().row(0, named=True)
    assert (row["kernels"], row["kernel_busy"], row["gpu_utilization"]) == (1, 0, None)
    assert profile.device_curve().is_empty()


@pytest.mark.parametrize("buckets", [0, -1, 100_001])
def test_a_number_of_buckets_that_cannot_be_is_refused(trace_of, buckets):
    with pytest.raises(ValueError, match="buckets: must be from 1"):
        Profile(trace_of(kernels=[kernel(0, 5)])).device_curve(buckets)


def test_a_curve_has_no_parts_shorter_than_a_nanosecond(trace_of):
    curve = Profile(trace_of(kernels=[kernel(0, 3), kernel(4, 7)], devices=[GPU])).device_curve(100)
    assert curve["start"].to_list() == list(range(7))
    assert curve["kernel_busy"].to_list() == [1, 1, 1, 0, 1, 1, 1]


KERNELS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(0, 40),
        st.one_of(st.none(), st.integers(1, 30)),
        st.sampled_from(["k", "gemm", "thing"]),
    ),
    min_size=1,
    max_size=10,
)


@given(KERNELS, st.integers(1, 12), st.booleans())
def test_figures_equal_a_count_instant_by_instant_and_curves_add_up(rows, buckets, stepped):
    kernels = [
        kernel(start, start + length, blocks, name=name, stream=place)
        for place, (start, length, blocks, name) in enumerate(rows)
    ]
    tables = {"kernels": kernels, "devices": [GPU], "calls": [call(0, 100, 1)]}
    low, high = (30, 70) if stepped else (0, 100)
    if stepped:
        tables["ranges"] = [step(1, 30, 70)]
    trace = Trace.of(
        {
            name: pl.DataFrame(
                held, schema={key: table_schema(name)[key] for key in held[0]}
            ).with_columns(*([pl.lit(0).alias("id").cast(pl.Int64)] if name == "ranges" else []))
            for name, held in tables.items()
        }
    )
    on_tensor_cores = {"k": False, "gemm": True, "thing": None}
    frame = trace["kernels"].select(
        *("process", "device", "start", "end"),
        pl.lit(None, pl.Int64).alias("call_start"),
        pl.Series("tensor_core", [on_tensor_cores[e["name"]] for e in kernels], pl.Boolean),
    )
    row = device_use(trace, frame, launches(trace, trace["kernels"])).row(0, named=True)
    open_at = [
        [each for each in kernels if each["start"] <= time < each["end"]]
        for time in range(low, high)
    ]
    blocks = {k: None if k is None else int(k.split(",")[0]) for k in {e["grid"] for e in kernels}}
    lasted = sum(map(len, open_at))
    known = sum(each["grid"] is not None for now in open_at for each in now)
    assert row["window"] == high - low
    assert row["kernel_busy"] == sum(bool(now) for now in open_at)
    assert row["kernel_time"] == lasted
    assert row["gpu_utilization"] == pytest.approx(row["kernel_busy"] / (high - low))
    if row["sm_efficiency"] is not None:
        busy = sum(min(sum(blocks[e["grid"]] or 0 for e in now), 10) for now in open_at)
        assert row["sm_efficiency"] == pytest.approx(busy / 10 / (high - low))
    else:
        assert known == 0
    if lasted:
        assert row["grid_known"] == pytest.approx(known / lasted)
    if known:
        occupied = sum(
            min(blocks[e["grid"]] / 10, 2) / 2 for now in open_at for e in now if e["grid"]
        )
        assert row["achieved_occupancy"] == pytest.approx(occupied / known)
        assert row["achieved_occupancy"] <= row["theoretical_occupancy"] + 1e-12
    tensor = sum(on_tensor_cores[e["name"]] is True for now in open_at for e in now)
    assert row["tensor_core_time"] in (tensor, None)
    curve = device_curve(trace, frame, launches(trace, trace["kernels"]), buckets)
    assert (curve["start"][0], curve["end"][-1]) == (low, high)
    assert curve["start"][1:].to_list() == curve["end"][:-1].to_list()
    for name in ("kernel_busy", "kernel_time", "tensor_core_undetermined_time", "tensor_core_time"):
        if row[name] is not None:
            assert curve[name].sum() == row[name]
    length = curve["end"] - curve["start"]
    for name in ("gpu_utilization", "sm_efficiency"):
        if row[name] is not None:
            assert (curve[name] * length).sum() == pytest.approx(row[name] * (high - low))
    weight = (curve["occupancy_known"] * curve["kernel_time"]).fill_null(0)
    if known:
        mean = (curve["achieved_occupancy"].fill_null(0) * weight).sum()
        assert mean == pytest.approx(row["achieved_occupancy"] * known)


def test_the_mean_of_one_occupancy_is_that_occupancy_in_a_part_far_from_the_start_too(trace_of):
    """Sums from the start of the run would lose it: they are 10^11 times a part's."""
    apart = 10**10
    trace = trace_of(
        kernels=[kernel(n * apart, n * apart + 37, 3) for n in range(3000)],
        calls=[call(0, 1, 1)],
        devices=[GPU],
    )
    profile = Profile(trace)
    whole = profile.device_use()["achieved_occupancy"].item()
    assert 0 < whole < 1
    means = profile.device_curve(buckets=500)["achieved_occupancy"].drop_nulls()
    assert len(means) == 500
    assert means.to_list() == pytest.approx([whole] * 500, rel=1e-9)
