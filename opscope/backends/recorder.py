"""The ``recorder`` backend: captures ranges in the process; it needs no GPU and no tool."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from opscope.core.capture import session
from opscope.core.capture.recorder_sink import Recorder

from .base import Availability, Backend
from .machine import Machine
from .window import Bounds

UNHEARD: Final = (
    "Nsight Systems runs this process without -t nvtx, so it does not record ranges: opscope records them "
    "itself. Start with `nsys profile -t nvtx,cuda` to have them in its report beside the kernels"
)


class RecorderCapture:
    """Captures the ranges of this process and of its forked children into ``folder``."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def warmup(self) -> None:
        """Do nothing: the recorder starts fast."""

    def start(self) -> None:
        """Begin. Raises OSError if the folder cannot be made."""
        recorder = Recorder(self.folder)
        recorder.start()
        session.listen(recorder)

    def stop(self) -> None:
        """End. Afterwards ``readers.recording.reader.collect(folder)`` reads the trace."""
        recorder = session.recorder()
        session.listen(None)
        if recorder is None:
            return
        cuda = sys.modules.get("torch.cuda")
        if cuda is not None and cuda.is_initialized():
            recorder.fact(gpu=True)  # this capture does not record the GPU's kernels
        recorder.stop()

    def in_child(self) -> bool:
        """Continue in a forked child, which is recorded like its parent."""
        return True

    def __repr__(self) -> str:
        return f"RecorderCapture({str(self.folder)!r})"


class RecorderBackend(Backend):
    """opscope's own recorder, which works everywhere; ``auto`` takes it if nothing else works."""

    name = "recorder"
    gives = "ranges"
    rank = 0

    def available(self, machine: Machine) -> Availability:
        if machine.is_unheard:
            return Availability(
                True, "Nsight Systems runs the process and does not record its ranges"
            )
        if machine.gpu is None:
            return Availability(True, f"{machine.no_gpu}, so there are no kernels to record")
        return Availability(True, "it works everywhere, and records no kernels")

    def capture(self, folder: Path, bounds: Bounds) -> RecorderCapture:
        return RecorderCapture(folder)


RECORDER: Final = RecorderBackend()
