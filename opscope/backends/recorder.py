"""The in-process recorder as a capture, and its parts read back as trace tables."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from opscope.core import record, session
from opscope.core.emit import SEQ_BITS
from opscope.core.errors import TraceError
from opscope.core.record import Recorder
from opscope.core.trace import Trace, concat

_Ints = npt.NDArray[np.int64]

#: Bytes of meta.json, and of one line of the others, beyond which the file is not ours.
MAX_META: Final = 1 << 22
MAX_LINE: Final = 8 << 20
#: In a range's attrs: it was open when the recording ended, and ends there.
UNCLOSED: Final = '{"unclosed":true}'


class RecorderCapture:
    """Ranges of this process and of its forked children, into ``folder``; no GPU, no tool needed."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def warmup(self) -> None:
        """Nothing is slow here."""

    def start(self) -> None:
        """Begin. Raises OSError when the folder cannot be made."""
        recorder = Recorder(self.folder)
        recorder.start()
        session.listen(recorder)

    def stop(self) -> None:
        """End. Afterwards ``collect(folder)`` has the trace."""
        recorder = session.recorder()
        session.listen(None)
        if recorder is not None:
            recorder.stop()

    def __repr__(self) -> str:
        return f"RecorderCapture({str(self.folder)!r})"
