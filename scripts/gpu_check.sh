#!/usr/bin/env bash
# Checks on a CUDA machine what no other machine can check: whether opscope sees the same kernels, copies and
# memory of a program as PyTorch, JAX and TensorFlow themselves, and what that costs.
# Usage: bash scripts/gpu_check.sh [FOLDER] [options]     (or OUT=FOLDER; gpu_check.py lists the options)
#   PYTHON=python   the Python to use, with opscope's dependencies and a CUDA build of torch; if it also
#                   has a JAX or a TensorFlow that sees the GPU, these are checked too
#   WHEELS=folder   take what that Python lacks from these wheels, apart from its own packages
#                   (scripts/gpu_wheels.sh fills the folder, on a machine with a network)
# Needs no network, no nsys, no trace files. Every program and the whole check have a time limit; results are
# written after each case. Exit status: 0 passed, 1 failed, 2 cannot run here.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
[ -z "${PYTHON:-}" ] && [ -x "$root/.venv/bin/python" ] && python=$root/.venv/bin/python
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

refuse() {
    echo "gpu_check: $1" >&2
    exit 2
}

# a hanging driver must not hang the check
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
if [ -n "${WHEELS:-}" ]; then
    site=$(mktemp -d) || refuse "no temporary folder"
    trap 'rm -rf "$site"' EXIT
    mapfile -t lacking < <("$python" - "$WHEELS" <<'LACKING'
import importlib.metadata as installed, pathlib, sys
for wheel in sorted(pathlib.Path(sys.argv[1]).glob("*.whl")):
    try:
        installed.version(wheel.name.split("-")[0])
    except installed.PackageNotFoundError:
        print(wheel)
LACKING
    )
    [ ${#lacking[@]} = 0 ] ||
        "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile \
            --target "$site" "${lacking[@]}" || refuse "$WHEELS: its wheels could not be installed"
    export PYTHONPATH="$PYTHONPATH:$site"
fi
bounded "$python" -c 'import torch' 2>/dev/null
status=$?
[ $status = 124 ] && refuse "$python: the import of torch exceeds the time limit"
[ $status = 0 ] || refuse "$python has no torch"
bounded "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())'
status=$?
[ $status = 124 ] && refuse "torch's search for CUDA devices exceeds the time limit"
[ $status = 0 ] ||
    refuse "no CUDA device that $python's torch can use: run this check on a machine with a GPU"
missing=$(bounded "$python" -c 'import opscope.profile, opscope.cli.app' 2>&1) ||
    refuse "$python cannot import opscope: ${missing##*$'\n'}"

if [ -n "${WHEELS:-}" ]; then # not exec: the wheels are removed afterwards
    "$python" "$root/scripts/gpu_check.py" "$@"
    exit
fi
exec "$python" "$root/scripts/gpu_check.py" "$@"
