"""The matrix products of a profile, for detectors: the sizes, time and units of each. A product is the device
time of a GEMM, convolution, attention or recurrent layer, including kernels that only help it (layouts, sums
of parts). A kernel's FLOPs and bytes are its op's, divided by time, as everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from opscope.core.advice.finding import Answers, CannotTell, Edit
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import ms
from opscope.core.analysis.roofline.roofline import LATENCY_EFFICIENCY, LATENCY_NS
from opscope.core.once import lock_of
from opscope.core.perf import tensorcore
from opscope.core.perf.devices import kernel_names
from opscope.core.perf.devices.peaks import Device, parse_cc
from opscope.core.tables.columns import compact, gather

#: Products that agree in these columns are the same work at the same place.
PLACE: Final = ("op", "direction", "layer", "source", "inputs", "dtypes", "params")
HALF: Final = ("f16", "bf16")
#: Work below this share of the kernels' time is not worth a finding.
LEAST_SHARE: Final = 0.01
#: Names of kernels that prove f32 where the op's dtypes are not recorded: cuBLAS's and cuDNN's single
#: precision, and TF32, whose instruction is m16n8k8 with no other dtype in the name.
_SINGLE: Final = (
    r"(?:^|[ _])s(?:gemm|cudnn)_|^[^f]*_s1688(?:gemm|fprop|dgrad|wgrad)_(?:optimized_|analytic_)?\d"
)
_NARROW: Final = r"fp?16|half|fp8|e4m3|e5m2|h(?:884|1688|16816)gemm|_hgemm_|i8816|i16832"
_FLOATS: Final = ("f64", "c64", "c128", "f32", "tf32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class Products:
    """``kernels``: a row for each kernel of a product (row, in the trace's table; op_id; duration, ns).

    ``works``: a row for each place and shape: PLACE, op_type, ``ids`` (the op ids), calls, kernels, duration
    (ns), matrix_flops, bytes, ``dtype`` (the widest of the operands, null if not recorded), ``on_tensor``
    (whether a kernel of the op is proven to use Tensor Cores; false: none does; null: the names do not tell),
    ``plain`` (whether a kernel's name proves a product on the vector units), tc_reason, ``name`` and ``grid``
    of the longest kernel. ``whole``: the time of all kernels (ns). ``hidden``, ``hidden_plain``: the time
    (ns) of kernels outside these whose names prove a product, and of those on vector units;
    ``hidden_narrow``: whether such a name shows f16, bf16, fp8 or int8. ``placed``: whether ``row`` counts
    the trace's kernels.
    """

    kernels: pl.DataFrame
    works: pl.DataFrame
    whole: int
    hidden: int
    hidden_plain: int
    hidden_narrow: bool
    placed: bool

    def edit(self, changed: pl.DataFrame) -> Edit | None:
        """Return the edit of the works ``changed`` (``ids``, ``factor``); None if no row is known."""
        if not self.placed or not len(changed):
            return None
        factors = changed.select(pl.col("ids").alias("op_id"), "factor").explode("op_id")
        kernels = self.kernels.join(factors, on="op_id", maintain_order="left")
        return Edit(
            kernels=(
                kernels["row"].to_numpy().astype(np.int64),
                kernels["factor"].to_numpy().astype(np.float64),
            )
        )


_known: WeakKeyDictionary[Any, Products | CannotTell] = WeakKeyDictionary()


def products(answers: Answers) -> Products | CannotTell:
    """Return the profile's products, or why they are not known. Computed once a profile."""
    with lock_of(answers, "products"):  # several detectors ask at once
        if answers not in _known:
            _known[answers] = _products(answers)
        return _known[answers]


def _products(answers: Answers) -> Products | CannotTell:
    if answers.cpu_only:
        return CannotTell("nothing in the profile ran on a GPU")
    kernels = answers.kernels(categories=True)
    if kernels.is_empty():
        return CannotTell("no kernels were recorded; capture with a source of GPU activity")
    if not kernels["op_id"].is_not_null().any():
        return CannotTell("no kernel has an op: the profile holds no operators, or no launches")
    codes, families = compact(kernels["op_type"])
    is_product = gather(
        pl.Series([name in tensorcore.MATRIX_FAMILIES for name in families], dtype=pl.Boolean),
        codes,
    )
    mine = kernels.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        *("op_id", "op_type", *PLACE, "duration", "matrix_flops", "bytes"),
        *("tensor_core", "tc_reason", "name", "grid"),
    ).filter(is_product, pl.col("op_id").is_not_null())
    total = int(kernels["duration"].sum())
    without = int(kernels.filter(pl.col("op_id").is_null())["duration"].sum())
    if mine.is_empty() and without * 2 > total:
        return CannotTell("no kernel is known to be a product's, and most of their time has no op")
    rest = kernels.select("name", "duration", "tensor_core").filter(~is_product)
    named, texts = compact(rest["name"])
    plain = gather(
        pl.Series(
            [kernel_names.multiplies_on_vector_units(text or "") for text in texts],
            dtype=pl.Boolean,
        ),
        named,
    )
    narrow = gather(pl.Series(texts, dtype=pl.String).str.contains(_NARROW).fill_null(False), named)
    on_tensor = rest["tensor_core"].fill_null(False)
    return Products(
        kernels=mine.select("row", "op_id", "duration"),
        works=_works(mine),
        whole=total,
        hidden=int(rest["duration"].filter(on_tensor | plain).sum()),
        hidden_plain=int(rest["duration"].filter(plain).sum()),
        hidden_narrow=bool((on_tensor & narrow).any()),
        placed=len(kernels) == len(answers.trace["kernels"]),
    )


def _works(mine: pl.DataFrame) -> pl.DataFrame:
    codes, names = compact(mine["name"])
    plain = [kernel_names.multiplies_on_vector_units(name or "") for name in names]
    longest = pl.col("duration").arg_max()
    # texts are read once for each call and each work: a call's at its first kernel, a work's at its longest
    calls = (
        mine.select(
            *("op_id", "duration", "matrix_flops", "bytes", "tensor_core"),
            gather(pl.Series(plain, dtype=pl.Boolean), codes).alias("plain"),
            pl.int_range(pl.len(), dtype=pl.UInt32).alias("place"),
        )
        .group_by("op_id", maintain_order=True)
        .agg(
            pl.col("place").first().alias("first"),
            pl.col("place").get(longest).alias("longest"),
            pl.col("duration").max().alias("most"),
            pl.len().alias("kernels"),
            pl.col("duration", "matrix_flops", "bytes").sum(),
            # a sum without values is 0, which would mean work without FLOPs
            pl.col("matrix_flops", "bytes").null_count().name.prefix("no_"),
            pl.col("tensor_core").any(ignore_nulls=False).alias("on_tensor"),
            pl.col("plain").any(),
        )
    )
    firsts = mine.select("op_type", *PLACE, "tc_reason")[calls["first"]]
    main = mine.select("name", "grid")[calls["longest"]]
    calls = calls.with_columns(
        *firsts.get_columns(), *main.get_columns(), _dtypes(firsts["dtypes"], main["name"])
    )
    longest = pl.col("most").arg_max()
    columns = [
        pl.when(pl.col(f"no_{name}").sum() == 0).then(pl.col(name).sum()).alias(name)
        for name in ("matrix_flops", "bytes")
    ]
    works = calls.group_by(
        "op_type", *PLACE, "dtype", "on_tensor", "plain", maintain_order=True
    ).agg(
        pl.col("op_id").alias("ids"),
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("kernels").sum().cast(pl.Int64),
        pl.col("duration").sum(),
        *columns,
        pl.col("tc_reason").drop_nulls().first(),
        pl.col("name", "grid").get(longest),
    )
    texts = works.with_columns(
        pl.col("op_type", "tc_reason", "name", "grid", *PLACE).cast(pl.String)
    )
    return texts.sort("duration", *PLACE, descending=[True, *[False] * len(PLACE)])


def _dtypes(dtypes: pl.Series, names: pl.Series) -> pl.Series:
    """Return the widest floating dtype of the inputs, else the first, else what the kernel's name proves."""
    codes, texts = compact(dtypes)
    stated = gather(pl.Series([_widest(text) for text in texts], dtype=pl.String), codes)
    codes, kernels = compact(names)
    single = ["f32" if re.search(_SINGLE, name or "") else None for name in kernels]
    proven = gather(pl.Series(single, dtype=pl.String), codes)
    return pl.select(pl.coalesce(stated, proven).alias("dtype")).to_series()


def _widest(dtypes: str | None) -> str | None:
    names = [] if dtypes in (None, "?") else str(dtypes).split(",")
    return next((kind for kind in _FLOATS if kind in names), names[0] if names else None)


def ideal_time(
    device: Device, rate: pl.Expr | float | None, moved: pl.Expr, flops: str = "matrix_flops"
) -> pl.Expr:
    """Return the least time (ns) of ``flops`` at ``rate`` (FLOP/s) and of the bytes ``moved``.

    Null where the FLOPs or the rate are unknown; unknown bytes or bandwidth only make the bound lower.
    """
    at = pl.lit(rate, pl.Float64) if not isinstance(rate, pl.Expr) else rate
    arithmetic = pl.col(flops) / at * 1e9
    memory = moved / pl.lit(device.bandwidth, pl.Float64) * 1e9
    return pl.when(arithmetic.is_not_null()).then(
        pl.max_horizontal(arithmetic, memory.fill_null(0.0))
    )


def present_rate(device: Device) -> pl.Expr:
    """Return the peak (FLOP/s) of the units that the work ran on, by its dtype and ``on_tensor``.

    If the units are not known, it is the higher peak.
    """
    rate_of_dtype = pl.lit(None, pl.Float64)
    for dtype in ("f64", "f32", "f16", "bf16", "i8", "u8", "f8e4m3fn", "f8e5m2"):
        tensor, vector = device.peak(dtype, True), device.peak(dtype, False)
        high = max(filter(None, (tensor, vector)), default=None)
        off = vector if dtype in ("f32", "f64") else high
        rate = (
            pl.when(pl.col("on_tensor").is_null())
            .then(pl.lit(high, pl.Float64))
            .when(pl.col("on_tensor"))
            .then(pl.lit(tensor, pl.Float64))
            .otherwise(pl.lit(off, pl.Float64))
        )
        rate_of_dtype = pl.when(pl.col("dtype") == dtype).then(rate).otherwise(rate_of_dtype)
    return rate_of_dtype


def scaled(works: pl.DataFrame, now: pl.Expr, then: pl.Expr) -> pl.DataFrame:
    """Return the works with ``now`` and ``then`` (least times in ns before and after a change), ``factor``
    and ``most`` (ns).

    ``factor`` is their ratio, at most 1, assuming that a kernel stays as far from its roof as it is; 1 if the
    work is bound by latency, null if a roof is not known. ``most`` is the time above the new roof, or all of
    the time where that is not known.
    """
    scaled_works = works.with_columns(now.alias("now"), then.alias("then"))
    short = (pl.col("now") < LATENCY_NS * pl.col("calls")) & (
        pl.col("now") < LATENCY_EFFICIENCY * pl.col("duration")
    )
    ratio = pl.min_horizontal(pl.col("then") / pl.col("now"), pl.lit(1.0))
    return scaled_works.with_columns(
        pl.when(short).then(1.0).when(pl.col("now") > 0).then(ratio).alias("factor"),
        (pl.col("duration") - pl.col("then").fill_null(0.0))
        .clip(lower_bound=0)
        .floor()
        .cast(pl.Int64)
        .alias("most"),
    )


def nvidia(device: Device) -> tuple[int, int] | None:
    """Return the compute capability of an NVIDIA device, None for others."""
    return parse_cc(device.cc) if device.vendor == "nvidia" else None


def tensor_units(device: Device) -> str:
    """Return the vendor's name for a device's units for matrix products."""
    return {"nvidia": "Tensor Cores", "amd": "Matrix Cores"}.get(device.vendor, "matrix units")


def unknown_device(reason: str | None) -> CannotTell:
    """Say that the limits of the device are not known, and how to give them."""
    return CannotTell(f"the device's limits are not known: {reason or 'give its name with --gpu'}")


def not_ops(time: int) -> CannotTell:
    """Say that kernels with this time (ns) compute products, but no op shows which."""
    return CannotTell(
        f"kernels with {ms(time)} compute products, by their names, but no op with shapes is known for them"
    )


def rows(works: pl.DataFrame, most: int = 20, detail: str | None = None) -> pl.DataFrame:
    """Return works as the rows of a finding's evidence, those with most time first."""
    ordered = works.sort("duration", descending=True, maintain_order=True)
    table = ordered.select(
        pl.col("ids").list.first().alias("op_id"),
        *("op", pl.col("name").alias("kernel"), "direction", "layer", "source", "inputs", "dtypes"),
        pl.col("calls").alias("count"),
        pl.col("duration").alias("time"),
        *([pl.col(detail).alias("detail")] if detail else []),
    )
    return with_rest(table, most)


def waiting(works: pl.DataFrame) -> int:
    """Return the time (ns) of works."""
    return int(works["duration"].sum() or 0)
