"""Wrap the methods by which PyTorch captures CUDA graphs, to report captures if no adapter does.

``core.capture.cuda_graphs`` says why. If the PyTorch adapter is installed, it reports captures, and these
wrappers do nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from opscope.core.capture.cuda_graphs import OF_PROCESS, Captures


class Methods:
    """Wraps ``capture_begin``, ``capture_end`` and ``replay`` of PyTorch's classes to report to
    ``captures``."""

    def __init__(self, captures: Captures = OF_PROCESS) -> None:
        self._captures = captures
        self._wrapped: dict[tuple[type, str], Callable[[], bool]] = {}

    def install(self, *owners: type) -> None:
        """Wrap the methods of the classes, unless they are wrapped already or an adapter reports captures."""
        if self._captures.reported_by_adapter:
            return
        for owner in owners:
            for name, make in (
                ("capture_begin", self._begin),
                ("capture_end", self._end),
                ("replay", self._replay),
            ):
                original = getattr(owner, name, None)
                if original is not None and (owner, name) not in self._wrapped:
                    self._wrapped[owner, name] = _exchange(owner, name, make(original))

    def uninstall(self) -> None:
        """Restore the methods, unless a CUDA graph is being captured or another tool has wrapped them
        since."""
        if not self._captures.threads:
            for key, undo in tuple(self._wrapped.items()):
                if undo():
                    del self._wrapped[key]

    def _begin(self, original: Any) -> Any:
        @functools.wraps(original)
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if self._captures.reported_by_adapter:
                return original(graph, *args, **kwargs)
            self._captures.begins(graph)
            try:
                return original(graph, *args, **kwargs)
            except BaseException:
                # also after an interrupt: otherwise it would count as being captured for ever
                self._captures.ends(graph)
                raise

        return capture_begin

    def _end(self, original: Any) -> Any:
        @functools.wraps(original)
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if self._captures.reported_by_adapter:
                return original(graph, *args, **kwargs)
            try:
                return original(graph, *args, **kwargs)
            finally:
                self._captures.ends(graph)

        return capture_end

    def _replay(self, original: Any) -> Any:
        @functools.wraps(original)
        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if self._captures.reported_by_adapter:
                return original(graph, *args, **kwargs)
            self._captures.replays(graph)
            return original(graph, *args, **kwargs)

        return replay


def _exchange(owner: type, name: str, ours: Any) -> Callable[[], bool]:
    own, before = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, ours)

    def undo() -> bool:
        if vars(owner).get(name) is not ours:
            return False
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
        return True

    return undo


#: The wrappers that report this process's captures.
METHODS: Final = Methods()
