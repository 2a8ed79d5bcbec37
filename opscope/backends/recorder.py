"""The in-process recorder as a capture: ranges, no GPU and no tool needed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from opscope.core.capture import session
from opscope.core.capture.recorder_sink import Recorder


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
        """End. Afterwards ``readers.recording.reader.collect(folder)`` has the trace."""
        recorder = session.recorder()
        session.listen(None)
        if recorder is None:
            return
        cuda = sys.modules.get("torch.cuda")
        if cuda is not None and cuda.is_initialized():
            recorder.fact(gpu=True)  # whose kernels this does not see
        recorder.stop()

    def in_child(self) -> bool:
        """A forked child is recorded as its parent is."""
        return True

    def __repr__(self) -> str:
        return f"RecorderCapture({str(self.folder)!r})"
