"""Hardware counters that were sampled of devices are divided among the kernels that ran, to the last byte."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope.core.perf.counters import divides
from opscope.core.perf.sampled_counters import IDLE, UNKNOWN, Series, begins, divide
from opscope.profile import Profile
from tests.kineto_writer import Call, KinetoWriter, Sample, Work

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
BUSY = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
US = 1000


def made(
    folder: Path,
    kernels: list[tuple],
    samples: list[Sample],
    at_once: bool = False,
    more: list = (),
) -> Profile:
    """A trace of kernels (start, end in µs; stream, device) and of samples."""
    calls, work = [], []
    for number, (start, end, stream, device) in enumerate(kernels, 1):
        calls.append(Call("cudaLaunchKernel", number * US // 4, number * US // 4 + 100, 9, number))
        about = {"correlation": number, "stream": stream, "device": device}
        work.append(Work("kernel", f"k{number}", start * US, end * US, **about))
    path = folder / "trace.json"
    writer = KinetoWriter(
        7, 0, [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], counters_at_once=at_once
    )
    writer.write(path, calls, work, 10_000 * US, samples)
    if more:
        written = json.loads(path.read_text())
        written["traceEvents"] += more
        path.write_text(json.dumps(written))
    return opscope.load(path)


def every(interval: int, values: list[dict], device: int = 0, first: int = 100) -> list[Sample]:
    """Samples that follow each other, the first at ``first`` µs."""
    return [
        Sample((first + interval * place) * US, row, device) for place, row in enumerate(values)
    ]


def notes(profile: Profile) -> dict[str, int]:
    return {what: count for _, what, count in profile.notes().rows()}


def told(profile: Profile, text: str) -> int:
    return sum(count for what, count in notes(profile).items() if text in what)


def by_kernel(profile: Profile, counter: str) -> dict[str, float]:
    frame = profile.counters()
    return {
        name: value for name, value in frame.select("name", counter).rows() if value is not None
    }


@pytest.mark.parametrize("at_once", [False, True], ids=["PyTorch's", "Kineto's"])
def test_a_sample_lasts_from_its_time_to_the_next_one(tmp_path, at_once):
    """Samples of 100 µs from 100 on: k1 is in the first two, k2 in the second, k3 in the last."""
    rows = [
        {READ: 1001, BUSY: 10.0},
        {READ: 999, BUSY: 40.0},
        {READ: 7, BUSY: 0.0},
        {READ: 5, BUSY: 9.0},
    ]
    kernels = [(100, 225, 7, 0), (225, 300, 7, 0), (450, 460, 7, 0)]
    profile = made(tmp_path, kernels, every(100, rows), at_once)
    assert by_kernel(profile, READ) == {"k1": 1001 + 250, "k2": 749, "k3": 5, IDLE: 7}
    assert by_kernel(profile, BUSY) == {
        "k1": (10 * 100 + 40 * 25) / 125,
        "k2": 40,
        "k3": 9,
        IDLE: 0,
    }
    totals = {(row["name"], row["counter"]): row for row in profile.counter_totals().to_dicts()}
    assert sum(row["counted"] for (_, counter), row in totals.items() if counter == READ) == 2012
    assert totals["k1", BUSY]["counted"] is None
    assert totals[IDLE, READ]["counted_kernels"] == 0
    assert told(profile, "samples in which no kernel ran") == 1
    assert told(profile, "divided among the kernels") == 3
    reasons = dict(profile.counters().select("name", "reason").rows())
    assert reasons[IDLE].startswith("no kernel ran on the device while this was sampled")
    # the events are no longer of an unknown kind, and the curves have them
    assert not [what for what in notes(profile) if "are not used" in what]
    assert profile.trace["samples"]["value"].drop_nulls().len() == 8


def test_kernels_at_once_share_a_count_by_time_and_have_one_rate(tmp_path):
    rows = [{READ: 400, BUSY: 30.0}, {READ: 0, BUSY: 0.0}]
    profile = made(tmp_path, [(100, 200, 7, 0), (150, 200, 8, 0)], every(100, rows))
    assert by_kernel(profile, READ) == {"k1": 267, "k2": 133, IDLE: 0}
    assert by_kernel(profile, BUSY) == {"k1": 30, "k2": 30, IDLE: 0}


def test_the_mean_of_a_rate_over_kernels_is_by_their_time(tmp_path):
    rows = [{BUSY: 10.0}, {BUSY: 10.0}, {BUSY: 10.0}, {BUSY: 50.0}]
    op = {"ph": "X", "cat": "cpu_op", "pid": 7, "tid": 9, "ts": 0, "dur": 50, "name": "aten::mm"}
    kernels = [(100, 400, 7, 0), (400, 500, 7, 0)]
    events = [{"ph": "X", "cat": "kernel", "name": "same", "pid": 0, "tid": 7, "ts": start,
               "dur": end - start, "args": {"device": 0, "stream": 7, "correlation": number}}
              for number, (start, end, *_) in enumerate(kernels, 1)]  # fmt: skip
    events += [{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 9,
                "ts": 10 * number, "dur": 2, "args": {"correlation": number}} for number in (1, 2)]  # fmt: skip
    profile = made(tmp_path, [], every(100, rows), more=[op, *events])
    totals = profile.counter_totals().to_dicts()
    assert [(row["name"], row["op"], row["mean_count"]) for row in totals] == [
        ("same", "aten::mm", 20)
    ]


@given(data=st.data())
def test_whole_counts_add_up_exactly_whoever_ran(data):
    times = st.tuples(st.integers(-50, 900), st.integers(0, 400))
    spans = sorted(
        (start, start + length) for start, length in data.draw(st.lists(times, max_size=12))
    )
    steps = data.draw(st.lists(st.integers(1, 90), min_size=1, max_size=12))
    import numpy as np

    end = np.cumsum(np.array(steps, np.int64))
    whole = data.draw(st.lists(st.integers(0, 1 << 49), min_size=len(end), max_size=len(end)))
    series = Series(READ, begins(end), end, np.array(whole, np.float64), adds_up=True)
    start, stop = (
        (np.array(column, np.int64) for column in zip(*spans, strict=True))
        if spans
        else (end[:0],) * 2
    )
    shares = divide([series], start, stop)
    values = [value for part in shares.value for value in part.tolist()]
    assert all(value >= 0 and value == int(value) for value in values)
    assert math.fsum(values) + shares.idle.get(0, 0) == sum(whole)


def test_the_roofline_takes_the_bytes_and_flops_of_samples(tmp_path):
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 9, "ts": 0, "dur": 50,
          "args": {"Input Dims": [[1 << 20], [1 << 20]], "Input type": ["float", "float"]}}  # fmt: skip
    flops = {f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum": 1 << 20 if kind == "fadd" else 0
             for kind in ("dadd", "dmul", "dfma", "fadd", "fmul", "ffma", "hadd", "hmul", "hfma")}  # fmt: skip
    rows = [
        {READ: 8 << 20, WRITTEN: 4 << 20, "sm__inst_executed_pipe_tensor.sum": 0, **flops},
    ]
    rows.append(dict.fromkeys(rows[0], 0))
    profile = made(tmp_path, [(100, 150, 7, 0)], every(100, rows), more=[op])
    (row,) = [row for row in profile.counter_roofline().to_dicts() if row["op"] == "aten::add"]
    assert (row["counted_bytes"], row["counted_flops"]) == (12 << 20, 1 << 20)
    assert row["bytes_difference"] == 0
    assert row["counted_bound"] == "memory"


def test_where_samples_are_lost_the_one_before_lasts_no_longer_than_usual(tmp_path):
    samples = every(100, [{READ: 10}, {READ: 10}, {READ: 10}]) + every(
        100, [{READ: 30}, {READ: 4}], first=900
    )
    profile = made(tmp_path, [(350, 500, 7, 0), (600, 700, 7, 0), (900, 950, 7, 0)], samples)
    assert by_kernel(profile, READ) == {"k1": 10, "k3": 30, IDLE: 24}
    assert told(profile, "ran outside of all samples") == 1
    assert told(profile, "partly outside of samples") == 1


def test_two_devices_have_their_own_samples(tmp_path):
    samples = every(100, [{READ: 10}, {READ: 20}]) + every(100, [{READ: 1}, {READ: 2}], device=1)
    profile = made(tmp_path, [(100, 200, 7, 0), (210, 300, 7, 1)], samples)
    frame = profile.counters().select("name", "device", READ)
    assert sorted(frame.rows()) == [(IDLE, 0, 20), (IDLE, 1, 1), ("k1", 0, 10), ("k2", 1, 2)]


def test_kernels_of_one_graph_launch_are_told_apart(tmp_path):
    work = [
        Work("kernel", "k", start * US, (start + 100) * US, 1, graph=3, graph_node=start)
        for start in (100, 200)
    ]
    path = tmp_path / "graph.json"
    call = Call("cudaGraphLaunch", 50 * US, 60 * US, 9, 1)
    samples = every(100, [{READ: 11}, {READ: 22}, {READ: 0}])
    KinetoWriter(7, 0).write(path, [call], work, 900 * US, samples)
    profile = opscope.load(path)
    frame = profile.counters().filter(name="k").select("start", "duration", READ)
    assert frame.rows() == [(100 * US, 100 * US, 11), (200 * US, 100 * US, 22)]


def test_counters_whose_names_tell_nothing_are_kept_by_time_alone(tmp_path):
    rows = [{"SM Clock (MHz)": 1980, "sm__warps_active.max": 5, READ: 1}] * 2
    profile = made(tmp_path, [(100, 200, 7, 0)], every(100, rows))
    assert told(profile, "SM Clock (MHz), sm__warps_active.max") == 2
    assert profile.counter_totals()["counter"].unique().to_list() == [READ]
    assert profile.trace["samples"]["name"].n_unique() == 3


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (READ, True), ("dram__sectors_read.sum", True), ("dram__bytes.sum.per_second", False),
        ("dram__bytes.sum.pct_of_peak_sustained_elapsed", False), ("sm__cycles_active.avg", False),
        (BUSY, False), ("l1tex__t_sector_hit_rate.pct", False), ("SM Active (%)", False),
        ("sm__cycles_active.max", None), ("SM Active", None), ("", None), ("GPU power [W]", None),
    ],
)  # fmt: skip
def test_a_name_tells_whether_values_are_counts_or_rates(name, kind):
    assert divides(name) is kind


def sample(ts: object, value: object, name: str = READ, pid: object = "GPU 0 Counters") -> dict:
    return {
        "ph": "C",
        "cat": "hardware_counters",
        "name": name,
        "pid": pid,
        "ts": ts,
        "args": {"": value},
    }


def test_values_that_are_no_numbers_are_not_known(tmp_path):
    """A NaN, which is no JSON, spoils its own event alone; a text or a list its own value."""
    more = [
        sample(ts, value)
        for ts, value in ((100, 5), (200, "7"), (300, [1]), (400, None), (600, 6), (500, math.nan))
    ]
    profile = made(tmp_path, [(100, 250, 7, 0), (600, 650, 7, 0)], [], more=more)
    assert by_kernel(profile, READ) == {"k1": 5, "k2": 6}
    assert told(profile, "no number as their value") == 3
    assert told(profile, "damaged JSON were left out") == 1
    assert told(profile, "partly outside of samples") == 1


def test_order_and_doubles_do_not_matter(tmp_path):
    more = [
        sample(300, 3),
        sample(100, 1),
        sample(200, 2),
        sample(200, 2),
        sample(None, 9),
        sample("x", 9),
    ]
    profile = made(tmp_path, [(100, 200, 7, 0), (200, 400, 7, 0)], [], more=more)
    assert by_kernel(profile, READ) == {"k1": 1, "k2": 5}
    assert told(profile, "in the file twice were counted once") == 1
    assert told(profile, "samples of hardware counters without a time") == 2


def test_a_process_that_names_no_device_is_nobodys(tmp_path):
    more = [sample(ts, 4, pid="Counters") for ts in (100, 200)]
    profile = made(tmp_path, [(100, 200, 7, 0)], [], more=more)
    assert profile.counters().is_empty()
    assert told(profile, "a device that the file does not name") == 1
    named = {"ph": "M", "name": "process_name", "pid": 4242, "args": {"name": "GPU 0 Counters"}}
    more = [named, *(sample(ts, 4, pid=4242) for ts in (100, 200))]
    assert by_kernel(made(tmp_path, [(100, 200, 7, 0)], [], more=more), READ) == {"k1": 4, IDLE: 4}


def test_thousands_of_counters_are_bounded(tmp_path):
    more = [sample(ts, 1, f"unit__n{number}.sum") for ts in (100, 200) for number in range(4_500)]
    profile = made(tmp_path, [(100, 200, 7, 0)], [], more=more)
    assert profile.counter_totals()["counter"].n_unique() == 4096
    assert told(profile, "beyond the first 4,096") == 2 * 404


def test_too_many_kernels_and_samples_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr("opscope.core.perf.sampled_counters.MOST_VALUES", 3)
    rows = [{READ: 1, "zz__other.sum": 1}] * 3
    profile = made(tmp_path, [(100, 200, 7, 0), (200, 300, 7, 0)], every(100, rows))
    assert profile.counter_totals()["counter"].unique().to_list() == [READ]
    assert told(profile, "too many kernels and samples") == 1


def test_without_kernels_nobody_is_said_to_have_been_idle(tmp_path):
    profile = made(tmp_path, [], every(100, [{READ: 1}, {READ: 2}]))
    assert profile.counters().is_empty()
    assert told(profile, "no kernels recorded") == 1


def test_a_lone_sample_has_no_known_length():
    import numpy as np

    assert begins(np.array([5])).tolist() == [UNKNOWN]
    assert begins(np.array([0, 10, 20, 20, 90])).tolist() == [-10, 0, 10, UNKNOWN, 80]


def test_shares_stay_in_a_saved_profile_and_in_a_selection(tmp_path):
    rows = [{READ: 10}, {READ: 20}, {READ: 3}]
    profile = made(tmp_path, [(100, 150, 7, 0), (150, 300, 7, 0)], every(100, rows))
    saved = tmp_path / "saved.opscope"
    profile.save(saved)
    assert opscope.load(saved).counter_totals().equals(profile.counter_totals())
    assert by_kernel(opscope.load(saved), READ) == {"k1": 5, "k2": 25, IDLE: 3}
