"""Put coroutines and generators in a range while they run: from each resumption to the next suspension.

Ranges nest on a thread. While a coroutine or generator is suspended, other code runs on the thread, so one
range around the whole call would end inside that code's ranges. A range around each stretch nests.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
#: Makes the range of one call; the range is entered for each stretch, so it must allow entering again.
_Range = Callable[[], AbstractContextManager[Any]]


def suspends(function: Callable[..., Any]) -> bool:
    """Whether a call of the function returns a coroutine, a generator or an asynchronous generator."""
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )


def inside(function: _Function, ranged: _Range) -> _Function:
    """Return ``function``, which ``suspends``, with a range of ``ranged()`` around each stretch of time in
    which it runs.

    The kind of function stays the same, also for ``inspect``; values sent, thrown, returned and raised pass
    through. Arguments that do not fit raise TypeError when it first runs, not when it is called.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            return await _Awaited(function(*args, **kwargs), ranged())

        return coroutine  # type: ignore[return-value]
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            running, stretch = function(*args, **kwargs), ranged()
            step = _unknown_to_the_loop(running)
            while True:
                try:
                    item = await _Awaited(step, stretch)
                except StopAsyncIteration:
                    return
                try:
                    step = running.asend((yield item))
                except BaseException as thrown:  # noqa: BLE001 - meant for the generator, GeneratorExit too
                    step = running.athrow(thrown)

        return asynchronous  # type: ignore[return-value]

    @functools.wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Any:
        return (yield from _stretches(function(*args, **kwargs), ranged()))

    return generator  # type: ignore[return-value]


class _Awaited:
    """An awaitable with a range around each stretch that it runs."""

    __slots__ = ("_awaited", "_stretch")

    def __init__(self, awaited: Any, stretch: AbstractContextManager[Any]) -> None:
        self._awaited = awaited
        self._stretch = stretch

    def __await__(self) -> Generator[Any, Any, Any]:
        return _stretches(self._awaited.__await__(), self._stretch)


def _stretches(running: Any, stretch: AbstractContextManager[Any]) -> Generator[Any, Any, Any]:
    """Do ``yield from running`` with each stretch in the range ``stretch``."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            with stretch:
                yielded = running.send(value) if error is None else running.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            value = error = None  # an error that refers to this frame would keep itself alive
        try:
            value = yield yielded
        except BaseException as thrown:  # noqa: BLE001 - meant for ``running``, GeneratorExit too
            error = thrown


def _unknown_to_the_loop(running: Any) -> Any:
    """Return the first step of an asynchronous generator without the event loop noticing the generator.

    The loop knows the generator around it. If it knew both, it would close both at its end, at the same time.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return running.__anext__()
    finally:
        sys.set_asyncgen_hooks(*hooks)
