#!/usr/bin/env bash
# Builds the wheel and the sdist into dist/, and tries each in a clean environment of every Python from 3.10 to 3.14
# that is here: it installs, has its types and the viewer's pages, records a program and reports on it.
# Usage: bash scripts/check_release.sh
#   PYTHONS="python3.10 /opt/python3.14/bin/python"   these Pythons instead
#   OUT=folder                                        where the built files go, instead of dist/
set -euo pipefail
shopt -s inherit_errexit
root=$(cd "$(dirname "$0")/.." && pwd)
out=${OUT:-$root/dist}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

works() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

pythons=()
for name in ${PYTHONS:-python3.10 python3.11 python3.12 python3.13 python3.14}; do
    if command -v "$name" >/dev/null && works "$name"; then
        pythons+=("$name")
    else
        echo "$name: not here, so not tried"
    fi
done
[ ${#pythons[@]} -gt 0 ] || { echo "none of these Pythons is here" >&2; exit 1; }

newest=${pythons[${#pythons[@]} - 1]}
"$newest" -m venv "$scratch/build"
"$scratch/build/bin/python" -m pip install --quiet --disable-pip-version-check build
rm -rf "$out"
"$scratch/build/bin/python" -m build --outdir "$out" "$root" >"$scratch/build.log" 2>&1 || { tail -n 30 "$scratch/build.log" >&2; exit 1; }
ls -l "$out"

try() { # python, file
    local folder bin
    folder=$(mktemp -d -p "$scratch")
    "$1" -m venv "$folder/venv"
    bin=$folder/venv/bin
    "$bin/python" -m pip install --quiet --disable-pip-version-check "$2"
    cd "$folder"
    "$bin/opscope" --version
    "$bin/python" - <<'END'
from importlib.metadata import metadata
from importlib.resources import files

import opscope

package = files("opscope")
assert (package / "py.typed").is_file()
assert (package / "viewer" / "static" / "viewer.js").is_file()
assert metadata("opscope")["Version"] == opscope.__version__
END
    "$bin/opscope" run --no-report -o work -- "$bin/python" -c '
import opscope
for _ in range(3):
    opscope.step()
    with opscope.annotate("work"):
        sum(range(10000))' 2>/dev/null
    "$bin/opscope" report work.opscope --json | "$bin/python" -c 'import json, sys; assert json.load(sys.stdin)["summary"]["steps"] == 2' # the third is cut off
    "$bin/opscope" report work.opscope --html work.html 2>/dev/null
    cd "$root"
    rm -rf "$folder"
}

for python in "${pythons[@]}"; do
    for file in "$out"/*.whl "$out"/*.tar.gz; do
        version=$(try "$python" "$file")
        echo "$("$python" --version), ${file##*/}: $version, records and reports"
    done
done

# the command alone, as users of pipx and uv have it
"$scratch/build/bin/python" -m pip install --quiet --disable-pip-version-check pipx uv
interpreter=$(command -v "$newest")
version=$(PIPX_HOME=$scratch/pipx "$scratch/build/bin/pipx" run --python "$interpreter" --spec "$out"/*.whl opscope --version 2>/dev/null)
echo "pipx run: $version"
version=$(UV_CACHE_DIR=$scratch/uv UV_PYTHON_DOWNLOADS=never "$scratch/build/bin/uvx" --quiet --python "$interpreter" --from "$out"/*.whl opscope --version)
echo "uvx: $version"
