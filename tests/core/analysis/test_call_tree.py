"""The call tree: what was open is merged by path, its totals are the whole, and what is left out is said."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.profile import Profile
from tests.core.analysis.made_nests import Made, nests

PLACE = {"process": 0, "thread": 1, "kind": "pushpop", "domain": "opscope.torch"}
RAN = {"process": 0, "device": 0, "stream": 7}


def ranged(text: str, start: int, end: int, category: str | None = None, **more) -> dict:
    return {**PLACE, "text": text, "category": category, "start": start, "end": end, **more}


def call(start: int, correlation: int) -> dict:
    return {"process": 0, "thread": 1, "start": start, "end": start + 1, "name": "cudaLaunchKernel",
            "correlation": correlation}  # fmt: skip


def stacks(frame: pl.DataFrame, *columns: str) -> dict[str, tuple]:
    return {row[0]: row[1:] for row in frame.select("stack", *columns).iter_rows()}


def test_steps_layers_ranges_ops_and_kernels_are_frames(trace_of):
    ranges = [
        ranged(f"step {n}", 100 * n, 100 * n + 90, "step", domain="opscope.user") for n in (0, 1)
    ] + [
        one
        for n in (0, 100)
        for one in (
            ranged("forward", n, n + 80, "phase"),
            ranged("Net", n + 1, n + 70, "layer"),
            ranged("mine", n + 2, n + 60, domain="opscope.user"),
            ranged("aten::mm()", n + 10, n + 50, "forward"),
        )
    ]
    kernels = [
        {**RAN, "start": 1000 + n, "end": 1005 + n, "name": "gemm", "correlation": n}
        for n in (0, 1)
    ]
    trace = trace_of(ranges=ranges, calls=[call(20, 0), call(120, 1)], kernels=kernels)
    frame = Profile(trace).call_tree()
    assert frame["frame_kind"].to_list() == [
        "all",
        "step",
        "phase",
        "layer",
        "range",
        "op",
        "kernel",
    ]
    found = stacks(frame, "calls", "host_self", "host_total", "device_self", "device_total")
    assert found["step"] == (2, 20, 180, 0, 10)
    assert found["step;forward;Net;mine;aten::mm"] == (2, 80, 80, 0, 10)
    assert found["step;forward;Net;mine;aten::mm;gemm"] == (2, 0, 0, 10, 10)
    folded = frame.filter(pl.col("device_self") > 0).select(
        pl.format("{} {}", "stack", "device_self")
    )
    assert folded.to_series().to_list() == ["step;forward;Net;mine;aten::mm;gemm 10"]


def test_a_kernel_without_an_op_is_below_what_was_open_around_its_launch(trace_of):
    kernels = [
        {**RAN, "start": 1000, "end": 1005, "name": "in range", "correlation": 0},
        {**RAN, "start": 1010, "end": 1017, "name": "alone", "correlation": 1},
        {**RAN, "start": 1020, "end": 1029, "name": "lost", "correlation": 2},
    ]
    ranges = [
        ranged("mine", 0, 50, domain="opscope.user"), ranged("aten::mm()", 60, 70, "forward"),
    ]  # fmt: skip
    trace = trace_of(ranges=ranges, calls=[call(10, 0), call(80, 1)], kernels=kernels)
    frame = Profile(trace).call_tree()
    found = stacks(frame.filter(pl.col("frame_kind") == "kernel"), "device_self")
    assert found["mine;in range"] == (5,)
    (alone,) = [stack for stack in found if stack.endswith(";alone")]
    (lost,) = [stack for stack in found if stack.endswith(";lost")]
    assert alone.startswith("(")
    assert lost.startswith("(no launch record)")
    assert frame["device_total"][0] == 21


def test_on_a_cpu_the_device_time_of_ops_is_their_self_time(trace_of):
    ranges = [
        ranged("step 0", 0, 100, "step", domain="opscope.user"),
        ranged("aten::linear()", 10, 60, "forward"),
        ranged("mine", 15, 55, domain="opscope.user"),
        ranged("aten::mm()", 20, 50, "forward"),
    ]
    profile = Profile(trace_of(ranges=ranges))
    found = stacks(profile.call_tree(), "host_self", "device_self")
    assert found["step;aten::linear"] == (10, 20)  # the user's range is no op
    assert found["step;aten::linear;mine;aten::mm"] == (30, 30)
    assert found["(inside steps, outside any op)"] == (0, 50)
    assert profile.call_tree()["device_total"][0] == profile.summary()["device_time"].item() == 100


def test_what_follows_the_last_step_is_no_step(trace_of):
    from opscope.core.schema import UNCLOSED

    ranges = [
        ranged("step 0", 0, 100, "step"), ranged("step 1", 100, 900, "step", attrs=UNCLOSED),
    ]  # fmt: skip
    found = stacks(Profile(trace_of(ranges=ranges)).call_tree(), "calls")
    assert found["step"] == (1,)
    assert found["(after the last step)"] == (1,)


def test_a_name_with_a_semicolon_is_one_frame(trace_of):
    ranges = [ranged("a;b\nc", 0, 9, domain="opscope.user"), ranged("aten::mm()", 2, 4, "forward")]
    frame = Profile(trace_of(ranges=ranges)).call_tree()
    assert frame["stack"].to_list() == ["", "a,b c", "a,b c;aten::mm"]


def test_deeper_frames_than_the_bound_are_summed_in_one_row(trace_of):
    ranges = [ranged(f"aten::op{n}()", n, 100 - n, "forward") for n in range(40)]
    profile = Profile(trace_of(ranges=ranges))
    frame = profile.call_tree(depth=3)
    assert frame["frame"].to_list() == ["(all)", "aten::op0", "aten::op1", "(other)"]
    assert frame["host_self"].to_list() == [0, 2, 2, 96]
    assert frame["device_total"][0] == 100
    with pytest.raises(ValueError, match="at least 1"):
        profile.call_tree(depth=0)


def test_sixty_thousand_nested_ranges_take_no_more_than_a_moment_of_memory_and_time(trace_of):
    many = 60_000
    ranges = [ranged(f"aten::op{n % 7}()", n, 3 * many - n, "forward") for n in range(many)]
    frame = Profile(trace_of(ranges=ranges)).call_tree()
    assert frame["host_total"][0] == 3 * many
    assert frame["depth"].max() == 64


def test_a_trace_in_which_nothing_ran_has_no_tree(trace_of):
    assert Profile(trace_of()).call_tree().is_empty()


def plainly(made: Made) -> dict[str, list[int]]:
    """Calls and self time of each path of ranges, going from range to range."""
    ranges, parents = made.tables["ranges"], made.parents
    found: dict[str, list[int]] = {}

    def path(number: int | None) -> list[str]:
        if number is None:
            return []
        return [*path(parents[number]), ranges[number]["text"].partition("(")[0]]

    for number, one in enumerate(ranges):
        of = found.setdefault(";".join(path(number)), [0, 0])
        lasted = one["end"] - one["start"]
        of[0] += 1
        of[1] += lasted
        if parents[number] is not None:
            found[";".join(path(parents[number]))][1] -= lasted
    return found


@given(made=nests(), nodes=st.integers(1, 12))
def test_paths_are_those_of_walking_and_every_bound_keeps_the_whole(trace_of, made, nodes):
    profile = Profile(trace_of(**made.tables))
    frame = profile.call_tree()
    opened = ["op", "layer", "range", "phase"]
    ranged_rows = frame.filter(pl.col("frame_kind").is_in(opened))
    # a name may be a layer and an op's: the stack alone does not tell them apart
    found: dict[str, list[int]] = {}
    for stack, calls, own in ranged_rows.select("stack", "calls", "host_self").iter_rows():
        one = found.setdefault(stack, [0, 0])
        one[0] += calls
        one[1] += own
    assert found == plainly(made)
    whole = profile.summary()["device_time"].item()
    for bounded in (frame, profile.call_tree(nodes=nodes), profile.call_tree(depth=2, nodes=nodes)):
        assert bounded["device_self"].sum() == bounded["device_total"][0] == whole
        assert bounded["host_self"].sum() == bounded["host_total"][0] == frame["host_total"][0]
        assert bounded["calls"].sum() == frame["calls"].sum()
        assert (bounded["frame"] != "(other)").sum() <= nodes or bounded is frame
        for side in ("host", "device"):
            own, total = bounded[f"{side}_self"].to_list(), bounded[f"{side}_total"].to_list()
            inside = [0] * len(own)
            for number, parent in enumerate(bounded["parent_path"].to_list()):
                if parent is not None:
                    inside[parent] += total[number]
            assert total == [mine + theirs for mine, theirs in zip(own, inside, strict=True)]
        above = bounded["parent_path"].fill_null(-1).to_list()
        assert all(parent < number for number, parent in enumerate(above))
    small = profile.call_tree(nodes=nodes)
    assert small["merged"].sum() == len(frame)
