"""Chains of kernels that a fusion would join: what is in one, what ends it, what it would save at most."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.device.fusable import POINTWISE, SHORT_ONES, fusable_kernels

POINT = "void at::native::vectorized_elementwise_kernel<4, AddFunctor<float>>(int)"
TYPES = {
    "process": pl.Int32, "device": pl.Int32, "stream": pl.Int64, "start": pl.Int64, "end": pl.Int64,
    "duration": pl.Int64, "name": pl.Categorical, "op": pl.Categorical, "op_type": pl.Categorical,
    "direction": pl.Categorical, "layer": pl.Categorical, "step": pl.Int64, "bytes": pl.Int64,
}  # fmt: skip
NO_COPIES = pl.DataFrame(schema={name: TYPES[name] for name in list(TYPES)[:5]})


def kernel(start: int, end: int, op: str | None = "add", name: str = POINT, **more) -> dict:
    return {"process": 0, "device": 0, "stream": 7, "start": start, "end": end,
            "duration": end - start, "name": name, "op": op, "op_type": "elementwise",
            "direction": "forward", "layer": "block.0", "step": 1, "bytes": 1000, **more}  # fmt: skip


def frame(rows: list[dict]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=TYPES)


def chains(rows, chain=POINTWISE, copies=NO_COPIES, bandwidth=None, **more) -> pl.DataFrame:
    found = fusable_kernels(frame(rows), copies, bandwidth, **more)
    return found.filter(pl.col("chain") == chain)


def test_a_chain_is_what_runs_directly_after_each_other():
    row = chains(
        [kernel(0, 20_000), kernel(20_500, 50_500, "mul"), kernel(51_000, 61_000, "mul")]
    ).row(0, named=True)
    assert (row["sequence"], row["length"], row["calls"], row["kernels"]) == (
        "add, mul ×2",
        3,
        1,
        3,
    )
    assert (row["duration"], row["gap_time"], row["share"]) == (60_000, 1_000, 1.0)
    assert (row["direction"], row["layer"], row["layers"]) == ("forward", "block.0", 1)
    # the device's bandwidth is not known: the gaps, and all but the longest kernel
    assert (row["intermediate_bytes"], row["saving_most"]) == (2_000, 1_000 + 30_000)


def test_what_lies_between_two_kernels_bounds_what_fusing_them_saves():
    rows = [kernel(0, 20_000, bytes=900), kernel(20_500, 50_500, bytes=400)]
    # 400 bytes at 10^8 bytes a second are 4,000 ns; at 10^6 they are more than the kernels took
    assert chains(rows, bandwidth=1e8)["saving_most"].to_list() == [500 + 4_000]
    assert chains(rows, bandwidth=1e6)["saving_most"].to_list() == [500 + 20_000]
    rows[0]["bytes"] = None
    unknown = chains(rows, bandwidth=1e8).row(0, named=True)
    assert (unknown["intermediate_bytes"], unknown["saving_most"]) == (None, 500 + 20_000)


@pytest.mark.parametrize(
    "other",
    [
        {"stream": 8},
        {"device": 1},
        {"process": 1},
        {"direction": "backward"},
        {"step": 2},
        {"start": 200_000, "end": 210_000},
        {"name": "ampere_sgemm_128x64_tn", "op_type": "gemm", "op": "mm"},
        {"name": "void reduce_kernel<512>", "op_type": "reduction"},
        {"name": "ncclDevKernel_AllReduce", "op_type": "communication"},
        {"name": "triton_poi_fused_add_0"},
    ],
)
def test_a_chain_ends_where_something_else_begins(other):
    rows = [kernel(0, 20_000), kernel(20_500, 50_500, **other) if "start" not in other else
            {**kernel(0, 1), **other, "duration": 10_000}]  # fmt: skip
    assert chains(rows).is_empty()


def test_a_copy_on_the_stream_ends_a_chain_and_one_elsewhere_does_not():
    rows = [kernel(0, 20_000), kernel(30_000, 50_000)]

    def copies(stream: int) -> pl.DataFrame:
        copy = {"process": 0, "device": 0, "stream": stream, "start": 21_000, "end": 22_000}
        return pl.DataFrame([copy], schema=NO_COPIES.schema)

    assert chains(rows, copies=copies(7)).is_empty()
    assert len(chains(rows, copies=copies(8))) == 1


def test_short_kernels_of_any_kind_but_communication_make_a_chain():
    gemm = {"name": "ampere_sgemm_128x64_tn", "op_type": "gemm", "op": "mm"}
    rows = [kernel(0, 5_000), kernel(6_000, 9_000, **gemm)]
    assert chains(rows, SHORT_ONES)["sequence"].to_list() == ["add, mm"]
    assert chains(rows, SHORT_ONES, below=4_000).is_empty()
    rows[1] = kernel(6_000, 9_000, "send", "ncclDevKernel_SendRecv", op_type="communication")
    assert chains(rows, SHORT_ONES).is_empty()


def test_equal_chains_are_one_row_and_long_ones_are_named_by_their_beginning():
    rows = []
    for repeat in range(3):
        base = repeat * 1_000_000
        rows += [kernel(base, base + 20_000, layer=f"block.{repeat}"), kernel(base + 20_000, base + 30_000, "mul")]  # fmt: skip
    found = chains(rows).row(0, named=True)
    assert (found["calls"], found["kernels"], found["layers"]) == (3, 6, 3)
    long = [kernel(at * 100, at * 100 + 100, f"op{at}") for at in range(40)]
    text = chains(long).row(0, named=True)["sequence"]
    assert text.startswith("op0, op1, ")
    assert text.endswith(", … (28 more)")


def test_a_kernel_without_a_stream_is_in_no_chain():
    rows = [kernel(0, 5_000, stream=None), kernel(5_000, 9_000, stream=None)]
    assert fusable_kernels(frame(rows), NO_COPIES, None).is_empty()
    assert fusable_kernels(frame([]), NO_COPIES, None).is_empty()


@given(
    st.lists(
        st.tuples(
            st.integers(0, 50_000),
            st.integers(1, 30_000),
            st.sampled_from(["add", "mul", "mm", None]),
            st.sampled_from([7, 8]),
        ),
        max_size=25,
    )
)
def test_chains_are_those_that_a_walk_along_each_stream_finds(rows):
    made, time = [], 0
    for gap, length, op, stream in rows:
        time += gap
        gemm = {"name": "ampere_sgemm_128x64_tn", "op_type": "gemm"} if op == "mm" else {}
        made.append(kernel(time, time + length, op, stream=stream, **gemm))
        time += length
    expected: list[list[dict]] = []
    for stream in (7, 8):
        chain: list[dict] = []
        last = None
        for each in [one for one in made if one["stream"] == stream]:
            near = last is not None and each["start"] - last["end"] < 100_000
            if each["op"] == "mm" or not near:
                expected.append(chain)
                chain = []
            if each["op"] != "mm":
                chain.append(each)
            last = each
        expected.append(chain)
    expected = [each for each in expected if len(each) > 1]
    found = chains(made)
    assert found["calls"].sum() == len(expected)
    assert found["kernels"].sum() == sum(map(len, expected))
    assert found["duration"].sum() == sum(one["duration"] for each in expected for one in each)
    assert found["gap_time"].sum() == sum(
        max(b["start"] - a["end"], 0) for each in expected for a, b in pairwise(each)
    )
    assert (found["saving_most"] <= found["duration"] + found["gap_time"]).all()
    assert (found["saving_most"] >= found["gap_time"]).all()
    texts = {tuple(one["op"] or one["name"] for one in each) for each in expected}
    assert len(found) == len(texts)
