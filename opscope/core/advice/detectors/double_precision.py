"""Work in f64, which a float64 array of the program's data or parameters spreads to all that it meets."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import Named, fit
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import evidence, ms, places, share
from opscope.core.advice.work import (
    CASTS,
    blind,
    device_time,
    edit_of,
    holds,
    numel,
    tensors,
    work,
)
from opscope.core.question import parameters
from opscope.core.tables.columns import matching

#: From this part of the device's time on, work in f64 is worth a change.
LEAST: Final = 0.05
_DOUBLE: Final = {"f64", "c128"}
_RECOMMENDED: Final[Named] = {
    "torch": "model.float() and x.float(): torch.from_numpy and torch.tensor keep NumPy's float64, and"
    " torch.set_default_dtype(torch.float64) makes all other tensors f64.",
    "keras": "keras.config.set_floatx('float32'), and data as float32: array.astype('float32').",
    "tensorflow": "tf.cast(x, tf.float32) where data comes in: tf.constant and tf.data keep NumPy's float64.",
    "jax": "jax.config.update('jax_enable_x64', False), or dtype=jnp.float32 where the arrays are made.",
    "mindspore": "mindspore.Tensor(array, mindspore.float32) where data comes in: a Tensor keeps NumPy's"
    " float64.",
}
_GENERAL: Final = "Make the data and the parameters float32 where they come in."
_UNLESS: Final = " Keep float64 where results need more than 7 digits."


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding for the ops that take an array in f64."""
    ran = work(answers)
    if ran.is_empty():
        return CannotTell("neither kernels nor a framework's ops were recorded")
    counted = ran.filter(
        pl.Series(~holds(ran["direction"], lambda text: text == "communication"), dtype=pl.Boolean)
    )
    rows = counted.filter(
        pl.Series(holds(counted["inputs"], _is_double), dtype=pl.Boolean),
        ~pl.Series(matching(counted["op"], CASTS), dtype=pl.Boolean),
    )
    time, total = int(rows["duration"].sum()), device_time(answers)
    if not time or time < least * total:
        unseen = blind(ran)
        if unseen:
            return CannotTell(unseen)
        unknown = int(counted["duration"].filter(counted["inputs"].is_null()).sum())
        if unknown >= least * total and unknown:
            return CannotTell(
                f"the number formats of {ms(unknown)} were not recorded: record with shapes"
            )
        return []
    noun = "ops" if answers.cpu_only else "kernels"
    ratio = _ratio(answers)
    most = None if ratio is None else int(time * (1 - 1 / max(ratio, 2.0)))
    return [
        Finding(
            what=f"work in f64 takes {ms(time)} ({share(time, total)} of the device's time)"
            + _words(ratio),
            evidence=places(rows, noun),
            recommendation=fit(answers, _RECOMMENDED, _GENERAL) + _UNLESS,
            time=time,
            saving_least=0,
            saving_most=most,
            reasoning="At least nothing: the program may need f64, and other work may set the pace. At most"
            + (
                " is unknown: the device's peaks are not known."
                if ratio is None
                else " what the ratio of the device's highest peaks in f32 (or TF32) and f64 would save, or"
                " half the bytes."
            )
            + " The replay halves these ops. Columns: inputs, duration, direction.",
            confidence="medium" if ratio is not None else "low",
            rows=evidence(rows),
            edit=edit_of(answers, rows, np.full(len(rows), 0.5), rows.clear())[0],
        )
    ]


def _is_double(text: str | None) -> bool:
    """Whether an op takes an array in f64; a single number (a loss, a step's size) does not count."""
    return any(dtype in _DOUBLE and numel(dims) > 1 for dtype, dims in tensors(text))


def _words(ratio: float | None) -> str:
    """Return what the ratio of the peaks adds to the finding: nothing where f64 is as fast."""
    if ratio is None or ratio <= 1:
        return ""
    return f"; the device's highest peak in f32 or TF32 is {ratio:.3g} × that in f64"


def _ratio(answers: Answers) -> float | None:
    """Return the device's highest peak in f32 over that in f64; None where one is unknown."""
    device, _ = answers.device
    if device is None:
        return None
    single, double = (
        max(filter(None, (device.peak(dtype, True), device.peak(dtype, False))), default=None)
        for dtype in ("f32", "f64")
    )
    return single / double if single and double else None


DETECTOR = Detector(
    name="double_precision",
    question="Does work run in f64?",
    find=find,
    fires="{least} of the device's time",
    thresholds={"least": parameters.share("the least share of the device time")},
    looks_at="It looks at the number formats (inputs) of ops in kernels() or ops(), without communication."
    " An op with an array in f64 or c128 counts; an op with one number in f64 and a cast do not. The bound is"
    " the device's peaks in f32 and f64.",
    abstains="Where the number formats were not recorded, or more than 5 % of the kernels' time has no op.",
)
