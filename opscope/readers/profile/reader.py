"""Read the trace in a profile, without the analysis results stored beside it."""

from __future__ import annotations

import os

from opscope.core.tables.trace import Trace

from . import profile_folder


def read(path: str | os.PathLike[str]) -> Trace:
    """Return the trace, whose tables are read on first use. Raises BadInput."""
    return profile_folder.read(path)[0]
