"""opscope: where the time of a neural network goes, and why."""

from __future__ import annotations

from . import callbacks as _callbacks
from .version import __version__ as __version__

# Imports for type checkers only. The typing module is among them: importing it costs more than the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from typing import Any

    from .core.capture.session import Capture, annotate
    from .profile import load

__all__ = ["annotate", "capture", "init", "load", "shutdown", "step", "wrap"]

# Imported at first use, so that ``import opscope`` loads neither a framework nor Polars.
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
    samples: float | None = None,
) -> None:
    """Observe every framework that is imported, now or later; a second call changes nothing.

    With ``frameworks`` only those are observed, and init raises opscope.errors.AdapterError if one of them
    cannot be; ``"simple"`` observes none: steps, ranges and kernels are recorded, and no ops. Naming a
    framework also turns on its own profiler where only that sees what runs (the nodes of ONNX Runtime's
    sessions). The other options choose what is recorded. ``shapes``: arguments and results of ops;
    ``source``: the user's source lines; ``layers``: the modules that ops run in; ``steps``: iterations and
    their phases; ``memory``: each allocation of tensor memory (PyTorch), off unless ``OPSCOPE_MEMORY=1``;
    ``samples``: how often in a second the processors are sampled while a capture runs, 10 unless
    ``OPSCOPE_SAMPLES`` says otherwise, 0 for never.
    While no NVTX tool is attached and no capture runs, an observed program has no extra cost.
    """
    import os

    from . import adapters
    from .adapters.base import Options
    from .core.capture import cpu_samples

    cpu_samples.choose(samples)
    named = [frameworks] if isinstance(frameworks, str) else frameworks
    if memory is None:
        memory = os.environ.get("OPSCOPE_MEMORY", "") not in ("", "0")
    adapters.install(named, Options(shapes, source, layers, steps, memory))


def shutdown() -> None:
    """Undo ``init`` and ``wrap``: remove every hook, restore every patched attribute.

    This thread's current step is closed and does not count.
    """
    from . import adapters, wrapping
    from .core.capture import session

    wrapping.restore()
    adapters.uninstall()
    session.leave_step()


def step(n: int | None = None) -> int:
    """Begin a step (one training iteration), end the previous one if any, and return the step's number.

    Call it once per iteration, at its beginning or at its end. After the first call only these calls
    count steps; opscope no longer counts them by the optimizers. Raises TypeError if ``n`` is not an integer.
    """
    from operator import index

    from .core.capture import session

    number = None if n is None else index(n)
    session.steps_by_user = True
    return session.step(number)


def wrap(owner: Any, name: str) -> None:
    """Record each call of the function ``owner.name`` as an op with its tensor arguments.

    ``owner`` is a module or a class. ``shutdown`` restores the function. Raises AttributeError if the
    attribute does not exist, TypeError if it is not callable.
    """
    from . import wrapping

    wrapping.wrap(owner, name)


def capture(
    path: str | os.PathLike[str], *, backend: str = "auto", force: bool | None = None
) -> AbstractContextManager[None]:
    """Record the block ``with opscope.capture("run.opscope"):`` into that profile.

    Calls ``init()`` first, if the program has not. ``backend`` is ``auto``, ``kineto``, ``mindspore``,
    ``xplane``, ``recorder`` or ``emit``. With a GPU and PyTorch, ``auto`` is ``kineto`` (kernels by PyTorch's
    profiler beside opscope's ranges); if JAX is loaded and PyTorch is not, it is ``xplane`` (operations by
    JAX's profiler); if MindSpore is loaded and neither of them is, it is ``mindspore`` (operators by
    MindSpore's profiler); else it is ``recorder`` (ranges). Under Nsight Systems it is ``emit``, which
    writes nothing: Nsight Systems records the ranges itself. A block that raises still writes its profile.
    ``force=True`` replaces an existing profile ``path``; by default that is done only in IPython and
    notebooks, where cells are rerun and ``path`` means the last run. Entering the block raises
    FileExistsError if ``path`` exists and is not to be replaced, ValueError for an unknown backend, and
    opscope.errors.SessionError while another capture runs.
    """
    from .backends.profile_capture import capture as record

    _observe()
    return record(path, backend=backend, force=force)


def _observe() -> None:
    """Observe every framework, unless the program has chosen which ones."""
    from . import adapters

    if not adapters.chosen():
        init()


def _profile(path: str | os.PathLike[str], backend: str, force: bool | None) -> Capture:
    from .backends.profile_capture import ProfileCapture

    return ProfileCapture(path, backend, force)


_callbacks.register(_observe, _profile)
