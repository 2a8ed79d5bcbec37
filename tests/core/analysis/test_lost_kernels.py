"""Lost kernels: how many are missing in the file, and that nothing is concluded from what is missing."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

import opscope
from opscope.core.analysis.ops import lost_kernels
from opscope.core.analysis.ops.lost_kernels import idle_unknown, losses
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.profile.difference import difference_of
from opscope.reports.difference import headline
from opscope.reports.next_steps import next_steps
from tests.command import opscope as run
from tests.device_traces import OP, Ran, profiled

US = 1_000


def launch(
    correlation: int | None, start: int, *, name: str = "cudaLaunchKernel", end=None, thread=1
):
    return {"process": 0, "thread": thread, "start": start, "end": end or start + 2 * US, "name": name,
            "correlation": correlation}  # fmt: skip


def ran(correlation: int, start: int) -> Ran:
    return Ran(start, start + 5 * US, start - 5 * US, correlation=correlation)


def run_of(kept: int, missing: int, *more: dict, origin=None, **tables) -> Profile:
    """A run of kernels that end with a wait for the device; after ``kept`` kernels some are missing."""
    work = [ran(number, number * 20 * US) for number in range(1, kept + 1)]
    calls = [launch(1_000 + number, (kept + 1 + number) * 20 * US) for number in range(missing)]
    last = (kept + missing + 2) * 20 * US
    wait = launch(None, last, name="cudaDeviceSynchronize")
    return profiled(work, calls=[*calls, wait, *more], origin=origin, **tables)


def lost(profile: Profile) -> int | None:
    return profile.lost_kernels()["lost_kernels"].to_list()[0]


def reason(profile: Profile) -> str:
    return profile.lost_kernels()["reason"].to_list()[0]


@pytest.mark.parametrize(("kept", "missing"), [(20, 0), (20, 1), (20, 5), (10, 30), (1, 31)])
def test_launches_without_kernels_are_lost_kernels(kept, missing):
    profile = run_of(kept, missing)
    assert lost(profile) == missing
    assert profile.lost_kernels()["lost_share"].to_list() == [missing / (kept + missing)]


@pytest.mark.parametrize(
    "name",
    ["cudaLaunchKernelExC_v11060", "cuLaunchKernelEx", "cudaLaunchCooperativeKernel", "hipExtModuleLaunchKernel",
     "hipLaunchKernel", "musaLaunchKernel", "urEnqueueKernelLaunch", "zeCommandListAppendLaunchKernel"],
)  # fmt: skip
def test_every_kind_of_call_that_launches_a_kernel_counts(name):
    assert lost(run_of(10, 0, launch(500, 5 * US, name=name))) == 1


@pytest.mark.parametrize(
    "name",
    ["cudaMemsetAsync", "cudaMemcpyAsync", "cudaLaunchHostFunc", "hipLaunchHostFunc", "cudaFuncSetAttribute",
     "cudaGraphLaunch"],
)  # fmt: skip
def test_calls_that_launch_no_kernel_lose_none(name):
    """A set of no bytes leaves no record: real files have 80 and 305 of them."""
    assert lost(run_of(10, 0, launch(500, 5 * US, name=name))) == 0


def test_a_launch_of_a_wait_is_no_loss():
    waits = {"process": 0, "device": 0, "stream": 7, "kind": "event_wait", "start": 9 * US}
    profile = run_of(
        10, 0, launch(500, 5 * US), syncs=[{**waits, "end": 90 * US, "correlation": 500}]
    )
    assert lost(profile) == 0


def test_launches_under_capture_are_no_loss():
    begin = launch(None, 900 * US, name="cudaStreamBeginCapture_v10000")
    end = launch(None, 990 * US, name="cudaStreamEndCapture_v10000")
    captured = [launch(500 + number, (910 + 10 * number) * US) for number in range(5)]
    profile = run_of(
        10, 0, begin, *captured, end, launch(None, 2_000 * US, name="cudaDeviceSynchronize")
    )
    assert lost(profile) == 0


def test_a_call_that_failed_has_no_id_and_loses_none():
    assert lost(run_of(10, 0, launch(None, 5 * US))) == 0


def test_a_runtime_call_and_the_driver_call_in_it_are_one_launch():
    outer = launch(500, 900 * US, end=910 * US)
    of_same_id = launch(500, 902 * US, name="cuLaunchKernel", end=908 * US)
    wait = launch(None, 2_000 * US, name="cudaDeviceSynchronize")
    assert lost(run_of(10, 0, outer, of_same_id, wait)) == 1
    of_its_own = launch(501, 902 * US, name="cuLaunchKernel", end=908 * US)
    assert lost(run_of(10, 0, outer, of_its_own, wait)) == 1


def test_a_launch_around_one_that_ran_lost_nothing():
    work = [ran(number, number * 20 * US) for number in range(1, 11)]
    around = launch(500, 14 * US, name="hipLaunchKernel", end=19 * US)
    assert lost(profiled(work, calls=[around])) == 0


def test_few_launches_at_the_end_may_have_run_after_the_recording_but_not_before_a_wait():
    last = launch(500, 5_000 * US)
    work = [ran(number, number * 20 * US) for number in range(1, 101)]
    assert lost(profiled(work, calls=[last])) == 0
    waited = launch(None, 6_000 * US, name="cudaDeviceSynchronize")
    assert lost(profiled(work, calls=[last, waited])) == 1
    many = [launch(500 + number, (5_000 + 20 * number) * US) for number in range(50)]
    assert lost(profiled(work, calls=many)) == 50


def test_gaps_in_correlation_ids_are_no_evidence():
    work = [ran(7 * number, number * 20 * US) for number in range(1, 11)]
    assert lost(profiled(work)) == 0


def test_without_launches_and_without_kernels_it_cannot_tell():
    assert reason(profiled([Ran(0, 10), Ran(50, 60)])) == lost_kernels.NO_LAUNCHES
    assert reason(profiled([], calls=[launch(1, 0)])) == lost_kernels.NO_KERNELS
    unlinked = [Ran(number * 20, number * 20 + 5, correlation=number) for number in range(1, 11)]
    assert reason(profiled(unlinked, calls=[launch(500, 5)])) == lost_kernels.NOT_LINKED
    bare = profiled([Ran(0, 10)])
    assert (lost(bare), losses(bare)) == (None, [])


def test_in_xla_launches_tell_where_kernels_have_them():
    """Of 198 launches of a real trace each has its kernel; a TPU has none."""
    origin = {"format": "xplane"}
    assert lost(run_of(10, 5, origin=origin)) == 5
    bare = profiled([Ran(0, 10), Ran(50, 60)], origin=origin)
    assert (lost(bare), reason(bare), losses(bare)) == (None, lost_kernels.XLA, [])


def test_kernels_of_cuda_graphs_cannot_be_counted():
    replayed = [Ran(20 * n * US, (20 * n + 5) * US, correlation=9) for n in range(1, 20)]
    replay = launch(9, 1, name="cudaGraphLaunch")
    others = [launch(500, 30 * US), launch(None, 2_000 * US, name="cudaDeviceSynchronize")]
    profile = profiled([ran(1, 10 * US), *replayed], calls=[replay, *others])
    assert (lost(profile), reason(profile)) == (None, lost_kernels.GRAPHS)
    few = profiled(
        [*(ran(n, n * 20 * US) for n in (1, 2, 3)), replayed[-1]], calls=[replay, *others]
    )
    assert (lost(few), reason(few)) == (1, lost_kernels.WITHOUT_GRAPHS)


def stepped(
    kernels: list[int], *, numbers: list[int] | None = None, domain: str = "opscope.user"
) -> Profile:
    """Steps of 1 ms with ten ops each; the first ops of a step launched a kernel each."""
    ranges, work = [], []
    for place, (number, many) in enumerate(
        zip(numbers or range(len(kernels)), kernels, strict=True)
    ):
        since = number * 1_000 * US
        ranges.append({**OP, "domain": domain, "category": "step", "text": f"step {number}",
                       "start": since, "end": since + 1_000 * US})  # fmt: skip
        for op in range(10):
            at = since + (10 + 90 * op) * US
            ranges.append({**OP, "text": "aten::mm", "start": at, "end": at + 20 * US})
            if op < many:
                work.append(ran(100 * place + op + 1, at + 8 * US))
    return profiled(work, ranges=ranges)


def test_steps_with_the_ops_of_others_and_fewer_kernels_lost_them_with_their_launches():
    assert lost(stepped([10, 10, 10, 10, 10])) == 0
    assert lost(stepped([10, 0, 10, 10, 10])) == 10
    assert lost(stepped([10, 4, 0, 10, 10, 10])) == 16
    assert lost(stepped([10, 9, 8, 10, 7, 6])) == 0  # steps that differ by themselves prove nothing


def test_a_kernel_beside_the_beginning_of_an_inferred_step_may_be_the_next_ones():
    """Where it begins was worked out, so a kernel more or less proves no loss; half a step does."""
    assert lost(stepped([10, 10, 10, 10, 8], domain="inferred")) == 0
    assert lost(stepped([10, 10, 10, 10, 8])) == 2
    assert lost(stepped([10, 10, 10, 10, 4], domain="inferred")) == 6


def test_a_step_with_the_kernels_of_others_and_fewer_ops_lost_ops():
    whole = stepped([6] * 6).trace
    ops, at = whole["ranges"], 2_000 * US

    def without(few: int) -> Profile:
        since = pl.col("start") >= at + 550 * US
        gone = (pl.col("text") == "aten::mm") & since & (pl.col("start") < at + 1_000 * US)
        kept = ops.with_columns(gone=gone).with_columns(
            gone=pl.col("gone") & (pl.col("gone").cum_sum() <= few)
        )
        return Profile(whole.replace(ranges=kept.filter(~pl.col("gone")).drop("gone")))

    assert without(0).lost_kernels()["lost_ops"].to_list() == [0]
    profile = without(4)  # ops without a kernel: those of its launches are as many as ever
    assert profile.lost_kernels()["lost_ops"].to_list() == [4]
    assert losses(profile) == ["about 4 ops are missing in the file"]


def test_ops_that_all_steps_lack_some_of_show_by_kernels_under_other_ops():
    """A layer of five ops around each, of which a kernel falls to the next around where one is missing."""
    work, ranges = [], []
    for number in range(600):
        start = (number // 60 * 1_000 + number % 60 * 16 + 10) * US
        work.append(Ran(start + 2 * US, start + 9 * US, start, correlation=number + 1))
        ranges += [
            {"process": 0, "thread": 1, "start": start - out * 50, "end": start + 5 * US + out * 50,
             "text": f"aten::op{number % 60}_{out}(f32[8]) -> f32[8]", "kind": "pushpop",
             "domain": "opscope.torch"}
            for out in range(5)
        ]  # fmt: skip
    steps = [{"process": 0, "thread": 1, "start": n * 1_000 * US, "end": (n * 1_000 + 990) * US,
              "text": f"step {n}", "category": "step", "kind": "pushpop", "domain": "opscope.torch"}
             for n in range(10)]  # fmt: skip
    dice = np.random.default_rng(2)
    for share in (0.0, 0.05, 0.2, 0.3):
        kept = [row for row in ranges if dice.random() >= share]
        missing = len(ranges) - len(kept)
        frame = profiled(work, ranges=[*kept, *steps]).lost_kernels()
        assert frame["lost_ops"][0] == pytest.approx(missing, rel=0.2, abs=2)
        assert frame["lost_kernels"][0] == 0


def test_where_no_steps_repeat_it_is_not_known_how_many_ops_are_missing():
    assert run_of(20, 0).lost_kernels()["lost_ops"].to_list() == [None]


def test_steps_that_are_missing_between_others_are_counted():
    profile = stepped([10, 10, 10, 10], numbers=[0, 1, 4, 5])
    assert profile.lost_kernels()["lost_steps"].to_list() == [2]
    assert "2 steps are missing in the file" in losses(profile)


def test_kernels_whose_launch_is_missing_are_counted_but_not_those_from_before_the_recording():
    work = [ran(number, number * 20 * US) for number in range(11, 31)]
    before = [
        Ran(number * 20 * US, (number * 20 + 5) * US, correlation=number) for number in range(5, 9)
    ]
    assert profiled([*before, *work]).lost_kernels()["lost_launches"].to_list() == [0]
    later = [Ran(700 * US, 705 * US, correlation=40)]
    assert profiled([*work, *later]).lost_kernels()["lost_launches"].to_list() == [1]


@pytest.mark.parametrize("every", [50, 2, 3])
def test_where_launches_are_missing_nothing_says_what_the_device_waited_for(every):
    """Of half of them, of two thirds (of which most kernels lack theirs), and of 2 %."""
    whole = stepped([10] * 12).trace
    place = pl.int_range(pl.len()) % every
    left = place == 0 if every == 3 else place != every // 2
    assert Profile(whole).diagnosis()["finding"].to_list()[0] == "host-bound"
    profile = Profile(whole.replace(calls=whole["calls"].filter(left)))
    gone = int(profile.lost_kernels()["lost_launches"][0])
    assert abs(gone - int((~whole["calls"].select(left).to_series()).sum())) <= 1
    why = next(text for text in losses(profile) if text.startswith(f"{gone} launch"))
    assert profile.diagnosis()["finding"].to_list()[0] == "cannot tell"
    assert why in profile.diagnosis()["text"][0]
    assert profile.idle()["idle_time"][0] == Profile(whole).idle()["idle_time"][0]
    assert profile.critical_path().is_empty()
    said = {row["detector"]: row for row in profile.advice().to_dicts()}
    for detector in ("host_bound", "launch_bound", "underutilized_gpu"):
        assert said[detector]["outcome"] == "cannot tell"
        assert why in said[detector]["reason"]


def test_kernels_without_ids_among_others_lack_their_launch_and_are_not_missing():
    """Their launches are there and without a kernel: as many as these, no kernel is missing."""
    whole = stepped([10] * 6).trace
    half = pl.int_range(pl.len()) % 2 == 0
    number = pl.when(half).then(None).otherwise("correlation").alias("correlation")
    profile = Profile(whole.replace(kernels=whole["kernels"].with_columns(number)))
    row = profile.lost_kernels().row(0, named=True)
    assert (row["kernels"], row["lost_kernels"], row["lost_launches"]) == (60, 0, 30)
    assert profile.diagnosis()["finding"].to_list()[0] == "cannot tell"


def test_a_step_whose_launches_are_missing_did_no_other_work():
    """Without its launch a kernel counts in the step in whose time it ran, which here is the next."""
    whole = stepped([10] * 6).trace
    bare = pl.col("correlation").is_in([305, 306, 307])
    later = (pl.col("start", "end") + pl.when(bare).then(1_000 * US).otherwise(0)).cast(pl.Int64)
    profile = Profile(
        whole.replace(
            calls=whole["calls"].filter(~bare), kernels=whole["kernels"].with_columns(later)
        )
    )
    assert profile.lost_kernels()["lost_launches"].to_list() == [3]
    assert lost(profile) == 0
    assert profile.advice(["iteration_range"])["outcome"].to_list() == ["nothing found"]


def test_what_rests_on_idle_time_cannot_tell_and_names_the_share():
    profile = run_of(10, 30)
    why = profile.of(idle_unknown)
    assert "30 of 40 kernels (75.0 %)" in why
    assert profile.idle()["reason"].to_list() == [why]
    assert profile.idle()["idle_time"].to_list() == [None]
    assert set(profile.overlap()["reason"]) == {why}
    assert profile.device_use()["utilization_reason"].to_list() == [why]
    assert profile.device_use()["gpu_utilization"].to_list() == [None]
    assert profile.idle_ops().is_empty()
    assert profile.critical_path().is_empty()
    assert profile.what_if(host=0.5).is_empty()
    first = profile.diagnosis().row(0, named=True)
    assert (first["finding"], first["lost"]) == ("cannot tell", None)
    assert why in first["text"]
    advice = profile.advice()
    told = dict(
        advice.filter(pl.col("outcome") == "cannot tell").select("detector", "reason").rows()
    )
    for detector in (
        "underutilized_gpu",
        "iteration_range",
        "elementwise_chains",
        "imbalanced_gpus",
    ):
        assert "30 of 40 kernels" in told[detector]
    assert profile.notes().row(0) == (
        "warning",
        "about 30 of 40 kernels (75.0 %) are missing in the file",
        30,
    )
    assert [line for line in next_steps(profile) if "idle" in line] == [
        f"{why} (--reports lost_kernels: how many kernels of each process are missing)"
    ]


def test_steps_have_their_time_and_no_idle_time_where_kernels_are_missing():
    profile = stepped([10, 0, 0, 10, 10, 10, 10])
    rows = profile.idle_steps()
    assert rows["time"].to_list() == [1_000 * US] * 7
    assert rows["idle_time"].null_count() == 7
    assert set(rows["reason"]) == {profile.of(idle_unknown)}
    assert "20 of 70 kernels" in next(
        row["reason"] for row in profile.advice().to_dicts() if row["detector"] == "host_bound"
    )


def test_a_loss_below_1_percent_is_said_and_changes_no_conclusion():
    profile = run_of(300, 1)
    assert lost(profile) == 1
    assert losses(profile) == ["about 1 of 301 kernels (0.3 %) is missing in the file"]
    assert profile.of(idle_unknown) is None
    assert profile.idle()["idle_time"].to_list()[0] > 0
    assert any("1 of 301 kernels" in text for text in profile.diagnosis()["text"])


def test_records_that_the_recorder_dropped_make_idle_time_unknown():
    profile = run_of(20, 0)
    assert profile.of(idle_unknown) is None
    what = "records that CUPTI dropped for want of room: kernels, copies or calls are missing"
    profile = run_of(20, 0, notes=[{"severity": "warning", "what": what, "how_many": 7}])
    assert profile.idle()["idle_time"].to_list() == [None]
    assert losses(profile) == [f"{what} (7)"]


def repeated(keep) -> Profile:
    """Six steps of five kernels each; of kernels and launches only what ``keep`` says, by number."""
    ran_, ranges, calls = [], [], []
    for number in range(30):
        start = (number // 5 * 1_000 + number % 5 * 100 + 50) * US
        launched, executed = keep(number)
        if executed and launched:
            ran_.append(
                Ran(start + 20 * US, start + (60 + number % 3) * US, start, correlation=number)
            )
        elif executed:
            ran_.append(Ran(start + 20 * US, start + (60 + number % 3) * US, correlation=number))
        elif launched:
            calls.append(launch(number, start))
        ranges.append({"process": 0, "thread": 1, "start": start - 10 * US, "end": start + 15 * US,
                       "text": OP, "kind": "pushpop", "domain": "opscope.torch"})  # fmt: skip
    for step in range(6):
        ranges.append({"process": 0, "thread": 1, "start": step * 1_000 * US, "end": (step * 1_000 + 990) * US,
                       "text": f"step {step}", "category": "step", "kind": "pushpop",
                       "domain": "opscope.torch"})  # fmt: skip
    return profiled(ran_, ranges=ranges, calls=calls)


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_difference_from_a_run_with_missing_kernels_says_so_first_and_has_no_verdict(side):
    whole, less = repeated(lambda _: (True, True)), repeated(lambda n: (True, n % 3 > 0))
    assert lost(less) == 10
    pair = (less, whole) if side == "a" else (whole, less)
    difference = difference_of(*pair)
    assert "not known" in headline(difference)
    assert "10 of 30 kernels" in headline(difference)
    for name in ("part", "op", "cause"):
        verdicts = pair[0].diff(pair[1], name)["verdict"].drop_nulls()
        assert not verdicts.is_in(["faster", "slower", "new", "gone"]).any(), name
    assert difference_of(whole, whole).lacks == []


CUT = "a.json is cut off (the JSON ends inside an event): what follows is missing"


def test_a_file_that_is_cut_off_may_lack_any_kernel_so_idle_time_is_unknown():
    profile = run_of(20, 0, notes=[{"severity": "warning", "what": CUT, "how_many": 1}])
    assert losses(profile) == [CUT]
    assert profile.idle()["idle_time"].to_list() == [None]
    first = profile.diagnosis().row(0, named=True)
    assert (first["finding"], "copy the file again" in first["to_try"]) == ("cannot tell", True)
    assert not any("too late" in line for line in next_steps(profile))


@pytest.mark.parametrize(("end", "kernels"), [(0.45, False), (0.8, True)])
def test_a_trace_cut_off_amid_its_events_has_no_cause(tmp_path, end, kernels):
    """Kineto writes kernels after ops: what is cut off is not what ran last."""
    events = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1,
               "ts": 1_000 * n, "dur": 990} for n in range(8)]  # fmt: skip
    for n in range(80):
        events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1,
                       "ts": 100 * n + 20, "dur": 20, "args": {"External id": n}})  # fmt: skip
    for n in range(80):
        events.append({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 100 * n + 50,
                       "dur": 40, "args": {"device": 0, "stream": 7, "External id": n}})  # fmt: skip
    text = json.dumps({"schemaVersion": 1, "traceEvents": events})
    path = tmp_path / "a.json"
    path.write_text(text[: int(end * len(text))])
    profile = opscope.load(path)
    assert bool(len(profile.kernels())) == kernels
    findings = profile.diagnosis()
    assert findings["finding"].to_list()[0] == "cannot tell"
    assert not findings["finding"].is_in(["host-bound", "idle device"]).any()
    assert "cut off" in losses(profile)[0]


def test_a_selection_lacks_what_the_whole_lacks_and_no_more():
    profile = stepped([10, 10, 10, 10, 10])
    assert lost(profile.select(steps=(1, 1))) == 0
    assert losses(profile.select(steps=(1, 1))) == []


def test_the_share_stands_first_in_report_and_advice(tmp_path):
    events = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1,
               "ts": 1_000 * n, "dur": 990} for n in range(8)]  # fmt: skip
    for n in range(8):
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
                       "ts": 1_000 * n + 30, "dur": 5, "args": {"correlation": n + 1}})  # fmt: skip
    events += [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1_000 * n + 50, "dur": 800,
                "args": {"correlation": n + 1, "device": 0, "stream": 7}} for n in (0, 1)]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    words = "about 6 of 8 kernels (75.0 %) are missing in the file"
    report = run("report", str(path)).stdout
    assert words in report.split("\n")[1]
    assert "launches its work too late" not in report
    advice = run("advise", str(path)).stdout
    assert advice.split("\n")[1] == words
    assert (
        json.loads(run("advise", str(path), "--json").stdout)["lost_kernels"][0]["lost_kernels"]
        == 6
    )
    assert run("advise", str(path), "--markdown").stdout.startswith(words)
    told = json.loads(run("report", str(path), "--json").stdout)
    assert words in told["diagnosis"][0]["text"]


def test_a_rank_of_many_with_missing_kernels_has_a_diagnosis():
    job = [{"process": 0, "rank": 0, "world_size": 128}]
    assert run_of(10, 30, processes=job).diagnosis()["finding"].to_list() == ["cannot tell"]


def without(trace: Trace, removed: np.ndarray) -> Profile:
    kept = np.ones(len(trace["kernels"]), bool)
    kept[removed] = False
    return Profile(trace.replace(kernels=trace["kernels"].filter(pl.Series(kept))))


@pytest.mark.parametrize(
    "name",
    ["kineto/sampled_rank0.json.gz", "nvprof/language_model.sqlite", "nsys/cudf_2020.sqlite",
     "nsys/fsdp_h100x2_2026.sqlite", "rocm/rpd/matmul_result.rpd"],
)  # fmt: skip
@pytest.mark.parametrize("share", [0.01, 0.3])
def test_the_estimate_on_real_traces_is_within_10_percent_or_2_kernels(shared, name, share):
    """scripts/lost_kernels.py has fourteen traces, four ways of removing and six shares."""
    profile = opscope.load(shared / name)
    assert losses(profile) == []
    rows = np.flatnonzero(profile.attribution.kernels.call >= 0)
    removed = np.random.default_rng(3).choice(rows, max(1, round(share * len(rows))), replace=False)
    number = without(profile.trace, removed).lost_kernels()["lost_kernels"].sum()
    assert abs(number - len(removed)) <= max(2, 0.1 * len(removed))


@pytest.mark.parametrize(
    "name",
    ["kineto/vision_transformer_rank0.json.gz", "kineto/qwen1.5_0.5b_h100.json.gz",
     "kineto/vllm_decode_cudagraph_capture.json.gz", "kineto/alexnet_cupti_counters_a100.json.gz",
     "rocm/rocprofv3_gfx1151", "xplane/jax_conv_mi300.xplane.pb"],
)  # fmt: skip
def test_traces_that_lack_nothing_give_no_alarm(shared, name):
    profile = opscope.load(shared / name)
    assert losses(profile) == []
    assert profile.of(idle_unknown) is None


def test_the_end_of_each_captured_window_is_an_end_of_the_recording():
    work = [ran(number, number * 20 * US) for number in range(1, 101)]
    again = [ran(1_000 + number, (10_000 + number * 20) * US) for number in range(1, 101)]
    windows = [
        {"process": 0, "start": since * US, "end": (since + 2_100) * US} for since in (0, 10_000)
    ]
    cut = [launch(500, 2_050 * US), launch(501, 5_000 * US), launch(502, 12_060 * US)]
    assert lost(profiled([*work, *again], calls=cut, windows=windows)) == 0
    amid = launch(503, 30 * US)
    assert lost(profiled([*work, *again], calls=[*cut, amid], windows=windows)) == 1


def test_a_step_that_holds_the_next_one_whose_mark_is_missing_is_not_slow():
    whole = stepped([10] * 9).trace
    ranges = whole["ranges"]
    step = pl.col("category") == "step"
    third = pl.col("text").cast(pl.String) == "step 3"
    end = ranges.filter(step & (pl.col("text").cast(pl.String) == "step 4"))["end"][0]
    longer = pl.when(step & third).then(end).otherwise("end").alias("end")
    for kept, slow in ((ranges.with_columns(longer), None), (ranges, False)):
        kept = kept.filter(~(step & (pl.col("text").cast(pl.String) == "step 4")))
        profile = Profile(whole.replace(ranges=kept))
        assert profile.lost_kernels()["lost_steps"].to_list() == [1]
        steps = {row["step"]: row for row in profile.steps().to_dicts()}
        assert steps[3]["slow"] is slow
        assert ("marks are missing" in (steps[3]["reason"] or "")) == (slow is None)
        assert profile.slow_steps().is_empty()
        phases = profile.step_phases()
        for other in (2, 5):  # the neighbours are as ever
            assert (
                phases.filter(step=other)["time"].sum()
                == Profile(whole).step_phases().filter(step=other)["time"].sum()
            )
