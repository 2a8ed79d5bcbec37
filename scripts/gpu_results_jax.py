"""What ``gpu_check.sh`` asks of the profile of a JAX training: PROFILE, then the file to write."""

from __future__ import annotations

import sys

import jax
import polars as pl

import opscope

profile = opscope.load(sys.argv[1])
summary = profile.summary().to_dicts()[0]
kernels = profile.kernels()
whole = kernels["duration"].sum()
attributed = kernels.filter(kernels["op_id"].is_not_null())["duration"].sum()
ops = profile.ops().filter(
    pl.col("params").cast(pl.String).str.contains("jit(train_step)", literal=True)
)
shaped = ops.filter(pl.col("outputs").is_not_null())
checks = {
    "kernels were captured": len(kernels) > 0,
    "at least 99 % of kernel time has an op": whole > 0 and attributed >= 0.99 * whole,
    "attributed + unattributed = total": len(kernels) > 0
    and summary["attributed_time"] + summary["unattributed_time"] == whole,
    "FLOPs are known for at least 95 % of device time": (summary["flops_share"] or 0) >= 0.95,
    "all ops of the model have shapes": len(ops) > 0 and len(shaped) == len(ops),
    "layers were seen": {"cnn/conv1", "cnn/fc2"} <= set(ops["layer"].cast(pl.String)),
    "all 8 steps were seen": summary["steps"] == 8,
}
lines = [
    f"opscope {opscope.__version__}, jax {jax.__version__}, {jax.devices()[0].device_kind}",
    *(f"{'pass' if passed else 'FAIL'}  {what}" for what, passed in checks.items()),
    *(f"      {key} = {value}" for key, value in summary.items()),
]
text = "\n".join(lines) + "\n"
with open(sys.argv[2], "w", encoding="utf-8") as file:
    file.write(text)
print(text)
sys.exit(not all(checks.values()))
