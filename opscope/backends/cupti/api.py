"""CUPTI's calls by ctypes: each is checked, and its errors are reported by name."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from opscope.core.cupti import kinds

MULTIPLE_SUBSCRIBERS: Final = 39
#: Advice for errors that the machine or its settings cause.
_ADVICE: Final = MappingProxyType(
    {
        15: "CUDA's driver cannot be initialised in this process",
        33: "CUPTI does not record on this virtual GPU",
        35: "the driver lets only the administrator record the GPU (NVreg_RestrictProfilingToAdminUsers)",
        MULTIPLE_SUBSCRIBERS: "another tool uses CUPTI in this process, and one at a time may",
        40: "the virtual GPU's host does not let this guest record it",
        41: "CUPTI does not record under confidential computing",
        42: "CUPTI does not record on this mining GPU",
        43: "CUPTI does not record on this MIG instance",
        45: "CUPTI does not record under this Windows Subsystem for Linux",
        999: "without a driver of CUDA, CUPTI 13 gives this error for every call",
    }
)
_POINTER, _U32, _U64, _SIZE, _INT = (
    ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int,
)  # fmt: skip
#: The calls that recording needs, with their arguments. All return a CUptiResult.
_NEEDED: Final[dict[str, tuple[Any, ...]]] = {
    "cuptiGetVersion": (_POINTER,),
    "cuptiGetTimestamp": (_POINTER,),
    "cuptiSubscribe": (_POINTER, _POINTER, _POINTER),
    "cuptiUnsubscribe": (_POINTER,),
    "cuptiActivityRegisterCallbacks": (_POINTER, _POINTER),
    "cuptiActivityEnable": (_INT,),
    "cuptiActivityDisable": (_INT,),
    "cuptiActivityFlushAll": (_U32,),
}
#: Optional calls, and what is missing without each.
_BETTER: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "cuptiActivityGetNumDroppedRecords": (
        (_POINTER, _U32, _POINTER),
        "records that CUPTI drops are not counted",
    ),
    "cuptiActivityGetNextRecord": ((_POINTER, _SIZE, _POINTER), "sizes of records are not checked"),
    "cuptiActivityRegisterTimestampCallback": (
        (_POINTER,),
        "times are of the system's clock and converted",
    ),
    "cuptiSetThreadIdType": ((_INT,), "threads have the numbers of the C library"),
    "cuptiEnableCallback": (
        (_U32, _POINTER, _INT, _U32),
        "which op captured a node of a CUDA graph is not recorded",
    ),
    "cuptiGetGraphNodeId": (
        (_POINTER, _POINTER),
        "which op captured a node of a CUDA graph is not recorded",
    ),
}
#: Optional calls whose absence has no visible effect.
_OTHER: Final[dict[str, tuple[Any, ...]]] = {
    "cuptiGetResultString": (_INT, _POINTER),
    "cuptiSubscribe_v2": (_POINTER, _POINTER, _POINTER, _POINTER),
    "cuptiGetGraphId": (_POINTER, _POINTER),
}
#: Kinds of activity without which there is nothing to record, and kinds that may fail.
FIRST: Final = kinds.CONCURRENT_KERNEL
KINDS: Final = MappingProxyType(
    {
        "kernels": FIRST,
        "copies": kinds.MEMCPY,
        "copies between devices": kinds.MEMCPY2,
        "sets": kinds.MEMSET,
        "runtime calls": kinds.RUNTIME,
        "driver calls": kinds.DRIVER,
        "external correlation": kinds.EXTERNAL_CORRELATION,
        "synchronisation": kinds.SYNCHRONIZATION,
        "events": kinds.CUDA_EVENT,
        "overhead": kinds.OVERHEAD,
        "memory": kinds.MEMORY2,
        "memory pools": kinds.MEMORY_POOL,
        "streams": kinds.STREAM,
        "devices": kinds.DEVICE,
        "contexts": kinds.CONTEXT,
    }
)


class CuptiError(RuntimeError):
    """A call of CUPTI failed; ``code`` is its CUptiResult, None where the call does not exist."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class _Subscriber(ctypes.Structure):
    """CUpti_SubscriberParams (13.0 and later)."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("old", ctypes.c_char_p),
        ("old_size", ctypes.c_size_t),
        ("many", ctypes.c_uint8),
        ("padding", ctypes.c_uint8 * 7),
    )


class Cupti:
    """One ``libcupti``. Raises CuptiError if the file cannot be loaded or lacks a needed call.

    ``lacks`` lists what is missing because this version lacks optional calls.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._library = ctypes.CDLL(str(path), mode=os.RTLD_NOW)
        except OSError as error:
            raise CuptiError(f"{path} cannot be loaded: {error}") from error
        self.lacks: list[str] = []
        self._calls: dict[str, Any] = {}
        for name, arguments in _NEEDED.items():
            if not self._take(name, arguments):
                raise CuptiError(f"{path} has no call {name}: it is too old, or not CUPTI")
        for name, (arguments, loss) in _BETTER.items():
            if not self._take(name, arguments) and loss not in self.lacks:
                self.lacks.append(loss)
        for name, arguments in _OTHER.items():
            self._take(name, arguments)

    def _take(self, name: str, arguments: tuple[Any, ...]) -> bool:
        try:
            call = getattr(self._library, name)
        except AttributeError:
            return False
        call.argtypes, call.restype = arguments, _INT
        self._calls[name] = call
        return True

    def address(self, name: str) -> int | None:
        """Return the address of a call, None if this version lacks it."""
        call = self._calls.get(name)
        return None if call is None else ctypes.cast(call, ctypes.c_void_p).value

    def has(self, name: str) -> bool:
        """Whether this version has the call."""
        return name in self._calls

    def call(self, name: str, *arguments: Any) -> None:
        """Make a call. Raises CuptiError if it fails or does not exist."""
        call = self._calls.get(name)
        if call is None:
            raise CuptiError(f"{self.path.name} has no call {name}")
        code = int(call(*arguments))
        if code:
            raise CuptiError(f"{name} failed: {self._told(code)}", code)

    def _told(self, code: int) -> str:
        text = ctypes.c_char_p()
        call = self._calls.get("cuptiGetResultString")
        has_text = call is not None and call(code, ctypes.byref(text)) == 0 and text.value
        name = text.value.decode("utf-8", "replace") if has_text and text.value else "an error"
        advice = _ADVICE.get(code)
        return f"{name} ({code})" + (f": {advice}" if advice else "")

    def version(self) -> int:
        """Return cuptiGetVersion's number: 18 to 28 up to CUDA 12.9, then 130000 and more."""
        number = _U32()
        self.call("cuptiGetVersion", ctypes.byref(number))
        return number.value

    def timestamp(self) -> int:
        """Return CUPTI's time, in ns."""
        at = _U64()
        self.call("cuptiGetTimestamp", ctypes.byref(at))
        return at.value

    def subscribe(self, callback: Any) -> ctypes.c_void_p:
        """Become the subscriber; return the handle. Raises CuptiError."""
        handle = ctypes.c_void_p()
        self.call("cuptiSubscribe", ctypes.byref(handle), callback, None)
        return handle

    def other_subscriber(self, callback: Any) -> str:
        """Return the name of the tool that is the subscriber, as CUPTI 13 reports it; empty if it does
        not."""
        if not self.has("cuptiSubscribe_v2"):
            return ""
        name = ctypes.create_string_buffer(64)
        params = _Subscriber(ctypes.sizeof(_Subscriber), b"opscope", ctypes.addressof(name), 64)
        handle = ctypes.c_void_p()
        try:
            self.call(
                "cuptiSubscribe_v2", ctypes.byref(handle), callback, None, ctypes.byref(params)
            )
        except CuptiError:
            return name.value.decode("utf-8", "replace").strip()
        self.call("cuptiUnsubscribe", handle)  # the other subscriber has gone meanwhile
        return ""

    def dropped(self) -> int:
        """Return how many records CUPTI has dropped since the last time. Raises CuptiError."""
        count = _SIZE()
        self.call("cuptiActivityGetNumDroppedRecords", None, 0, ctypes.byref(count))
        return count.value
