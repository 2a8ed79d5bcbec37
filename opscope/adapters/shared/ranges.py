"""Native push, pop and mark of an emitter that only a recorder hears, at a third of the cost of Python's."""

from __future__ import annotations

import ctypes
import functools
import logging
import sysconfig
from pathlib import Path
from typing import Any, Final

from opscope.core.capture.emit import Writing, record_only
from opscope.core.capture.own_cost import call_ns
from opscope.core.capture.recorder_sink import Recorder

from . import cache
from .compiled import BuildError, built

SOURCE: Final = Path(__file__).with_name("ranges.c")
_log = logging.getLogger(__name__)
#: The library's function; None until ``build`` has loaded it.
_function: Any = None


class _Scratch:
    """A text and a log, to measure what a record costs."""

    id = 0

    def __init__(self) -> None:
        self.log = bytearray()

    def find(self, make: bool) -> bytearray:
        return self.log


_scratch: Final = _Scratch()


def build() -> None:
    """Build and load the library, which takes a fifth of a second the first time. Without it, as where Python
    has no GIL, ranges are written from Python."""
    global _function
    if _function is not None or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return
    try:
        function = ctypes.PyDLL(None, handle=cache.load(built(SOURCE))._handle).opscope_range
        function.argtypes = (ctypes.c_int, ctypes.py_object)
        function.restype = ctypes.py_object
        _function = function
    except (BuildError, OSError, AttributeError) as error:
        _log.debug("opscope: ranges are written from Python: %s", error)


def record_ns() -> float:
    """Return the cost in ns of a record that native code writes."""
    _scratch.log.clear()
    push = _function(0, (-2, 0, None, _scratch.find))
    return call_ns(functools.partial(push, _scratch))


def writing(recorder: Recorder, popped: int) -> Writing:
    """Return push, pop and mark for an emitter: natively, or in Python where there is no library.

    Never builds: the caller may have locks that building needs.
    """
    function = _function
    if function is None:
        return record_only(recorder, popped)
    recorder.record_ns = record_ns
    local, new_thread = recorder.local, recorder.new_thread

    def log(make: bool) -> Any:
        append: Any = getattr(local, "log", None)
        if append is None and make:
            append = new_thread()
        return None if append is None else append.__self__

    state = (recorder.number, popped, recorder, log)
    return function(0, state), function(1, state), function(2, state)
