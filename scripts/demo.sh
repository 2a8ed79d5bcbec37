#!/usr/bin/env bash
# Installs opscope and PyTorch into .venv, profiles the training of a LeNet, prints the report.
# It says what it downloads and how long that took; once installed, it takes about 10 s.
# Usage: bash scripts/demo.sh [options of `opscope run`]
#   VENV=folder     another folder for the environment
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/environment.sh"

# with a GPU, any GPU build of PyTorch works; without one, use the release that this is tested with
if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; then
    torch='torch>=2.6'
else
    torch='torch==2.13.0'
fi
echo "installing opscope and $torch into ${VENV:-$root/.venv}: 1.2 GB on disk where PyTorch is its CPU build," \
    "several GB more where it brings CUDA's libraries; what is there already is kept" >&2
environment "${VENV:-$root/.venv}" --editable "$root" "$torch"
echo "installed after $SECONDS s; now a training of a LeNet runs, about 10 s" >&2
exec "$bin/opscope" run --force --output lenet.opscope "$@" -- "$bin/python" "$root/examples/torch_lenet.py"
