#!/usr/bin/env bash
# Downloads what gpu_check.sh needs into a folder, for a machine with a GPU that can download nothing.
# Usage: bash scripts/gpu_wheels.sh FOLDER [package…]
#   VERSION=3.12                the GPU machine's version of Python
#   PACKAGES like torch==2.13.0 jax[cuda12] onnxruntime-gpu are downloaded too, with all that they need
# There: WHEELS=FOLDER bash scripts/gpu_check.sh results
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] || {
    sed -n '2,6s/^# //p' "$0" >&2
    exit 2
}
folder=$1
shift
python=${PYTHON:-python3}
version=${VERSION:-3.12}
mkdir -p "$folder"
# opscope's own dependencies, from its source: the check runs from the source tree
mapfile -t needs < <("$python" - "$root/pyproject.toml" <<'READ'
import re, sys
text = open(sys.argv[1], encoding="utf-8").read()
block = re.search(r"^dependencies = \[(.*?)^\]", text, re.M | re.S).group(1)
print("\n".join(re.findall(r'^\s*"([^"]+)"', block, re.M)))
# NVTX headers, for the native observer where PyTorch brings none
print("nvidia-nvtx>=12.4")
READ
)
platforms=()
for glibc in 2_39 2_35 2_34 2_31 2_28 2_27 2_24 2_17; do
    platforms+=(--platform "manylinux_${glibc}_x86_64")
done
platforms+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
"$python" -m pip download --disable-pip-version-check --only-binary=:all: --implementation cp \
    --python-version "$version" "${platforms[@]}" --dest "$folder" "${needs[@]}" "$@"
echo "on the GPU machine: WHEELS=$folder bash scripts/gpu_check.sh results"
