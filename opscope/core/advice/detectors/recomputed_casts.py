"""Weights that are cast again in each step, as autocast does with f32 weights."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import Named, fit
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import evidence, ms, places, share
from opscope.core.advice.work import (
    CASTS,
    and_host,
    blind,
    cast_of,
    device_time,
    edit_of,
    holds,
    tensors,
    work,
)
from opscope.core.question import parameters
from opscope.core.tables.columns import combined, matching

#: Casts of weights that take less than this part of the device's time are not worth a change.
LEAST: Final = 0.005
_PRODUCTS: Final = ("gemm", "conv")
#: Products, such as those of attention, whose operands are all computed.
_COMPUTED: Final = r"\b(bmm|baddbmm|BatchMatMul\w*)\b"
_RECOMMENDED: Final[Named] = {
    "torch": "Keep the weights in half precision: model.to(torch.bfloat16), with an optimizer that keeps"
    " f32 masters"
    " (or fsdp MixedPrecisionPolicy(param_dtype=torch.bfloat16)). Inside one step, keep autocast's cache: one"
    " `with torch.autocast(…, dtype=torch.bfloat16):` around all uses of a weight, cache_enabled=True.",
    "tensorflow": "Cast each variable once a step, outside of the loop that uses it; Keras: a"
    " mixed_bfloat16 policy"
    " with XLA (jit_compile=True), which fuses casts into their users.",
    "keras": "keras.config.set_dtype_policy('bfloat16') keeps the weights in bfloat16; or"
    " jit_compile=True, which fuses"
    " casts into their users.",
    "jax": "Cast the parameters once a step: params = jax.tree.map(lambda p: p.astype(jnp.bfloat16),"
    " params).",
    "mindspore": "network.to_float(mindspore.float16) on cells whose weights need no f32 master.",
}
_GENERAL: Final = (
    "Keep the weights in the format in which they are used, or cast each once and keep the result."
)


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding for the casts of weights that are repeated."""
    ran = work(answers)
    if ran.is_empty():
        return CannotTell("neither kernels nor a framework's ops were recorded")
    named = ran.filter(pl.Series(matching(ran["op"], CASTS)))
    unshaped = named.filter(pl.col("inputs").is_null())
    total = device_time(answers)
    dark = int(unshaped["duration"].sum())
    # in the backward pass, gradients are cast back
    forward = pl.col("direction").cast(pl.String).ne_missing("backward")
    casts = named.filter(_changes(named), forward)
    weights = _weights(ran)
    rows = casts.filter(
        pl.Series(
            holds(casts["inputs"], lambda text: _key(_source(text)) in weights), dtype=pl.Boolean
        )
    )
    # a weight is cast again if there are more casts than layers and formats
    keys = ["process", "layer", "inputs", "outputs"]
    count = pl.len().over([pl.col(name).cast(pl.String) for name in keys])
    rows = rows.filter(count > 1)
    time = int(rows["duration"].sum())
    if not time or time < least * total:
        if dark > least * total:
            return CannotTell(
                f"the shapes of {len(unshaped):,} copies or casts ({ms(dark)}) were not recorded: record"
                " with shapes"
            )
        unseen = blind(ran)
        return CannotTell(unseen) if unseen else []
    return [_finding(answers, rows, time, total, len(unshaped), dark)]


def _source(text: str | None) -> tuple[int, ...]:
    specs = tensors(text)
    return specs[-1][1] if specs else ()


def _key(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the order of its sizes: weights are transposed on their way to the product."""
    return tuple(sorted(dims))


def _changes(named: pl.DataFrame) -> pl.Series:
    """Return which copies are between two floating-point formats, from their inputs and outputs."""
    codes, kinds = combined([named[name] for name in ("inputs", "outputs", "params")])
    texts = zip(*(kind.cast(pl.String).to_list() for kind in kinds), strict=True)
    casts = [cast_of(*text) is not None for text in texts]
    return pl.Series(np.array(casts, bool)[codes], dtype=pl.Boolean)


def _weights(ran: pl.DataFrame) -> frozenset[tuple[int, ...]]:
    """Return the shapes, without order, of the products' weights that are not the input of a product."""
    products = holds(ran["op_type"], lambda text: text in _PRODUCTS)
    products &= ~holds(ran["direction"], lambda text: text == "backward")
    products &= ~matching(ran["op"], _COMPUTED)
    calls = ran.select("op", "inputs").filter(pl.Series(products)).unique()
    calls = calls.cast(pl.String)
    weights, inputs = set(), set()
    for op, text in calls.rows():
        operands = [dims for _, dims in tensors(text) if len(dims) >= 2]
        if len(operands) < 2:
            continue
        last = operands[1] if "conv" in (op or "").lower() else operands[-1]
        first = operands[0]
        weights.add(_key(last))
        inputs.add(_key(first))
    return frozenset(weights - inputs)


def _finding(
    answers: Answers, rows: pl.DataFrame, time: int, total: int, unshaped: int, dark: int
) -> Finding:
    steps = rows["step"].drop_nulls().n_unique()
    layers = rows.select("process", "layer", "inputs", "outputs").n_unique()
    often = len(rows) / layers
    per_step = f", {often / steps:.1f} times a step each" if steps else ""
    repeats = (
        rows.select(
            "duration",
            pl.int_range(pl.len())
            .over(
                [
                    pl.col(n).cast(pl.String)
                    for n in ("process", "layer", "inputs", "outputs", "direction")
                ]
                + ["step"]
            )
            .alias("place"),
        )
        .filter(pl.col("place") > 0)["duration"]
        .sum()
    )
    rest = f"; copies whose shapes are unknown: {unshaped:,} ({ms(dark)})" if unshaped else ""
    edit, gone = edit_of(answers, rows, np.zeros(len(rows)), rows)
    weights = f"{layers:,} weights are" if layers != 1 else "a weight is"
    return Finding(
        what=f"{weights} cast to another number format {len(rows):,} times{per_step}:"
        f" {ms(time)},"
        f" {share(time, total)} of the device's time",
        evidence=places(rows, "casts") + rest,
        recommendation=fit(answers, _RECOMMENDED, _GENERAL),
        time=time,
        saving_least=0,
        saving_most=time + gone,
        reasoning="A cast is of a weight if its shape is that of the weight of a product, and of no product's"
        " input. At most all of their time, with weights kept in the format of the products"
        f"{and_host(gone)}. At least nothing, where other work hides them. Casts after the first in one"
        " step, layer and direction:"
        f" {ms(int(repeats))}."
        " Columns: op, inputs, outputs, params, duration, layer, step.",
        confidence="medium",
        rows=evidence(rows),
        edit=edit,
    )


DETECTOR = Detector(
    name="recomputed_casts",
    question="Are the same weights cast to another number format again and again?",
    find=find,
    fires="{least} of the device's time, and two casts of one weight",
    thresholds={"least": parameters.share("the least share of the device time that casts take")},
    looks_at="Copies and casts between floating-point formats in kernels() (on the CPU: ops()): inputs,"
    " outputs and"
    " params; the shapes of the weights of products; how often each layer casts a weight of one shape.",
    abstains="Where the shapes of copies that take 0.5 % of the device's time were not recorded, or more"
    " than 5 %"
    " of the kernels' time has no op.",
)
