"""The formats that a profile can be exported to, and how a file of one is written: whole or not at all."""

from __future__ import annotations

import os
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
    """One format. ``module``: that of ``exports`` which writes it, as ``write(profile, file, **options)``."""

    module: str
    suffix: str
    what: str
    #: The options that it takes.
    options: tuple[str, ...] = ()
    #: Whether it is a folder, not a file.
    folder: bool = False


FORMATS: Final[Mapping[str, Format]] = {
    "perfetto": Format("perfetto", ".pftrace", "Perfetto's protobuf: tracks, arrows, counters"),
    "chrome": Format("chrome", ".json", "the JSON of Chrome's tracing, which many viewers read"),
    "speedscope": Format(
        "speedscope", ".speedscope.json", "speedscope: a profile a thread and stream"
    ),
    "flamegraph": Format("flamegraph", ".folded", "folded stacks with nanoseconds", ("by",)),
    "otlp": Format("otlp", ".otlp.json", "OpenTelemetry's spans, as lines of JSON"),
    "tensorboard": Format(
        "tensorboard", ".tensorboard", "a folder of TensorBoard's scalars by step", folder=True
    ),
    "prometheus": Format("prometheus", ".prom", "the run's totals as Prometheus' text"),
}


#: What the files of TensorBoard begin with.
_EVENTS: Final = "events.out.tfevents."


def export(profile: Profile, to: str, path: Path, **options: Any) -> dict[str, int]:
    """Write the profile in the format ``to``; return what was written, counted.

    The file appears when it is whole. Raises KeyError for an unknown format, OSError where the file cannot
    be written.
    """
    write: Callable[..., dict[str, int]] = import_module(
        f"opscope.exports.{FORMATS[to].module}"
    ).write
    folder = path.parent
    if FORMATS[to].folder:
        return _folder(profile, write, path)
    made, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder)
    try:
        with os.fdopen(made, "wb") as out:
            counts = write(profile, out, **options)
        os.chmod(name, 0o666 & ~_mask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return counts


def _folder(profile: Profile, write: Callable[..., dict[str, int]], path: Path) -> dict[str, int]:
    """Write a folder, which appears when it is whole; one of TensorBoard's that is there is replaced."""
    others = (one for one in path.rglob("*") if one.is_file() and not one.name.startswith(_EVENTS))
    if path.is_dir() and (found := next(others, None)) is not None:
        raise OSError(ENOTEMPTY, f"it holds {found.name}, which is not TensorBoard's")
    made = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        counts = write(profile, made)
        made.chmod(0o777 & ~_mask())
        if path.is_dir():
            shutil.rmtree(path)
        made.rename(path)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return counts


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
