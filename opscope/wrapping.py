"""Record calls of a user's function as ops: each call becomes a range with its tensor arguments."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Sequence
from typing import Any

from .adapters.shared.patch import Patches
from .core.capture import session
from .core.rangetext import clean_value
from .core.schema import DTYPE_NAMES, Arg, OpCall, ParamValue, TensorSpec

_lock = threading.Lock()
_patches = Patches()


def wrap(owner: Any, name: str) -> None:
    """Record each call of ``owner.name`` as an op; wrapping it again changes nothing."""
    original = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
    method = isinstance(original, (staticmethod, classmethod))
    function = original.__func__ if method else original
    if not callable(function):
        raise TypeError(f"cannot wrap {name} of {owner!r}: it is not callable")
    with _lock:
        if not _patches.has(owner, name):
            ours = _range(function, f"{_name_of(owner)}.{name}")
            _patches.set(owner, name, type(original)(ours) if method else ours)


def restore() -> None:
    """Restore every wrapped function, except where another tool has since replaced the wrapper."""
    with _lock:
        _patches.restore()


def _name_of(owner: Any) -> str:
    name = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", None)
    return str(name or type(owner).__qualname__)


def _range(function: Any, name: str) -> Any:
    names = _positional(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        user = session.emitter(session.WRAP_FRAMEWORK)
        if not user.active:
            return function(*args, **kwargs)
        user.push(user.prepare(_describe(name, names, args, kwargs)))
        try:
            return function(*args, **kwargs)
        finally:
            user.pop()

    return call


def _positional(function: Any) -> tuple[str, ...]:
    """Return the names of the parameters that can be passed by position; () if Python cannot find them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return ()
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in by_position)


def _describe(
    name: str, names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]
) -> OpCall:
    """Return the call as an OpCall: tensors are inputs, numbers and texts are named parameters."""
    inputs: tuple[Arg, ...] = ()
    params: list[tuple[str, ParamValue]] = []
    unnamed = (f"arg{index}" for index in range(len(names), len(args)))
    for key, value in (*zip((*names, *unnamed), args, strict=False), *kwargs.items()):
        arg = _arg(value)
        if arg is not None:
            inputs += (arg,)
        elif isinstance(value, (bool, int, float, str)):
            params.append((key, clean_value(value)))
    return OpCall(name, inputs, None, tuple(params))


def _arg(value: Any) -> Arg:
    """Return the TensorSpec of any framework's tensor (an object with ``shape`` and ``dtype``), else None.

    For a list or tuple, return the specs of its first 256 items.
    """
    if isinstance(value, (list, tuple)):
        items = tuple(arg for item in value[:256] if (arg := _arg(item)) is not None)
        return items or None
    try:
        shape, dtype = value.shape, value.dtype
        dims = tuple(size if type(size) is int else "?" for size in shape)
    except Exception:  # noqa: BLE001 - a property of an unknown class may raise anything
        return None
    text = str(getattr(dtype, "name", dtype)).rsplit(".", 1)[-1]
    return TensorSpec(DTYPE_NAMES.get(text, text if text.isidentifier() else "?"), dims)
