#!/usr/bin/env bash
# Installs opscope and PyTorch into .venv, profiles the training of a LeNet, prints the report.
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
environment "${VENV:-$root/.venv}" --editable "$root" "$torch"
exec "$bin/opscope" run --force --output lenet.opscope "$@" -- "$bin/python" "$root/examples/torch_lenet.py"
