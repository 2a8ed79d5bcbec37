#!/usr/bin/env bash
# Installs tox into .venv and runs all tests: lint, core, torch, tensorflow.
# Usage: bash scripts/test.sh [options of tox]
#   VENV=folder     another folder for the environment
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/environment.sh"

environment "${VENV:-$root/.venv}" 'tox>=4.20'
cd "$root"
exec "$bin/tox" run "$@"
