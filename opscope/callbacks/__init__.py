"""Step ranges driven by a framework's own callbacks.

Callbacks know ``core`` alone. What they need of the rest, how to observe and how to capture into a profile,
is registered by the package itself, which Python imports before any of them.
"""

from __future__ import annotations

# What is needed for types alone is not imported: this is part of ``import opscope``.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Protocol

    from opscope.core.capture.session import Capture

    class Profiles(Protocol):
        """Makes the capture that leaves the profile ``path``; raises nothing before it is started."""

        def __call__(
            self, path: str | os.PathLike[str], backend: str, force: bool | None
        ) -> Capture: ...


_observe: Callable[[], None] | None = None
_profiles: Profiles | None = None


def register(observe: Callable[[], None], profiles: Profiles) -> None:
    """From now on callbacks observe frameworks by ``observe()`` and capture with what ``profiles`` makes."""
    global _observe, _profiles
    _observe, _profiles = observe, profiles


def observe() -> None:
    """Observe every framework that is imported, now or later."""
    assert _observe is not None
    _observe()


def profile(path: str | os.PathLike[str], backend: str, force: bool | None) -> Capture:
    """A capture into the profile ``path``, not yet started."""
    assert _profiles is not None
    return _profiles(path, backend, force)
