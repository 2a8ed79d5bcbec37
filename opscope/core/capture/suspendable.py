"""Functions that can be suspended, inside a range whenever they run: from each resumption to the next wait.

Ranges nest on a thread. While a coroutine or a generator is suspended others run there, so one range
around the whole of it would end in the midst of theirs; a range for each stretch that it runs nests.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
#: Gives the range of one stretch; what it gives may be entered again after it was left.
_Range = Callable[[], AbstractContextManager[Any]]


def suspends(function: Callable[..., Any]) -> bool:
    """Whether a call of the function gives a coroutine, a generator or an asynchronous generator."""
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )


def inside(function: _Function, ranged: _Range) -> _Function:
    """``function``, which ``suspends``, with a range of ``ranged()`` around each stretch that it runs.

    It stays of its kind, for ``inspect`` too; what is sent, thrown, returned and raised passes through.
    Arguments that do not fit are refused when it first runs, not when it is called.
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
                except BaseException as thrown:  # noqa: BLE001 - it is the generator's, GeneratorExit too
                    step = running.athrow(thrown)

        return asynchronous  # type: ignore[return-value]

    @functools.wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Any:
        return (yield from _stretches(function(*args, **kwargs), ranged()))

    return generator  # type: ignore[return-value]


class _Awaited:
    """An awaitable whose every stretch is in a range."""

    __slots__ = ("_awaited", "_stretch")

    def __init__(self, awaited: Any, stretch: AbstractContextManager[Any]) -> None:
        self._awaited = awaited
        self._stretch = stretch

    def __await__(self) -> Generator[Any, Any, Any]:
        return _stretches(self._awaited.__await__(), self._stretch)


def _stretches(running: Any, stretch: AbstractContextManager[Any]) -> Generator[Any, Any, Any]:
    """``yield from running``, each stretch of it in the range."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            with stretch:
                told = running.send(value) if error is None else running.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            value = error = None  # an error that held this frame would keep itself alive
        try:
            value = yield told
        except BaseException as thrown:  # noqa: BLE001 - it is the one's that runs, GeneratorExit too
            error = thrown


def _unknown_to_the_loop(running: Any) -> Any:
    """The first step of an asynchronous generator of which the event loop does not hear.

    It hears of the one around it: told of both it would close both at its end, at the same time.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return running.__anext__()
    finally:
        sys.set_asyncgen_hooks(*hooks)
