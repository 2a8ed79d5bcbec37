"""The energy that GPUs used while they were sampled, and the energy per step."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.host.input_waits import ended
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.schema import GPU_ENERGY, GPU_POWER
from opscope.core.tables.trace import Trace

ENERGY: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "device": pl.Int32,
    "sampled_time": pl.Int64,
    "energy": pl.Float64,
    "power": pl.Float64,
    "max_power": pl.Float64,
    "counted_steps": pl.Int64,
    "step_energy": pl.Float64,
    "reason": pl.String,
}
NO_COUNTER: Final = "NVML gives no energy of this GPU, and too few samples of its power to add up"
FROM_POWER: Final = "NVML gives no energy of this GPU: its power was added up over the samples"
NO_STEPS: Final = "no step ended while the GPU was sampled"


def energy(trace: Trace, steps: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process and GPU that was sampled (``ENERGY``; ns, J, W).

    ``steps``: process, start, end (ns) and weight of each row: the number of steps that it represents. A row
    that is only partly in the sampled time counts in part.
    """
    names = trace["samples"]["name"].cast(pl.String)
    used = trace["samples"].filter(
        names.is_in([GPU_ENERGY, GPU_POWER])
        & pl.col("value").is_not_null()
        & pl.col("device").is_not_null()
    )
    by_rank = dict(trace["processes"].select("process", "rank").rows())
    rows: list[dict[str, Any]] = []
    for (process, device), part in used.sort("time").group_by(
        "process", "device", maintain_order=True
    ):
        series = {
            name: part.filter(pl.col("name").cast(pl.String) == name)
            for name in (GPU_ENERGY, GPU_POWER)
        }
        counted = series[GPU_ENERGY]
        watts: Any = series[GPU_POWER]["value"].max()
        row: dict[str, Any] = {
            "process": process,
            "rank": by_rank.get(process),
            "device": device,
            "max_power": watts,
            "reason": None,
        }
        if len(counted) > 1:
            row["energy"] = _rises(counted["value"].to_numpy())
        elif len(series[GPU_POWER]) > 1:
            counted = series[GPU_POWER]
            time, value = counted["time"].to_numpy(), counted["value"].to_numpy()
            row |= {"energy": _area(value, time) / 1e9, "reason": FROM_POWER}
        else:
            rows.append(row | {"reason": NO_COUNTER})
            continue
        begin, end = counted["time"][0], counted["time"][-1]
        row |= {"sampled_time": end - begin}
        row["power"] = row["energy"] / (end - begin) * 1e9 if end > begin else None
        step_count = _within(steps.filter(pl.col("process") == process), begin, end)
        if step_count >= 1:
            row |= {"counted_steps": round(step_count), "step_energy": row["energy"] / step_count}
        else:
            row["reason"] = NO_STEPS
        rows.append(row)
    return pl.DataFrame(rows, schema=ENERGY).sort("process", "device")


def light_steps(trace: Trace) -> pl.DataFrame:
    """Return the steps of light mode in the form that ``energy`` takes."""
    return trace["light_blocks"].select("process", "start", "end", weight=pl.col("steps"))


def _rises(value: NDArray[np.float64]) -> float:
    """Return the increases of a counter; a restarted driver counts from 0."""
    steps = np.diff(value)
    return float(np.where(steps >= 0, steps, value[1:]).sum())


def _within(steps: pl.DataFrame, begin: int, end: int) -> float:
    if not len(steps):
        return 0.0
    starts, ends = steps["start"].to_numpy(), steps["end"].to_numpy()
    inside = np.minimum(ends, end) - np.maximum(starts, begin)
    share = np.clip(inside / np.maximum(ends - starts, 1), 0, 1)
    return float((share * steps["weight"].to_numpy()).sum())


def _area(value: NDArray[np.float64], time: NDArray[np.int64]) -> float:
    return float(((value[1:] + value[:-1]) / 2 * np.diff(time)).sum())


def answer(profile: Answers) -> pl.DataFrame:
    """The energy that each GPU used while it was sampled, and its energy per step."""
    recorded = ended(profile.attribution.trace, profile.attribution.meaning)
    steps = recorded.select("process", "start", "end", weight=pl.lit(1, pl.Int64))
    return energy(profile.trace, pl.concat([light_steps(profile.trace), steps]))


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "energy()",
            "one row per process and GPU whose energy or power was sampled",
            columns(
                "process rank device sampled_time energy power max_power counted_steps "
                "step_energy reason",
                """
                sampled_time: ns: time from the first sample to the last
                energy: J: energy that the GPU took in the sampled time
                power: W: energy / sampled_time
                max_power: W: most power in any sample
                counted_steps: count: steps in the sampled time, of which the first and the last count in
                    part; rounded
                step_energy: J: energy / the steps in the sampled time
                reason: text: why a value is null, or of what it was made
                """,
            ),
        ),
    ),
    merged=lacking.MOMENTS,
    reports=(
        Report(
            name="energy",
            title="Energy of GPUs",
            empty="no GPU's energy or power was sampled: that needs NVML (opscope[gpu]) and an NVIDIA GPU",
            forms=[
                Column("energy", "energy [J]", units.ratio),
                Column("power", "power [W]", units.ratio),
                Column("max_power", "max power [W]", units.ratio),
                Column("step_energy", "J/step", units.ratio),
            ],
            sums="",
        ),
    ),
)
