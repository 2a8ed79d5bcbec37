# Sourced by the other scripts: makes the virtual environment $1 (or reuses it), installs the packages of the
# remaining arguments, and sets `bin` to the folder of its programs.

find_python() {
    local name
    for name in "${PYTHON:-}" python3.13 python3.12 python3.11 python3.10 python3 python; do
        if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "needs Python 3.10 or later with venv (set PYTHON to such a Python)" >&2
    return 1
}

environment() {
    local folder=$1 python
    shift
    if [ ! -x "$folder/bin/python" ] || ! "$folder/bin/python" -c 'import pip' 2>/dev/null; then
        python=$(find_python) || return
        echo "making $folder with $python" >&2
        "$python" -m venv --clear "$folder"
    fi
    bin=$(cd "$folder/bin" && pwd)
    # of pip's lines those of large downloads, with their sizes, and that it installs; none where all is there
    "$bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@" |
        sed -u -n -E -e 's/^ *(Downloading [^ ]+) (\([0-9.]+ [MG]B\)).*/  \1 \2/p' \
            -e 's/^Installing collected packages: .*/  installing them/p' >&2
}
