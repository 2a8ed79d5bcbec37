"""The native helper that receives CUPTI's buffers: built on first use, called by ctypes."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from opscope.adapters.shared import compiled

SOURCE: Final = Path(__file__).with_name("native") / "live.c"
#: Bytes of a buffer, highest number of buffers, and the most bytes of a recording's activity.
BUFFER_BYTES: Final = 1 << 20
MOST_BUFFERS: Final = 256
MOST_BYTES: Final = 8 << 30
_U32, _U64, _SIZE, _INT, _POINTER = (
    ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p,
)  # fmt: skip


class State(ctypes.Structure):
    """The helper's counts since ``begin`` (``struct state`` of live.c)."""

    _fields_ = (
        *(
            (name, ctypes.c_uint64)
            for name in (
                "requested", "refused", "completed", "outstanding", "waiting", "records", "bytes", "buffers",
                "lost_buffers", "lost_records", "names", "unread_names", "foreign", "nodes", "lost_nodes",
                "first_call", "last_call", "wrong_sizes",
            )
        ),
        *((name, ctypes.c_int32) for name in ("error", "full", "dead", "fatal")),
    )  # fmt: skip


class Helper:
    """The helper of this process. ``begin`` and ``end`` may be repeated, one after the other."""

    def __init__(self, path: Path) -> None:
        self._library = library = ctypes.CDLL(str(path))
        for name, arguments, result in (
            ("configure", (_SIZE, _SIZE, _U64, _POINTER, _POINTER, _POINTER), None),
            ("layout", (_U32, _U32, _U32), None),
            ("begin", (), _INT),
            ("open", (_INT, _INT), None),
            ("turn", (_INT, _U32), ctypes.c_int64),
            ("end", (_U32,), _INT),
            ("state", (ctypes.POINTER(State),), None),
            ("injected", (_U32,), _INT),
            ("attend", (), None),
            ("beginners", (_INT,), _INT),
            ("system_threads", (_INT,), None),
        ):
            call = getattr(library, f"opscope_cupti_{name}")
            call.argtypes, call.restype = arguments, result

    def address(self, name: str) -> int:
        """Return the address of a callback: ``requested``, ``completed``, ``called``, ``clock``, ``unix``."""
        address = ctypes.cast(
            getattr(self._library, f"opscope_cupti_{name}"), ctypes.c_void_p
        ).value
        assert address is not None
        return address

    def configure(
        self,
        version: int,
        calls: Mapping[str, int | None],
        buffer_bytes: int = BUFFER_BYTES,
        buffers: int = MOST_BUFFERS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Set the bounds, the calls of CUPTI by name, and the layouts of its version; call it before
        ``begin``.

        Raises layouts.UnknownVersion.
        """
        self._library.opscope_cupti_configure(
            buffer_bytes, buffers, most_bytes,
            calls.get("cuptiActivityGetNextRecord"), calls.get("cuptiGetGraphNodeId"),
            calls.get("cuptiGetGraphId"),
        )  # fmt: skip
        for kind, size, text in places(version):
            self._library.opscope_cupti_layout(kind, size, text)

    def begin(self) -> None:
        """Hand out buffers from now on. Raises OSError if a thread cannot be started or the helper has
        begun already."""
        error = int(self._library.opscope_cupti_begin())
        if error:
            message = (
                "an earlier recording has not ended" if error == errno.EBUSY else os.strerror(error)
            )
            raise OSError(error, message)

    def open(self, raw: int, lines: int) -> None:
        """Write waiting and future data to these files, until ``end``."""
        self._library.opscope_cupti_open(raw, lines)

    def turn(self, raw: int, seconds: float) -> int | None:
        """Write future data to another file of buffers; return how many buffers are in the files before.

        None if the disk is too slow: then the earlier file stays in use. ``most_bytes`` bounds each file.
        """
        count = int(self._library.opscope_cupti_turn(raw, int(seconds * 1000)))
        return None if count < 0 else count

    def end(self, seconds: float) -> bool:
        """Write the remaining data and end; return False if the disk is too slow: then the files stay in
        use."""
        return bool(self._library.opscope_cupti_end(int(seconds * 1000)))

    def system_threads(self, yes: bool) -> None:
        """Say whether CUPTI's records have the system's thread ids."""
        self._library.opscope_cupti_system_threads(int(yes))

    def attend(self) -> None:
        """Announce that Python records this process, so that the helper does not do so itself when CUDA
        begins."""
        self._library.opscope_cupti_attend()

    def beginners(self, more: int) -> bool:
        """Change the number of threads that CUDA's initialisation waits for; return whether it no longer
        waits."""
        return bool(self._library.opscope_cupti_beginners(more))

    def injected(self, seconds: float = 0) -> bool:
        """Wait until CUDA's driver has called this library; return whether it has."""
        return bool(self._library.opscope_cupti_injected(int(seconds * 1000)))

    def state(self) -> State:
        """Return the counts."""
        state = State()
        self._library.opscope_cupti_state(ctypes.byref(state))
        return state


def places(version: int) -> list[tuple[int, int, int]]:
    """Return (kind, bytes of a record, offset of a pointer to text or 0) for a version of CUPTI.

    Where the version's number does not decide, a kind has several sizes, the likeliest first. Raises
    layouts.UnknownVersion.
    """
    # lazy: a process that only asks the helper whether CUDA has begun needs no NumPy
    import numpy as np

    from opscope.core.cupti import layouts

    fields_of_kinds: dict[tuple[int, int, int], None] = {}
    for layout in layouts.candidates(version):
        for kind in np.flatnonzero(layout.slots[:-1]).tolist():
            size = int(layout.slots[kind]) * layouts.SLOT
            fields_of_kinds[kind, size, 0] = None
            dtype: Any = layout.dtypes.get(kind)
            fields = {} if dtype is None else dtype.fields or {}
            for name in layouts.strings(kind):
                if name in fields:
                    fields_of_kinds[kind, size, int(fields[name][1])] = None
    return list(fields_of_kinds)


def load(path: Path | None = None) -> Helper:
    """Return the helper, from ``path``, else from the cache; build it if it is missing.

    A process has only one: if CUDA's driver has loaded it, that one is returned. Raises compiled.BuildError,
    OSError.
    """
    if path is None:
        injected = Path(os.environ.get("CUDA_INJECTION64_PATH", ""))
        if injected.name.startswith(f"{SOURCE.stem}-") and injected == _cache():
            path = injected
    return _load(compiled.built(SOURCE) if path is None else path)


@cache
def _load(path: Path) -> Helper:
    return Helper(path)


def _cache() -> Path | None:
    try:
        return compiled.cached(compiled.library_name(SOURCE))
    except compiled.BuildError:  # not Linux
        return None


def can_load() -> bool:
    """Whether the helper is built or a compiler can build it."""
    return _cache() is not None or (
        sys.platform.startswith("linux") and compiled.compiler_of(SOURCE) is not None
    )
