"""The unit and meaning of every column of every frame that a Profile returns.

``WORDS`` gives each column name one unit and one meaning for all frames. The few frames in which a name
means something else override it in ``FRAMES``. Documentation and reports are generated from both.
"""

from __future__ import annotations

from inspect import cleandoc

from .column import UNITS, Column, Frame
from .tables import FRAMES
from .words import WORDS, columns

__all__ = ["FRAMES", "UNITS", "WORDS", "Column", "Frame", "columns", "describe"]


def describe(facade: type) -> None:
    """Append the columns of the returned frames to the docstring of each method of ``facade``."""
    for frame in FRAMES.values():
        method = getattr(facade, frame.method)
        if method.__doc__ is None:  # python -OO
            continue
        wide = max(len(column.name) for column in frame.columns)
        lines = [f"    {one.name:<{wide}}  {one.unit}: {one.meaning}" for one in frame.columns]
        pieces = (cleandoc(method.__doc__), "", f"``{frame.call}``: {frame.row}.", "", *lines)
        method.__doc__ = "\n".join(pieces)
