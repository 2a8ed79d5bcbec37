"""What is worked out piece by piece is what it would be at once, and survives being saved."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import opscope
from opscope.core.analysis.ops import op_totals
from opscope.core.analysis.ops.op_frame import COST_COLUMNS
from opscope.core.analysis.ops.totals import SAME_OP
from opscope.core.tables import columns
from opscope.core.tables.trace import Trace, table_schema
from opscope.profile import Profile
from tests.draws import dear

FRAMES = ("kernels", "memops", "summary", "op_totals", "kernel_totals", "missing_costs")
TEXTS = (
    "aten::mm(f32[2,3], f32[3,4]) -> f32[2,4] @a.py:1",
    "aten::mm(f32[2,3], f32[3,4]) -> f32[2,4]",
    "aten::relu(f32[9])",
    "aten::mm()",
    "MmBackward0",
    "mystery::op(f32[2]) @b.py:2",
)
#: Layers, forward and backward ops that share numbers, steps.
KINDS = (
    ("layer", ("net.a", "net.b")),
    ("step", ("step 1",)),
    ("forward", TEXTS),
    ("backward", TEXTS),
)
SUMS = ("device_time", *COST_COLUMNS)
KERNELS = ("volta_fp16_s884gemm_fp16_128x128", "relu_kernel", "triton_poi_fused_add_3")


@st.composite
def traces(draw) -> Trace:
    rows: dict[str, list[dict]] = {"ranges": [], "calls": [], "kernels": []}
    small = st.integers(0, 3)
    for number in range(draw(st.integers(0, 24))):
        category, texts = draw(st.sampled_from(KINDS))
        start, end = sorted((draw(st.integers(0, 60)), draw(st.integers(0, 60))))
        rows["ranges"].append(
            {
                "id": number,
                "process": draw(st.integers(0, 1)),
                "thread": draw(st.integers(0, 1)),
                "start": start,
                "end": end,
                "domain": "opscope.torch",
                "category": category,
                "text": draw(st.sampled_from(texts)),
                "seq": draw(st.none() | small),
                "fwd_thread": draw(st.none() | st.integers(1, 2)),
                "kind": "pushpop",
            }
        )
    for number in range(draw(st.integers(0, 16))):
        process, begin = draw(st.integers(0, 1)), draw(st.integers(0, 60))
        rows["calls"].append(
            {
                "process": process,
                "thread": draw(st.integers(0, 1)),
                "start": begin,
                "end": begin + 1,
                "name": "cudaLaunchKernel",
                "correlation": number,
            }
        )
        rows["kernels"].append(
            {
                "process": process,
                "device": 0,
                "start": begin + 5,
                "end": begin + 5 + draw(small),
                "name": draw(st.sampled_from(KERNELS)),
                "correlation": number + 40 * (draw(small) == 0),
            }
        )
    tables = {}
    for name, table in rows.items():
        schema = table_schema(name)
        keep = {column: schema[column] for column in schema if table and column in table[0]}
        tables[name] = pl.DataFrame(table, schema=keep or schema)
    if draw(st.integers(0, 3)) == 0:  # without a GPU
        del tables["calls"], tables["kernels"]
    return Trace.of(tables)


def frames(profile: Profile) -> dict[str, pl.DataFrame]:
    return {name: getattr(profile, name)() for name in FRAMES}


def assert_same(one: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame]) -> None:
    for name, frame in one.items():
        order = None if name != "missing_costs" else frame.columns  # equal times are in any order
        left, right = (f if order is None else f.sort(order) for f in (frame, other[name]))
        assert_frame_equal(left, right, categorical_as_str=True)


@pytest.mark.parametrize("size", [1, 3])
def test_pieces_joined_are_the_whole_and_what_is_saved_is_what_was_there(size):
    @dear  # each example writes two profiles
    @given(traces())
    def law(trace):
        whole = frames(Profile(trace))
        with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
            patch.setattr(columns, "PIECE", size)
            assert_same(whole, frames(Profile(trace)))
            place = Path(folder) / "p.opscope"
            known = Profile(trace)
            frames(known)
            known.save(place)  # with all that was computed
            again = opscope.load(place)
            assert again._stored
            assert_same(whole, frames(again))
            asked = Profile(trace)
            asked.kernels()
            asked.save(place, force=True)  # the kernels that are there already
            assert_same(whole, frames(opscope.load(place)))

    law()


@dear
@given(traces())
def test_saving_keeps_no_sums_of_ops_that_nobody_asked_for(trace):
    with tempfile.TemporaryDirectory() as folder:
        profile = Profile(trace)
        profile.save(Path(folder) / "p.opscope")
        assert "op_sums" not in profile._frames
        assert not {"op_totals", "kernels"} & set(profile._frames)
        asked = Profile(trace)
        totals = asked.totals_by("op")  # these sums are added up again, not made again
        asked.save(Path(folder) / "q.opscope")
        assert_frame_equal(opscope.load(Path(folder) / "q.opscope").totals_by("op"), totals)


@given(traces())
def test_totals_are_those_of_the_ops_one_by_one(trace):
    profile = Profile(trace)
    ops, found = profile.ops(), profile.op_totals()
    sums = ("cpu_time", "self_time", *COST_COLUMNS)
    known = [pl.when(pl.col(n).count() > 0).then(pl.col(n).sum()).alias(n) for n in sums]
    expected = ops.group_by(SAME_OP).agg(pl.len().cast(pl.Int64).alias("calls"), *known)
    assert_frame_equal(
        found.select(*SAME_OP, "calls", *sums),
        expected,
        check_row_order=False,
        categorical_as_str=True,
    )
    # a nest's time stands once: at its outermost op in the one, at the op that counts in the other
    top = ops if profile.cpu_only else ops.filter(pl.col("parent_id").is_null())
    for name in ("kernels", "device_time"):
        assert found[name].sum() == top[name].sum()


@given(traces(), st.sampled_from(["kind", "op", "layer", "source", "dtype"]))
def test_what_adds_up_ops_is_the_same_before_they_are_in_order(trace, by):
    first, later = Profile(trace), Profile(trace)
    later.op_totals()
    assert_frame_equal(first.totals_by(by), later.totals_by(by), categorical_as_str=True)
    assert (
        first.distinct("layer") == later.op_totals()["layer"].drop_nulls().unique().sort().to_list()
    )


@pytest.mark.parametrize("widest", [1, 50, 1 << 62])
def test_equal_ops_are_one_row_and_in_order_by_time_and_then_by_their_texts(widest):
    texts = st.none() | st.sampled_from(["", "a", "b", "c é"])
    times = st.integers(0, 2)
    rows = st.fixed_dictionaries(
        {
            **dict.fromkeys(SUMS, st.none() | times),
            **dict.fromkeys(("calls", "kernels", "cpu_time", "self_time"), times),
            **dict.fromkeys(SAME_OP, texts),
            "reason": st.none() | st.sampled_from(["why", "because"]),
        }
    )
    types = dict.fromkeys(("calls", "kernels", "cpu_time", "self_time", *SUMS), pl.Int64)
    types |= dict.fromkeys(SAME_OP, pl.Categorical) | {"reason": pl.String}
    same = [pl.col(SAME_OP).cast(pl.String), "reason"]

    @given(st.lists(rows))
    def law(rows):
        frame = pl.DataFrame(rows, schema=types)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(op_totals, "_WIDEST", widest)
            patch.setattr(columns, "PIECE", 3)
            found = op_totals.op_totals(frame)
        known = [pl.when(pl.col(n).count() > 0).then(pl.col(n).sum()).alias(n) for n in SUMS]
        whole = frame["device_time"].sum()
        expected = (
            frame.with_columns(same)
            .group_by(*SAME_OP, "reason")
            .agg(pl.col("calls", "kernels", "cpu_time", "self_time").sum(), *known)
            .with_columns((pl.col("device_time") / (whole or None)).alias("share"))
            .sort(
                "device_time", "self_time", *SAME_OP, "reason",
                descending=[True, True] + [False] * (len(SAME_OP) + 1), nulls_last=True,
            )
        )  # fmt: skip
        assert_frame_equal(found.with_columns(same), expected, check_column_order=False)

    law()


@pytest.mark.parametrize(
    "name",
    ["nsys/fsdp_h100x2_2026.sqlite", "kineto/vllm_decode_cudagraph.json.gz",
     "kineto/sampled_rank0.json.gz", "nvprof/language_model.sqlite"],
)  # fmt: skip
def test_real_traces_in_pieces(shared, tmp_path, monkeypatch, name):
    trace = opscope.load(shared / name).trace
    whole = frames(Profile(trace))
    monkeypatch.setattr(columns, "PIECE", 100)
    Profile(trace).save(tmp_path / "p.opscope")
    assert_same(whole, frames(opscope.load(tmp_path / "p.opscope")))
