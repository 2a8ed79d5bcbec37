"""A kernel's work from its counters: FLOPs off and on the Tensor Cores, bytes of device memory, time.

``core/perf/counters.py`` knows the counters. A number is null, with the reason, if the measured counters do
not give it; similar counters are not used in place of it.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.roofline.counter_table import EMPTY, FORMS
from opscope.core.analysis.roofline.counters import counter_executions
from opscope.core.perf.counters import known
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns

#: Columns of ``counted_work`` besides ``execution``: FLOP, bytes, ns; then the reason why each group is null.
WORK: Final = (
    *("f64_flops", "f32_flops", "f16_flops", "tensor_flops"),
    *("dram_read", "dram_written", "dram_bytes", "counted_time"),
)
WHY: Final = ("no_vector", "no_tensor", "no_dram")
_PRECISIONS: Final = ("f64", "f32", "f16")
_LARGEST: Final = float(1 << 62)
_NO_TENSOR: Final = "no counter of operations on the Tensor Cores was measured"
_UNSIZED: Final = "instructions on the Tensor Cores were counted, not their operations"
_OTHER_TYPES: Final = (
    "0 operations on the Tensor Cores were counted, and those of other types not at all"
)
_UNKNOWN_SIZE: Final = "an instruction on the Tensor Cores has a size that its name does not tell"


def counted_work(values: pl.DataFrame, count: int) -> pl.DataFrame:
    """Return a row for each of ``count`` executions: ``execution``, the columns WORK and the reasons WHY.

    ``values``: execution, name and value of each counter. FLOPs off the Tensor Cores (``f64_flops`` …) are
    those of add, multiply and multiply-add instructions; a precision is known if all its counters were
    measured. ``tensor_flops`` are known if a counter of operations counted some, if the instructions were
    counted by opcode and all have a known size, or if no instruction ran. DRAM bytes are those of the
    device's memory: reads, writes, and both.
    """
    names = values["name"].cast(pl.String).unique().drop_nulls().to_list()
    facts = {name: fact for name in names if (fact := known(name)) is not None}
    table = pl.DataFrame(
        [
            (name, fact.what, float(fact.factor), fact.dtype, fact.part, "|".join(fact.parts),
             len(fact.parts), int(fact.rank))
            for name, fact in facts.items()
        ],
        schema={"name": pl.String, "what": pl.String, "factor": pl.Float64, "dtype": pl.String,
                "part": pl.String, "parts": pl.String, "needed": pl.Int64, "rank": pl.Int64},
        orient="row",
    )  # fmt: skip
    rows = values.with_columns(pl.col("name").cast(pl.String)).join(table, on="name", how="inner")
    rows = rows.filter(pl.col("value").is_finite())
    rows = rows.with_columns((pl.col("value") * pl.col("factor")).alias("amount"))
    work_of_executions = pl.DataFrame(
        {"execution": pl.int_range(count, dtype=pl.Int64, eager=True)}
    )
    for part in (_vector(rows), _tensor(rows), _dram(rows), _time(rows)):
        work_of_executions = work_of_executions.join(
            part, on="execution", how="left", maintain_order="left"
        )
    return work_of_executions.select("execution", *map(_whole, WORK), *_reasons())


def _whole(name: str) -> pl.Expr:
    fits = pl.col(name).is_between(0, _LARGEST)
    return pl.when(fits).then(pl.col(name).round()).cast(pl.Int64).alias(name)


def _prefer(rows: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Return the rows of the counters of the lowest rank of each group."""
    return rows.filter(pl.col("rank") == pl.col("rank").min().over("execution", *by))


def _vector(rows: pl.DataFrame) -> pl.DataFrame:
    mine = _prefer(rows.filter(pl.col("what") == "vector"), "dtype", "parts", "part")
    # a counter may occur in the file under several sections' names
    mine = mine.unique(["execution", "name"], keep="first")
    sums = mine.group_by("execution", "dtype", "parts").agg(
        pl.col("amount").sum(),
        pl.col("part").n_unique().alias("measured"),
        pl.col("needed").first(),
    )
    complete = sums.filter(pl.col("measured") >= pl.col("needed"))
    each = complete.group_by("execution", "dtype").agg(pl.col("amount").max())
    flops = each.select("execution").unique()
    for dtype in _PRECISIONS:
        column = each.filter(pl.col("dtype") == dtype).select(
            "execution", pl.col("amount").alias(f"{dtype}_flops")
        )
        flops = flops.join(column, on="execution", how="left")
    return flops


def _tensor(rows: pl.DataFrame) -> pl.DataFrame:
    """``tensor_flops``, and what it is computed from: ``counted`` (the sum of the counters of operations),
    ``instructions`` and ``unsized``."""
    mine = rows.filter(pl.col("what") == "tensor")
    opcodes = mine.filter(pl.col("part") == "opcode")
    ops = mine.filter(pl.col("part") != "opcode")
    plain = ops.with_columns(pl.col("part").str.replace(r"_dst_\w+$", "").alias("source"))
    # src_fp16 includes src_fp16_dst_fp32, and that includes its shares by sparsity and by instruction
    has_own_part = (pl.col("source") == pl.col("part")).any().over("execution", "source")
    plain = plain.filter(~has_own_part | (pl.col("source") == pl.col("part")))
    plain = _prefer(plain, "part").unique(["execution", "name"], keep="first")
    by_type = plain.group_by("execution").agg(pl.col("amount").sum().alias("counted"))
    by_name = opcodes.group_by("execution").agg(
        pl.col("amount").fill_nan(None).sum().alias("by_opcode"),
        (pl.col("factor").is_nan() & (pl.col("value") > 0)).any().alias("unsized"),
    )
    ran = rows.filter(pl.col("what") == "tensor instructions")
    ran = ran.group_by("execution").agg(pl.col("value").first().alias("instructions"))
    flops = by_type.join(by_name, on="execution", how="full", coalesce=True)
    flops = flops.join(ran, on="execution", how="full", coalesce=True)
    sized = pl.when(~pl.col("unsized")).then("by_opcode")
    return flops.with_columns(
        pl.when(pl.col("counted") > 0)
        .then("counted")
        .when(pl.col("instructions") == 0)
        .then(0.0)
        .otherwise(sized)
        .alias("tensor_flops")
    )


