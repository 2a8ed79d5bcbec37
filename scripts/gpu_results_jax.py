"""Check the profile of a JAX training for ``gpu_check.sh``; arguments NAME FOLDER, as of gpu_results.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import polars as pl

import opscope

name, folder = sys.argv[1], Path(sys.argv[2])
profile = opscope.load(folder / f"{name}.opscope")
device, why = profile.device
summary = profile.summary().to_dicts()[0]
kernels = profile.kernels()
whole = kernels["duration"].sum()
attributed = kernels.filter(kernels["op_id"].is_not_null())["duration"].sum()
# XLA's compiler runs kernels to choose among them, on threads of its own: the report gives them the phase
stepped = kernels.filter(pl.col("step") > 0)
of_steps = stepped.filter(pl.col("op_id").is_not_null())["duration"].sum()
gaps = profile.gaps()
compiling = gaps.filter(pl.col("phase") == "compile")["time"].sum()
ops = profile.ops().filter(
    pl.col("params").cast(pl.String).str.contains("jit(train_step)", literal=True)
)
shaped = ops.filter(pl.col("outputs").is_not_null())
checks = {
    "kernels were captured": len(kernels) > 0,
    "at least 99 % of kernel time has an op, after the first step": len(stepped) > 0
    and of_steps >= 0.99 * stepped["duration"].sum(),
    "what has none ran while a program was compiled": compiling >= 0.99 * gaps["time"].sum(),
    "attributed + unattributed = total": len(kernels) > 0
    and summary["attributed_time"] + summary["unattributed_time"] == whole,
    "FLOPs are known for at least 95 % of the steps' kernels": len(stepped) > 0
    and stepped.filter(pl.col("flops").is_not_null())["duration"].sum()
    >= 0.95 * stepped["duration"].sum(),
    "all ops of the model have shapes": len(ops) > 0 and len(shaped) == len(ops),
    "layers were seen": {"cnn/conv1", "cnn/fc2"} <= set(ops["layer"].cast(pl.String)),
    "all 8 steps were seen": summary["steps"] == 8,
    f"the device's peaks are known ({device.name if device else why})": device is not None
    and bool(device.vector),
    "ops have roofs": bool(profile.efficiency()["efficiency"].is_not_null().any()),
}
facts = [
    f"opscope {opscope.__version__}, jax {jax.__version__}, {jax.devices()[0].device_kind}",
    *(f"{key} = {value}" for key, value in summary.items()),
    *(f"note: {note}" for note in profile.notes()["what"].cast(pl.String)),
]
text = json.dumps({"checks": checks, "facts": facts}, indent=1, default=str)
(folder / f"{name}.checks.json").write_text(text, encoding="utf-8")
sys.exit(not all(checks.values()))
