"""GEMMs and convolutions far below their roof, by lost time, with known facts that may slow them."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.gemm_sizes import Product, read, step
from opscope.core.advice.products import (
    LEAST_SHARE,
    Products,
    ideal_time,
    not_ops,
    present_rate,
    products,
    rows,
    unknown_device,
    waiting,
)
from opscope.core.advice.saying import ms, places, share
from opscope.core.analysis.roofline.roofline import LATENCY_NS
from opscope.core.perf.devices.peaks import Device
from opscope.core.tables.columns import extents

_FAMILIES: Final = ("gemm", "conv")
#: A product that takes more than 2.5 times its roof is far below it.
_FAR: Final = 0.4
#: Products of fewer rows or columns than this fill no tile of a Tensor Core kernel; sums over fewer elements
#: do not hide the loads (https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication).
_SKINNY: Final = 16
_SHORT_SUM: Final = 64


def find(answers: Answers) -> Answer:
    """Return one finding with the GEMMs and convolutions that reach less than 40 % of their roof."""
    products_of_run = products(answers)
    if isinstance(products_of_run, CannotTell):
        return products_of_run
    device, reason = answers.device
    if device is None:
        return unknown_device(reason)
    rated = products_of_run.works.filter(pl.col("op_type").is_in(_FAMILIES)).with_columns(
        ideal_time(device, present_rate(device), pl.col("bytes")).alias("roof"),
        (pl.col("matrix_flops") / present_rate(device) * 1e9).alias("arithmetic"),
    )
    unknown = waiting(rated.filter(pl.col("roof").is_null()))
    # no kernel can be a product: the trace lacks some, or the name proves another part
    main = pl.col("plain") | pl.col("on_tensor").is_null() | pl.col("on_tensor")
    slow = rated.filter(
        main,
        pl.col("roof") >= LATENCY_NS * pl.col("calls"),
        pl.col("roof") < _FAR * pl.col("duration"),
    ).with_columns(
        (pl.col("duration") - pl.col("roof")).floor().cast(pl.Int64).alias("lost"),
        (pl.col("roof") / pl.col("duration")).alias("efficiency"),
    )
    least = max(LEAST_SHARE * products_of_run.whole, 1)
    if int(slow["lost"].sum() or 0) >= least:
        return [
            _finding(products_of_run, rated, slow.sort("lost", descending=True), device, unknown)
        ]
    if unknown >= least:
        return CannotTell(
            f"FLOPs, or the device's rate for the dtype, are not known for products with {ms(unknown)}"
        )
    return not_ops(products_of_run.hidden) if products_of_run.hidden >= least else []


def _finding(
    products: Products, rated: pl.DataFrame, slow: pl.DataFrame, device: Device, unknown: int
) -> Finding:
    time, lost = waiting(slow), int(slow["lost"].sum())
    detailed = slow.with_columns(pl.Series("detail", _details(slow, device), pl.String))
    edit = products.edit(_as_the_others(rated, detailed))
    return Finding(
        what=f"{slow['calls'].sum():,} GEMMs and convolutions reach {share(time - lost, time)} of their roof:"
        f" {ms(time)} ({share(time, products.whole)} of the kernels' time), of which {ms(lost)} lie above it",
        evidence=places(slow, "different calls", "lost")
        + (f"; no roof is known for {ms(unknown)}" if unknown else ""),
        recommendation="Look at the calls with most lost time, and at what is known of each: "
        + f"{' '.join(filter(None, (detailed['op'][0], detailed['inputs'][0])))}: {detailed['detail'][0]}.",
        time=time,
        saving_least=0,
        saving_most=lost,
        reasoning="At most the time above the roof: for each product the longer of its matrix_flops"
        " at the peak of"
        " the units that it ran on and its bytes at the memory bandwidth (kernels(): duration,"
        " matrix_flops, bytes,"
        " tensor_core; the device's peaks); no library reaches the roof."
        + (
            " The estimate takes each to come as near to its roof as this profile's other products"
            " of its dtype"
            " and kind."
            if edit is not None
            else " Without other products of their dtype and kind there is no estimate."
        ),
        confidence="low",
        rows=rows(detailed, detail="detail"),
        edit=edit,
    )


def _as_the_others(rated: pl.DataFrame, slow: pl.DataFrame) -> pl.DataFrame:
    """Return the slow products with the ``factor`` that brings them as near to their roof as the other
    products are."""
    same = ("op_type", "dtype", "on_tensor")
    others = rated.filter(
        pl.col("roof") >= _FAR * pl.col("duration"), pl.col("roof") >= LATENCY_NS * pl.col("calls")
    )
    reached = others.group_by(same).agg(
        (pl.col("roof").sum() / pl.col("duration").sum()).clip(upper_bound=1.0).alias("reached")
    )
    return slow.join(reached, on=same, how="inner", nulls_equal=True, maintain_order="left").select(
        "ids", (pl.col("efficiency") / pl.col("reached")).clip(0.0, 1.0).alias("factor")
    )


def _details(slow: pl.DataFrame, device: Device) -> list[str]:
    names = (
        "op",
        "inputs",
        "params",
        "dtype",
        "grid",
        "on_tensor",
        "efficiency",
        "roof",
        "arithmetic",
    )
    return [
        "; ".join(_known(dict(zip(names, values, strict=True)), device))
        for values in slow.select(names).iter_rows()
    ]


def _known(work: dict[str, object], device: Device) -> list[str]:
    """Return known facts that may slow a product; none of them is proven to be the cause."""
    bound = "arithmetic" if work["arithmetic"] == work["roof"] else "memory"
    efficiency = float(str(work["efficiency"]))
    said = [f"at {100 * efficiency:.0f} % of its roof, which {bound} sets"]
    inputs, params = work["inputs"], work["params"]
    product = (
        read(str(work["op"]), str(inputs), None if params is None else str(params))
        if inputs
        else None
    )
    if product is not None and work["dtype"] is not None:
        said += _of_sizes(product, str(work["dtype"]), work["on_tensor"] is not False)
    grid = work["grid"]
    blocks = extents([None if grid is None else str(grid)])[0]
    if blocks is not None and device.sm_count and device.vendor == "nvidia":
        if blocks < device.sm_count:
            said.append(f"{blocks} blocks for {device.sm_count} multiprocessors")
        elif blocks < 4 * device.sm_count and blocks % device.sm_count:
            said.append(
                f"{blocks} blocks are {blocks / device.sm_count:.2f} for each of {device.sm_count}"
                " multiprocessors, so the last wave is part-filled"
            )
    if work["dtype"] == "f32" and work["on_tensor"] is False:
        said.append("f32 on vector units")
    return said


def _of_sizes(product: Product, dtype: str, on_tensor: bool) -> list[str]:
    said = []
    if product.m:
        for name, size in (("M", product.m), ("N", product.n)):
            if size < _SKINNY:
                said.append(f"{name} = {size} is small")
        if product.k < _SHORT_SUM:
            said.append(f"K = {product.k} is small")
    least = step(dtype)
    return said + [
        f"{name} = {size} is no multiple of {least}"
        for name, size in product.inner.items()
        if on_tensor and size % least
    ]


DETECTOR = Detector(
    name="slow_gemms",
    question="Which GEMMs and convolutions stay far below their roof, and what is known to lower them?",
    find=find,
    fires="products below 40 % of their roof, and 1 % of the kernels' time above it",
    looks_at="It looks at kernels(): the time of GEMMs and convolutions against the longer of their"
    " FLOPs at the peak"
    " of the units that they ran on and their bytes at the memory bandwidth. Those below 40 % are"
    " listed by the time"
    " lost, with what is known: sizes (inputs), blocks for the device's multiprocessors (grid), f32"
    " on vector units."
    " Products whose roof is below 2 µs are left out: starting a kernel takes as long.",
    abstains="It cannot tell without kernels with ops, without the device's limits (--gpu gives"
    " them), and where FLOPs"
    " or the device's rate for the dtype are not known. What it lists beside a product are facts;"
    " which of them is the"
    " cause, a profile does not tell.",
)
