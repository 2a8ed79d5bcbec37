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
    from .profile import diff
    from .scale.one_call import load

__all__ = ["annotate", "capture", "diff", "init", "load", "shutdown", "step", "step_block", "wrap"]

# Imported at first use, so that ``import opscope`` loads neither a framework nor Polars.
_LAZY = {
    "annotate": "core.capture.session",
    "diff": "profile",
    "load": "scale.one_call",
    "load_ipython_extension": "cli.magic",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":
        return import_module(f"{__name__}.errors")
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    loaded = import_module(f"{__name__}.{module}")
    if name in ("diff", "load"):
        import_module(f"{__name__}.profile").show_by(_show)
    value = globals()[name] = getattr(loaded, name)
    return value


def _show(profile: Any, words: str) -> str:
    """Return what a notebook shows for a profile. Registered here, because ``profile`` must not import the
    viewer."""
    from .viewer.notebook import shown

    return shown(profile, words)


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
    stacks: bool | None = None,
    attach: bool | str | os.PathLike[str] = False,
    light: bool | str | os.PathLike[str] = False,
    spells: bool = True,
) -> None:
    """Observe every framework that is imported, now or later; a second call changes nothing.

    With ``frameworks`` only those are observed, and init raises opscope.errors.AdapterError if one of them
    cannot be; ``"simple"`` observes none: steps, ranges and kernels are recorded, and no ops. Naming a
    framework also turns on its own profiler where only that sees what runs (the nodes of ONNX Runtime's
    sessions). The other options choose what is recorded. ``shapes``: arguments and results of ops;
    ``source``: the user's source lines; ``layers``: the modules that ops run in; ``steps``: iterations and
    their phases; ``memory``: each allocation of tensor memory (PyTorch), off unless ``OPSCOPE_MEMORY=1``;
    ``samples``: how often in a second the processors are sampled while a capture runs, 10 unless
    ``OPSCOPE_SAMPLES`` says otherwise, 0 for never; ``stacks``: the Python stacks of the recorded threads,
    sampled while a capture runs, unless ``OPSCOPE_STACKS=0`` or ``source=False``.
    While no NVTX tool is attached and no capture runs, an observed program has no extra cost.

    ``attach=True`` lets this user's ``opscope attach PID`` record the running program, into the
    current working folder or the folder given as ``attach``.

    ``light``: measure each step and its phases from now until the program ends, and record no ops: for a
    whole training. At the end a profile is written (``True``: into the current folder, named after the
    program; a path: there) and a report is printed. When steps stay slow, the next few are recorded in full,
    three times an hour at most, unless ``spells`` is False. Raises FileExistsError if the path exists. Under
    ``opscope run``, which records already, ``light`` changes nothing.
    """
    import os

    from . import adapters
    from .adapters.base import Options
    from .core.capture import cpu_samples, host_stacks

    cpu_samples.choose(samples)
    host_stacks.choose(stacks if source else False)
    named = [frameworks] if isinstance(frameworks, str) else frameworks
    if memory is None:
        memory = os.environ.get("OPSCOPE_MEMORY", "") not in ("", "0")
    if light:
        _begin_light(None if light is True else light, spells)
    adapters.install(named, Options(shapes, source, layers, steps, memory, spells))
    if attach is not False:
        from .backends.attachable_program import attachable

        attachable(os.getcwd() if attach is True else attach)


def _begin_light(path: str | os.PathLike[str] | None, spells: bool) -> None:
    from pathlib import Path

    from .backends import light
    from .core.capture import session

    if session.light() is not None or session.is_reserved("light mode"):
        return
    asked = None if path is None else Path(path)
    light.LightProfile(asked, spells and light.spells_wanted(), _tell_light).start()


def _tell_light(path: Any) -> None:
    """Print light mode's report at the process's end; in a job of several ranks only the first does."""
    import os
    import sys

    if sys.stderr is None or os.environ.get("RANK", "0") != "0":
        return
    from .core.question.layout import write
    from .profile import load as read
    from .reports import console

    sys.stderr.write(f"opscope: wrote {path}\n")
    write(console.light_screen(read(path)), sys.stderr, None)


def shutdown() -> None:
    """Undo ``init`` and ``wrap``: remove every hook, restore every patched attribute.

    Nobody can attach any more. This thread's current step is closed and does not count. Light mode ends and
    writes its profile.
    """
    import sys

    from . import adapters, wrapping
    from .core.capture import session

    attached = sys.modules.get(f"{__name__}.backends.attachable_program")
    if attached is not None:
        attached.unattachable()
    session.end_light()
    wrapping.restore()
    adapters.uninstall()
    session.leave_step()


