"""The launches of a process, recorded in CUPTI's callbacks by a helper in C, which is built on first use."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from opscope.adapters.shared import compiled

SOURCE: Final = Path(__file__).with_name("native") / "launches.c"
#: A launch (``struct launch`` of launches.c): times in ns of the recorder's clock, ``call`` is CUPTI's domain
#: of callbacks << 24 | the call's number, ``name`` the number of the kernel's name (0: not known).
LAUNCH: Final = np.dtype(
    [
        ("start", "<u8"), ("end", "<u8"), ("context", "<u8"), ("thread", "<u4"), ("correlation", "<u4"),
        ("call", "<u4"), ("name", "<u4"),
    ]
)  # fmt: skip
#: The result of ``asked`` after recording has ended.
ENDED: Final = 1


class Launches:
    """The helper of this process. ``begin`` and ``end`` may be repeated, one after the other."""

    def __init__(self, path: Path) -> None:
        self._library = library = ctypes.CDLL(str(path))
        u32, u64 = ctypes.c_uint32, ctypes.c_uint64
        calls: dict[str, tuple[tuple[Any, ...], Any]] = {
            "begin": ((u64, u32, u32, u64), ctypes.c_int),
            "asked": ((u32,), u64),
            "answer": ((u64,), None),
            "end": ((), None),
            "counts": ((ctypes.c_void_p,), None),
            "take": ((ctypes.c_void_p, u64), u64),
            "name": ((u32,), ctypes.c_char_p),
        }
        for name, (arguments, result) in calls.items():
            call = getattr(library, f"opscope_counters_{name}")
            call.argtypes, call.restype = arguments, result

    @property
    def callback(self) -> int:
        """The address of the subscriber's callback."""
        address = ctypes.cast(self._library.opscope_counters_called, ctypes.c_void_p).value
        assert address is not None
        return address

    def begin(self, most: int, patience_s: float, free_patience_s: float, cycle: int) -> None:
        """Record launches, at most ``most``. A context's first launch, and each one after ``cycle``, wait for
        an answer.

        They wait ``patience_s`` at most in a thread that holds Python's lock, else ``free_patience_s``.
        Raises OSError if launches are being recorded already.
        """
        waits = (int(seconds * 1000) for seconds in (patience_s, free_patience_s))
        error = int(self._library.opscope_counters_begin(most, *waits, cycle))
        if error:
            raise OSError(error, os.strerror(error))

    def asked(self, seconds: float) -> int:
        """Return a context in which a launch waits; 0 if none does in this time, ``ENDED`` after the end."""
        return int(self._library.opscope_counters_asked(int(seconds * 1000)))

    def answer(self, context: int) -> None:
        """Let the waiting launches of a context continue."""
        self._library.opscope_counters_answer(context)

    def end(self) -> None:
        """Stop recording launches; the recorded ones stay until ``begin``."""
        self._library.opscope_counters_end()

    def counts(self) -> tuple[int, int, int, int]:
        """Return the number of launches recorded, and of those dropped for lack of space; the number of
        contexts in which a launch did not wait until counting began, and until counters were taken out."""
        numbers = (ctypes.c_uint64 * 4)()
        self._library.opscope_counters_counts(ctypes.byref(numbers))
        noted, lost, late, full = numbers
        return noted, lost, late, full

    def taken(self) -> NDArray[Any]:
        """Return the recorded launches, as records of ``LAUNCH`` in the order of their ends."""
        launch_count = self.counts()[0]
        launches = np.zeros(launch_count, LAUNCH)
        copied = self._library.opscope_counters_take(launches.ctypes.data, launch_count)
        return launches[:copied]

    def name(self, number: int) -> str | None:
        """Return a kernel's name, as the compiler wrote it; None if it is not known."""
        text = self._library.opscope_counters_name(number)
        return None if text is None else bytes(text).decode("utf-8", "replace")


@cache
def load() -> Launches:
    """Return the helper. Raises compiled.BuildError, OSError."""
    return Launches(compiled.built(SOURCE))


def can_load() -> bool:
    """Whether the helper is built or a compiler can build it."""
    try:
        name = compiled.library_name(SOURCE)
    except compiled.BuildError:  # not Linux
        return False
    return compiled.cached(name) is not None or compiled.compiler_of(SOURCE) is not None