def _dram(rows: pl.DataFrame) -> pl.DataFrame:
    mine = rows.filter(pl.col("what").str.starts_with("dram"))
    mine = _prefer(mine, "what").unique(["execution", "what"], keep="first")
    traffic = mine.select("execution").unique()
    for direction, name in (
        ("dram read", "dram_read"),
        ("dram written", "dram_written"),
        ("dram", "both"),
    ):
        column = mine.filter(pl.col("what") == direction).select(
            "execution", pl.col("amount").alias(name)
        )
        traffic = traffic.join(column, on="execution", how="left")
    traffic_of_both = pl.coalesce("both", pl.col("dram_read") + pl.col("dram_written"))
    return traffic.with_columns(traffic_of_both.alias("dram_bytes"))


def _time(rows: pl.DataFrame) -> pl.DataFrame:
    mine = rows.filter(pl.col("what") == "time").unique("execution", keep="first")
    return mine.select("execution", pl.col("amount").alias("counted_time"))


def _reasons() -> list[pl.Expr]:
    """Why the FLOPs off the Tensor Cores, the FLOPs on them, and the bytes are null; null where they are
    known."""
    lacking = pl.concat_str(
        [
            pl.when(pl.col(f"{dtype}_flops").is_null()).then(pl.lit(dtype)).otherwise(pl.lit(""))
            for dtype in _PRECISIONS
        ],
        separator=" ",
    )
    lacking = lacking.str.strip_chars().str.replace_all(" +", ", ")
    vector = pl.format("not all counters of {} instructions were measured", lacking)
    tensor = (
        pl.when(pl.col("unsized"))
        .then(pl.lit(_UNKNOWN_SIZE))
        .when(pl.col("instructions") > 0)
        .then(pl.lit(_UNSIZED))
        .when(pl.col("counted") == 0)
        .then(pl.lit(_OTHER_TYPES))
        .otherwise(pl.lit(_NO_TENSOR))
    )
    part = pl.col("dram_read").is_not_null() | pl.col("dram_written").is_not_null()
    dram = (
        pl.when(part)
        .then(pl.lit("only reads or only writes of the device's memory were measured"))
        .otherwise(pl.lit("no counter of the device's memory was measured"))
    )
    known_vector = pl.all_horizontal(
        pl.col(f"{prefix}_flops").is_not_null() for prefix in _PRECISIONS
    )
    return [
        pl.when(~known_vector).then(vector).alias("no_vector"),
        pl.when(pl.col("tensor_flops").is_null()).then(tensor).alias("no_tensor"),
        pl.when(pl.col("dram_bytes").is_null()).then(dram).alias("no_dram"),
    ]


def answer(profile: Answers) -> pl.DataFrame:
    """A kernel's work from its counters: FLOPs by precision, Tensor Cores, bytes of memory.

    Only counters with a known meaning are used. A number that they do not give is null, with a reason.
    """
    about = profile.counters().select(
        "process", "device", "stream", "start", "duration", "name", "op_id",
        pl.col("bottom_op").alias("op"),
    )  # fmt: skip
    executions = profile.of(counter_executions)
    work = counted_work(executions.values, len(executions))
    return about.with_columns(work.select(*WORK, *WHY).get_columns())


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "counter_work()",
            "one row per kernel execution whose counters were measured",
            columns(
                "process device stream start duration name op_id op f64_flops f32_flops "
                "f16_flops tensor_flops dram_read dram_written dram_bytes counted_time "
                "no_vector no_tensor no_dram",
                """
                start: ns: start of the kernel; of its launch, if the trace has no kernels
                duration: ns: duration of the kernel; null if the trace has no kernels
                op: text: the innermost op around the launch
                f64_flops: FLOP: f64 add, multiply and multiply-add instructions off the Tensor Cores, 2
                    for the last
                f32_flops: FLOP: the same of f32
                f16_flops: FLOP: the same of half precision, times 2 as each works on two values;
                    compilers also move constants by such instructions, so that f32 kernels have some
                tensor_flops: FLOP: operations on the Tensor Cores, where a counter counts operations or
                    all matrix instructions have a known size; 0 if none ran; else null
                dram_read: bytes: bytes read from the device's memory (DRAM), as measured
                dram_written: bytes: bytes written to the device's memory (DRAM), as measured
                dram_bytes: bytes: dram_read + dram_written
                counted_time: ns: duration that the tool measured with the counters
                no_vector: text: why FLOPs off the Tensor Cores are null; null if they are known
                no_tensor: text: why tensor_flops is null; null if it is known
                no_dram: text: why dram_bytes is null; null if it is known
                """,
            ),
        ),
    ),
    merged=lacking.RUNS,
    reports=(
        Report(
            name="counter_work",
            title="Measured work of kernels",
            empty=EMPTY,
            shown=(
                "name op f64_flops f32_flops f16_flops tensor_flops dram_bytes counted_time "
                "no_tensor no_dram"
            ),
            forms=FORMS,
            gpu_only=True,
        ),
    ),
)