def step(
    n: int | None = None,
    *,
    kind: str | None = None,
    requests: int | None = None,
    new_tokens: int | None = None,
    cached_tokens: int | None = None,
) -> int:
    """Begin a step (one training iteration), end the previous one if any, and return the step's number.

    Call it once per iteration, at its beginning: called at its end, the first iteration is in no step. The
    last step ends where its ops show it; ``step_block`` says where each ends. After the first call only these
    calls count steps; opscope no longer counts them by the optimizers. Raises TypeError if ``n`` is not an
    integer.

    ``kind`` says that it is a step of an inference engine: prefill, decode, mixed, verify, draft or idle,
    with the requests in it, the tokens that it computes and those that were in the cache before, where
    known. Call it at the step's beginning then. Raises ValueError for another kind and for negative counts.
    """
    session = _session or _load_session()
    if n is not None and type(n) is not int:
        from operator import index

        n = int(index(n))
    session.steps_by_user = True
    if kind is not None:
        from .core.capture import engine_kind  # lazy: few programs are servers

        mark = engine_kind.text(kind, requests, new_tokens, cached_tokens)
        number: int = session.step(n)
        engine_kind.mark(mark)
        return number
    number = session.step(n)
    return number


def step_block(n: int | None = None) -> AbstractContextManager[int]:
    """Make the block ``with opscope.step_block():`` a step, as ``step`` does, that ends where the block ends.

    A block that raises is no whole step and does not count. Entering raises TypeError if ``n`` is not an
    integer.
    """
    return _StepBlock(n)


class _StepBlock:
    # not by contextlib, whose import would cost more than the rest of this module
    def __init__(self, number: int | None) -> None:
        self._number = number

    def __enter__(self) -> int:
        return step(self._number)

    def __exit__(self, kind: object, *error: object) -> None:
        session = _load_session()
        if kind is None:
            session.end_step()
            session.no_step_comes()
        else:
            session.leave_step()


#: The steps module, kept from the first ``step`` on: an import statement would cost more than a step.
_session: Any = None


def _load_session() -> Any:
    global _session
    from .core.capture import session

    _session = session
    return session


def wrap(owner: Any, name: str) -> None:
    """Record each call of the function ``owner.name`` as an op with its tensor arguments.

    ``owner`` is a module or a class. ``shutdown`` restores the function. Raises AttributeError if the
    attribute does not exist, TypeError if it is not callable.
    """
    from . import wrapping

    wrapping.wrap(owner, name)


def capture(
    path: str | os.PathLike[str],
    *,
    backend: str = "auto",
    force: bool | None = None,
    last: str | float | None = None,
    slow: float | None = None,
    last_signal: str | None = None,
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

    With ``last`` (``"60s"``, ``"5min"``, ``"20 steps"``, or a number of seconds) only the last seconds or
    steps are kept, flat in memory and on disk however long the block runs. They are written as ``path``
    when the block ends or raises. While it runs, a step that takes more than ``slow`` times the median of
    the steps before it writes ``NAME-slow-1.opscope``, with the step before and two after it (five files at
    most, one a minute at most); so do ``opscope attach PID --dump``, and the signal ``last_signal``
    (``"USR2"``) where nothing handles it. Kernels are in it where CUPTI can be used and ``backend`` is not
    ``recorder``; other backends keep all, and cannot be named with ``last``.
    Raises ValueError for a wrong ``last``, ``slow`` or ``last_signal``, or where ``last`` is missing.
    """
    from .backends.profile_capture import capture as record

    if last is None and (slow is not None or last_signal is not None):
        raise ValueError("slow and last_signal need last: how much of the program is kept")
    if last is not None:
        from .backends.last_capture import capture as keep
        from .core.capture.ring_bounds import Bounds, parse_last
        from .core.capture.ring_signal import parse_signal
        from .core.cells import replaces

        if backend not in ("auto", "recorder", "cupti"):
            raise ValueError(f"last drops old data; the backend {backend!r} keeps all")
        bounds = Bounds(parse_last(last), slow)
        on = None if last_signal is None else parse_signal(last_signal)
        _observe()
        return keep(path, bounds, replaces(force), on, kernels=backend != "recorder")
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
