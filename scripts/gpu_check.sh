#!/usr/bin/env bash
# Checks on a CUDA machine what no other machine can: whether opscope sees of a program's kernels, copies
# and memory what PyTorch, JAX and TensorFlow say of them themselves, and what that costs.
# Usage: bash scripts/gpu_check.sh [FOLDER] [options]     (or OUT=FOLDER; gpu_check.py lists the options)
#   PYTHON=python   the Python to use: one with opscope's dependencies and a CUDA build of torch;
#                   where it has a JAX or a TensorFlow that sees the GPU, these are checked too
# Needs no network, no nsys, no trace files. Every program has a time limit, and so has the whole; what is
# found is written after each. Exit status: 0 passed, 1 failed, 2 cannot be run here.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
[ -z "${PYTHON:-}" ] && [ -x "$root/.venv/bin/python" ] && python=$root/.venv/bin/python
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

refuse() {
    echo "gpu_check: $1" >&2
    exit 2
}

# a driver that hangs must not hang the check
bounded() {
    if command -v timeout >/dev/null 2>&1; then
        timeout -k 5 "${GPU_CHECK_PROBE_SECONDS:-120}" "$@"
    else
        "$@"
    fi
}

# "usage" and the table of earlier results need no GPU
for word in "$@"; do
    case $word in
    -h | --help | --table | --list | --device=* | --device) exec "$python" "$root/scripts/gpu_check.py" "$@" ;;
    esac
done

command -v "$python" >/dev/null 2>&1 || refuse "$python: not found"
bounded "$python" -c 'import torch' 2>/dev/null
status=$?
[ $status = 124 ] && refuse "$python: torch is not imported within the time limit"
[ $status = 0 ] || refuse "$python has no torch"
bounded "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())'
status=$?
[ $status = 124 ] && refuse "torch does not find its CUDA devices within the time limit"
[ $status = 0 ] ||
    refuse "no CUDA device that $python's torch can use: this check is for a machine with one"
missing=$(bounded "$python" -c 'import opscope.profile, opscope.cli.app' 2>&1) ||
    refuse "$python cannot import opscope: ${missing##*$'\n'}"

exec "$python" "$root/scripts/gpu_check.py" "$@"
