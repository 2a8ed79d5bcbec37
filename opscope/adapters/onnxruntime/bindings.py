"""Remember which inputs an IOBinding has, because ONNX Runtime cannot list them."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from opscope.adapters.shared.patch import Patches

from .values import Key, key_of

_NONE: Final[dict[str, Key]] = {}


class Bindings:
    """The hooks of the methods that bind inputs. Inputs bound before the hooks were set are unknown."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._bound: weakref.WeakKeyDictionary[Any, dict[str, Key]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def install(self, patches: Patches, owner: Any) -> None:
        """Hook the methods of ``owner`` (IOBinding). Raises AttributeError if one does not exist."""
        patches.wrap(owner, "bind_cpu_input", self._around(lambda array: key_of(np.asarray(array))))
        patches.wrap(owner, "bind_ortvalue_input", self._around(key_of))
        patches.wrap(owner, "bind_input", self._around(_of_buffer))
        patches.wrap(owner, "clear_binding_inputs", self._around_clear)

    def of(self, binding: Any) -> dict[str, Key]:
        """Return name → key of the inputs that were bound."""
        return self._bound.get(binding, _NONE)

    def _around(self, key: Callable[..., Key]) -> Callable[[Any], Any]:
        def around(original: Any) -> Any:
            @functools.wraps(original)
            def bind(binding: Any, *args: Any, **kwargs: Any) -> Any:
                result = original(binding, *args, **kwargs)
                try:
                    values = _given(args, kwargs)
                    name, value = next(values), key(*values)
                    with self._lock:
                        self._bound.setdefault(binding, {})[name] = value
                except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                    self._failed("an input that is bound could not be described")
                return result

            return bind

        return around

    def _around_clear(self, original: Any) -> Any:
        @functools.wraps(original)
        def clear_binding_inputs(binding: Any) -> Any:
            result = original(binding)
            with self._lock:
                self._bound.pop(binding, None)
            return result

        return clear_binding_inputs


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Yield the arguments of a binding method in the order in which it declares them."""
    names: Iterable[str] = (
        "name", "arr_on_cpu", "ortvalue", "device_type", "device_id", "element_type", "shape",
        "buffer_ptr",
    )  # fmt: skip
    return iter((*args, *(kwargs[name] for name in names if name in kwargs)))


def _of_buffer(device: str, device_id: int, element_type: Any, shape: Any, buffer: int) -> Key:
    """Return the key of a buffer in memory: NumPy's type, or the number of an ONNX element type."""
    sizes = tuple(int(size) for size in shape)
    if isinstance(element_type, int):
        return ONNX_NUMBERS.get(element_type, "tensor(?)"), sizes
    return np.dtype(element_type), sizes


#: The numbers of ONNX's element types that NumPy has no type for.
ONNX_NUMBERS: Final = {
    1: "tensor(float)", 2: "tensor(uint8)", 3: "tensor(int8)", 4: "tensor(uint16)",
    5: "tensor(int16)", 6: "tensor(int32)", 7: "tensor(int64)", 8: "tensor(string)",
    9: "tensor(bool)", 10: "tensor(float16)", 11: "tensor(double)", 12: "tensor(uint32)",
    13: "tensor(uint64)", 16: "tensor(bfloat16)", 17: "tensor(float8e4m3fn)",
    18: "tensor(float8e4m3fnuz)", 19: "tensor(float8e5m2)", 20: "tensor(float8e5m2fnuz)",
}  # fmt: skip
