"""Find one harmless call in the GPU runtime (CUDA or HIP) that PyTorch has loaded, for clock probes.

The call returns the driver's version. It needs no context and makes none (a stream query makes one on the
current device, hundreds of MB in each rank), is allowed while a CUDA graph is captured on any thread, and
PyTorch's profiler records it. Kineto leaves out some calls (``cudaGetDevice``, ``cudaGetLastError``; of
HIP's also ``hipRuntimeGetVersion``) and every driver call except launches.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from opscope.core.recording_format import PROBE_CALLS

#: The runtime's library, by PyTorch's name of the platform.
_LIBRARIES: Final = {"cuda": "libcudart", "hip": "libamdhip64"}
#: Characters of a version file that are read at most.
_VERSION_BYTES: Final = 1 << 16
_MAPS: Final = Path("/proc/self/maps")


def platform(torch: Any) -> str | None:
    """Return ``cuda`` or ``hip`` (which PyTorch also calls cuda); None if PyTorch is built for neither."""
    for name in ("hip", "cuda"):
        if getattr(torch.version, name, None) is not None:
            return name
    return None


def platform_of(folder: Path) -> str | None:
    """Return the platform of the PyTorch installed in ``folder``, without importing it: as ``platform``.

    ``unknown`` if its version does not say.
    """
    try:
        text = (folder / "version.py").read_text("utf-8", "replace")[:_VERSION_BYTES]
    except OSError:
        return "unknown"
    said = dict(re.findall(r"^(hip|cuda)\b[^=\n]*=\s*(.*)$", text, re.MULTILINE))
    if "cuda" not in said:
        return "unknown"
    return next(
        (name for name in ("hip", "cuda") if said.get(name, "None").strip() != "None"), None
    )


def driver_version_call(torch: Any, maps: Path = _MAPS) -> Callable[[], object] | None:
    """Return a function that makes the call in the runtime that this PyTorch uses; None if it is not found.

    This loads no library: it looks only at libraries that the process has mapped.
    """
    import ctypes  # lazy: every program asks for ``platform``, and this takes 2 ms

    loaded = getattr(os, "RTLD_NOLOAD", None)
    kind = platform(torch) or ""
    name, library = PROBE_CALLS.get(kind, ""), _LIBRARIES.get(kind, "")
    if loaded is None or not name:
        return None
    for path in _places(torch, library, maps):
        try:
            # PyDLL holds the GIL: waiting for it after the call would widen the bracket by milliseconds.
            found = ctypes.PyDLL(path, mode=os.RTLD_LAZY | loaded)
            function = getattr(found, name)
        except (OSError, AttributeError):  # not mapped; or mapped, but the call is not exported
            continue
        function.argtypes, function.restype = [ctypes.POINTER(ctypes.c_int)], ctypes.c_int
        version = ctypes.c_int(0)
        where = ctypes.byref(version)
        return lambda: function(where)
    return None


def _places(torch: Any, library: str, maps: Path) -> Iterator[str | None]:
    """Yield the libraries that may contain the call, the most certain first.

    A symbol is looked up in a library and all its dependencies. So PyTorch's own libraries lead to the
    runtime that they were linked with, shared or (if exported) static, even if the process has several.
    """
    kind = platform(torch)
    folder = Path(torch.__file__).parent / "lib"
    for name in (f"libc10_{kind}.so", f"libtorch_{kind}.so"):
        yield str(folder / name)
    try:
        mapped = maps.read_text("utf-8", "replace")
    except OSError:  # no /proc
        mapped = ""
    # tools that build wheels rename the libraries that they include: libcudart-d0da41ae.so.11.0
    pattern = rf"(/\S.*/{library}(?:-[0-9a-f]+)?\.so[.\d]*)$"
    yield from dict.fromkeys(re.findall(pattern, mapped, re.MULTILINE))
    yield None  # the program itself and all global symbols
