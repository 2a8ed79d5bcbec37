"""The formats that a profile can be exported to, and how a file is written: completely or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from errno import ENOTEMPTY
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opscope.profile import Profile


@dataclass(frozen=True, slots=True)
class Format:
    """A format. ``module``: the module of ``exports`` that writes it, with ``write(profile, file,
    **options)``."""

    module: str
    suffix: str
    what: str
    #: The options that the format takes.
    options: tuple[str, ...] = ()
    #: Whether it is a folder, not a file.
    folder: bool = False
    #: Whether ``write`` takes ``scratch``, a folder for temporary data that is too large for memory.
    scratch: bool = False


FORMATS: Final[Mapping[str, Format]] = {
    "perfetto": Format(
        "perfetto", ".pftrace", "Perfetto's protobuf: tracks, arrows, counters", scratch=True
    ),
    "chrome": Format(
        "chrome", ".json", "the JSON of Chrome's tracing, which many viewers read", scratch=True
    ),
    "speedscope": Format(
        "speedscope", ".speedscope.json", "speedscope: a profile a thread and stream", scratch=True
    ),
    "flamegraph": Format("flamegraph", ".folded", "folded stacks with nanoseconds", ("by",)),
    "otlp": Format("otlp", ".otlp.json", "OpenTelemetry's spans, as lines of JSON", scratch=True),
    "tensorboard": Format(
        "tensorboard", ".tensorboard", "a folder of TensorBoard's scalars by step", folder=True
    ),
    "prometheus": Format("prometheus", ".prom", "the run's totals as Prometheus' text"),
}


#: How the names of TensorBoard's files begin.
_EVENTS: Final = "events.out.tfevents."


def export(profile: Profile, to: str, path: Path, **options: Any) -> dict[str, int]:
    """Write the profile in the format ``to``; return the counts of what was written.

    The file or folder appears once it is complete; an existing TensorBoard folder is replaced. Raises
    KeyError for an unknown format, OSError where the file cannot be written.
    """
    write: Callable[..., dict[str, int]] = import_module(
        f"opscope.exports.{FORMATS[to].module}"
    ).write
    format_ = FORMATS[to]
    if format_.folder and path.is_dir():
        _only_events(path)
    # on the same disk, with the permissions of any new file; it is removed if writing fails
    with tempfile.TemporaryDirectory(prefix=".opscope-", dir=path.parent) as scratch:
        folder = Path(scratch) / path.name
        if format_.scratch:
            options["scratch"] = Path(scratch)
        if format_.folder:
            folder.mkdir()
            counts = write(profile, folder)
            if path.is_dir():
                shutil.rmtree(path)
            folder.rename(path)
        else:
            with folder.open("wb") as out:
                counts = write(profile, out, **options)
            folder.replace(path)
    return counts


def _only_events(folder: Path) -> None:
    """Raise OSError if a folder that is to be replaced holds a file that TensorBoard did not write."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith(_EVENTS):
            raise OSError(ENOTEMPTY, f"it holds {path.name}, which is not TensorBoard's")
