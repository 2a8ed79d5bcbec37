"""Call a method when a module is imported, if the method's object still exists then.

A hook is kept until the module is imported, which may never happen. A hook that is a method would
keep its whole adapter alive, so this module holds methods by weak references.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from opscope.core.capture import after_import

_lock = threading.Lock()
#: Methods that wait for a module, by the module's name.
_waiting: dict[str, list[weakref.WeakMethod[Callable[[Any], None]]]] = {}


def when_imported(name: str, method: Callable[[Any], None]) -> None:
    """Call ``method`` with module ``name``, now or on its import, if its object still exists."""
    with _lock:
        was_waiting = name in _waiting
        waiting = _waiting.setdefault(name, [])
        waiting[:] = [reference for reference in waiting if reference() is not None]
        if (reference := weakref.WeakMethod(method)) not in waiting:  # each capture asks again
            waiting.append(reference)
    if not was_waiting:  # the hook is called at once if the module is already imported
        after_import.call(functools.partial(_import, name), name)


def _import(name: str, module: ModuleType) -> None:
    with _lock:
        waiting = _waiting.pop(name, [])
    for reference in waiting:
        method = reference()
        if method is not None:
            method(module)
