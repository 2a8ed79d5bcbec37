"""Kernels without any op range: it is not known which op launched them, so most detectors cannot judge."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import framework, ms
from opscope.core.analysis.ops.totals import summed_columns
from opscope.core.tables.columns import distinct_values

#: Families of ranges that are not ops of a framework.
_NO_OPS: Final = ("user", "layer", "step", "phase", "graph")
#: The most characters of a kernel's name in the text.
_LONG: Final = 60
_RECOMMENDED: Final = (
    "Record it again with opscope, which names each op, layer and step: `opscope run -- python train.py`, or"
    " `import opscope; opscope.init()` as the program's first lines, under Nsight Systems as well."
)
_OTHERS: Final = (
    " A program without such a framework marks its own parts: opscope.annotate(…), nvtx.annotate(…), or in"
    " C++ nvtxRangePush and roctxRangePush."
)


def find(answers: Answers) -> Answer:
    """Return a finding where kernels ran and no op range was recorded."""
    kernels = answers.trace["kernels"]
    if kernels.is_empty():
        return CannotTell(
            "it is about kernels, and this profile has none: nothing ran on a GPU"
            if answers.cpu_only
            else "no kernels were recorded"
        )
    summary = answers.summary()
    families = distinct_values(summed_columns(answers, ("op_type",)).select("op_type")["op_type"])
    families = families.cast(pl.String).drop_nulls()
    if summary["attributed_time"].item() or not families.is_in(_NO_OPS).all():
        return []
    time = int(summary["kernel_time"].item() or 0)
    names = answers.kernel_totals()
    shown = [str(name)[:_LONG] for name in names["name"].head(3)]
    ranges = len(answers.trace["ranges"])
    beside = f"; {ranges:,} ranges were recorded, none of which is an op" if ranges else ""
    return [
        Finding(
            what=f"{len(kernels):,} kernels ({ms(time)}) were recorded, and no op that could have"
            " launched one",
            evidence="kernels with most time: " + "; ".join(shown) + beside,
            recommendation=_RECOMMENDED + ("" if framework(answers) else _OTHERS),
            time=time,
            saving_least=0,
            saving_most=0,
            saving=0,
            reasoning="Recording ranges saves no time by itself: it lets the other detectors look."
            " Columns: op of kernels(), attributed_time of summary().",
            confidence="high",
            rows=with_rest(
                names.select(
                    pl.col("name").alias("kernel"),
                    pl.col("calls").alias("count"),
                    pl.col("total").alias("time"),
                )
            ),
        )
    ]


DETECTOR = Detector(
    name="no_ranges",
    question="Were kernels recorded without any range of an op?",
    find=find,
    fires="one kernel, and no op",
    looks_at="op of kernels(), op_type of op_totals() and attributed_time of summary().",
    abstains="Where no kernels were recorded, as on the CPU.",
    known_as=("DLProf: emit_nvtx missing",),
)
