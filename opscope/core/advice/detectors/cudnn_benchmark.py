"""Convolutions of fixed sizes with cuDNN's benchmark mode off: its choice of algorithms is not measured."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.products import (
    LEAST_SHARE,
    Products,
    ideal_time,
    products,
    rows,
    waiting,
)
from opscope.core.advice.saying import framework, ms, places, share

#: F(4×4, 3×3) convolves with a quarter of the multiplications (Lavin and Gray, "Fast algorithms for
#: convolutional neural networks", CVPR 2016).
_FEWEST: Final = 0.25
#: Benchmarking runs every algorithm once per size: worth it where a size occurs this often on average.
_COMES_BACK: Final = 2
_UNRECORDED: Final = (
    "the profile does not tell whether torch.backends.cudnn.benchmark is on; PyTorch's profiler"
    " records it from"
    " 2.1 on with record_shapes=True"
)


def find(answers: Answers) -> Answer:
    """Return one finding where convolutions ran with ``benchmark=false`` and their sizes occur again."""
    convolutions = products(answers)
    if isinstance(convolutions, CannotTell):
        return convolutions
    convs = convolutions.works.filter(pl.col("op_type") == "conv")
    time = waiting(convs)
    if not len(convs) or time < LEAST_SHARE * convolutions.whole:
        return []
    used = framework(answers)
    if convs["op"].str.starts_with("hlo::").fill_null(False).all():
        used = "XLA"
    if used not in (None, "torch"):
        return CannotTell(
            f"benchmark mode is a switch of PyTorch; how {used} chose its algorithms is not recorded"
        )
    stated = convs["params"].str.extract(r"\bbenchmark=(true|false)\b")
    off = convs.filter((stated == "false").fill_null(False))
    unknown = waiting(convs.filter(stated.is_null()))
    if waiting(off) < LEAST_SHARE * convolutions.whole or not len(off):
        return CannotTell(_UNRECORDED) if unknown else []
    sizes = off.select("op", "inputs", "params").n_unique()
    if int(off["calls"].sum()) < _COMES_BACK * sizes:
        return []  # sizes that occur once would be measured for nothing
    return [_finding(answers, convolutions, off, sizes, unknown)]


def _finding(
    answers: Answers, products: Products, off: pl.DataFrame, sizes: int, unknown: int
) -> Finding:
    time, device = waiting(off), answers.device[0]
    most = time
    if device is not None:
        rate = pl.lit(None, pl.Float64)
        for dtype in off["dtype"].drop_nulls().unique():
            both = (device.peak(dtype, True), device.peak(dtype, False))
            best = pl.lit(max(filter(None, both), default=None), pl.Float64)
            rate = pl.when(pl.col("dtype") == dtype).then(best).otherwise(rate)
        fewest = off.with_columns((pl.col("matrix_flops") * _FEWEST).alias("fewest"))
        roof = ideal_time(device, rate, pl.col("bytes"), "fewest").fill_null(0.0)
        above = fewest.select((pl.col("duration") - roof).clip(lower_bound=0).floor().sum())
        most = int(above.item())
    return Finding(
        what=f"{off['calls'].sum():,} convolutions of {sizes:,} sizes ran with cuDNN's benchmark mode off,"
        f" {ms(time)} ({share(time, products.whole)} of the kernels' time)",
        evidence=places(off, "different calls")
        + (f"; not recorded for {ms(unknown)} of convolutions" if unknown else ""),
        recommendation="Try torch.backends.cudnn.benchmark = True: cuDNN then measures its"
        " algorithms once for each"
        " size. Not where sizes change from step to step, or where results must repeat bit for bit.",
        time=time,
        saving_least=0,
        saving_most=most,
        reasoning="At least nothing: the algorithms chosen may be the fastest. At most what lies"
        " above the roof of an"
        " algorithm with a quarter of the multiplications: the longer of matrix_flops / 4 at the"
        " highest peak for"
        " the dtype and the bytes at the memory bandwidth (kernels(): params, inputs, duration, matrix_flops,"
        " bytes); all of the time where the device's peaks are not known. What other algorithms"
        " would take, no"
        " profile tells, so there is no estimate.",
        confidence="low",
        rows=rows(off),
    )


DETECTOR = Detector(
    name="cudnn_benchmark",
    question="Do convolutions whose sizes come back run with cuDNN's benchmark mode off?",
    find=find,
    fires="1 % of the kernels' time, and sizes that come twice on average",
    looks_at="It looks at kernels(): the convolutions' recorded parameter benchmark, and how often"
    " their sizes come"
    " back (inputs). Which kernels ran proves neither mode, because cuDNN's heuristics choose the same ones.",
    abstains="It cannot tell without kernels with ops, where the parameter was not recorded"
    " (PyTorch's profiler records"
    " it with record_shapes=True), and for other frameworks, which have no such mode. There is no estimate,"
    " only bounds.",
    known_as=("DLProf: cuDNN Benchmark",),
)
