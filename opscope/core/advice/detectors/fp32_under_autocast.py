"""Normalisation, softmax, dropout and elementwise work in f32 beside products in half precision."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import Named, fit
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import evidence, ms, places, share
from opscope.core.advice.work import blind, device_time, edit_of, holds, tensors, work
from opscope.core.perf.kinds import UNCLEAR_FAMILIES
from opscope.core.question import parameters
from opscope.core.schema import FLOATS

#: From this part of the device's time on, work in f32 is worth a change.
LEAST: Final = 0.02
#: The part of the products' time that must be in half precision.
_HALF: Final = 0.5
_PRODUCTS: Final = ("gemm", "conv", "attention")
_MEMORY: Final = ("norm", "softmax", "dropout", "activation", "elementwise")
_RECOMMENDED: Final[Named] = {
    "torch": "Let fused kernels compute in f32 inside and read and write bfloat16:"
    " model.to(torch.bfloat16) and"
    " torch.nn.functional.layer_norm, rms_norm, scaled_dot_product_attention instead of own arithmetic on"
    " x.float();"
    " under autocast, `with torch.autocast('cuda', enabled=False):` around a norm with x.bfloat16()."
    " Compare the loss.",
    "keras": "keras.config.set_dtype_policy('bfloat16') for layers that tolerate it: dropout,"
    " activations, norms.",
    "tensorflow": "Cast to the policy's compute dtype after the layer that left it: tf.cast(x, tf.bfloat16).",
    "jax": "Keep activations in bfloat16: flax modules with dtype=jnp.bfloat16; norms reduce in f32 inside.",
    "mindspore": "cell.to_float(mindspore.float16) on norms and dropout that tolerate it.",
}
_GENERAL: Final = (
    "Read and write half precision in these ops; fused norms and softmax reduce in f32 inside."
)


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding for memory-bound work in f32 where most products are in half precision."""
    ran = work(answers)
    if ran.is_empty():
        return CannotTell("neither kernels nor a framework's ops were recorded")
    unseen = blind(ran)
    counted = ~holds(ran["direction"], lambda text: text in ("optimizer", "communication"))
    multiplies = counted & holds(ran["op_type"], lambda text: text in _PRODUCTS)
    products = ran.filter(pl.Series(multiplies))
    if products.is_empty():
        return CannotTell(
            "no matrix products with an op were recorded, so their number format is not known"
        )
    described = products.filter(pl.col("inputs").is_not_null())
    of_products, known_time = (int(table["duration"].sum()) for table in (products, described))
    half = int(described["duration"].filter(pl.Series(holds(described["inputs"], _is_half))).sum())
    if half < _HALF * of_products:
        if half + of_products - known_time >= _HALF * of_products:
            return CannotTell(
                f"the number formats of {ms(of_products - known_time)} of {ms(of_products)} in products"
                " were not"
                " recorded: record with shapes"
            )
        return CannotTell(unseen) if unseen else []
    counted &= holds(ran["op_type"], lambda text: text in _MEMORY and text not in UNCLEAR_FAMILIES)
    moved = ran.filter(pl.Series(counted))
    unknown = int(moved["duration"].filter(moved["inputs"].is_null()).sum())
    rows = moved.filter(pl.Series(holds(moved["inputs"], _is_single), dtype=pl.Boolean))
    time, total = int(rows["duration"].sum()), device_time(answers)
    if time < least * total:
        if unknown >= least * total and unknown:
            return CannotTell(
                f"the number formats of {ms(unknown)} of memory-bound ops were not recorded: record with"
                " shapes"
            )
        return CannotTell(unseen) if unseen else []
    by = (
        rows.group_by(pl.col("op_type").cast(pl.String).alias("family"))
        .agg(pl.col("duration").sum())
        .sort("duration", descending=True)
    )
    by_op = ", ".join(f"{name} {ms(took)}" for name, took in by.rows())
    noun = "ops" if answers.cpu_only else "kernels"
    rest = f"; of unknown number format: {ms(unknown)}" if unknown else ""
    return [
        Finding(
            what=f"{len(rows):,} {noun} that only move and transform elements run in f32 ({by_op};"
            f" {share(time, total)} of"
            f" the device's time), while {share(half, of_products)} of the time of products with an op is"
            " in half precision",
            evidence=places(rows, noun) + rest,
            recommendation=fit(answers, _RECOMMENDED, _GENERAL),
            time=time,
            saving_least=0,
            saving_most=time // 2,
            reasoning="Half the bytes take at least half the time, so at most half of it is saved; at"
            " least nothing,"
            " where a kernel is bound by its launch or by arithmetic. Ops of the families"
            f" {', '.join(_MEMORY)} outside the optimizer whose floating-point inputs are all f32."
            " Columns: op_type, inputs,"
            " duration, direction.",
            confidence="low",
            rows=evidence(rows),
            edit=edit_of(answers, rows, np.full(len(rows), 0.5), rows.clear())[0],
        )
    ]


def _formats(text: str | None) -> set[str]:
    return {dtype for dtype, dims in tensors(text) if dtype in FLOATS and dims}


def _is_half(text: str | None) -> bool:
    return bool(_formats(text)) and not _formats(text) & {"f32", "f64", "tf32"}


def _is_single(text: str | None) -> bool:
    return _formats(text) == {"f32"}


DETECTOR = Detector(
    name="fp32_under_autocast",
    question="Do normalisation, softmax, dropout or elementwise ops run in f32 beside products in half"
    " precision?",
    find=find,
    fires="{least} of the device's time, beside 50 % of the products' time in half precision",
    thresholds={"least": parameters.share("the least share of the device time")},
    looks_at="The number formats (inputs) of products in kernels() or ops(): at least half of their time"
    " must be in"
    " half precision; then the ops of the families norm, softmax, dropout, activation and elementwise whose"
    " floating-point inputs are all f32, outside the optimizer.",
    abstains="Where no products have an op, the number formats were not recorded, or more than 5 % of the"
    " kernels' time has"
    " no op.",
)
