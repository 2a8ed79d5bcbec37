"""Operators by name: self times add up to the whole, and nested calls are counted once in totals."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given

from opscope.profile import Profile
from tests.core.analysis.made_nests import Made, nests

PLACE = {
    "process": 0,
    "thread": 1,
    "kind": "pushpop",
    "domain": "opscope.torch",
    "category": "forward",
}
RAN = {"process": 0, "device": 0, "stream": 7}


def op(text: str, start: int, end: int, **more) -> dict:
    call = text if "(" in text else f"{text}()"
    return {**PLACE, "text": call, "start": start, "end": end, **more}


def launches(*at: int) -> list[dict]:
    return [
        {"process": 0, "thread": 1, "start": start, "end": start + 1, "name": "cudaLaunchKernel",
         "correlation": number}
        for number, start in enumerate(at)
    ]  # fmt: skip


def kernels(*named: tuple[str, int]) -> list[dict]:
    return [
        {
            **RAN,
            "start": 1000 * (n + 1),
            "end": 1000 * (n + 1) + lasts,
            "name": name,
            "correlation": n,
        }
        for n, (name, lasts) in enumerate(named)
    ]


def row(frame: pl.DataFrame, **wanted) -> dict:
    (found,) = frame.filter(**wanted).to_dicts()
    return found


def test_an_op_inside_one_of_its_name_is_counted_once_in_totals(trace_of):
    trace = trace_of(
        ranges=[op("aten::mm", 0, 100), op("aten::relu", 10, 90), op("aten::mm", 20, 60)],
        calls=launches(1, 25, 70),
        kernels=kernels(("outer", 5), ("inner", 7), ("relu", 11)),
    )
    frame = Profile(trace).operators()
    mm, relu = row(frame, op="aten::mm"), row(frame, op="aten::relu")
    assert (mm["calls"], mm["kernels"]) == (2, 2)
    assert (mm["host_self"], mm["host_total"]) == (20 + 40, 100)
    assert (mm["device_self"], mm["device_total"]) == (5 + 7, 5 + 7 + 11)
    assert mm["host_mean"] == (100 + 40) / 2
    assert mm["device_mean"] == (23 + 7) / 2
    assert (relu["host_self"], relu["host_total"]) == (40, 80)
    assert (relu["device_self"], relu["device_total"]) == (11, 18)


def test_calls_of_other_shapes_are_other_rows_where_that_is_asked(trace_of):
    trace = trace_of(
        ranges=[
            op("aten::mm(f32[2,3], f32[3,4]) @train.py:1", 0, 10),
            op("aten::mm(f32[2,3], f32[3,4]) @train.py:2", 10, 30),
            op("aten::mm(f32[8,3], f32[3,4]) @train.py:2", 30, 70),
        ]
    )
    profile = Profile(trace)
    assert profile.operators()["host_self"].to_list() == [70]
    by_shape = profile.operators("inputs")
    assert dict(by_shape.select("inputs", "host_self").iter_rows()) == {
        "f32[2,3], f32[3,4]": 30,
        "f32[8,3], f32[3,4]": 40,
    }
    by_line = profile.operators("source")
    assert dict(by_line.select("source", "host_self").iter_rows()) == {
        "train.py:1": 10,
        "train.py:2": 60,
    }
    assert len(profile.operators("source", "inputs")) == 3
    with pytest.raises(ValueError, match="inputs, source"):
        profile.operators("layer")


def test_time_that_is_not_captured_is_unknown_and_not_0(trace_of):
    """A GPU's runtime was called, and no kernels were recorded."""
    trace = trace_of(ranges=[op("aten::mm", 0, 100)], calls=launches(1))
    found = row(Profile(trace).operators(), op="aten::mm")
    assert (found["device_self"], found["device_total"], found["device_mean"]) == (None, None, None)
    assert (found["calls"], found["uncaptured"], found["host_self"]) == (1, 1, 100)


def test_calls_outside_the_captured_window_are_in_no_mean(trace_of):
    trace = trace_of(
        ranges=[op("aten::mm", 0, 100), op("aten::mm", 200, 300), op("aten::relu", 310, 320)],
        calls=launches(10),
        kernels=kernels(("gemm", 8)),
        windows=[{"process": 0, "start": 0, "end": 150, "source": "kineto"}],
    )
    frame = Profile(trace).operators()
    mm, relu = row(frame, op="aten::mm"), row(frame, op="aten::relu")
    assert (mm["calls"], mm["uncaptured"], mm["device_mean"]) == (2, 1, 8.0)
    assert (relu["uncaptured"], relu["device_self"]) == (1, None)


