"""One list: causes and findings by what they cost of the run; what is healthy, and what the data cannot carry."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.advice.ask import CANNOT_TELL, FOUND, Said
from opscope.core.advice.commands import with_command
from opscope.core.advice.diagnosis import Causes
from opscope.core.advice.finding import Finding
from opscope.core.advice.ranked import diagnosed, ranked
from opscope.core.analysis.host.light_diagnosis import MEDIAN, WALL
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from tests.core.advice.test_diagnosis import (
    STEP,
    STEPS,
    US,
    each_step,
    kernels,
    on_threads,
    op_on,
    step_on,
)

#: Ten steps of 100 ns in 2,000 ns.
MADE = {"median": 100, "steps": 10, "wall": 2_000}
HEALTHY = {"finding": "healthy", "text": "nothing stands out", "to_try": None}


def cause(name: str, lost: int, *, of: str = MEDIAN, sure: bool = True) -> dict:
    return {
        "process": None, "rank": None, "finding": name, "share": lost / 1_000, "of": of, "lost": lost,
        "text": f"{name} takes {lost}", "to_try": "something", "sure": sure,
    }  # fmt: skip


def said(
    detector: str, saving: int | None, confidence: str = "high", least: int = 0, **more
) -> Said:
    finding = Finding(
        what=f"{detector} found it", evidence="", recommendation="change it", time=saving or 0,
        saving=saving, saving_least=least, saving_most=1_000, reasoning="", confidence=confidence, **more,
    )  # fmt: skip
    return Said(detector, FOUND, finding)


def verdict(answers: list[Said], *rows: dict, **more) -> list[str]:
    causes = Causes(rows, HEALTHY, (), **(MADE | more))
    return [row["finding"] for row in diagnosed(ranked(answers, causes), causes, None)]


@pytest.mark.parametrize(
    ("answer", "first"),
    [
        (said("slow_gemms", 300, "low"), "healthy"),  # most runs have that
        (said("slow_gemms", 300, "medium"), "slow gemms"),
        (said("slow_gemms", 40, "high"), "healthy"),  # 4 % of a median step
        (said("slow_gemms", 60, "high"), "slow gemms"),
        (said("slow_gemms", None, "low", least=60), "slow gemms"),
        (said("slow_gemms", None, "high"), "healthy"),  # nobody knows what it saves
        (
            said("warm_up", 900, "high", of="run"),
            "healthy",
        ),  # under half of the run, and of no step
    ],
)
def test_a_run_is_healthy_only_if_no_change_saves_a_twentieth_of_a_step(answer, first):
    assert verdict([answer])[0] == first


def test_what_costs_most_of_the_run_is_first_be_it_once_or_in_each_step():
    answers = [said("slow_gemms", 200)]
    assert verdict(answers, cause("host-bound", 300), cause("slow start", 1_500, of=WALL)) == [
        "slow start", "host-bound", "slow gemms"
    ]  # fmt: skip
    assert verdict(answers, cause("host-bound", 300), cause("slow start", 400, of=WALL, sure=False)) == [
        "host-bound", "slow gemms", "slow start"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("saving", "order"),
    [
        (100, ["host-bound", "unfused attention", "memory-bandwidth-bound"]),
        (350, ["unfused attention", "memory-bandwidth-bound", "host-bound"]),
        (40, ["memory-bandwidth-bound", "host-bound"]),  # 4 % of a median step
    ],
)
def test_what_bounds_the_kernels_comes_after_what_may_be_why(saving, order):
    causes = [cause("memory-bandwidth-bound", 500), cause("host-bound", 300)]
    assert verdict([said("unfused_attention", saving)], *causes) == order


def test_a_finding_that_explains_a_cause_is_one_row_with_it():
    causes = Causes([cause("input-bound", 400)], HEALTHY, (), **MADE)
    rows = ranked(
        [said("cpu_decoding", 100), said("data_loader", 350), said("slow_gemms", 90)], causes
    )
    assert [one.detector for one in rows] == ["data_loader", "slow_gemms", "cpu_decoding"]
    first, second = diagnosed(rows, causes, None)
    assert (first["finding"], first["detector"]) == ("input-bound", "data_loader")
    assert first["to_try"] == "change it"  # the detector's, which saw the program
    assert second["finding"] == "slow gemms"  # the other's time is a part of the cause's


def test_a_finding_about_little_of_a_cause_does_not_explain_it():
    causes = Causes([cause("input-bound", 800)], HEALTHY, (), **MADE)
    assert [one.detector for one in ranked([said("data_loader", 150)], causes)] == [
        "input-bound",
        "data_loader",
    ]


def test_a_cause_that_no_detector_explains_is_a_finding_of_its_own():
    causes = Causes([cause("waiting on other streams", 400)], HEALTHY, (), **MADE)
    (one,) = ranked([], causes)
    assert (one.detector, one.finding.time, one.finding.saving_most) == (
        "waiting on other streams",
        400,
        400,
    )


def test_savings_are_of_a_median_step_and_of_the_wall_time():
    causes = Causes((), HEALTHY, (), **MADE)
    (one,) = ranked([said("slow_gemms", 260)], causes)
    assert (one.step_saving, one.step_share, one.saving_share) == (26, 0.26, 0.13)
    (one,) = ranked([said("slow_gemms", 1_900)], causes)
    assert one.step_saving == 100  # no more than the step


def test_where_the_data_carry_no_cause_no_detector_names_one():
    row = {"finding": "cannot tell", "text": "too few kernels", "to_try": None}
    causes = Causes((), row, (), "too few kernels", **MADE)
    rows = ranked([said("host_bound", 500), said("slow_gemms", 500)], causes)
    assert [(one.detector, one.outcome) for one in rows] == [
        ("slow_gemms", FOUND), ("host_bound", CANNOT_TELL)
    ]  # fmt: skip
    assert [row["finding"] for row in diagnosed(rows, causes, None)] == ["cannot tell"]


def test_a_trace_of_a_few_kernels_has_one_verdict_everywhere():
    profile = each_step(*kernels(10, 1, 20, 5))
    assert profile.diagnosis()["finding"].to_list() == ["cannot tell"]
    told = profile.advice().filter(pl.col("outcome") == "found")["detector"].to_list()
    assert not {"host_bound", "launch_bound", "underutilized_gpu"} & set(told)


def test_diagnosis_and_advice_begin_alike():
    profile = each_step(*kernels(6, 99, 3, 7, ahead=4 * US))
    first = profile.diagnosis().row(0, named=True)
    row = profile.advice().row(0, named=True)
    assert (
        (first["finding"], first["of"])
        == ("host-bound", "a median step")
        == (row["cause"], first["of"])
    )
    assert first["lost"] == STEPS * (STEP - 99 * 3 * US)


def sleepy(asleep: int) -> Profile:
    """Nine steps of 100 µs that are ops, after one of which the program sleeps for so many µs more."""
    rows, at = [], 0
    for number in range(9):
        length = 100 + (asleep if number == 5 else 0)
        rows += [
            step_on(1, at, at + length, number),
            op_on(1, at, at + 95, "aten::mm(f32[8,8], f32[8,8])"),
        ]
        at += length
    return on_threads(*rows)


def test_what_only_a_slow_step_has_is_told_of_all_steps_and_not_of_a_median_step():
    row = sleepy(2_000).diagnosis().row(0, named=True)
    assert (row["finding"], row["of"]) == ("host-bound", "all steps")
    assert "2.04 ms of the 2.9 ms of 9 steps" in row["text"]
    assert sleepy(0).diagnosis()["finding"][0] == "healthy"


def test_a_command_runs_this_program():
    text = "opscope run --steps 3:9 -- python train.py; `opscope run -- …`"
    assert with_command(text, ["python", "-m", "my job"]) == (
        "opscope run --steps 3:9 -- python -m 'my job'; `opscope run -- python -m 'my job'`"
    )
    assert with_command(text, None) == text
    assert with_command(None, ["python"]) is None


def test_the_recorded_command_stands_in_what_to_record():
    tables = {
        "ranges": pl.DataFrame([op_on(1, 0, 9, "aten::mm(f32[8,8], f32[8,8])") | {"process": 0}])
    }
    profile = Profile(Trace.of(tables, {"command": ["python", "own.py"]}))
    tries = " ".join(profile.diagnosis()["to_try"].drop_nulls())
    assert "train.py" not in tries


def test_a_run_that_waits_for_processors_of_others_is_not_healthy_and_nothing_near_a_limit_comes_first():
    starved = said("starved", None, "medium", doubts=True)
    assert verdict([starved]) == ["starved"]
    near = {**cause("borderline input-bound", 60), "sure": False}
    assert verdict([starved], near) == ["starved", "borderline input-bound"]
    causes = Causes([cause("input-bound", 400)], HEALTHY, (), **MADE)
    (row,) = diagnosed(ranked([starved], causes), causes, None)
    assert row["finding"] == "input-bound"
    assert row["text"].endswith("; but starved found it")
    # of a run that waits for most of its time, it comes first
    most = said("starved", None, "medium", doubts=True, stands_out=True)
    assert verdict([most], cause("input-bound", 400)) == ["starved", "input-bound"]


def test_of_idle_time_without_launches_it_cannot_tell_and_does_so_before_lesser_causes():
    idle, other = cause("idle device", 600), cause("compute-bound", 200)
    assert verdict([said("underutilized_gpu", None)], idle, other) == [
        "cannot tell", "compute-bound"
    ]  # fmt: skip
    borderline = {**cause("borderline idle device", 110), "sure": False}
    assert verdict([], borderline)[0] == "healthy"


def test_a_state_of_the_device_is_no_cause_that_the_host_has():
    rows = Causes([cause("host-bound", 600)], HEALTHY, (), **MADE)
    answers = [said("underutilized_gpu", 600), said("host_bound", 500)]
    first, *_ = diagnosed(ranked(answers, rows), rows, None)
    assert (first["finding"], first["detector"]) == ("host-bound", "host_bound")


def test_compiling_at_the_start_is_explained_by_the_warm_up_and_in_each_step_by_what_recompiles():
    rows = Causes([cause("compilation", 400)], HEALTHY, (), **MADE)
    answers = [said("warm_up", 400, of="run"), said("recompilations", 300)]
    assert next(diagnosed(ranked(answers, rows), rows, None))["detector"] == "recompilations"
    assert next(diagnosed(ranked(answers[:1], rows), rows, None))["detector"] == "warm_up"
