"""opscope: where the time of a neural network goes, and why."""

from __future__ import annotations

from . import callbacks as _callbacks
from .version import __version__ as __version__

# What is needed for types alone is not imported, the typing module included: it costs more than the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from typing import Any

    from .core.capture.session import Capture, annotate
    from .profile import load

__all__ = ["annotate", "capture", "init", "load", "shutdown", "step", "wrap"]

# Each is imported when it is first asked for: importing opscope loads no framework, no Polars.
_LAZY = {"annotate": "core.capture.session", "load": "profile"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":
        return import_module(f"{__name__}.errors")
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "errors"})


def init(
    frameworks: str | Iterable[str] | None = None,
    shapes: bool = True,
    source: bool = True,
    layers: bool = True,
    steps: bool = True,
    memory: bool | None = None,
) -> None:
    """Observe every framework that is imported, now or later; twice is once.

    With ``frameworks`` only those, and an opscope.errors.AdapterError where one of them
    cannot be observed. ``shapes``: arguments and results of ops; ``source``: the user's lines;
    ``layers``: the modules they run in; ``steps``: iterations and their phases; ``memory``: each
    allocation of a tensor's memory (PyTorch), off unless ``OPSCOPE_MEMORY=1``. With neither an
    NVTX tool attached nor a capture running, an observed program costs nothing more.
    """
    import os

    from . import adapters
    from .adapters.base import Options

    named = [frameworks] if isinstance(frameworks, str) else frameworks
    if memory is None:
        memory = os.environ.get("OPSCOPE_MEMORY", "") not in ("", "0")
    adapters.install(named, Options(shapes, source, layers, steps, memory))


def shutdown() -> None:
    """Undo ``init`` and ``wrap``: every hook is taken away, every patched attribute restored.

    The step that this thread is in is left, and is none to be counted.
    """
    from . import adapters, wrapping
    from .core.capture import session

    wrapping.restore()
    adapters.uninstall()
    session.leave_step()


def step(n: int | None = None) -> int:
    """An iteration begins here, and the one before, if any, ends. Returns its number.

    Call it once an iteration, at its beginning or at its end. From the first call on it alone
    tells the steps, and the optimizers no longer do. Raises TypeError where ``n`` is no integer.
    """
    from operator import index

    from .core.capture import session

    number = None if n is None else index(n)
    session.steps_by_user = True
    return session.step(number)


def wrap(owner: Any, name: str) -> None:
    """Let each call of the function ``owner.name`` be an op with its tensor arguments.

    ``owner`` is a module or a class. ``shutdown`` restores it. Raises AttributeError where there is
    no such attribute, TypeError where it cannot be called.
    """
    from . import wrapping

    wrapping.wrap(owner, name)


def capture(
    path: str | os.PathLike[str], *, backend: str = "auto", force: bool | None = None
) -> AbstractContextManager[None]:
    """Record what runs inside ``with opscope.capture("run.opscope"):`` into that profile.

    It begins with ``init()``. ``backend`` is ``auto`` (kernels by Kineto beside our ranges where
    there is a GPU, else the recorder; under Nsight Systems nothing is written, it records the ranges
    itself), ``kineto``, ``recorder`` or ``emit``. A block that raises still leaves its profile.
    ``force`` replaces the profile ``path``; not given, it is so in IPython and notebooks alone, where a
    cell is run again and what loads ``path`` means the last run.
    Entering it raises FileExistsError where ``path`` exists and not ``force``, ValueError on an
    unknown backend, and opscope.errors.SessionError while another capture runs.
    """
    from .backends.profile_capture import capture as record

    init()
    return record(path, backend=backend, force=force)


def _profile(path: str | os.PathLike[str], backend: str, force: bool | None) -> Capture:
    from .backends.profile_capture import ProfileCapture

    return ProfileCapture(path, backend, force)


_callbacks.register(init, _profile)
