"""The scripts refuse clearly where they cannot work; those that record and count see a change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def script(name: str, *args: object, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / name), *map(str, args)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_gpu_check_refuses_without_cuda_and_leaves_nothing(tmp_path):
    cuda = pytest.importorskip("torch.cuda")
    if cuda.is_available():
        pytest.skip("there is a CUDA device here: run scripts/gpu_check.sh itself")
    done = script("gpu_check.sh", tmp_path / "out", PYTHON=sys.executable)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpu_check: no CUDA device")
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_gpu_check_refuses_without_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('none here')")
    done = script("gpu_check.sh", tmp_path / "out", PYTHON=sys.executable, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gpu_check: {sys.executable} has no torch\n"
    assert not (tmp_path / "out").exists()


def test_a_python_that_is_too_old_is_refused(tmp_path):
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for name in ("python3.13", "python3.12", "python3.11", "python3.10", "python3", "python"):
        (tmp_path / name).symlink_to(old)
    done = script(
        "test.sh",
        VENV=str(tmp_path / "venv"),
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        PYTHON=str(old),
    )
    assert done.returncode != 0
    assert "needs Python 3.10 or later" in done.stderr
    assert not (tmp_path / "venv").exists()


def python_script(name: str, *args: object, **env: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / name), *map(str, args)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **{key: str(env[key]) for key in env}},
        capture_output=True,
        text=True,
        check=False,
    )


def write_trace(path: Path, *names: str) -> None:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 20 * n, "dur": 10}
        for n, name in enumerate(names)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))


def test_recordings_differ_only_where_an_output_changed(tmp_path):
    shared = tmp_path / "shared"
    (shared / "cases").mkdir(parents=True)
    (shared / "cases" / "refused.json").write_text("no trace")
    for folder, names in (("old", ["aten::mm"]), ("same", ["aten::mm"]), ("new", ["aten::add"])):
        write_trace(shared / "data" / "trace.json", *names)
        args = ("-o", tmp_path / folder, "--only", "*.json")
        done = python_script("record_outputs.py", *args, OPSCOPE_SHARED=shared)
        assert done.returncode == 0, done.stderr
        # an export whose package is not installed is named, and nothing else is said
        said = [line for line in done.stderr.splitlines() if "which needs" not in line]
        assert said == []
    old, same, new = (tmp_path / name for name in ("old", "same", "new"))
    refused = (old / "cases__refused.json.txt").read_text().splitlines()
    assert refused[0].startswith("report-100  ")
    assert not any(line.startswith("report-html") for line in refused)

    equal = python_script("record_outputs.py", "--compare", old, same)
    assert equal.returncode == 0, equal.stdout
    assert equal.stdout.startswith("0 differences in ")
    assert not equal.stdout.startswith("0 differences in 0 ")
    differing = python_script("record_outputs.py", "--compare", old, new)
    assert differing.returncode == 1
    lines = differing.stdout.splitlines()
    assert "data/trace.json: reports/by_op" in lines
    assert not any(line.startswith("cases/") for line in lines)
    after = lines[lines.index("data/trace.json: reports/by_op") + 1 :]
    assert any(line.startswith("    -") and "aten::mm" in line for line in after)
    assert any(line.startswith("    +") and "aten::add" in line for line in after)


PACKAGE = {
    "opscope/__init__.py": "",
    "opscope/profile/__init__.py": '''"""Says nothing."""


class Profile:
    def steps(self) -> "pl.DataFrame":
        """Return the steps."""
        one = self._joined(2)  # a comment

        return one

    def save(self, path):
        """Save the profile."""

    def _joined(self, n):
        return [n for what in range(n)]
''',
    "opscope/reports/steps.py": '"""Of steps: this line counts not."""\nNAME = "steps"\n',
    "opscope/reports/ops.py": '"""Of steps: neither does this."""\n',
    "tests/test_steps.py": "def test_steps():\n    pass\n",
    "docs/index.md": "Two words\n",
    "CHANGELOG.md": "One\n",
    "pyproject.toml": "[[tool.importlinter.contracts]]\nname = 'floors'\n",
}


def test_the_shape_of_a_package_is_counted(tmp_path):
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = python_script(
        "count_house.py", "--json", "--root", tmp_path, PYTHONPATH=tmp_path, OPSCOPE_SHARED=tmp_path
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["files"] == 4
    assert counts["lines of code"] == 8
    assert counts["largest file"] == "profile/__init__.py"
    assert (counts["functions"], counts["function lines, max"]) == (3, 5)
    assert counts["functions named by participles, %"] == 33.3
    assert (counts["bindings"], counts["bindings with vague names, %"]) == (5, 40.0)
    assert (counts["questions"], counts["classes in the MRO of Profile"]) == (1, 2)
    assert (counts["files of a question, median"], counts["rooms of a question, p90"]) == (2, 2)
    assert (counts["words of docs"], counts["words of CHANGELOG"]) == (2, 1)
    assert (counts["import-linter contracts"], counts["test functions"]) == (1, 1)

    before = tmp_path / "before.json"
    before.write_text(json.dumps({**counts, "files": 1234}))
    beside = python_script(
        "count_house.py", "--against", before, "--root", tmp_path, OPSCOPE_SHARED=tmp_path
    )
    row = next(line for line in beside.stdout.splitlines() if line.startswith("files "))
    assert row.split() == ["files", "1,234", "4"]


def test_set_up_names_what_is_large_and_fails_as_pip_does(tmp_path):
    """scripts/environment.sh: of pip's lines those of large downloads, with their sizes; its status is pip's."""
    pip = tmp_path / "venv" / "bin" / "python"
    pip.parent.mkdir(parents=True)
    script = (
        "#!/bin/sh\n"
        '[ "$1" = -c ] && exit 0\n'
        "echo 'Requirement already satisfied: numpy in here'\n"
        "echo '  Downloading big-1.0-py3-none-any.whl (190.3 MB)'\n"
        "echo '  Downloading small-1.0-py3-none-any.whl (22 kB)'\n"
        "echo 'Installing collected packages: big, small'\n"
        "exit ${FAILS:-0}\n"
    )
    pip.write_text(script)
    pip.chmod(0o755)
    command = (
        f'set -euo pipefail; . "{ROOT}/scripts/environment.sh"; environment "{tmp_path}/venv" big'
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "  Downloading big-1.0-py3-none-any.whl (190.3 MB)",
        "  installing them",
    ]
    failed = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "FAILS": "3"},
    )
    assert failed.returncode == 3
