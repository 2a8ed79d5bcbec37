"""Sizes of GEMMs and convolutions that are bad for Tensor Cores: no multiples of 16 bytes, or empty tiles."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.gemm_sizes import Product, padded, read, step, tile, wasted
from opscope.core.advice.products import (
    LEAST_SHARE,
    Products,
    ideal_time,
    not_ops,
    products,
    rows,
    waiting,
)
from opscope.core.advice.saying import framework, ms, places, share
from opscope.core.analysis.roofline.roofline import LATENCY_NS
from opscope.core.perf.devices.peaks import Device
from opscope.core.perf.tensorcore import NO_UNITS, TINY, dtype_reason

#: Dtypes whose products use Tensor Cores wherever there are any; f32 only where TF32 is on.
_NARROW: Final = ("f16", "bf16", "i8", "u8", "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz")
_FAMILIES: Final = ("gemm", "conv")
#: Channels of an image; libraries have kernels of their own for first layers.
_IMAGE: Final = 4
#: A tile with less waste is left alone.
_LEAST_WASTE: Final = 0.2
_GUIDE: Final = "docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication"
_SHOWN: Final = 5


def find(answers: Answers) -> Answer:
    """Return a finding for sizes that are no multiples, and one for tiles that are empty for a large part."""
    products_of_run = products(answers)
    if isinstance(products_of_run, CannotTell):
        return products_of_run
    device, _ = answers.device
    works = _with_sizes(_on_tensor_cores(products_of_run.works, device))
    unknown = waiting(works.filter(~pl.col("known"))) + waiting(
        products_of_run.works.filter(pl.col("op_type").is_in(_FAMILIES), pl.col("dtype").is_null())
    )
    rated = works.filter(pl.col("known"))
    answer = [
        *_misaligned(answers, products_of_run, rated, device, unknown),
        *_part_filled(answers, products_of_run, rated, device),
    ]
    least = max(LEAST_SHARE * products_of_run.whole, 1)
    if not answer and unknown >= least:
        return CannotTell(
            f"the sizes of GEMMs and convolutions with {ms(unknown)} are not known; record shapes"
        )
    if not answer and products_of_run.hidden >= least:
        return not_ops(products_of_run.hidden)
    return answer


def _on_tensor_cores(works: pl.DataFrame, device: Device | None) -> pl.DataFrame:
    """Return the GEMMs and convolutions whose dtype is known to use Tensor Cores on this device."""
    if device is not None and not device.tensor:
        return works.clear()
    units: Any = None
    if device is not None and device.cc is not None:
        parts = device.cc.split(".")
        units = (int(parts[0]), int(parts[1])) if len(parts) == 2 else device.cc
    narrow = [
        kind for kind in _NARROW if units in (None, NO_UNITS) or not dtype_reason(kind, units)
    ]
    works = works.filter(pl.col("op_type").is_in(_FAMILIES))
    single = works.filter(pl.col("dtype") == "f32", pl.col("on_tensor"))["op_type"].unique()
    return works.filter(
        pl.col("dtype").is_in(narrow)
        | ((pl.col("dtype") == "f32") & pl.col("op_type").is_in(single.implode()))
    )


def _with_sizes(works: pl.DataFrame) -> pl.DataFrame:
    """Add what the call tells about its sizes: ``known``; ``m`` and ``n`` of the result, null for a
    convolution; the ``detail`` of sizes that are no multiples, null if all are; and ``more``, by how much
    padding makes the product larger.

    Each distinct call is read once: of 190,000 calls on a million kernels, 900 are distinct.
    """
    call = ("op", "inputs", "params", "dtype")
    distinct = works.select(call).unique(maintain_order=True)
    rows: list[tuple[bool, int | None, int | None, str | None, float]] = []
    for op, inputs, params, dtype in distinct.iter_rows():
        product = read(op or "", inputs, params) if inputs else None
        if product is None:
            rows.append((False, None, None, None, 1.0))
            continue
        bad = _bad(product, dtype)
        grown = 1.0
        for size, to in bad.values():
            grown *= to / size
        result = (product.m, product.n) if product.m else (None, None)
        rows.append((True, *result, _say(bad), grown))
    schema = {
        "known": pl.Boolean, "m": pl.Int64, "n": pl.Int64, "detail": pl.String, "more": pl.Float64,
    }  # fmt: skip
    each = distinct.hstack(pl.DataFrame(rows, schema=schema, orient="row"))
    return works.join(each, on=call, how="left", nulls_equal=True, maintain_order="left")


def _bad(product: Product, dtype: str) -> dict[str, tuple[int, int]]:
    """Return the sizes that are no multiples, by name, with the sizes to which to pad them."""
    sizes, least = dict(product.inner), step(dtype)
    if not any(size % least for size in sizes.values()):  # so for nearly all of very many
        return {}
    if product.m:  # a matrix product
        if 1 in (product.m, product.n, product.k) or product.m * product.n * product.k <= TINY:
            return {}
    elif product.k <= _IMAGE:
        sizes.pop("input channels", None)
    return {name: (size, padded(size, dtype)) for name, size in sizes.items() if size % least}


def _misaligned(
    answers: Answers,
    products: Products,
    rated: pl.DataFrame,
    device: Device | None,
    unknown: int,
) -> list[Finding]:
    mine = rated.filter(pl.col("detail").is_not_null())
    time = waiting(mine)
    if time < max(LEAST_SHARE * products.whole, 1):
        return []
    mine = _after(mine, _reached(rated.filter(pl.col("detail").is_null()), device), device)
    off = waiting(mine.filter(~pl.col("on_tensor")))
    estimated = mine.filter(pl.col("factor").is_not_null(), pl.col("factor") < 1)
    return [
        Finding(
            what=f"{mine['calls'].sum():,} GEMMs and convolutions have sizes that are no multiple"
            " of 16 bytes,"
            f" {ms(time)} ({share(time, products.whole)} of the kernels' time): {_list(mine)}",
            evidence=places(mine, "different calls")
            + (f"; {ms(off)} of it in kernels without Tensor Cores" if off else "")
            + (f"; sizes unknown for {ms(unknown)}" if unknown else ""),
            recommendation=_recommendation(answers, mine),
            time=time,
            saving_least=0,
            saving_most=int(mine["most"].sum()),
            reasoning="At least nothing: the library may copy with the padding. At most what lies"
            " above the roof"
            " of the padded product: the longer of its matrix_flops, grown by the padding, at the"
            " Tensor Cores'"
            " peak, and its bytes, grown alike, at the memory bandwidth (kernels(): inputs,"
            " matrix_flops, bytes,"
            " duration); all of its time where the device's peaks are not known. The estimate takes"
            " the padded"
            " products to come as near to their roof as this profile's products of that dtype whose sizes are"
            f" multiples; without such there is none. Multiples: {_GUIDE}.",
            confidence="high" if off * 2 > time or _align1(mine) * 2 > time else "medium",
            rows=rows(mine, detail="detail"),
            edit=products.edit(estimated) if len(estimated) else None,
        )
    ]


def _say(bad: dict[str, tuple[int, int]]) -> str | None:
    return ", ".join(f"{name} = {size} → {to}" for name, (size, to) in bad.items()) or None


def _align1(mine: pl.DataFrame) -> int:
    """The time (ns) of kernels whose names say that they load element by element (``align1``)."""
    return waiting(mine.filter(pl.col("name").str.contains(r"align[12](?:\D|$)").fill_null(False)))


def _list(mine: pl.DataFrame) -> str:
    top = mine.group_by("detail", maintain_order=True).agg(pl.col("duration").sum())
    top = top.sort("duration", descending=True, maintain_order=True)
    said = "; ".join(f"{text} ({ms(took)})" for text, took in top.head(_SHOWN).rows())
    return said + (f"; and {len(top) - _SHOWN} more" if len(top) > _SHOWN else "")


def _tensor_rate(device: Device) -> pl.Expr:
    rate = pl.lit(None, pl.Float64)
    for dtype in ("f32", *_NARROW):
        peak = pl.lit(device.peak(dtype, True), pl.Float64)
        rate = pl.when(pl.col("dtype") == dtype).then(peak).otherwise(rate)
    return rate


def _reached(good: pl.DataFrame, device: Device | None) -> pl.DataFrame:
    """Return how near products with good sizes come to their roof, by dtype (``reached``, at most 1)."""
    if device is None:
        return pl.DataFrame(schema={"dtype": pl.String, "reached": pl.Float64})
    roof = ideal_time(device, _tensor_rate(device), pl.col("bytes"))
    rated = good.filter(pl.col("on_tensor")).with_columns(roof.alias("roof"))
    rated = rated.filter(pl.col("roof") >= LATENCY_NS * pl.col("calls"))
    return rated.group_by("dtype").agg(
        (pl.col("roof").sum() / pl.col("duration").sum()).clip(upper_bound=1.0).alias("reached")
    )


def _after(mine: pl.DataFrame, reached: pl.DataFrame, device: Device | None) -> pl.DataFrame:
    """Add ``most`` (ns, the most that padding may save) and ``factor`` (null: no estimate)."""
    if device is None:
        return mine.with_columns(
            pl.col("duration").alias("most"), pl.lit(None, pl.Float64).alias("factor")
        )
    grown = mine.with_columns((pl.col("matrix_flops") * pl.col("more")).alias("grown"))
    roof = ideal_time(device, _tensor_rate(device), pl.col("bytes") * pl.col("more"), "grown")
    grown = grown.with_columns(roof.alias("roof")).join(
        reached, on="dtype", how="left", maintain_order="left"
    )
    return grown.with_columns(
        (pl.col("duration") - pl.col("roof").fill_null(0.0))
        .clip(lower_bound=0)
        .floor()
        .cast(pl.Int64)
        .alias("most"),
        pl.when(pl.col("roof") < LATENCY_NS * pl.col("calls"))
        .then(1.0)
        .otherwise((pl.col("roof") / pl.col("reached") / pl.col("duration")).clip(0.0, 1.0))
        .alias("factor"),
    )


def _recommendation(answers: Answers, mine: pl.DataFrame) -> str:
    pad = {
        "torch": "torch.nn.functional.pad(x, (0, more))",
        "tensorflow": "tf.pad(x, [[0, 0], [0, more]])",
        "keras": "keras.ops.pad(x, [[0, 0], [0, more]])",
        "jax": "jnp.pad(x, ((0, 0), (0, more)))",
        "mindspore": "mindspore.ops.pad(x, (0, more))",
    }.get(framework(answers) or "")
    first = mine.sort("duration", descending=True, maintain_order=True)["detail"][0]
    return (
        f"Choose sizes of layers, vocabulary and sequence that are multiples, or pad: {first}"
        + (f", with {pad}" if pad else "")
        + "."
    )


def _part_filled(
    answers: Answers,
    products: Products,
    works: pl.DataFrame,
    device: Device | None,
) -> list[Finding]:
    """Tiles of which at least a fifth lies outside the result, in products bound by arithmetic."""
    if device is None:
        return []  # without a roof it is not known whether arithmetic sets the pace
    arithmetic = pl.col("matrix_flops") / _tensor_rate(device) * 1e9
    memory = pl.col("bytes") / pl.lit(device.bandwidth, pl.Float64) * 1e9
    mine = _with_waste(works).filter(
        pl.col("waste") >= _LEAST_WASTE,
        pl.col("on_tensor"),
        arithmetic > memory,
        arithmetic >= LATENCY_NS * pl.col("calls"),
    )
    time = waiting(mine)
    if time < max(LEAST_SHARE * products.whole, 1):
        return []
    mine = mine.with_columns((1 - pl.col("waste")).alias("factor"))
    lost = int((mine["duration"] * mine["waste"]).sum())
    return [
        Finding(
            what=f"{mine['calls'].sum():,} GEMMs fill their tiles in part: {share(lost, time)} of {ms(time)}"
            f" computes elements outside the result, in most time {mine['detail'][0]}",
            evidence=places(mine, "different calls"),
            recommendation="Choose batch and layer sizes that are multiples of the tile, or just below one:"
            f" {mine['detail'][0]}.",
            time=time,
            saving_least=0,
            saving_most=lost,
            reasoning="At most the share of the tiles' elements outside the result, 1 − M·N over"
            " the tiles that"
            " cover it, of the time of products bound by arithmetic (kernels(): inputs, name, which"
            " has the tile's"
            f" size, duration); the lower share of both orders of the tile. Tile quantization: {_GUIDE}.",
            confidence="low",
            rows=rows(mine, detail="detail"),
            edit=products.edit(mine),
        )
    ]


def _with_waste(works: pl.DataFrame) -> pl.DataFrame:
    """Add ``waste``, the share of the tiles' elements outside the result, and ``detail``, its sizes.

    Where the kernel's name has no tile they are 0 and null.
    """
    result = ("m", "n", "name")
    distinct = works.select(result).unique(maintain_order=True)
    waste, said = [], []
    for m, n, name in distinct.iter_rows():
        sides = tile(name or "") if m else None
        waste.append(0.0 if sides is None else wasted(m, n, sides))
        said.append(sides and f"{m} × {n} in tiles of {sides[0]} × {sides[1]}")
    each = distinct.with_columns(
        pl.Series("waste", waste, pl.Float64), pl.Series("detail", said, pl.String)
    )
    return works.drop("detail").join(
        each, on=result, how="left", nulls_equal=True, maintain_order="left"
    )


DETECTOR = Detector(
    name="tensor_shapes",
    question="Do GEMMs or convolutions have sizes that Tensor Cores take badly, and what should they be?",
    find=find,
    fires="1 % of the kernels' time",
    looks_at="It looks at kernels(): the sizes of GEMMs and PyTorch's convolutions (inputs, params)"
    " whose dtype uses"
    " Tensor Cores (f32 only where another f32 product of the kind does). A size that lies in"
    " memory one element"
    " after the other should be a multiple of 16 bytes: 8 elements of f16 and bf16, 16 of int8 and"
    " fp8, 4 of f32"
    " as TF32; it is padded to 128 bytes where that adds at most an eighth. Where a kernel's name"
    " has the size of"
    " its tile, it also tells tiles of which at least a fifth lies outside the result. Products of"
    " a vector, tiny"
    " ones, grouped convolutions and a first layer's channels are left out.",
    abstains="It cannot tell without kernels with ops, and where the sizes of products were not"
    " recorded. Without the"
    " device's limits (--gpu gives them) a saving is bounded by the products' time alone. Views"
    " with strides of"
    " their own, and convolutions of other frameworks, count as of unknown size.",
    known_as=("DLProf: Bad Tensor Shape",),
)
