#!/usr/bin/env bash
# Checks on a CUDA machine what CI cannot: LeNet, bf16 AMP, torch.compile, CUDA graphs, two streams,
# the GPU's memory, and what it costs beside torch.profiler (gpu_programs.py, gpu_results.py).
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
run() {  # NAME COMMAND...: one profile; a program that fails is told, and the others still run
    local name=$1
    shift
    "$python" -m opscope run --force --no-report --output "$out/$name.opscope" ${options[@]+"${options[@]}"} -- "$@" \
        >"$out/$name.log" 2>&1 || echo "gpu_check: $name: exit status $?, see $out/$name.log" >&2
}

export OPSCOPE_CACHE=${OPSCOPE_CACHE:-$out/cache}
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$out/inductor}
# what an earlier check left must not pass for this one's
for name in lenet amp compiled graph streams memory overhead; do
    rm -rf "$out/$name.opscope" "$out/$name.opscope.tar.gz" "$out/$name.json"
done
rm -f "$out/results.txt"
options=()
run lenet "$python" "$root/examples/torch_lenet.py"
for name in amp compiled graph streams memory; do
    options=()
    [ "$name" = memory ] && options=(--memory)
    run "$name" "$python" "$root/scripts/gpu_programs.py" "$name" "$out/$name.json"
done
"$python" "$root/scripts/gpu_programs.py" overhead "$out/overhead.json" >"$out/overhead.log" 2>&1 ||
    echo "gpu_check: overhead: exit status $?, see $out/overhead.log" >&2
"$python" -m opscope report "$out/lenet.opscope" >"$out/report.txt" 2>&1
"$python" -m opscope report "$out/lenet.opscope" --json >"$out/report.json" 2>/dev/null
for name in lenet amp compiled graph streams memory; do
    [ -d "$out/$name.opscope" ] && tar -C "$out" -czf "$out/$name.opscope.tar.gz" "$name.opscope"
done
"$python" "$root/scripts/gpu_results.py" "$out"
status=$?

"$python" -c 'import jax, sys; sys.exit(jax.default_backend() != "gpu")' 2>/dev/null || {
    echo "gpu_check: no JAX that sees the GPU: not checked" | tee "$out/results-jax.txt"
    exit $status
}
rm -rf "$out/jax.opscope" "$out/jax.opscope.tar.gz" "$out/results-jax.txt"
options=()
run jax "$python" "$root/examples/jax_cnn.py"
"$python" -m opscope report "$out/jax.opscope" >"$out/report-jax.txt" 2>&1
[ -d "$out/jax.opscope" ] && tar -C "$out" -czf "$out/jax.opscope.tar.gz" jax.opscope
"$python" "$root/scripts/gpu_results_jax.py" "$out/jax.opscope" "$out/results-jax.txt" || status=1
exit $status
