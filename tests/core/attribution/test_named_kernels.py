"""Kernels that name their op: attributed without a launch, and every nanosecond accounted for."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.attribution.attribute import attribute
from opscope.profile import Profile

DOT = "hlo::dot(f32[8,4], f32[4,2]) -> f32[8,2] {lhs_contracting_dims=[1], rhs_contracting_dims=[0]%s}"
PATH = ', op_name="jit(step)/%s/net/dense/dot_general"'


def specs(*rows: tuple[str, str, str]) -> list[dict]:
    return [
        {"process": 0, "framework": "xla", "graph": graph, "key": key, "text": text}
        for graph, key, text in rows
    ]


def kernel(name: str, start: int, key: str | None, **more: object) -> dict:
    row = {"process": 0, "device": 0, "stream": 7, "start": start, "end": start + 10, "name": name}
    return {**row, "op_key": key, "correlation": None, **more}


FORWARD = specs(("jit_step(1)", "dot.1", DOT % (PATH % "jvp(model)")))


def test_the_call_of_the_spec_without_any_launch(trace_of):
    trace = trace_of(
        specs=FORWARD,
        kernels=[kernel("gemm", 100, "jit_step(1)/dot.1")],
        ranges=[
            {"process": 0, "thread": 3, "start": 50, "end": 500, "domain": "opscope.step",
             "category": "step", "text": "step 5", "kind": "pushpop"}
        ],
    )  # fmt: skip
    profile = Profile(trace)
    row = profile.kernels().row(0, named=True)
    assert (row["op"], row["op_type"], row["reason"]) == ("hlo::dot", "gemm", None)
    assert (row["direction"], row["layer"], row["step"]) == ("forward", "model/net/dense", 5)
    assert (row["inputs"], row["outputs"]) == ("f32[8,4], f32[4,2]", "f32[8,2]")
    assert row["matrix_flops"] == 2 * 8 * 4 * 2
    (total,) = profile.op_totals().rows(named=True)
    assert (total["op"], total["kernels"], total["device_time"]) == ("hlo::dot", 1, 10)
    assert total["cpu_time"] == 0  # none of it is known
    assert profile.trace["ranges"].height == 1  # the trace itself is as it was


def test_kernels_of_one_execution_share_it_and_a_second_one_counts_again(trace_of):
    names = ["pack", "gemm", "pack", "gemm", "other", "gemm"]
    keys = ["jit_step(1)/dot.1"] * 4 + ["jit_step(1)/add.2", "jit_step(1)/dot.1"]
    kernels = [
        kernel(name, 20 * n, key) for n, (name, key) in enumerate(zip(names, keys, strict=True))
    ]
    profile = Profile(trace_of(specs=FORWARD, kernels=kernels))
    frame = profile.kernels()
    assert frame["op_id"].to_list() == [0, 0, 1, 1, 2, 3]
    assert frame["matrix_flops"].to_list() == [64, 64, 64, 64, None, 128]
    calls = dict(profile.op_totals().select(pl.col("op").cast(pl.String), "calls").rows())
    assert calls == {"hlo::dot": 3, "jit_step(1)/add.2": 1}


def test_a_kernel_without_an_op_has_that_of_its_namesakes_where_they_agree(trace_of):
    keys = {"gemm": ["jit_step(1)/dot.1", None, "jit_step(1)/dot.1"],
            "copy": ["jit_step(1)/add.2", "jit_step(1)/sub.3", None],
            "alone": [None]}  # fmt: skip
    named = [(name, key) for name, several in keys.items() for key in several]
    rows = [kernel(name, 20 * n, key) for n, (name, key) in enumerate(named)]
    elsewhere = {"process": 1, "correlation": 5, "stream": 1}
    frame = Profile(
        trace_of(
            specs=FORWARD,
            # another process's kernels of the name tell nothing
            kernels=[*rows, kernel("gemm", 900, None, **elsewhere)],
            calls=[{"process": 1, "thread": 1, "start": 880, "end": 890, "name": "cuLaunchKernel",
                    "correlation": 5}],
        )
    ).kernels().sort("start")  # fmt: skip
    assert frame["inferred"].to_list() == [False, True, *[False] * 6]
    ops = frame["op"].cast(pl.String).to_list()
    assert ops[:3] == ["hlo::dot"] * 3
    assert ops[5:] == [None] * 3
    assert frame["op_id"].head(3).n_unique() == 3
    reasons = frame["reason"].cast(pl.String).to_list()
    assert reasons[5:] == ["no launch record", "no launch record",
                           "names no op, although kernels of the trace do"]  # fmt: skip


def test_a_copy_beside_kernels_that_name_their_ops_names_none(trace_of):
    copy = {"process": 0, "device": 0, "stream": 7, "start": 60, "end": 70, "correlation": 1,
            "kind": "memcpy", "bytes": 64}  # fmt: skip
    call = {
        "process": 0,
        "thread": 3,
        "start": 50,
        "end": 55,
        "name": "cuMemcpyAsync",
        "correlation": 1,
    }
    kernels = [kernel("gemm", 100, "jit_step(1)/dot.1")]
    frame = Profile(trace_of(specs=FORWARD, kernels=kernels, memops=[copy], calls=[call])).memops()
    assert frame["reason"].cast(pl.String).to_list() == [
        "names no op, although kernels of the trace do"
    ]
    bare = Profile(trace_of(memops=[copy], calls=[call])).memops()
    assert bare["reason"].cast(pl.String).to_list() == ["the trace has no op ranges"]


def test_an_op_that_launched_a_kernel_comes_before_one_that_only_its_name_tells(trace_of):
    trace = trace_of(
        specs=FORWARD,
        kernels=[
            kernel("gemm", 100, "jit_step(1)/dot.1"),
            kernel("gemm", 200, None, correlation=1),
        ],
        calls=[
            {"process": 0, "thread": 3, "start": 50, "end": 60, "name": "cuLaunchKernel", "correlation": 1}
        ],
        ranges=[
            {"process": 0, "thread": 3, "start": 40, "end": 90, "domain": "opscope.torch",
             "category": "forward", "text": "aten::mm(f32[2,2], f32[2,2]) -> f32[2,2]",
             "kind": "pushpop"}
        ],
    )  # fmt: skip
    frame = Profile(trace).kernels().sort("start")
    assert frame["op"].cast(pl.String).to_list() == ["hlo::dot", "aten::mm"]
    assert frame["inferred"].to_list() == [False, False]


def test_its_cpu_time_is_that_of_its_launches(trace_of):
    trace = trace_of(
        specs=FORWARD,
        calls=[
            {"process": 0, "thread": 3, "start": 5 + 10 * n, "end": 9 + 10 * n, "name": "cuLaunchKernel",
             "correlation": n} for n in range(2)
        ],
        kernels=[kernel(name, 100 + 20 * n, "jit_step(1)/dot.1", correlation=n) for n, name in enumerate("ab")],
    )  # fmt: skip
    (op,) = Profile(trace).ops().rows(named=True)
    assert (op["start"], op["end"], op["thread"]) == (5, 19, 3)
    assert (op["kernels"], op["device_time"]) == (2, 20)


def test_what_launched_it_stands_aside_unless_it_is_the_same_op(trace_of):
    call = DOT % ""
    for text, same in ((call, True), ("hlo::add(f32[2], f32[2]) -> f32[2]", False)):
        trace = trace_of(
            specs=specs(("g", "dot.1", call)),
            ranges=[{"id": 11, "process": 0, "thread": 3, "start": 0, "end": 50, "domain": "xla",
                     "text": text, "kind": "pushpop"}],
            calls=[{"process": 0, "thread": 3, "start": 5, "end": 9, "name": "cuLaunchKernel",
                    "correlation": 1}],
            kernels=[kernel("gemm", 100, "g/dot.1", correlation=1)],
        )  # fmt: skip
        profile = Profile(trace)
        row = profile.kernels().row(0, named=True)
        assert row["op"] == "hlo::dot"
        assert (row["op_id"] == 11) == same


KEY = st.sampled_from([None, "jit_step(1)/dot.1", "jit_step(1)/gone.9", "net/Mul:Mul"])


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), KEY, st.integers(0, 50), st.none() | st.integers(0, 4),
                  st.integers(0, 1)),
        max_size=12,
    ),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=5),
)  # fmt: skip
def test_attributed_and_unattributed_are_all(trace_of, kernels, calls):
    rows = [
        kernel(name, start, key, correlation=correlation, stream=stream)
        for name, key, start, correlation, stream in kernels
    ]
    launches = [
        {
            "process": 0,
            "thread": 1,
            "start": start,
            "end": start + 2,
            "name": "launch",
            "correlation": n,
        }
        for start, n in calls
    ]
    trace = trace_of(specs=FORWARD, kernels=rows, calls=launches)
    if not rows:
        return
    frame = Profile(trace).kernels()
    summary = Profile(trace).summary().row(0, named=True)
    assert summary["attributed_time"] + summary["unattributed_time"] == 10 * len(rows)
    keys: dict[str, set] = {}
    for row in rows:
        keys.setdefault(row["name"], set()).add(row["op_key"])
    alike = [row["op_key"] is None and len(keys[row["name"]] - {None}) == 1 for row in rows]
    assert frame["inferred"].to_list() == alike
    assert frame["reason"].is_null().to_list() == [
        row["op_key"] is not None or same for row, same in zip(rows, alike, strict=True)
    ]
    totals = Profile(trace).op_totals()
    assert totals["device_time"].sum() == summary["attributed_time"]
    assert totals["kernels"].sum() == frame["reason"].null_count()
    attribution = attribute(trace)
    assert len(attribution.kernels.op) == len(rows)
