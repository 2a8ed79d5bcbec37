#!/usr/bin/env bash
# Installs tox into .venv and runs all tests: the environments of tox.ini. Those of pages in a browser skip without
# chromium, node and npm; with OPSCOPE_VIEWER=1 they fail instead.
# Usage: bash scripts/test.sh [full|deep] [options of tox]
#   full: what is slow and rare too; deep: twenty times as many examples of property tests (docs/testing.md)
#   VENV=folder     another folder for the environment
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/environment.sh"

case ${1:-} in full | deep)
    export OPSCOPE_TESTS=$1 POLARS_MAX_THREADS=${POLARS_MAX_THREADS:-2}
    shift
    ;;
esac
environment "${VENV:-$root/.venv}" 'tox>=4.20'
cd "$root"
case " $* " in
*" -e "* | *" -e="* | *" -e"[a-z]*) exec "$bin/tox" run "$@" ;;
esac
echo "every environment: about 12 GB in .tox, and 25 to 60 minutes on two cores; one alone: bash scripts/test.sh -e torch" \
    "(core, torch, jax, tensorflow, mindspore, onnxruntime, viewer, lint). What one prints comes when it ends." >&2
# Two at a time: one waits for a browser, a server or the end of a program while the other computes (docs/testing.md).
exec "$bin/tox" run-parallel --parallel 2 --parallel-no-spinner "$@"
