"""TensorBoard's scalars: the time of each step and of its parts, in a folder that TensorBoard reads."""

from __future__ import annotations

import os
from errno import EILSEQ
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opscope.profile import Profile

#: Columns of ``steps()`` that are times (ns); they are written in seconds.
_TIMES: Final = ("time", "overlap_time")
_PARTS: Final = ("_part", "_phase", "_phases")


class NoTensorBoard(ImportError):
    """The package ``tensorboard`` is not installed."""


def write(profile: Profile, folder: Path) -> dict[str, int]:
    """Write an event file for each process into ``folder``; return the number of scalars.

    TensorBoard's step is the profile's step number. Raises NoTensorBoard if the package ``tensorboard`` is
    not installed.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise NoTensorBoard(
            "tensorboard is not installed: pip install 'opscope[tensorboard]'"
        ) from error
    try:
        os.fspath(folder).encode()
    except UnicodeEncodeError:
        raise OSError(
            EILSEQ, "its name is not UTF-8, and TensorBoard writes only UTF-8 names"
        ) from None
    steps = profile.steps()
    columns = [name for name in steps.columns if name in _TIMES or name.endswith(_PARTS)]
    count = 0
    for (process, rank), part in steps.group_by(["process", "rank"], maintain_order=True):
        name = f"process {process}" if rank is None else f"rank {rank}"
        writer = EventFileWriter(str(folder / name))
        for row in part.to_dicts():
            if row["step"] is None:
                continue
            values = [
                Summary.Value(tag=f"opscope/{column} [s]", simple_value=row[column] / 1e9)
                for column in columns
                if row[column] is not None
            ]
            count += len(values)
            event = Event(
                wall_time=row["start"] / 1e9, step=row["step"], summary=Summary(value=values)
            )
            writer.add_event(event)
        writer.close()
    return {"scalars": count}
