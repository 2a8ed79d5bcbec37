"""The sampler of Python stacks in C: compiled on first use, in less than a second."""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
from pathlib import Path
from typing import Any, ClassVar, Final

from opscope.core.capture.host_stacks import SHARE, Leaf, Node, Sampling

from . import cache
from .compiled import BuildError, built

SOURCE: Final = Path(__file__).with_name("stacks.c")
ABI: Final = 1


def build() -> Path:
    """Return the library's path; compile it first if it is missing, without a message, because it takes half
    a second.

    Raises BuildError if it cannot be built.
    """
    return built(SOURCE)


@functools.lru_cache(maxsize=1)
def _library() -> Any:
    library = cache.load(build())
    if library.opscope_stacks_abi() != ABI:
        raise OSError("the sampler of stacks was built for another version of opscope")
    library.opscope_stacks_open.argtypes = (ctypes.py_object, ctypes.c_int64, ctypes.c_int64)
    library.opscope_stacks_thread.argtypes = (ctypes.c_uint64, ctypes.c_int32, ctypes.c_int)
    library.opscope_stacks_thread.restype = None
    library.opscope_stacks_stop.restype = None
    library.opscope_stacks_take.restype = ctypes.py_object
    library.opscope_stacks_figures.argtypes = (ctypes.POINTER(ctypes.c_int64),)
    library.opscope_stacks_figures.restype = None
    library.opscope_stacks_period.argtypes = (ctypes.c_int64,)
    library.opscope_stacks_period.restype = None
    library.opscope_stacks_collects.restype = ctypes.py_object
    return library


class NativeStacks:
    """The sampler of this process: its library has one state, and is never unloaded. Samples belong to the
    recording that opened it last; an earlier one that still runs must not take them."""

    how = "natively"
    _owner: ClassVar[NativeStacks | None] = None

    def __init__(self) -> None:
        self._call = _library()
        self._collects: Any = None

    def open(self, period: int, share: int = SHARE) -> bool:
        """Begin anew, with nothing recorded; return false if the sampler serves another recording."""
        if self._call.opscope_stacks_open(sys._current_frames, period, share):
            return False
        NativeStacks._owner = self
        return True

    def thread(self, ident: int, native: int, is_main: bool) -> None:
        """Sample this thread from now on."""
        if NativeStacks._owner is self:
            self._call.opscope_stacks_thread(ident, native, is_main)

    def start(self) -> None:
        """Begin, or continue after ``stop``. Raises OSError if no thread can be started."""
        if NativeStacks._owner is not self:
            return
        if self._call.opscope_stacks_start():
            raise OSError("no thread can be started")
        if self._collects is None:
            self._collects = self._call.opscope_stacks_collects()
            gc.callbacks.append(self._collects)

    def stop(self) -> None:
        """Pause; the thread has ended afterwards."""
        if NativeStacks._owner is self:
            self._call.opscope_stacks_stop()
        if self._collects in gc.callbacks:
            gc.callbacks.remove(self._collects)
        self._collects = None

    def take(self) -> tuple[bytes, list[Node], list[Leaf]]:
        """Return the new data: records, nodes of stacks, and the numbers of the innermost nodes."""
        new: tuple[bytes, list[Node], list[Leaf]] | None = None
        if NativeStacks._owner is self:
            new = self._call.opscope_stacks_take()
        return (b"", [], []) if new is None else new

    def figures(self) -> tuple[int, int, int, int, int, int]:
        """Return ns spent, looks, samples, records dropped, the period and the longest period (ns)."""
        values = (ctypes.c_int64 * 6)()
        self._call.opscope_stacks_figures(values)
        spent, looks, samples, dropped, period, longest = values
        return spent, looks, samples, dropped, period, longest

    def lower(self, period: int) -> None:
        """Sample no more often than once in ``period`` ns."""
        if NativeStacks._owner is self:
            self._call.opscope_stacks_period(period)


def make() -> Sampling:
    """Return the native sampler; build it first where it is missing. Raises BuildError or OSError."""
    if sys.implementation.name != "cpython":
        raise BuildError(
            f"the sampler of stacks in C is for CPython, not {sys.implementation.name}"
        )
    return NativeStacks()
