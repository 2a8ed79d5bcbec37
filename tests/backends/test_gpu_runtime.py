"""The runtime that a PyTorch has loaded, and the one call that is made of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from opscope.backends import gpu_runtime

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("gcc") is None, reason="needs gcc on Linux"
)

#: A runtime that counts; what any PyTorch links with.
RUNTIME = "static int calls; int {name}(int *version) {{ *version = ++calls; return 0; }}"
#: In a process of its own, as a library stays loaded.
ASK = """
import ctypes, json, os, sys
from pathlib import Path
from types import SimpleNamespace
from opscope.backends import gpu_runtime
folder, hip, load = Path(sys.argv[1]), sys.argv[2] == "hip", sys.argv[3:]
torch = SimpleNamespace(__file__=str(folder / "torch" / "__init__.py"),
    version=SimpleNamespace(cuda=None if hip else "13.0", hip="7.1" if hip else None))
held = [ctypes.CDLL(str(folder / name), mode=os.RTLD_LOCAL) for name in load]
call = gpu_runtime.driver_version_call(torch)
mapped = Path("/proc/self/maps").read_text()
print(json.dumps([None if call is None else [call(), call()], "libcudart" in mapped]))
"""


@pytest.fixture
def built(tmp_path: Path):
    """``built(name, source, *needs)`` compiles a library into the folder of a PyTorch that is none."""
    (tmp_path / "torch" / "lib").mkdir(parents=True)

    def build(name: str, source: str, *needs: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source.c").write_text(source)
        links = [str(tmp_path / need) for need in needs]
        options = ["-shared", "-fPIC", "-Wl,--no-as-needed", f"-Wl,-soname,{path.name}"]
        where = f"-Wl,-rpath,{tmp_path}:{tmp_path}/cuda/lib"
        subprocess.run(
            ["gcc", *options, "-o", path, tmp_path / "source.c", *links, where], check=True
        )
        return name

    def asked(*load: str, platform: str = "cuda"):
        root = str(Path(__file__).resolve().parents[2])
        done = subprocess.run(
            [sys.executable, "-c", ASK, tmp_path, platform, *load],
            env={**os.environ, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    return build, asked


def test_the_runtime_that_pytorch_was_linked_with_is_called(built) -> None:
    build, asked = built
    build("cuda/lib/libcudart.so.13", RUNTIME.format(name="cudaDriverGetVersion"))
    build("torch/lib/libc10_cuda.so", "int c10;", "cuda/lib/libcudart.so.13")
    assert asked("torch/lib/libc10_cuda.so") == [[0, 0], True]


def test_of_several_runtimes_pytorchs_is_taken(built) -> None:
    build, asked = built
    build("other/libcudart.so.11.0", "int cudaDriverGetVersion(int *v) { return 99; }")
    build("cuda/lib/libcudart.so.13", RUNTIME.format(name="cudaDriverGetVersion"))
    build("torch/lib/libc10_cuda.so", "int c10;", "cuda/lib/libcudart.so.13")
    assert asked("other/libcudart.so.11.0", "torch/lib/libc10_cuda.so") == [[0, 0], True]


def test_a_runtime_inside_pytorchs_library_is_called(built) -> None:
    build, asked = built
    build("torch/lib/libtorch_cuda.so", RUNTIME.format(name="cudaDriverGetVersion"))
    assert asked("torch/lib/libtorch_cuda.so") == [[0, 0], False]


@pytest.mark.parametrize("name", ["libcudart.so.12", "libcudart-d0da41ae.so.11.0", "libcudart.so"])
def test_a_runtime_that_is_mapped_is_called(built, name: str) -> None:
    build, asked = built
    build(f"else where/{name}", RUNTIME.format(name="cudaDriverGetVersion"))
    assert asked(f"else where/{name}") == [[0, 0], True]


def test_nothing_is_loaded_to_be_called(built) -> None:
    build, asked = built
    build("cuda/lib/libcudart.so.13", RUNTIME.format(name="cudaDriverGetVersion"))
    build("torch/lib/libc10_cuda.so", "int c10;", "cuda/lib/libcudart.so.13")
    assert asked() == [None, False]


def test_a_library_without_the_call_is_passed_by(built) -> None:
    build, asked = built
    build("torch/lib/libtorch_cuda.so", "int hidden;")
    assert asked("torch/lib/libtorch_cuda.so") == [None, False]


def test_hips_runtime_is_called_by_its_own_name(built) -> None:
    build, asked = built
    build("rocm/libamdhip64.so.7", RUNTIME.format(name="hipDriverGetVersion"))
    build("torch/lib/libc10_hip.so", "int c10;", "rocm/libamdhip64.so.7")
    assert asked("rocm/libamdhip64.so.7", "torch/lib/libc10_hip.so", platform="hip")[0] == [0, 0]


def test_a_pytorch_for_the_cpu_has_no_runtime() -> None:
    torch = SimpleNamespace(__file__="/nowhere/__init__.py", version=SimpleNamespace(cuda=None))
    assert gpu_runtime.platform(torch) is None
    assert gpu_runtime.driver_version_call(torch) is None
