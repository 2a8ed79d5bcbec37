"""Callbacks for training frameworks that count steps and capture ranges of them.

Callbacks import ``core`` alone. The functions that they need from elsewhere, to observe frameworks and to
capture into a profile, are registered by the package itself, which Python imports first.
"""

from __future__ import annotations

# Imports for type checkers only: this module is part of ``import opscope``.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Protocol

    from opscope.core.capture.session import Capture

    class Profiles(Protocol):
        """Makes the capture that writes the profile ``path``; raises nothing before the capture starts."""

        def __call__(
            self, path: str | os.PathLike[str], backend: str, force: bool | None
        ) -> Capture: ...


_observe: Callable[[], None] | None = None
_profiles: Profiles | None = None


def register(observe: Callable[[], None], profiles: Profiles) -> None:
    """Set the functions by which callbacks observe frameworks and make captures."""
    global _observe, _profiles
    _observe, _profiles = observe, profiles


def observe() -> None:
    """Observe every framework that is imported, now or later."""
    assert _observe is not None
    _observe()


def profile(path: str | os.PathLike[str], backend: str, force: bool | None) -> Capture:
    """Return a capture into the profile ``path``, not yet started."""
    assert _profiles is not None
    return _profiles(path, backend, force)