def test_the_share_of_tensor_cores_is_unknown_where_no_name_proves_it(trace_of):
    trace = trace_of(
        ranges=[op("aten::mm", 0, 10), op("aten::linear", 20, 50), op("aten::addmm", 30, 40),
                op("aten::relu", 60, 70), op("mystery::op(f32[2])", 80, 90)],
        calls=launches(1, 31, 35, 61, 81),
        kernels=kernels(("unheard_of", 10), ("ampere_fp16_s16816gemm_fp16_128x64", 30), ("unheard_of", 10),
                        ("vectorized_elementwise_kernel", 5), ("unheard_of", 3)),
    )  # fmt: skip
    frame = Profile(trace).operators()
    mm, linear = row(frame, op="aten::mm"), row(frame, op="aten::linear")
    assert (mm["tensor_core_self"], mm["tensor_core_undetermined_time"]) == (None, 10)
    assert (linear["tensor_core_self"], linear["tensor_core_total"]) == (None, 30 / 40)
    assert linear["tc_eligible"]
    addmm = row(frame, op="aten::addmm")
    assert (addmm["tensor_core_self"], addmm["tensor_core_time"]) == (30 / 40, 30)
    relu = row(frame, op="aten::relu")
    assert (relu["tensor_core_self"], relu["tc_eligible"]) == (0.0, False)
    assert row(frame, op="mystery::op")["tc_eligible"] is None
    ranged = trace_of(ranges=[{**PLACE, "text": "mine", "domain": "mine", "start": 0, "end": 9}],
                      calls=launches(1), kernels=kernels(("unheard_of", 10)))  # fmt: skip
    assert row(Profile(ranged).operators(), op="mine")["tc_eligible"] is None


def test_kernels_without_an_op_are_a_row_for_each_reason(trace_of):
    trace = trace_of(
        ranges=[op("aten::mm", 0, 10)],
        calls=launches(1),
        kernels=kernels(("gemm", 8), ("stray", 5)),
    )
    frame = Profile(trace).operators()
    (stray,) = frame.filter(pl.col("op").is_null()).to_dicts()
    assert (stray["device_self"], stray["calls"], stray["host_self"]) == (5, 1, None)
    assert stray["reason"] is not None


def test_a_trace_in_which_nothing_ran_has_no_operators(trace_of):
    assert Profile(trace_of()).operators().is_empty()


def plainly(made: Made) -> dict[str, dict[str, int]]:
    """Calls and host times by name, going from op to op."""
    ranges, parents = made.tables["ranges"], made.parents
    is_op = ["->" in one["text"] for one in ranges]

    def above(number: int) -> list[int]:
        found = []
        while (number := parents[number]) is not None:
            found += [number] if is_op[number] else []
        return found

    sums: dict[str, dict[str, int]] = {}
    for number, one in enumerate(ranges):
        if not is_op[number]:
            continue
        lasted = one["end"] - one["start"]
        around = above(number)
        name = one["text"].partition("(")[0]
        of = sums.setdefault(name, {"calls": 0, "host_self": 0, "host_total": 0})
        of["calls"] += 1
        of["host_self"] += lasted
        if around:
            sums[ranges[around[0]]["text"].partition("(")[0]]["host_self"] -= lasted
        if all(ranges[outer]["text"].partition("(")[0] != name for outer in around):
            of["host_total"] += lasted
    return sums


@given(made=nests())
def test_parts_add_up_to_wholes_and_totals_are_those_of_the_outermost(trace_of, made):
    profile = Profile(trace_of(**made.tables))
    frame = profile.operators()
    ops = frame.filter(pl.col("op").is_not_null())
    found = {
        one.pop("op"): one
        for one in ops.select("op", "calls", "host_self", "host_total").to_dicts()
    }
    assert found == plainly(made)
    whole = profile.summary()["device_time"].item() or 0
    for by in ((), ("inputs",), ("source",), ("inputs", "source")):
        rows = profile.operators(*by)
        assert rows["device_self"].sum() == whole
        assert rows["host_self"].sum() == ops["host_self"].sum()
        assert (rows["device_total"].drop_nulls() >= rows["device_self"].filter(
            rows["device_total"].is_not_null())).all()  # fmt: skip
        assert (rows["host_total"].drop_nulls() <= 4 * 120).all()
        assert rows["share"].sum() == pytest.approx(1) or not whole
