"""What known hardware counters count, and what is left unknown."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.roofline.counter_work import counted_work
from opscope.core.perf.counters import adds_up, known

SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
NINE = [SASS.format(p + k) for p in "dfh" for k in ("add", "mul", "fma")]
TENSOR = "sm__ops_path_tensor_src_fp16_dst_fp32"


def of(counters: dict[str, float]) -> dict:
    values = pl.DataFrame(
        {
            "execution": [0] * len(counters),
            "name": list(counters),
            "value": list(counters.values()),
        },
        schema={"execution": pl.Int64, "name": pl.String, "value": pl.Float64},
    )
    return counted_work(values, 1).row(0, named=True)


def test_the_nine_sass_counters_are_off_the_tensor_cores():
    found = of({name: 10.0**n for n, name in enumerate(NINE)})
    assert found["f64_flops"] == 1 + 10 + 2 * 100
    assert found["f32_flops"] == 1e3 + 1e4 + 2e5
    # half-precision instructions work on two values
    assert found["f16_flops"] == 2 * (1e6 + 1e7 + 2e8)
    assert found["no_vector"] is None
    assert found["tensor_flops"] is None
    assert "no counter of operations on the Tensor Cores" in found["no_tensor"]


@pytest.mark.parametrize("lacking", NINE)
def test_a_precision_without_one_of_its_counters_is_unknown(lacking):
    found = of({name: 1.0 for name in NINE if name != lacking})
    dtype = {"d": "f64", "f": "f32", "h": "f16"}[lacking.partition("_op_")[2][0]]
    assert found[f"{dtype}_flops"] is None
    assert dtype in found["no_vector"]
    assert sum(found[f"{one}_flops"] is not None for one in ("f64", "f32", "f16")) == 2


def test_one_counter_on_two_levels_counts_once():
    both = dict.fromkeys([*NINE, *(name.replace("smsp__", "sm__") for name in NINE)], 5.0)
    assert of(both)["f32_flops"] == 20


@pytest.mark.parametrize(
    ("counters", "flops", "why"),
    [
        ({f"{TENSOR}.sum": 8192.0}, 8192, None),
        ({f"{TENSOR}_sparsity_off.sum": 4096.0, f"{TENSOR}_sparsity_on.sum": 96.0}, 4192, None),
        ({f"{TENSOR}.sum": 4192.0, f"{TENSOR}_sparsity_off.sum": 4096.0}, 4192, None),
        ({f"{TENSOR}.sum": 100.0, "sm__ops_path_tensor_src_fp16.sum": 130.0}, 130, None),
        (
            {f"{TENSOR}.sum": 100.0, "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32.sum": 100.0},
            100,
            None,
        ),
        ({f"{TENSOR}.sum": 100.0, "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 7.0}, 107, None),
        ({f"{TENSOR}.sum": 0.0}, None, "other types"),
        ({f"{TENSOR}.sum": 0.0, "sm__inst_executed_pipe_tensor.sum": 0.0}, 0, None),
        ({"sm__inst_executed_pipe_tensor.sum": 0.0}, 0, None),
        ({"sm__inst_executed_pipe_tensor.sum": 64.0}, None, "not their operations"),
        ({"SQ_INSTS_VALU_MFMA_MOPS_F16": 2.0}, 1024, None),
        ({}, None, "no counter of operations"),
    ],
)
def test_operations_on_the_tensor_cores(counters, flops, why):
    found = of({"launch__grid_size": 1.0, **counters})
    assert found["tensor_flops"] == flops
    assert (found["no_tensor"] is None) == (why is None)
    assert why is None or why in found["no_tensor"]


@pytest.mark.parametrize(
    ("counters", "read", "written", "both"),
    [
        ({"dram__bytes_read.sum": 10.0, "dram__bytes_write.sum": 5.0}, 10, 5, 15),
        ({"dram__bytes_op_read.sum": 10.0, "dram__bytes_op_write.sum": 5.0}, 10, 5, 15),
        ({"dram__sectors_read.sum": 2.0, "dram__sectors_write.sum": 1.0}, 64, 32, 96),
        ({"dram__sectors_read.sum": 2.0, "dram__bytes_read.sum": 60.0}, 60, None, None),
        ({"dram__bytes.sum": 33.0}, None, None, 33),
        ({"FETCH_SIZE": 2.0, "WRITE_SIZE": 1.0}, 2048, 1024, 3072),
        ({"lts__t_bytes.sum": 33.0}, None, None, None),
    ],
)
def test_bytes_of_the_devices_memory(counters, read, written, both):
    found = of(counters)
    assert (found["dram_read"], found["dram_written"], found["dram_bytes"]) == (read, written, both)
    assert (found["no_dram"] is None) == (both is not None)


@given(st.dictionaries(st.sampled_from([*NINE, f"{TENSOR}.sum", "dram__bytes_read.sum", "nonsense.avg"]),
                       st.floats(0, 1e15), max_size=9))  # fmt: skip
def test_what_is_known_has_no_reason_and_the_unknown_has_one(counters):
    found = of(counters)
    vector = [found[f"{one}_flops"] for one in ("f64", "f32", "f16")]
    assert (None in vector) == (found["no_vector"] is not None)
    assert (found["tensor_flops"] is None) == (found["no_tensor"] is not None)
    assert (found["dram_bytes"] is None) == (found["no_dram"] is not None)


@pytest.mark.parametrize(
    ("name", "sums"),
    [("dram__bytes_read.sum", True), ("sm__throughput.avg.pct_of_peak_sustained_elapsed", False),
     ("dram__bytes.sum.per_second", False), ("lts__t_sector_hit_rate.pct", False), ("flop_count_sp", True),
     ("derived__memory_l1_wavefronts", False), ("launch__grid_size", False), ("SQ_WAVES", True),
     ("smsp__thread_inst_executed_per_inst_executed.ratio", False), ("VALUUtilization", False),
     ("MemUnitBusy", False), ("L2CacheHit", False), ("TCC_HIT_sum", True), ("gld_efficiency", False),
     ("OccupancyPercent", False), ("TCP_PENDING_STALL_CYCLES_sum", True), ("achieved_occupancy", False),
     ("sass__inst_executed_per_opcode_with_modifier_all:HMMA.16816.F32", True)],
)  # fmt: skip
def test_only_sums_add_up(name, sums):
    assert adds_up(name) is sums


def test_a_counter_that_is_not_listed_counts_nothing():
    assert known("sm__throughput.avg.pct_of_peak_sustained_elapsed") is None
    assert known("dram__bytes_read.sum.per_second") is None
    assert known("derived__smsp__sass_thread_inst_executed_op_ffma_pred_on_x2") is None
