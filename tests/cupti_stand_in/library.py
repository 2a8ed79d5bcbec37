"""Build the stand-in for CUPTI, and play activity on it as CUDA's driver would."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("cupti.c")
COUNTERS = Path(__file__).resolve().parents[1] / "cupti_counters_stand_in" / "stand_in.c"
CUDA = Path(__file__).with_name("cuda.c")


def build(folder: Path, *flags: str, name: str = "libcupti.so.12", counters: bool = False) -> Path:
    """Build the stand-in in ``folder``; skip without a compiler. ``flags`` like ``-DWITHOUT_ENABLE``.

    ``counters``: with the calls for hardware counters, and a stand-in for CUDA's driver beside it.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (gcc or cc) to build the stand-in for CUPTI")
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / name
    options = ["-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Werror", *flags]
    sources = [str(SOURCE)]
    if counters:
        sources.append(str(COUNTERS))
        options.append("-DBESIDE_ACTIVITY")
        driver = ["-O1", "-shared", "-fPIC", str(CUDA), "-o", str(folder / "libcuda.so.1")]
        subprocess.run([compiler, *driver], check=True)
    subprocess.run([compiler, *options, *sources, "-o", str(library), "-lpthread"], check=True)
    return library


class Driver:
    """CUDA's part: the stand-in's own calls."""

    def __init__(self, library: Path, play: Path | None = None) -> None:
        self._library = one = ctypes.CDLL(str(library))
        one.standin_launch.argtypes = [ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64]
        one.standin_launch.restype = ctypes.c_uint32
        one.standin_record.argtypes = [
            ctypes.c_uint32,
            ctypes.c_uint64,
            ctypes.c_uint64,
            ctypes.c_uint32,
        ]
        one.standin_now.restype = ctypes.c_uint64
        one.standin_graph_node.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64]
        one.standin_fails.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
        one.standin_rename.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
        one.standin_load.argtypes = [ctypes.c_char_p]
        self.launch = one.standin_launch
        self.record = one.standin_record
        self.now = one.standin_now
        self.graph_node = one.standin_graph_node
        self.fails = one.standin_fails
        self.rename = one.standin_rename
        self.enabled = one.standin_enabled
        self.subscribed = one.standin_subscribed
        self.system_threads = one.standin_system_threads
        if play is not None:
            assert one.standin_load(str(play).encode()) > 0
