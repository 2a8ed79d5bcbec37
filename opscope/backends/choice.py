"""Choose the backend that suits this process and machine, and give the reason."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from opscope.core.capture import session
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.capture.session import Capture

from . import known
from .base import Auto, Availability, Backend
from .machine import Machine, gpu_vendor
from .recorder import RECORDER, UNHEARD
from .window import EXACT, Bounds

#: The reason of a backend that the user named.
REQUESTED: Final = "requested"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend's name and why it records.

    ``better`` lists the higher-ranked backends that do not record, each with the reason.
    """

    name: str
    reason: str
    better: tuple[tuple[str, str], ...] = ()

    def instead_of(self, failed: Sequence[tuple[Backend, str]]) -> Choice:
        """Return the choice with the backends that auto tried before it but that could not start, and why."""
        if not failed:
            return self
        names = {backend.name: f"it could not start: {why}" for backend, why in failed}
        others = [(name, why) for name, why in self.better if name not in names]
        reason = "; ".join(f"{backend.gives} are not captured: {why}" for backend, why in failed)
        return replace(self, reason=reason, better=(*names.items(), *others))

    def tell(self, recorder: Recorder | None) -> None:
        """Write the choice into the recording, if there is one."""
        if recorder is not None:
            recorder.fact(backend=self.name, reason=self.reason, better=self.better)


def here(environ: Mapping[str, str] = os.environ, **facts: Any) -> Machine:
    """Return a description of this machine; ``facts`` are arguments of ``Machine``."""
    return Machine(environ, **{"gpu": gpu_vendor(environ), **facts})


#: A backend's name, the backend (None: it cannot be asked), and its availability on a machine.
Answer = tuple[str, Backend | None, Availability]


def ranked(machine: Machine) -> Iterator[Answer]:
    """Yield every backend with its availability on ``machine``, the highest rank first.

    A backend that cannot be loaded or asked comes as None, with the reason.
    """
    backends, broken = known.every()
    for name, why in broken.items():
        yield name, None, Availability(False, why, "mend or remove its package")
    for backend in backends:
        try:
            availability = backend.available(machine)
            if not isinstance(availability, Availability):
                raise TypeError(f"available() returned {availability!r:.80}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a stranger's package may raise anything
            why = f"it cannot be asked: {type(error).__name__}: {error}"
            yield backend.name, None, Availability(False, why, "mend or remove its package")
            continue
        yield backend.name, backend, availability


def choose(
    in_process: bool = True,
    environ: Mapping[str, str] = os.environ,
    machine: Machine | None = None,
    asked: Iterable[Answer] | None = None,
) -> Choice:
    """Return the backend that ``auto`` means here. Imports no framework and calls no driver.

    ``in_process``: the program already runs, so it can no longer be started under nsys. ``machine`` describes
    a machine other than this one. ``asked``: the result of ``ranked`` for it, so that backends are not asked
    again.
    """
    machine = here(environ, in_process=in_process) if machine is None else machine
    return next(candidates(machine, asked))[0]


def candidates(
    machine: Machine, asked: Iterable[Answer] | None = None
) -> Iterator[tuple[Choice, Backend]]:
    """Yield the backends that ``auto`` may take, the best first; each choice says why the better ones do not
    record.

    The last is the recorder, which works everywhere. Backends are asked only as needed; ``asked`` as for
    ``choose``.
    """
    better: list[tuple[str, str]] = []
    lacking: list[str] = []
    for name, backend, availability in ranked(machine) if asked is None else asked:
        why = availability.why
        if backend is not None and availability.works and availability.auto is Auto.NOW:
            if (
                backend is RECORDER
                and lacking
                and machine.gpu is not None
                and not machine.is_unheard
            ):
                why = f"a GPU is visible, but its kernels cannot be recorded: {'; '.join(lacking)}"
            if not (backend.around and machine.in_process):
                yield Choice(name, why, tuple(better)), backend
                continue
            why = "the program runs already, and cannot be started under a tool"
        better.append((name, why))
        if backend is None or backend.gpu:
            lacking.append(f"{name}: {why}")


def offered(asked: Iterable[Answer]) -> list[Backend]:
    """Return the backends that may begin in the process now or once the program uses a device, best first.

    ``asked`` is the result of ``ranked``.
    """
    return [
        backend
        for _, backend, availability in asked
        if backend is not None
        and availability.works
        and availability.auto is not Auto.NEVER
        and not backend.outside
        and backend is not RECORDER
    ]


def has_gpu(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> bool:
    """Whether an NVIDIA or AMD GPU is visible, whose kernels can be captured."""
    return gpu_vendor(environ, root) is not None


def make(name: str, folder: str | os.PathLike[str], bounds: Bounds = EXACT) -> Capture | None:
    """Return the backend's capture into ``folder``, not yet started; None if a tool outside records.

    Raises ValueError for a backend that does not exist in the process, BrokenBackend for one that cannot
    be loaded.
    """
    backend = known.load(name)
    if backend.around:
        raise ValueError(
            f"no backend {name!r} in the process: it starts the program (opscope run --backend {name})"
        )
    return None if backend.outside else backend.capture(Path(folder), bounds)


def warn_unheard() -> None:
    """Warn in the log and in the recording that Nsight Systems does not record ranges."""
    warn(UNHEARD)


def warn(message: str) -> None:
    """Warn in the log and in the recording."""
    _log.warning("opscope: %s", message)
    recorder = session.recorder()
    if recorder is not None:
        recorder.note("warning", message)
