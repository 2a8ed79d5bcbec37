"""f32 matrix products on CUDA cores where the GPU's Tensor Cores could take them as TF32."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.products import (
    LEAST_SHARE,
    Products,
    ideal_time,
    not_ops,
    nvidia,
    present_rate,
    products,
    rows,
    scaled,
    unknown_device,
    waiting,
)
from opscope.core.advice.saying import framework, ms, places, share
from opscope.core.perf.devices.peaks import Device

_FIRST: Final = (8, 0)
#: The values of ``tc_reason`` that TF32 would not change: another kernel, or another detector's matter.
_OTHER: Final = r"vector product|tiny problem|not a multiple|depthwise|sparse"
#: Each switch is for one family; attention and recurrent layers follow the switch of the products.
_SWITCHES: Final = {
    "torch": (
        'torch.set_float32_matmul_precision("high")',
        "torch.backends.cudnn.allow_tf32 = True",
    ),
    "tensorflow": ("tf.config.experimental.enable_tensor_float_32_execution(True)",) * 2,
    "jax": ('jax.config.update("jax_default_matmul_precision", "tensorfloat32")',) * 2,
    "mindspore": (
        'mindspore.set_context(gpu_config={"matmul_allow_tf32": True})',
        'mindspore.set_context(gpu_config={"conv_allow_tf32": True})',
    ),
    "onnxruntime": ('providers=[("CUDAExecutionProvider", {"use_tf32": 1})]',) * 2,
    "tensorrt": ("config.set_flag(trt.BuilderFlag.TF32)",) * 2,
}


def find(answers: Answers) -> Answer:
    """Return one finding with the f32 products that kernels without Tensor Cores computed."""
    products_of_run = products(answers)
    if isinstance(products_of_run, CannotTell):
        return products_of_run
    device, reason = answers.device
    if device is None:
        return unknown_device(reason)
    units = nvidia(device)
    if units is None or units < _FIRST or device.peak("f32", True) is None:
        return []  # the device has no TF32
    works = products_of_run.works.with_columns((pl.col("op_type") == "conv").alias("conv"))
    single = works.filter(pl.col("dtype") == "f32")
    # one f32 product on Tensor Cores proves that TF32 is on for its family
    on = single.filter(pl.col("on_tensor"))["conv"].unique()
    off = single.filter(
        ~pl.col("on_tensor"),
        "plain",
        ~pl.col("conv").is_in(on.implode()),
        ~pl.col("tc_reason").str.contains(_OTHER).fill_null(False),
    )
    unknown = works.filter(
        pl.col("dtype").is_null() | ((pl.col("dtype") == "f32") & pl.col("on_tensor").is_null()),
        ~pl.col("conv").is_in(on.implode()),
    )
    if waiting(off) < LEAST_SHARE * products_of_run.whole or not len(off):
        if waiting(unknown) >= LEAST_SHARE * products_of_run.whole and len(unknown):
            return CannotTell(
                f"of products with {ms(waiting(unknown))}, neither shapes with dtypes nor the kernels' names"
                " tell whether they are f32 without Tensor Cores"
            )
        if (
            products_of_run.hidden_plain >= LEAST_SHARE * products_of_run.whole
            and products_of_run.hidden_plain
        ):
            return not_ops(products_of_run.hidden_plain)
        return []
    return [_finding(answers, products_of_run, off, device, waiting(unknown))]


def _finding(
    answers: Answers, products: Products, off: pl.DataFrame, device: Device, unknown: int
) -> Finding:
    peak = device.peak("f32", True) or 0.0
    rated = scaled(
        off,
        ideal_time(device, present_rate(device), pl.col("bytes")),
        ideal_time(device, peak, pl.col("bytes")),
    )
    time = waiting(off)
    recorded = off["params"].str.contains("allow_tf32=false").fill_null(False)
    proven = waiting(off.filter(recorded))
    vector = device.peak("f32", False)
    faster = f"{peak / vector:.1f} × the peak of its vector units" if vector else "faster"
    return Finding(
        what=f"{off['calls'].sum():,} f32 products take {ms(time)} ({share(time, products.whole)} of the"
        f" kernels' time) in kernels without Tensor Cores; with TF32 the peak of {device.name} is {faster}",
        evidence=places(off, "different calls")
        + (f"; TF32 is recorded as off for {ms(proven)}" if proven else "")
        + (f"; {ms(unknown)} of products are of unknown dtype or units" if unknown else ""),
        recommendation=_recommendation(answers, off),
        time=time,
        saving_least=0,
        saving_most=int(rated["most"].sum()),
        reasoning="At least nothing: the library may choose the same kernels. At most what lies above the"
        " roof with TF32: for each product the longer of its matrix_flops at the TF32 peak and its bytes at"
        " the memory bandwidth (kernels(): duration, matrix_flops, bytes; the device's peaks). The estimate"
        " keeps each product as far from its roof as it is now; those bound by latency keep their time.",
        confidence=_confidence(off, proven, time),
        rows=rows(off),
        edit=products.edit(rated.filter(pl.col("factor") < 1)),
    )


def _confidence(off: pl.DataFrame, proven: int, time: int) -> str:
    if proven * 2 > time:
        return "high"
    # some may be products of a vector
    unshaped = waiting(off.filter(pl.col("matrix_flops").is_null()))
    return "low" if unshaped * 2 > time else "medium"


def _recommendation(answers: Answers, off: pl.DataFrame) -> str:
    switches = _SWITCHES.get(framework(answers) or "")
    if switches is None:
        return (
            "Allow TF32 for f32 products in the framework; results keep 10 bits of mantissa in the"
            " factors."
        )
    convs, others = bool(off["conv"].any()), bool((~off["conv"]).any())
    said = dict.fromkeys(
        code for code, is_it in zip(switches, (others, convs), strict=True) if is_it
    )
    return f"{'; '.join(said)} (10 bits of mantissa in the factors, sums in f32)."


DETECTOR = Detector(
    name="tf32_off",
    question="Do f32 matrix products run without Tensor Cores where the GPU has TF32?",
    find=find,
    fires="1 % of the kernels' time",
    looks_at="It looks at kernels(): the products (tc_eligible) whose inputs are f32, whether the names of"
    " their kernels prove vector units or Tensor Cores (tensor_core), tc_reason, and the recorded parameter"
    " allow_tf32; TF32 is on for a family (convolutions, all others) if one f32 product of it uses Tensor"
    " Cores. Products of a vector, tiny ones, and those with sizes that are no multiple of 16 bytes are left"
    " out, because TF32 alone does not change them.",
    abstains="It cannot tell without kernels with ops, without the device's limits (--gpu gives"
    " them), and where"
    " neither dtypes nor the kernels' names tell what ran. On devices without TF32 it finds nothing.",
)
