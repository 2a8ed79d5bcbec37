"""Let native code write the ranges of emitters that only a recorder hears, in half the time of Python's."""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Final

from opscope.core.capture.emit import Writing, record_only
from opscope.core.capture.recorder_sink import Recorder

from . import cache
from .compiled import BuildError, built

SOURCE: Final = Path(__file__).with_name("ranges.c")
#: Seconds that a program waits for the compiler, which needs a tenth of one; without it Python writes.
_PATIENCE: Final = 3


def build() -> Path:
    """Return the library's path; compile it first if it is missing.

    Raises BuildError if it cannot be built, or if its code is not for this Python."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise BuildError("ranges are written natively in a CPython with a GIL")
    return built(SOURCE, timeout=_PATIENCE)


def load() -> Callable[[Recorder, int], Writing]:
    """Return what makes push, pop and mark as ``record_only`` does, natively.

    Raises BuildError or OSError if the library cannot be built or loaded."""
    make = ctypes.PyDLL(None, handle=cache.load(build())._handle).opscope_range
    make.argtypes, make.restype = (ctypes.c_int, ctypes.py_object), ctypes.py_object

    def writing(recorder: Recorder, popped: int) -> Writing:
        python = record_only(recorder, popped)
        bound = (recorder.local, recorder, recorder.flush, popped, "log", "id", "deadline", *python)
        return make(0, bound), make(1, bound), make(2, bound)

    return writing
