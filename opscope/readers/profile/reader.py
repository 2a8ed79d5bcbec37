"""The trace in a profile, without what the analysis stored beside it."""

from __future__ import annotations

import os

from opscope.core.tables.trace import Trace

from . import profile_folder


def read(path: str | os.PathLike[str]) -> Trace:
    """The trace, its tables read when they are asked for. Raises BadInput."""
    return profile_folder.read(path)[0]
