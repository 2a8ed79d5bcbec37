"""Totals of ops are those that adding up row by row gives, in the order of their times and texts."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from opscope.core.analysis.ops import op_totals, totals
from opscope.core.analysis.ops.ops import op_index
from opscope.profile import Profile
from tests import traces

TEXTS = (*totals.SAME_OP, "reason")
SUMS = ("calls", "kernels", "cpu_time", "self_time")
PARTIAL = ("device_time", "matrix_flops", "vector_flops", "flops", "bytes")
NUMBERS = st.integers(0, 3) | st.integers(0, 1 << 60)
ROWS = st.lists(
    st.tuples(
        *[st.sampled_from([None, "a", "b"])] * 2,
        *[NUMBERS] * len(SUMS),
        *[st.none() | NUMBERS] * len(PARTIAL),
    ),
    max_size=30,
)


@given(ROWS)
def test_equal_ops_are_one_row_with_the_sum_of_what_is_known(rows):
    schema = {"op": pl.Categorical, "layer": pl.Categorical}
    schema |= dict.fromkeys((*SUMS, *PARTIAL), pl.Int64)
    sums = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        pl.lit("x", pl.Categorical).alias(name) for name in TEXTS if name not in schema
    )
    # small enough that no sum exceeds 64 bits
    sums = sums.with_columns(pl.col((*SUMS, *PARTIAL)) % (1 << 57))
    found = op_totals.op_totals(sums)
    expected: dict[tuple, list] = {}
    names = [*TEXTS, *SUMS, *PARTIAL]
    for row in sums.select(names).rows():
        key, values = row[: len(TEXTS)], row[len(TEXTS) :]
        held = expected.setdefault(key, [None] * len(values))
        for place, value in enumerate(values):
            if value is not None:
                held[place] = (held[place] or 0) + value
    by = ["device_time", "self_time", *TEXTS]
    plain = pl.DataFrame(
        [(*key, *held) for key, held in expected.items()],
        schema={n: (pl.String if n in TEXTS else pl.Int64) for n in names},
        orient="row",
    ).sort(by, descending=[True, True, *[False] * len(TEXTS)], nulls_last=True)
    assert_frame_equal(found.select(names).cast(dict.fromkeys(TEXTS, pl.String)), plain)


@pytest.mark.parametrize(
    "file",
    [
        "kineto/ddp_rank3of8_a100_stacks.json.gz",
        "kineto/triton_example.json.gz",
        "kineto/vllm_decode_cudagraph.json.gz",
        "nsys/fsdp_h100x2_2026.sqlite",
        "nvprof/language_model.sqlite",
        "xplane/jax_conv_mi300.xplane.pb",
    ],
)
def test_totals_by_numbers_are_those_by_texts(file, shared):
    """Totals that are asked for first describe one op of each number; those of sums describe one of each kind."""
    profile = traces.load(shared / file)
    found = pl.concat(op_totals.pieces_of_ops(profile.of(op_index)))
    assert_frame_equal(found, op_totals.op_totals(totals.op_sums(profile.of(op_index))))


def test_nothing_computes_0_flop_where_the_cost_of_a_kernel_is_unknown(trace_of):
    """A kernel of a view is known to cost nothing; one of an op that nobody knows costs nobody knows what."""
    place = {
        "process": 0,
        "thread": 1,
        "kind": "pushpop",
        "domain": "opscope.torch",
        "category": "forward",
    }
    ops = [
        ("aten::view(f32[4])", "a"),
        ("mine::attention(f32[4])", "b"),
        ("aten::view(f32[4])", "c"),
    ]
    user = {**place, "domain": "opscope.user", "category": None}
    profile = Profile(
        trace_of(
            ranges=[
                {**user, "text": "mixed", "start": 0, "end": 190},
                {**user, "text": "free", "start": 200, "end": 290},
                *({**place, "text": text, "start": 100 * n, "end": 100 * n + 50} for n, (text, _) in enumerate(ops)),
            ],
            calls=[
                {"process": 0, "thread": 1, "start": 100 * n + 10, "end": 100 * n + 20,
                 "name": "cudaLaunchKernel", "correlation": n} for n in range(3)
            ],
            kernels=[
                {"process": 0, "device": 0, "stream": 7, "start": 100 * n + 30, "end": 100 * n + 40,
                 "name": "k" if n < 2 else "view", "correlation": n} for n in range(3)
            ],
        )
    )  # fmt: skip
    ranges = {row["range"]: row["flops"] for row in profile.range_totals().to_dicts()}
    assert ranges == {"mixed": None, "free": 0}
    assert dict(profile.kernel_totals().select("name", "flops").rows()) == {"k": None, "view": 0}
