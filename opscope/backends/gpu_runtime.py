"""The GPU runtime that PyTorch has loaded, CUDA's or HIP's: one call of it that disturbs nothing.

The call asks which version the driver has. It needs no context and makes none (a stream's query makes
one on the current device, hundreds of MB in each rank), may be made while a graph is captured on any
thread, and PyTorch's profiler records it: Kineto leaves out some calls (``cudaGetDevice``,
``cudaGetLastError``; of HIP's ``hipRuntimeGetVersion`` too) and every driver call but launches.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from opscope.core.recording_format import PROBE_CALLS

#: By PyTorch's name of the platform: the runtime's library.
_LIBRARIES: Final = {"cuda": "libcudart", "hip": "libamdhip64"}
_MAPS: Final = Path("/proc/self/maps")


def platform(torch: Any) -> str | None:
    """``cuda`` or ``hip``, which PyTorch also calls cuda; None where it is built for neither."""
    for name in ("hip", "cuda"):
        if getattr(torch.version, name, None) is not None:
            return name
    return None


def driver_version_call(torch: Any, maps: Path = _MAPS) -> Callable[[], object] | None:
    """What makes the call in the runtime that this PyTorch uses; None where that is not to be found.

    Nothing is loaded: only what the process has mapped is asked.
    """
    loaded = getattr(os, "RTLD_NOLOAD", None)
    kind = platform(torch) or ""
    name, library = PROBE_CALLS.get(kind, ""), _LIBRARIES.get(kind, "")
    if loaded is None or not name:
        return None
    for path in _places(torch, library, maps):
        try:
            # Holds the GIL: to wait for it after the call would widen the bracket by milliseconds.
            found = ctypes.PyDLL(path, mode=os.RTLD_LAZY | loaded)
            function = getattr(found, name)
        except (OSError, AttributeError):  # not mapped; mapped, and does not show the call
            continue
        function.argtypes, function.restype = [ctypes.POINTER(ctypes.c_int)], ctypes.c_int
        version = ctypes.c_int(0)
        where = ctypes.byref(version)
        return lambda: function(where)
    return None


def _places(torch: Any, library: str, maps: Path) -> Iterator[str | None]:
    """Where the call may be, the surest first.

    A symbol is looked up in a library and in all that it needs, so PyTorch's own libraries lead to the
    runtime that they were linked with, shared or (where it shows) static, among several in a process.
    """
    kind = platform(torch)
    folder = Path(torch.__file__).parent / "lib"
    for name in (f"libc10_{kind}.so", f"libtorch_{kind}.so"):
        yield str(folder / name)
    try:
        mapped = maps.read_text("utf-8", "replace")
    except OSError:  # no /proc
        mapped = ""
    # a wheel's tools rename what they pack: libcudart-d0da41ae.so.11.0
    pattern = rf"(/\S.*/{library}(?:-[0-9a-f]+)?\.so[.\d]*)$"
    yield from dict.fromkeys(re.findall(pattern, mapped, re.MULTILINE))
    yield None  # the program itself and what it shows to all
