"""A function of the user's own as an op: each call a range with its tensor arguments."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any, Final

from .core import session
from .core.rangetext import clean_value
from .core.schema import Arg, OpCall, ParamValue, TensorSpec

_DTYPES: Final = {
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    "bfloat16": "bf16",
    "complex64": "c64",
    "complex128": "c128",
}

_lock = threading.Lock()
#: (owner, name, our function, the attribute as it was, whether it was the owner's own).
_wrapped: list[tuple[Any, str, Any, Any, bool]] = []


def wrap(owner: Any, name: str) -> None:
    """Let each call of ``owner.name`` be a range; a second time changes nothing."""
    # vars() rather than getattr: a static or class method is to be put back as what it is.
    own = name in vars(owner)
    original = vars(owner)[name] if own else getattr(owner, name)
    function = original.__func__ if isinstance(original, (staticmethod, classmethod)) else original
    if not callable(function):
        raise TypeError(f"{name} of {owner!r} cannot be called")
    with _lock:
        if any(one is owner and attribute == name for one, attribute, *_ in _wrapped):
            return
        ours: Any = _ranged(function, f"{_name_of(owner)}.{name}")
        if isinstance(original, (staticmethod, classmethod)):
            ours = type(original)(ours)
        setattr(owner, name, ours)
        _wrapped.append((owner, name, ours, original, own))


def restore() -> None:
    """Put every wrapped function back, unless another tool has replaced ours since."""
    with _lock:
        while _wrapped:
            owner, name, ours, original, own = _wrapped.pop()
            if vars(owner).get(name) is not ours:
                continue
            if own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)


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
    return TensorSpec(_DTYPES.get(text, text if text.isidentifier() else "?"), dims)
