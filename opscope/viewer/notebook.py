"""A profile in a notebook's cell: a glance of at most 20 kB, or on request the viewer's pages.

``Shown(profile)`` has the single file in a sandboxed frame, with a bound on its size.

The frame runs the file's scripts and nothing else (``sandbox="allow-scripts"``: it reaches neither the
notebook nor its cookies and kernel), and the file's content policy lets it send no requests. If frames or
scripts are not allowed, as in an untrusted notebook, the user sees only the table beside it.
"""

from __future__ import annotations

from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from . import single
from .glance import glance
from .viewed import Viewed

if TYPE_CHECKING:
    from opscope.profile import Profile

#: Bytes of a cell's output: a notebook is saved with all of them.
MOST: Final = 500_000
#: With more kernels or ranges no verdict is shown automatically: it would take over five seconds.
_AT_ONCE: Final = 50_000
#: Pixels of the frame; pages scroll in it.
_HEIGHT: Final = 640


class Shown:
    """A profile's pages as the output of a cell, for a profile of any size. ``Shown(profile, megabytes=2)``
    holds more than the usual 0.5 MB; the pages say what did not fit. ``height`` is in pixels. Raises
    ValueError for a size that is not above 0 and at most 100."""

    def __init__(
        self, profile: Profile, megabytes: float = MOST / 1e6, height: int = _HEIGHT
    ) -> None:
        if not 0 < megabytes <= 100:
            raise ValueError(f"megabytes is {megabytes}; it must be above 0, and 100 at most")
        self._profile, self._most, self._height = profile, int(megabytes * 1e6), int(height)

    def __repr__(self) -> str:
        return repr(self._profile)

    def _repr_html_(self) -> str:
        return beside(
            _frame(self._profile, self._most, self._height), single.static_words(self._profile)
        )


def shown(profile: Profile, words: str) -> str:
    """Return the automatic output of a cell for ``profile``: a glance, or ``words`` if it is large."""
    large = [
        f"{len(profile.trace[name]):,} {name}"
        for name in ("kernels", "ranges")
        if len(profile.trace[name]) > _AT_ONCE
    ]
    if large:
        return (
            f"{words}<p>There is no verdict at once, as the profile has {' and '.join(large)}:"
            " profile.diagnosis() gives it, opscope.viewer.notebook.Shown(profile) the pages.</p>"
        )
    return glance(profile)


def beside(frame: str, words: str) -> str:
    """Return the frame and, folded, the table."""
    return f"{frame}<details><summary>The summary as a table</summary>{words}</details>"


def _frame(profile: Profile, most: int, height: int) -> str:
    text, _ = single.page(Viewed(profile, _names(profile)), most=most)
    source = escape(text.decode())
    return (
        f'<iframe sandbox="allow-scripts" title="opscope" width="100%" height="{height}" frameborder="0"'
        f' referrerpolicy="no-referrer" srcdoc="{source}"></iframe>'
    )


def _names(profile: Profile) -> tuple[str, ...]:
    """Return the names of the profile's files, without their folders."""
    path = profile._path
    origin = profile.trace.origin
    paths = [path] if path is not None else origin.get("paths") or ()
    return tuple(PurePath(str(path)).name for path in paths) or ("profile",)
