#!/usr/bin/env bash
# Checks on a CUDA machine what CI cannot: LeNet, bf16 AMP, torch.compile, CUDA graphs, two streams,
# the GPU's memory, and what it costs beside torch.profiler (gpu_programs.py, gpu_results.py).
# Usage: bash scripts/gpu_check.sh [folder for the results]     (or OUT=folder)
#   PYTHON=python   the Python to use: one with opscope's dependencies and a CUDA build of torch;
#                   where it has a JAX or a TensorFlow that sees the GPU, that is checked too
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

sees_gpu() {  # NAME PYTHON: whether the framework is there and sees the GPU; told where not
    "$python" -c "$2" >/dev/null 2>&1 && return
    echo "gpu_check: no $1 that sees the GPU: not checked" | tee "$out/results-${1,,}.txt"
    return 1
}

# NAME EXAMPLE: an example of another framework, and what is asked of its profile
check() {
    rm -rf "$out/$1.opscope" "$out/$1.opscope.tar.gz" "$out/results-$1.txt"
    options=()
    run "$1" "$python" "$root/examples/$2"
    "$python" -m opscope report "$out/$1.opscope" >"$out/report-$1.txt" 2>&1
    [ -d "$out/$1.opscope" ] && tar -C "$out" -czf "$out/$1.opscope.tar.gz" "$1.opscope"
    "$python" "$root/scripts/gpu_results_$1.py" "$out/$1.opscope" "$out/results-$1.txt" || status=1
}

sees_gpu JAX 'import jax, sys; sys.exit(jax.default_backend() != "gpu")' && check jax jax_cnn.py
sees_gpu TensorFlow 'import tensorflow as tf, sys; sys.exit(not tf.config.list_physical_devices("GPU"))' &&
    check tensorflow tensorflow_loop.py
exit $status
