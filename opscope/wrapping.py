"""A function of the user's own as an op: each call a range with its tensor arguments."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

from .adapters.patch import Patches
from .core import session
from .core.rangetext import clean_value
from .core.schema import DTYPE_NAMES, Arg, OpCall, ParamValue, TensorSpec

_lock = threading.Lock()
_patches = Patches()


def wrap(owner: Any, name: str) -> None:
    """Let each call of ``owner.name`` be a range; a second time changes nothing."""
    original = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
    method = isinstance(original, (staticmethod, classmethod))
    function = original.__func__ if method else original
    if not callable(function):
        raise TypeError(f"{name} of {owner!r} cannot be called")
    with _lock:
        if not _patches.has(owner, name):
            ours = _ranged(function, f"{_name_of(owner)}.{name}")
            _patches.set(owner, name, type(original)(ours) if method else ours)


def restore() -> None:
    """Put every wrapped function back, unless another tool has replaced ours since."""
    with _lock:
        _patches.restore()


def _name_of(owner: Any) -> str:
    name = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", None)
    return str(name or type(owner).__qualname__)


def _ranged(function: Any, name: str) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        user = session.emitter(session.USER_FRAMEWORK)
        if not user.active:
            return function(*args, **kwargs)
        user.push(user.prepare(_describe(name, args, kwargs)))
        try:
            return function(*args, **kwargs)
        finally:
            user.pop()

    return call


def _describe(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> OpCall:
    inputs = tuple(found for value in args if (found := _arg(value)) is not None)
    params: list[tuple[str, ParamValue]] = []
    for key, value in kwargs.items():
        found = _arg(value)
        if found is not None:
            inputs += (found,)
        elif isinstance(value, (bool, int, float, str)):
            params.append((key, clean_value(value)))
    return OpCall(name, inputs, None, tuple(params))


def _arg(value: Any) -> Arg:
    """The tensor, of whatever framework: anything with sizes and a dtype."""
    if isinstance(value, (list, tuple)):
        items = tuple(found for item in value[:256] if (found := _arg(item)) is not None)
        return items or None
    try:
        shape, dtype = value.shape, value.dtype
        dims = tuple(size if type(size) is int else "?" for size in shape)
    except Exception:  # noqa: BLE001 - a property of a stranger's class may raise anything
        return None
    text = str(getattr(dtype, "name", dtype)).rsplit(".", 1)[-1]
    return TensorSpec(DTYPE_NAMES.get(text, text if text.isidentifier() else "?"), dims)
