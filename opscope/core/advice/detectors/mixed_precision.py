"""Matrix products in f32 although the GPU's Tensor Cores take f16 or bf16: automatic mixed precision."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.products import (
    HALF,
    LEAST_SHARE,
    Products,
    ideal_time,
    not_ops,
    nvidia,
    present_rate,
    products,
    rows,
    scaled,
    tensor_units,
    unknown_device,
    waiting,
)
from opscope.core.advice.saying import framework, ms, places, share
from opscope.core.perf.devices.peaks import Device
from opscope.core.perf.tensorcore import MATRIX_FAMILIES
from opscope.core.tables.columns import compact, gather

_BF16: Final = (8, 0)
_CODE: Final = {
    "torch": 'with torch.autocast("cuda", dtype=torch.{half}): …{scaler}',
    "tensorflow": 'tf.keras.mixed_precision.set_global_policy("mixed_{long}")',
    "keras": 'keras.mixed_precision.set_global_policy("mixed_{long}")',
    "jax": "Keep parameters in float32 and compute in {long}: flax.linen modules take dtype=jnp.{long}, and"
    " jmp.Policy casts whole functions",
    "mindspore": 'mindspore.amp.auto_mixed_precision(net, amp_level="auto", dtype=mindspore.{long})',
    "onnxruntime": "onnxconverter_common.float16.convert_float_to_float16(model)",
    "tensorrt": "config.set_flag(trt.BuilderFlag.{flag})",
}
_SCALER: Final = ", with scaler = torch.amp.GradScaler() around backward and step"


def find(answers: Answers) -> Answer:
    """Return one finding with the f32 products of a program in which no product is in f16, bf16 or less."""
    products_of_run = products(answers)
    if isinstance(products_of_run, CannotTell):
        return products_of_run
    device, reason = answers.device
    if device is None:
        return unknown_device(reason)
    half = _half(device)
    if half is None:
        return []  # the device has no Tensor Cores for f16 or bf16
    works = products_of_run.works
    wide = works.filter(pl.col("dtype") == "f32", ~_depthwise())
    unknown = works.filter(pl.col("dtype").is_null())
    narrow = works.filter(~pl.col("dtype").is_in(["f32", "tf32", "f64", "c64", "c128"]))
    if waiting(narrow) or products_of_run.hidden_narrow:
        return []  # precision is mixed already; another detector judges the products still in f32
    few = waiting(wide) < max(LEAST_SHARE * products_of_run.whole, waiting(unknown), 1)
    if few:
        if waiting(unknown) >= max(LEAST_SHARE * products_of_run.whole, 1):
            return CannotTell(
                f"the dtypes of products with {ms(waiting(unknown))} were not recorded; record shapes"
            )
        if products_of_run.hidden >= LEAST_SHARE * products_of_run.whole and products_of_run.hidden:
            return not_ops(products_of_run.hidden)
        return []
    return [_finding(answers, products_of_run, wide, device, half, waiting(unknown))]


def _half(device: Device) -> str | None:
    """Return the narrower dtype to propose: bf16 where the device has it, else f16."""
    units = nvidia(device)
    if device.peak("bf16", True) and (units is None or units >= _BF16):
        return "bf16"
    return next((kind for kind in HALF if device.peak(kind, True)), None)


def _depthwise() -> pl.Expr:
    return pl.col("tc_reason").str.contains("depthwise|sparse").fill_null(False)


def _finding(
    answers: Answers,
    products: Products,
    wide: pl.DataFrame,
    device: Device,
    half: str,
    unknown: int,
) -> Finding:
    rated = scaled(
        wide,
        ideal_time(device, present_rate(device), pl.col("bytes")),
        ideal_time(device, device.peak(half, True), pl.col("bytes") / 2),
    )
    time, of_all = waiting(wide), products.whole
    beside = _beside(answers)
    units = tensor_units(device)
    return Finding(
        what=f"{wide['calls'].sum():,} products could use {units} in {half} and none is known"
        f" to: they run in f32{_now(wide, units)}, {ms(time)} ({share(time, of_all)} of the kernels' time)",
        evidence=places(wide, "different calls")
        + (f"; products of unknown dtype: {ms(unknown)}" if unknown else ""),
        recommendation=_recommendation(answers, half),
        time=time,
        saving_least=0,
        saving_most=int(rated["most"].sum()) + beside // 2,
        reasoning="At least nothing: other work may set the pace, and casts are added. At most what"
        " lies above"
        f" the roof in {half} (for each product the longer of its matrix_flops at the peak of {units}"
        f" in {half}"
        f" and half of its bytes at the memory bandwidth), and half of the {ms(beside)} that other kernels of"
        " f32 or unknown dtype take, which may move half the bytes (kernels(): duration,"
        " matrix_flops, bytes, dtypes). The"
        " estimate is of the products alone, each as far from its roof as it is now; those bound by latency"
        " keep their time.",
        confidence="medium" if (rated["factor"] < 1).any() else "low",
        rows=rows(wide),
        edit=products.edit(rated.filter(pl.col("factor") < 1)),
    )


def _now(wide: pl.DataFrame, units: str) -> str:
    """Return in words on which units the f32 products run, with the times of each where they differ."""
    tensor = f"on {units}" + (" as TF32" if units == "Tensor Cores" else "")
    kinds = {
        tensor: wide.filter("on_tensor"),
        f"without {units}": wide.filter(~pl.col("on_tensor")),
        "on units that their kernels' names do not tell": wide.filter(
            pl.col("on_tensor").is_null()
        ),
    }
    times = {said: waiting(part) for said, part in kinds.items() if len(part)}
    if len(times) == 1:
        (said,) = times
        return f", {said}" if said in list(kinds)[:2] else ""
    return f" ({', '.join(f'{ms(took)} {said}' for said, took in times.items())})"


def _beside(answers: Answers) -> int:
    """Return the time (ns) of other kernels, of f32 or unknown dtype: moving half the bytes saves at most
    half."""
    kernels = answers.kernels(categories=True)
    codes, texts = compact(kernels["dtypes"])
    single = pl.Series(["f32" in (text or "f32").split(",") for text in texts], dtype=pl.Boolean)
    families, words = compact(kernels["op_type"])
    other = pl.Series(
        [word not in MATRIX_FAMILIES | {"communication"} for word in words], dtype=pl.Boolean
    )
    durations = kernels["duration"].filter(gather(single, codes) & gather(other, families))
    return int(durations.sum())


def _recommendation(answers: Answers, half: str) -> str:
    code = _CODE.get(framework(answers) or "")
    long = {"bf16": "bfloat16", "f16": "float16"}[half]
    if code is None:
        return f"Use the framework's automatic mixed precision with {long}."
    flag, scaler = ("BF16", "") if half == "bf16" else ("FP16", _SCALER)
    return code.format(half=long, long=long, flag=flag, scaler=scaler) + "."


DETECTOR = Detector(
    name="mixed_precision",
    question="Do all matrix products run in f32 although the GPU's Tensor Cores take f16 or bf16?",
    find=find,
    fires="1 % of the kernels' time, and more than products of unknown dtype take",
    looks_at="It looks at kernels(): the dtypes and the time of the products (tc_eligible: GEMMs,"
    " convolutions,"
    " attention, recurrent layers), and the peaks of the device. One product in f16, bf16 or less says that"
    " precision is mixed already. Depthwise convolutions and sparse products are left out.",
    abstains="It cannot tell without kernels with ops, without the device's limits (--gpu gives"
    " them), and where"
    " no dtypes were recorded. On devices without Tensor Cores for f16 it finds nothing.",
    known_as=(
        "DLProf: AMP (ops eligible for Tensor Cores, none in FP16)",
        "PyTorch profiler's TensorBoard plug-in: Tensor Cores not used on compute capability 7.0 or above",
    ),
)
