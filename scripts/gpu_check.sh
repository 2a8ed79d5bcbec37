#!/usr/bin/env bash
# Checks on a CUDA machine what CI cannot: kernels of a real training, attributed to its ops.
# Usage: bash scripts/gpu_check.sh [folder for the results]     (or OUT=folder)
#   PYTHON=python   the Python to use: one with opscope's dependencies and a CUDA build of torch;
#                   where it has a JAX that sees the GPU, that is checked too
# Needs no network, no nsys, no trace files. Exit status: 0 passed, 1 failed, 2 cannot be run here.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-${OUT:-$PWD/gpu_check}}
python=${PYTHON:-python3}
[ -z "${PYTHON:-}" ] && [ -x "$root/.venv/bin/python" ] && python=$root/.venv/bin/python
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

refuse() {
    echo "gpu_check: $1" >&2
    exit 2
}

command -v "$python" >/dev/null 2>&1 || refuse "$python: not found"
"$python" -c 'import torch' 2>/dev/null || refuse "$python has no torch"
"$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' ||
    refuse "no CUDA device that $python's torch can use: this check is for a machine with one"
missing=$("$python" -c 'import opscope.profile, opscope.cli.app' 2>&1) ||
    refuse "$python cannot import opscope: ${missing##*$'\n'}"

mkdir -p "$out" || refuse "$out: cannot be made"
profile=$out/lenet.opscope
"$python" -m opscope run --force --no-report --output "$profile" -- \
    "$python" "$root/examples/torch_lenet.py" || {
    echo "gpu_check: the run failed" >&2
    exit 1
}
"$python" -m opscope report "$profile" | tee "$out/report.txt"
"$python" -m opscope report "$profile" --json >"$out/report.json" || exit 1
tar -C "$out" -czf "$out/lenet.opscope.tar.gz" lenet.opscope
"$python" - "$profile" "$out/results.txt" <<'PYTHON'
import sys

import torch

import opscope

profile = opscope.load(sys.argv[1])
summary = profile.summary().to_dicts()[0]
kernels = profile.kernels()
launched = kernels.filter(kernels["call_start"].is_not_null())
with_op = launched.filter(launched["op_id"].is_not_null())
whole, attributed = launched["duration"].sum(), with_op["duration"].sum()
checks = {
    "kernels were captured": len(kernels) > 0,
    "at least 99 % of launched kernel time has an op": whole > 0 and attributed >= 0.99 * whole,
    "attributed + unattributed = total": len(kernels) > 0
    and summary["attributed_time"] + summary["unattributed_time"] == kernels["duration"].sum(),
    "FLOPs are known for at least 95 % of launched device time": (summary["flops_share"] or 0) >= 0.95,
    "all 8 steps were seen": summary["steps"] == 8,
}
lines = [
    f"opscope {opscope.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}",
    *(f"{'pass' if passed else 'FAIL'}  {what}" for what, passed in checks.items()),
    f"      launched kernel time = {whole} ns, with its op = {attributed} ns",
    *(f"      {key} = {value}" for key, value in summary.items()),
]
text = "\n".join(lines) + "\n"
with open(sys.argv[2], "w", encoding="utf-8") as file:
    file.write(text)
print(text)
sys.exit(not all(checks.values()))
PYTHON
status=$?

"$python" -c 'import jax, sys; sys.exit(jax.default_backend() != "gpu")' 2>/dev/null || {
    echo "gpu_check: no JAX that sees the GPU: not checked" | tee "$out/results-jax.txt"
    exit $status
}
profile=$out/jax.opscope
"$python" -m opscope run --force --no-report --output "$profile" -- \
    "$python" "$root/examples/jax_cnn.py" || {
    echo "gpu_check: the run of JAX failed" >&2
    exit 1
}
"$python" -m opscope report "$profile" | tee "$out/report-jax.txt"
tar -C "$out" -czf "$out/jax.opscope.tar.gz" jax.opscope
"$python" - "$profile" "$out/results-jax.txt" <<'PYTHON'
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
PYTHON
exit $((status | $?))
