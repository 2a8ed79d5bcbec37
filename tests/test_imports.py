"""What importing opscope loads: nothing that is not needed yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import opscope

ROOT = Path(opscope.__file__).resolve().parents[1]
FRAMEWORKS = ("torch", "tensorflow", "jax", "mindspore", "onnxruntime", "keras", "tensorrt")


def loaded(code: str, *args: str) -> set[str]:
    """The top-level modules that ``python -X importtime -c code`` imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code, *args],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert len(lines) > 10
    return {line.rsplit("|", 1)[1].strip().partition(".")[0] for line in lines[1:]}


def bare() -> set[str]:
    return loaded("pass")


def test_import_opscope_loads_the_standard_library_and_itself():
    added = loaded("import opscope") - bare()
    assert "opscope" in added
    foreign = {name for name in added if name not in sys.stdlib_module_names} - {"opscope"}
    assert foreign == set()


def test_init_loads_no_framework_and_nothing_heavy():
    added = loaded("import opscope; opscope.init()")
    assert added & {*FRAMEWORKS, "polars", "pyarrow", "rich", "typer"} == set()


@pytest.mark.parametrize("command", [["--version"], ["run", "--help"], ["report", "--help"]])
def test_the_command_line_s_help_loads_no_tables_and_no_framework(command):
    code = "import sys; from opscope.cli import main\ntry: main()\nexcept SystemExit as end: assert not end.code"
    assert loaded(code, *command) & {*FRAMEWORKS, "polars", "pyarrow", "numpy"} == set()


def test_a_report_loads_no_framework(tmp_path):
    code = "import opscope.profile, opscope.readers, opscope.reports.console, opscope.reports.files"
    assert loaded(code) & set(FRAMEWORKS) == set()
    assert "polars" in loaded(code)


def test_what_init_exports_exists():
    assert {"init", "shutdown", "annotate", "step", "wrap", "capture", "load"} <= set(dir(opscope))
    for name in opscope.__all__:
        assert callable(getattr(opscope, name))
