"""What a Python that `opscope run` starts has imported when its program begins: nothing that it may not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import opscope
from opscope.backends import light
from opscope.cli import child

ROOT = Path(opscope.__file__).resolve().parents[1]
#: Modules that took a millisecond and more in each process of a run, and what they bring.
HEAVY = {
    "numpy", "polars", "psutil", "wrapt", "asyncio", "ssl", "hashlib", "ctypes", "subprocess", "tomllib", "tomli",
    "concurrent.futures", "importlib.metadata", "typer", "rich", "nvtx",
    "opscope.readers", "opscope.adapters.shared", "opscope.backends.beside", "opscope.backends.kineto_capture",
    "opscope.backends.xplane_capture", "opscope.backends.mindspore_capture", "opscope.backends.mindspore_graphs",
    "opscope.backends.light", "opscope.backends.ring", "opscope.backends.profile_capture",
    "opscope.backends.cupti.library", "opscope.backends.cupti.helper", "opscope.backends.cupti.injection",
    "opscope.backends.nsys.tool", "opscope.backends.nsys.command", "opscope.backends.nsys.ranges",
    "opscope.core.capture.ring_recorder", "opscope.core.capture.light_recording", "opscope.callbacks.steprange",
}  # fmt: skip
LIST = "import json, sys; json.dump(sorted(sys.modules), open(sys.argv[1], 'w'))"


def modules_of_a_child(folder: Path, *options: str, code: str = LIST, **more: str) -> set[str]:
    """The modules that a child of a run has loaded, less those of the same Python without opscope."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, **more}
    out, bare = folder / "modules.json", folder / "bare.json"
    subprocess.run([sys.executable, "-c", LIST, str(bare)], env=env, check=True)
    command = [sys.executable, "-m", "opscope", "run", "--no-report", "-o", "a", *options, "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", code, str(out)],
        cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "not recorded" not in done.stderr
    return set(json.loads(out.read_text())) - set(json.loads(bare.read_text()))


def test_a_child_asks_every_backend_and_imports_nothing_heavy(tmp_path: Path) -> None:
    loaded = modules_of_a_child(tmp_path, CUDA_VISIBLE_DEVICES="")
    assert {"opscope.cli.child", "opscope.backends.kineto", "opscope.backends.cupti"} <= loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    ("options", "module"),
    [
        (("--light",), "opscope.backends.light"),
        (("--last", "5s"), "opscope.backends.ring"),
        (("--steps", "0:2"), "opscope.callbacks.steprange"),
    ],
)
def test_a_child_imports_what_an_option_needs(
    tmp_path: Path, options: tuple[str, ...], module: str
) -> None:
    """So the test above looks at names that are loaded where they are needed."""
    assert module in HEAVY
    assert module in modules_of_a_child(tmp_path, *options)


def test_a_child_knows_light_mode_by_the_variable_of_its_module() -> None:
    assert child.LIGHT == light.LIGHT
