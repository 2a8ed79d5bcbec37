"""The calls of CUDA's driver that counters need: make a context current, find its device, describe the
device."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any, Final

from .calls import CountersRefused

_INT, _POINTER, _SIZE = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
_CALLS: Final[dict[str, tuple[Any, ...]]] = {
    "cuCtxPushCurrent_v2": (_POINTER,),
    "cuCtxPopCurrent_v2": (_POINTER,),
    "cuCtxGetDevice": (_POINTER,),
    "cuCtxSynchronize": (),
    "cuDeviceGetCount": (_POINTER,),
    "cuDeviceGetName": (_POINTER, _INT, _INT),
    "cuDeviceGetAttribute": (_POINTER, _INT, _INT),
    "cuDeviceTotalMem_v2": (_POINTER, _INT),
    "cuDevicePrimaryCtxGetState": (_INT, _POINTER, _POINTER),
}
#: CUdevice_attribute.
_CLOCK, _SMS, _MEMORY_CLOCK, _BUS, _THREADS, _MAJOR, _MINOR = 13, 16, 36, 37, 39, 75, 76
#: Data is moved at both edges of the memory's clock.
_EDGES: Final = 2


class Driver:
    """The driver's library in this process. Raises CountersRefused without it, or if it lacks a call."""

    def __init__(self, path: str = "libcuda.so.1") -> None:
        try:
            self._library = ctypes.CDLL(path)
            for name, arguments in _CALLS.items():
                call = getattr(self._library, name)
                call.argtypes, call.restype = arguments, _INT
        except (OSError, AttributeError) as error:
            raise CountersRefused(f"CUDA's driver cannot be used: {error}") from error

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CountersRefused(f"{name}: CUDA's error {code}", None)

    @contextlib.contextmanager
    def current(self, context: int) -> Iterator[None]:
        """Make a context current in this thread for the block. Raises CountersRefused."""
        self._call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            before = _POINTER()
            self._call("cuCtxPopCurrent_v2", ctypes.byref(before))

    def device(self) -> int:
        """Return the number of the current context's device. Raises CountersRefused."""
        device = _INT()
        self._call("cuCtxGetDevice", ctypes.byref(device))
        return device.value

    def synchronize(self) -> None:
        """Wait for the work of the current context. Raises CountersRefused."""
        self._call("cuCtxSynchronize")

    def in_use(self) -> list[int]:
        """Return the devices whose primary context this process has; none before CUDA begins."""
        count, flags, active = _INT(), ctypes.c_uint(), _INT()
        try:
            self._call("cuDeviceGetCount", ctypes.byref(count))
        except CountersRefused:
            return []
        devices = []
        for device in range(count.value):
            self._call(
                "cuDevicePrimaryCtxGetState", device, ctypes.byref(flags), ctypes.byref(active)
            )
            if active.value:
                devices.append(device)
        return devices

    def described(self, device: int) -> dict[str, Any]:
        """Return the columns of the table ``devices`` that the driver can fill. Raises CountersRefused."""
        name, memory = ctypes.create_string_buffer(256), _SIZE()
        self._call("cuDeviceGetName", name, len(name), device)
        self._call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        attributes = {
            which: self._attribute(which, device)
            for which in (_CLOCK, _SMS, _MEMORY_CLOCK, _BUS, _THREADS, _MAJOR, _MINOR)
        }
        return {
            "device": device,
            "name": name.value.decode("utf-8", "replace"),
            "cc": f"{attributes[_MAJOR]}.{attributes[_MINOR]}",
            "sm_count": attributes[_SMS],
            "memory": memory.value,
            "max_threads_per_sm": attributes[_THREADS],
            "clock_khz": attributes[_CLOCK],
            "mem_bandwidth": attributes[_MEMORY_CLOCK] * 1000 * _EDGES * attributes[_BUS] // 8,
        }

    def _attribute(self, which: int, device: int) -> int:
        value = _INT()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), which, device)
        return value.value
