"""The C++ names of kernels that a trace gives by their linker symbols."""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def _library() -> Any:
    """libstdc++ with ``__cxa_demangle``, or None where there is none (the names stay symbols)."""
    name = ctypes.util.find_library("stdc++") or "libstdc++.so.6"
    try:
        library = ctypes.CDLL(name)
        library.__cxa_demangle.restype = ctypes.c_void_p
        library.__cxa_demangle.argtypes = [
            ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int),
        ]  # fmt: skip
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        free.restype = None
    except (OSError, AttributeError):
        return None
    return library.__cxa_demangle, free


def demangled(symbol: str | None) -> str | None:
    """``_ZN2at6nativeEv`` as ``at::native()``; whatever is no such symbol as it is."""
    if symbol is None or not symbol.startswith("_Z") or len(symbol) > 65_536:
        return symbol
    functions = _library()
    if functions is None:
        return symbol
    demangle, free = functions
    status = ctypes.c_int()
    pointer = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not pointer:
        return symbol
    try:
        return ctypes.string_at(pointer).decode("utf-8", "replace")
    finally:
        free(pointer)
