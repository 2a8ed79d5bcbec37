"""Time the program's outermost imports, on any thread. Python calls ``_find_and_load`` of its import
machinery for each module that is not loaded yet, and looks the function up each time. It is wrapped only
while no import runs, so an import inside another costs nothing. Imports of loaded modules never call it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

_NAME: Final = "_find_and_load"
#: The most imports that are kept; if a program has more, the first ones are.
MOST: Final = 4096
_times: list[tuple[str, int, int]] = []


def time_imports() -> Callable[[], None]:
    """Begin to time imports; return what undoes this. Called once, before the program begins.

    Does nothing if Python's import machinery lacks the functions that it needs.
    """
    machinery: Any = sys.modules.get("_frozen_importlib")
    original: Any = getattr(machinery, _NAME, None)
    if not hasattr(original, "__code__"):
        return lambda: None

    def find_and_load(name: str, *rest: Any) -> Any:
        setattr(machinery, _NAME, original)
        begin = perf_counter_ns()
        try:
            return original(name, *rest)
        finally:
            if len(_times) < MOST and not name.startswith("opscope."):
                _times.append((name, begin, perf_counter_ns()))
            if wrapped and getattr(machinery, _NAME) is original:
                setattr(machinery, _NAME, find_and_load)

    def undo() -> None:
        wrapped.clear()
        if getattr(machinery, _NAME) is find_and_load:
            setattr(machinery, _NAME, original)
        _times.clear()

    wrapped = [True]
    # Python hides frames of its import machinery in tracebacks, which it recognises by their file
    file = original.__code__.co_filename
    find_and_load.__code__ = find_and_load.__code__.replace(co_filename=file)
    setattr(machinery, _NAME, find_and_load)
    if hasattr(os, "register_at_fork"):  # a child process does not have its parent's imports
        os.register_at_fork(after_in_child=_times.clear)
    return undo


def imports(since: int = 0) -> list[tuple[str, int, int]]:
    """Return name, begin and end (ns) of the imports from number ``since`` on, in the order of their ends."""
    return _times[since:]
